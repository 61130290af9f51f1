//! The query profile queue (000, section 3.5.1): was the last query worth its pages, and what do it and the new one
//! have in common? Of the queue of two, the older block is needed only while the newer one takes its place.

use super::detector::{AccessPatternDetector, Status};
use entresol_core::ObjectId;

/// Adjustment of the pages in NVM when a query is submitted (rule 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adjustment {
    /// All become the first to go: they brought nothing, and there are hot objects to make room for.
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

/// The profile of the query submitted last, and who required what.
#[derive(Clone, Debug)]
pub(super) struct QueryProfileQueue {
    last: Profile,
    /// Queries submitted so far.
    submitted: u32,
    /// By object: which of them required it last, counted from 1.
    required_by: Vec<u32>,
}

impl QueryProfileQueue {
    pub(super) fn new(objects: usize) -> Self {
        let last = Profile { objects: Vec::with_capacity(objects), ..Profile::default() };
        QueryProfileQueue { last, submitted: 0, required_by: vec![0; objects] }
    }

    /// Hits while several queries run count for the one submitted last.
    #[inline(always)]
    pub(super) fn hit(&mut self) {
        self.last.hits += 1;
    }

    /// Hits since the last query was submitted.
    pub(super) fn hits(&self) -> u64 {
        self.last.hits
    }

    /// Queries submitted so far, objects of the last one, and whether that one runs still.
    pub(super) fn told(&self) -> (u32, usize, bool) {
        (self.submitted, self.last.objects.len(), self.last.running)
    }

    /// A query is submitted: decides what becomes of the pages in NVM and sets the status of its objects.
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

    /// A query has ended.
    pub(super) fn end(&mut self, query: u32) {
        if self.last.query == query {
            self.last.running = false;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.last.objects.capacity() + self.required_by.capacity()) * 4
    }
}
