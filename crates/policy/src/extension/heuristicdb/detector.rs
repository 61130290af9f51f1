//! The access pattern detector (000, section 3.5.3): finds out how each table or index is read.

use entresol_core::{ObjectId, Request};

/// Access pattern of an object (000, section 3.4.1, the status map).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Status {
    /// Not decided yet; admitted like a random one.
    #[default]
    Unknown,
    /// Nearly all of it came by read-ahead: its pages are not worth a frame (rule 1).
    Sequential,
    /// Single pages are looked up (rule 2).
    Random,
    /// Pages of it were accessed more than once (rule 3).
    Repeated,
    /// The last query and this one require it, and what NVM holds brought no hit (rule 6).
    Hot,
}

impl Status {
    /// The status as it is printed; `None` before it is decided.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Status::Unknown => None,
            Status::Sequential => Some("sequential"),
            Status::Random => Some("random"),
            Status::Repeated => Some("repeated"),
            Status::Hot => Some("hot"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Object {
    status: Status,
    /// Query that the counts belong to.
    query: u32,
    accessed: u32,
    sequential: u32,
}

/// The status map and the counts behind it.
#[derive(Clone, Debug)]
pub(super) struct AccessPatternDetector {
    objects: Vec<Object>,
    query: u32,
    /// Share of an object's pages whose accesses are watched before it is decided.
    watched: f64,
    /// The fewest accesses that decide.
    watched_min: u32,
    /// The Sequential Ratio above which an object counts as sequential.
    ratio: f64,
}

impl AccessPatternDetector {
    pub(super) fn new(objects: usize, watched: f64, watched_min: u32, ratio: f64) -> Self {
        AccessPatternDetector { objects: vec![Object::default(); objects], query: 0, watched, watched_min, ratio }
    }

    /// Records an access and returns the status that holds from it on. `reused` is true if the counting table has an
    /// earlier access to the page; `pages` gives the size of the object.
    #[inline]
    pub(super) fn observe(
        &mut self,
        request: Request,
        object: ObjectId,
        reused: bool,
        pages: impl FnOnce() -> u64,
    ) -> Status {
        let entry = &mut self.objects[object.index()];
        match entry.status {
            Status::Sequential | Status::Random if reused => entry.status = Status::Repeated,
            Status::Unknown => {
                if entry.query != self.query {
                    (entry.query, entry.accessed, entry.sequential) = (self.query, 0, 0);
                }
                entry.accessed += 1;
                // Read-ahead reads.
                entry.sequential += u32::from(request.sequential && !request.op.is_write());
                let enough = |pages: u64| f64::from(entry.accessed) >= pages as f64 * self.watched;
                if entry.accessed >= self.watched_min && enough(pages()) {
                    let ratio = f64::from(entry.sequential) / f64::from(entry.accessed);
                    entry.status = if ratio > self.ratio { Status::Sequential } else { Status::Random };
                }
            }
            _ => {}
        }
        entry.status
    }

    pub(super) fn set(&mut self, object: ObjectId, status: Status) {
        self.objects[object.index()].status = status;
    }

    /// The status of an object; `Unknown` if the object does not exist.
    pub(super) fn status(&self, object: ObjectId) -> Status {
        self.objects.get(object.index()).map_or(Status::Unknown, |entry| entry.status)
    }

    /// Restarts all counts from zero for a new query.
    pub(super) fn restart(&mut self) {
        self.query += 1;
    }

    /// Number of objects of a status.
    pub(super) fn count(&self, status: Status) -> usize {
        self.objects.iter().filter(|object| object.status == status).count()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.objects.capacity() * size_of::<Object>()
    }
}
