//! Counts of a buffer manager.

use entresol_core::{Movement, Op, Outcome, Request, Verb};

/// Decisions of the policy, counted exactly as the simulator counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Requests that reached the policy.
    pub requests: u64,
    /// Reads of pages that the policy held.
    pub read_hits: u64,
    /// Writes, whole or partial, to pages that the policy held.
    pub write_hits: u64,
    /// Misses whose page the policy took.
    pub admissions: u64,
    /// Pages read from storage, those that complete a partial write included.
    pub fetches: u64,
    /// Requests that bypassed the policy's pages.
    pub bypasses: u64,
    /// Pages that the policy wanted written to storage.
    pub write_backs: u64,
    /// I/Os of these write-backs: neighbours written together count as one.
    pub write_back_ios: u64,
    /// Hits that were delivered after their pages had left.
    pub stale_hits: u64,
    /// Restarts of the policy because it still knew the page of every handle.
    pub restarts: u64,
}

impl Decided {
    pub(super) fn outcome(&mut self, request: Request, outcome: Outcome) {
        self.requests += 1;
        let write = u64::from(request.op.is_write());
        match outcome {
            Outcome::Hit(_) => {
                self.write_hits += write;
                self.read_hits += 1 - write;
            }
            Outcome::Miss { admitted } => {
                self.admissions += u64::from(admitted);
                self.fetches += u64::from(request.op == Op::Update);
            }
        }
    }

    pub(super) fn movement(&mut self, movement: Movement, writing: bool) {
        match movement.verb {
            Verb::Fetch { .. } => self.fetches += 1,
            Verb::Bypass => {
                self.bypasses += 1;
                self.fetches += u64::from(!writing);
            }
            Verb::WriteBack { .. } => {
                self.write_backs += 1;
                self.write_back_ios += u64::from(!movement.joined);
            }
            _ => {}
        }
    }

    pub(super) fn add(&mut self, other: &Decided) {
        self.requests += other.requests;
        self.read_hits += other.read_hits;
        self.write_hits += other.write_hits;
        self.admissions += other.admissions;
        self.fetches += other.fetches;
        self.bypasses += other.bypasses;
        self.write_backs += other.write_backs;
        self.write_back_ios += other.write_back_ios;
        self.stale_hits += other.stale_hits;
        self.restarts += other.restarts;
    }
}

/// Requests for one object's pages that reached the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Reads.
    pub reads: u64,
    /// Writes, whole or partial.
    pub writes: u64,
    /// Reads and writes of pages that were held.
    pub hits: u64,
}

impl ObjectStats {
    pub(super) fn outcome(&mut self, request: Request, outcome: Outcome) {
        let write = u64::from(request.op.is_write());
        self.writes += write;
        self.reads += 1 - write;
        self.hits += u64::from(outcome.is_hit());
    }

    pub(super) fn add(&mut self, other: &ObjectStats) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.hits += other.hits;
    }
}

/// Counts of a buffer manager's work, exact while no other thread is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Decisions of the policies, summed over the shards.
    pub decided: Decided,
    /// Requests served from a frame.
    pub hits: u64,
    /// Hits that reached no policy, because a ring was full or the thread had no slot.
    pub lost_hits: u64,
    /// Requests whose page had to be read or created.
    pub misses: u64,
    /// Pages read from storage.
    pub page_reads: u64,
    /// Pages written to storage.
    pub page_writes: u64,
    /// Write-backs that a policy wanted of pages that were clean already, or being changed.
    pub skipped_write_backs: u64,
    /// Syncs of the storage.
    pub syncs: u64,
    /// Flushes of the host's log that a page's write had to wait for.
    pub wal_flushes: u64,
    /// Reads, writes, syncs and log flushes that failed.
    pub errors: u64,
    /// Frames that hold a dirty page now.
    pub dirty: u64,
}

impl BufferStats {
    /// Share of the requests that were served from a frame, 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}
