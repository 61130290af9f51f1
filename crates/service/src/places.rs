//! Mapping from a cache's pages to what its users see: one range of bytes, or the files of a directory.

use super::control::Places;
use entresol_files::CachedFiles;
use std::collections::HashMap;
use std::sync::Arc;

/// Name of the object for pages whose file is gone.
const REMOVED: &str = "(removed files)";

/// Objects that a cache stands in front of.
pub enum PlacesOf {
    /// One range of bytes, by its name.
    One(String),
    /// The files of a directory.
    Files(Arc<CachedFiles>),
}

impl PlacesOf {
    /// A mapping for a client that knows no object yet.
    pub fn places(&self) -> Box<dyn Places> {
        match self {
            PlacesOf::One(name) => Box::new(OnePlace(Some(name.clone()))),
            PlacesOf::Files(files) => {
                Box::new(FilePlaces { files: files.clone(), numbers: HashMap::new(), fresh: Vec::new() })
            }
        }
    }
}

/// A cache in front of one range of bytes.
struct OnePlace(Option<String>);

impl Places for OnePlace {
    fn place(&mut self, page: u64) -> (u32, u64) {
        (0, page)
    }

    fn fresh(&mut self) -> Vec<String> {
        self.0.take().into_iter().collect()
    }
}

/// A cache in front of files: each is an object.
struct FilePlaces {
    files: Arc<CachedFiles>,
    /// Object numbers by the file's inode and creation time; the key none stands for all files that are gone.
    numbers: HashMap<Option<(u64, u64)>, u32>,
    fresh: Vec<String>,
}

impl Places for FilePlaces {
    fn place(&mut self, page: u64) -> (u32, u64) {
        let found = self.files.page_at(page);
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(found.map(|found| found.file)).or_insert_with(|| {
            let path = self.files.path_at(page).map(|path| path.display().to_string());
            self.fresh.push(path.unwrap_or_else(|| REMOVED.to_owned()));
            next
        });
        // Pages of files that are gone stay distinct by their page number in the cache.
        (number, found.map_or(page, |found| found.page))
    }

    fn fresh(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fresh)
    }
}
