//! Counts of requests and distinct pages of a trace, an object or a query, and the ratios of these counts.

use crate::OpByte;
use serde::Serialize;

/// `a / b`, 0 where b is 0.
pub(super) fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// The requests of one direction, reads or writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Direction {
    /// Page requests.
    pub page_requests: u64,
    /// I/Os: requests that are the first page of one.
    pub ios: u64,
    /// Distinct pages.
    pub unique_pages: u64,
    /// Page requests marked sequential by the reader of the trace. Our readers mark requests for the block after the
    /// one that the same stream last requested in the same object and direction. The first page of a run is therefore
    /// random. (Yang 2021 section 2.6.2 calls sequential what the database reads ahead, which a trace of the storage
    /// below does not say.)
    pub sequential: u64,
    /// `sequential / page_requests`, 0 without requests; the rest is random.
    pub sequential_share: f64,
    /// `page_requests / unique_pages`, 0 without requests.
    pub repeat_access_rate: f64,
}

/// The requests of a trace, an object or a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Page requests.
    pub page_requests: u64,
    /// Distinct pages.
    pub unique_pages: u64,
    /// Size of the distinct pages in bytes.
    pub unique_bytes: u64,
    /// Accessed data size in bytes, every request counted (Yang 2021 table 2.6).
    pub accessed_bytes: u64,
    /// Repeat access rate: `page_requests / unique_pages` (Yang 2021 section 2.6.2), 0 without requests.
    pub repeat_access_rate: f64,
    /// Mean of the bytes that an I/O asks for; 0 without I/Os. In whole pages for a query, and where the trace says no
    /// more.
    pub mean_io_bytes: f64,
    /// Reads.
    pub reads: Direction,
    /// Writes, updates of parts of pages included.
    pub writes: Direction,
}

/// Counts while a trace passes. Directions are indexed 0 read, 1 write.
#[derive(Clone, Default)]
pub(super) struct Counter {
    requests: [u64; 2],
    ios: [u64; 2],
    unique: [u64; 2],
    sequential: [u64; 2],
    unique_pages: u64,
}

impl Counter {
    /// Counts a request. `seen` is the number of requests up to and including the last one to the page in each
    /// direction, 0 where there is none; the page is new when these are not above `start`.
    #[inline]
    pub fn add(&mut self, byte: OpByte, seen: [u32; 2], start: u32) {
        let direction = usize::from(byte.op().is_write());
        self.requests[direction] += 1;
        self.ios[direction] += u64::from(byte.first());
        self.sequential[direction] += u64::from(byte.sequential());
        self.unique[direction] += u64::from(seen[direction] <= start);
        self.unique_pages += u64::from(seen[0].max(seen[1]) <= start);
    }

    pub fn is_empty(&self) -> bool {
        self.requests == [0, 0]
    }

    /// The figures, with the bytes that all I/Os ask for where these are known.
    pub fn tally(&self, page_bytes: u32, asked_bytes: Option<u64>) -> Tally {
        let direction = |d: usize| Direction {
            page_requests: self.requests[d],
            ios: self.ios[d],
            unique_pages: self.unique[d],
            sequential: self.sequential[d],
            sequential_share: ratio(self.sequential[d], self.requests[d]),
            repeat_access_rate: ratio(self.requests[d], self.unique[d]),
        };
        let page_requests = self.requests[0] + self.requests[1];
        let accessed_bytes = page_requests * u64::from(page_bytes);
        Tally {
            page_requests,
            unique_pages: self.unique_pages,
            unique_bytes: self.unique_pages * u64::from(page_bytes),
            accessed_bytes,
            repeat_access_rate: ratio(page_requests, self.unique_pages),
            mean_io_bytes: ratio(asked_bytes.unwrap_or(accessed_bytes), self.ios[0] + self.ios[1]),
            reads: direction(0),
            writes: direction(1),
        }
    }
}
