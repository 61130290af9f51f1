//! Descriptions of files that were changed without the cache while the cache had dirty pages of them.

use super::backing_store::Below;
use super::log::{Level, Log};
use super::open_cache::OpenCache;
use super::words::{counted, quoted_path};
use anyhow::{Result, bail};
use entresol_files::{Conflict, News};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;

/// Files that are named at most; the others are counted.
const NAMED_MAX: usize = 5;

/// A file in conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConflictFigures {
    /// Path in the backing directory.
    pub path: String,
    /// Pages that are neither served nor written back; none if they could not be counted.
    pub pages: Option<u64>,
}

impl From<Conflict> for ConflictFigures {
    fn from(conflict: Conflict) -> Self {
        ConflictFigures { path: conflict.path.to_string_lossy().into_owned(), pages: conflict.pages }
    }
}

impl ConflictFigures {
    /// The file with its number of pages.
    pub fn line(&self) -> String {
        let pages = self.pages.map_or_else(|| "pages".to_owned(), |pages| counted(pages as usize, "page"));
        format!("{} ({pages})", self.path)
    }
}

/// The two commands of which one ends the conflict of a file; none: of each file.
pub fn ending(file: Option<&Path>) -> String {
    let file = file.map_or_else(|| "FILE".to_owned(), quoted_path);
    format!("`entresol resolve {file} --keep cache` or `entresol resolve {file} --keep below`")
}

/// End of a line that names files in conflict: the way to resolve them.
fn advice(file: Option<&Path>) -> String {
    format!("they are kept, and neither served nor written, until {} says which bytes count", ending(file))
}

/// A line that names the files of a directory in conflict.
pub fn said(backing: &Path, conflicts: &[ConflictFigures]) -> String {
    let mut names: Vec<String> = conflicts
        .iter()
        .take(NAMED_MAX)
        .map(|conflict| {
            ConflictFigures { path: backing.join(&conflict.path).display().to_string(), ..conflict.clone() }.line()
        })
        .collect();
    if conflicts.len() > NAMED_MAX {
        names.push(counted(conflicts.len() - NAMED_MAX, "other file"));
    }
    let alone = match conflicts {
        [one] => Some(backing.join(&one.path)),
        _ => None,
    };
    let advice = advice(alone.as_deref());
    format!("{}: was changed without the cache, which has dirty pages of it: {advice}", names.join(", "))
}

/// Reports files that were changed without the cache as events; `backing` is their directory, by its path.
pub fn tell(below: &Below, backing: &Path, log: &Log) {
    let Below::Files(files) = below else { return };
    for (path, news) in files.news() {
        let name = path.display();
        let (what, message) = match news {
            News::Attributes => {
                ("attributes", format!("{name}: its attributes were changed without the cache; its bytes are the same"))
            }
            News::Dropped => {
                let what = "was changed without the cache, which had no dirty pages of it, and reads it anew";
                ("dropped", format!("{name}: {what}; writes that go past a cache may be lost"))
            }
            News::Conflict => {
                let what = "was changed without the cache, which has dirty pages of it";
                ("conflict", format!("{name}: {what}: {}", advice(Some(&backing.join(&path)))))
            }
        };
        log.event(Level::Warning, "changed-below", &message, json!({ "path": path.to_string_lossy(), "found": what }));
    }
}

impl OpenCache {
    /// Files in conflict.
    pub(super) fn conflicts(&self) -> Result<Vec<ConflictFigures>> {
        let Below::Files(files) = &self.below else { return Ok(Vec::new()) };
        Ok(files.conflicts()?.into_iter().map(ConflictFigures::from).collect())
    }

    /// Fails while there are files in conflict, so that the end is not reported as a good one.
    pub(super) fn check_conflicts(&self, conflicts: &[ConflictFigures]) -> Result<()> {
        if !conflicts.is_empty() {
            bail!("{}: {}", self.path.display(), said(&self.backing, conflicts));
        }
        Ok(())
    }
}
