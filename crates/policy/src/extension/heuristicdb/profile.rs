//! The query profile queue (000, section 3.5.1): decides whether the last query was worth its pages, and finds what it
//! has in common with the new one. The paper's queue has two blocks; the older one is needed only while the newer one
//! replaces it.

use super::detector::{AccessPatternDetector, Status};
use entresol_core::ObjectId;

/// Adjustment of the pages in NVM when a query is submitted (rule 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adjustment {
    /// All become the first to be evicted: they brought no hit, and hot objects need their frames.
    Evict,
    /// All become equally cold.
    Demote,
}

/// One block of the queue.
#[derive(Clone, Debug, Default)]
struct Profile {
    query: u32,
    /// Every object the query requires, once.
    objects: Vec<ObjectId>,
    hits: u64,
    running: bool,
}

/// The profile of the query submitted last, and the last query to require each object.
#[derive(Clone, Debug)]
pub(super) struct QueryProfileQueue {
    last: Profile,
    /// Queries submitted so far.
    submitted: u32,
    /// Last query to require each object, counted from 1.
    required_by: Vec<u32>,
}

impl QueryProfileQueue {
    pub(super) fn new(objects: usize) -> Self {
        let last = Profile { objects: Vec::with_capacity(objects), ..Profile::default() };
        QueryProfileQueue { last, submitted: 0, required_by: vec![0; objects] }
    }

    /// Counts a hit. While several queries run, it counts for the one submitted last.
    #[inline(always)]
    pub(super) fn hit(&mut self) {
        self.last.hits += 1;
    }

    /// Hits since the last query was submitted.
    pub(super) fn hits(&self) -> u64 {
        self.last.hits
    }

    /// Queries submitted so far, number of objects of the last one, and whether it still runs.
    pub(super) fn told(&self) -> (u32, usize, bool) {
        (self.submitted, self.last.objects.len(), self.last.running)
    }

    /// Submits a query: decides on the pages in NVM and sets the status of the query's objects.
    pub(super) fn submit(
        &mut self,
        query: u32,
        objects: &[ObjectId],
        detector: &mut AccessPatternDetector,
    ) -> Adjustment {
        let previous = self.submitted;
        let shared = |object: &ObjectId| previous > 0 && self.required_by[object.index()] == previous;
        let evict = self.last.hits == 0 && objects.iter().any(shared);
        // Rule 7: what concurrent queries require is verified again.
        if self.last.running {
            self.last.objects.iter().for_each(|&object| detector.set(object, Status::Unknown));
        }
        for object in objects {
            detector.set(*object, if evict && shared(object) { Status::Hot } else { Status::Unknown });
        }
        detector.restart();

        self.submitted += 1;
        self.last.query = query;
        self.last.hits = 0;
        self.last.running = true;
        self.last.objects.clear();
        for &object in objects {
            if std::mem::replace(&mut self.required_by[object.index()], self.submitted) != self.submitted {
                self.last.objects.push(object);
            }
        }
        if evict { Adjustment::Evict } else { Adjustment::Demote }
    }

    /// Ends a query.
    pub(super) fn end(&mut self, query: u32) {
        if self.last.query == query {
            self.last.running = false;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.last.objects.capacity() + self.required_by.capacity()) * 4
    }
}
