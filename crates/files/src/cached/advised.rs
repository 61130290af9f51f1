//! Queries announced by databases, in the cache's terms: files are objects.

use super::CachedFiles;
use crate::Advised;
use crate::FileId;
use entresol_cache::REST;
use entresol_core::ObjectId;

impl Advised for CachedFiles {
    fn query_begins(&self, query: u32, files: &[FileId]) -> usize {
        let objects: Vec<ObjectId> = {
            let known = self.files();
            let object = |id: &FileId| known.get(id)?.file.object().filter(|&object| object != REST);
            files.iter().filter_map(object).collect()
        };
        // A cache that has stopped reports that to the next request.
        let _stopped = self.shared.cache.query_begins(query, &objects);
        if self.shared.cache.places_objects() {
            self.placer.wake(&self.shared.cache, self.shared.page_bytes);
        }
        objects.len()
    }

    fn query_ends(&self, query: u32) {
        let _stopped = self.shared.cache.query_ends(query);
    }
}
