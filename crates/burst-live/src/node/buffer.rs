//! The buffer of a node: the pure [`NodeStore`] with the bytes, their checksums, and the events for the coordinator.

use crate::arena::{Arena, are_sound};
use crate::checksum::{CHUNK_BYTES, chunk_length, chunks};
use crate::clock;
use crate::layout;
use crate::message::{About, NO_SUCH_PIECE, NodeStatus, Part, ShareId, StoredPiece};
use crate::mutant::{self, Mutant};
use entresol_burst::{
    DrainOrder, Epoch, Event, Extent, JobId, Lease, NodeId, NodeStore, NotAdmitted, Order, Owner, Report, Reservation,
    Role,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Bytes that are zeroed at a time, while the writers wait.
const ZEROED_BYTES: u64 = 1 << 20;

/// Reason why a node refuses a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("the grant is for node {0}")]
    OtherNode(u32),
    #[error("the grant does not fit this buffer or its object")]
    Unsound,
    #[error("the chunk has another length than the grant says")]
    Length,
    #[error("the piece is stored already")]
    Stored,
    #[error("the piece belongs to another attempt")]
    OtherAttempt,
    #[error("chunk {0} was not written")]
    Missing(u64),
    #[error("chunk {0} has another checksum than the writer's")]
    Checksum(u64),
    #[error("a writer on this host may still be filling this space, whose lease has ended")]
    Filled,
    #[error("{NO_SUCH_PIECE}")]
    Unknown,
    #[error("the node is about to stop")]
    Retiring,
    #[error("the buffer failed: {0}")]
    Arena(#[from] io::Error),
}

/// Bytes of a piece, as far as they have arrived.
struct Contents {
    reservation: Reservation,
    about: About,
    /// The checksum of each chunk that was written.
    crcs: Vec<Option<u32>>,
    /// True if all chunks are here and have the writer's checksums. No part of the piece is readable before: its space
    /// may still have bytes of an earlier owner.
    is_stored: bool,
    /// Time of the first write.
    begun: Instant,
}

impl Contents {
    fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    fn is_readable(&self) -> bool {
        self.is_stored || mutant::is(Mutant::ReadUnstored)
    }

    fn part(&self) -> Part {
        let Reservation { object, offset, .. } = self.reservation;
        Part { object, about: self.about, offset, bytes: self.bytes() }
    }

    fn stored_crcs(&self) -> Vec<u32> {
        self.crcs.iter().map(|crc| crc.unwrap_or_default()).collect()
    }
}

/// A piece that is being drained.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    pub lease: Lease,
    pub part: Part,
    pub owner: Owner,
    pub crcs: Vec<u32>,
}

pub(super) struct Buffer {
    node: NodeId,
    capacity: u64,
    store: NodeStore,
    arena: Arena,
    contents: BTreeMap<Lease, Contents>,
    /// Shares that are open.
    shares: BTreeSet<ShareId>,
    /// Space that the process behind a share may write to at any time. It has no other owner before the piece is stored, or the process
    /// has closed the share or ended: a process that was stopped does not see that its lease has ended.
    filling: BTreeMap<(Lease, ShareId), Vec<Extent>>,
    /// Space of dropped pieces that is to be zeroed before the coordinator hears that it is free.
    unzeroed: Vec<Extent>,
    /// Events that the coordinator has not acknowledged, with their numbers.
    outbox: VecDeque<(u64, Event)>,
    next_event: u64,
    last_write: Option<Instant>,
    /// True if no further piece is taken.
    retiring: bool,
    status: NodeStatus,
}

impl Buffer {
    pub fn new(node: NodeId, incarnation: u64, capacity: u64) -> io::Result<Buffer> {
        Ok(Buffer {
            node,
            capacity,
            store: NodeStore::new(node, incarnation, capacity),
            arena: Arena::new(capacity)?,
            contents: BTreeMap::new(),
            shares: BTreeSet::new(),
            filling: BTreeMap::new(),
            unzeroed: Vec::new(),
            outbox: VecDeque::new(),
            next_event: 1,
            last_write: None,
            retiring: false,
            status: NodeStatus { node: node.0, capacity, ..NodeStatus::default() },
        })
    }

    /// Writes one chunk of a piece, which has this checksum.
    pub fn write(
        &mut self,
        grant: &Reservation,
        about: About,
        chunk: u64,
        bytes: &[u8],
        crc: u32,
    ) -> Result<(), Refusal> {
        let contents = self.begin(grant, about)?;
        // The extents are those of the first admission, whatever a later grant of this lease says.
        let length = chunk_length(contents.bytes(), chunk);
        let Some(own) = contents.crcs.get_mut(chunk as usize).filter(|_| bytes.len() as u64 == length) else {
            return Err(Refusal::Length);
        };
        *own = None;
        let extents = contents.reservation.extents.clone();
        self.arena.write(&extents, chunk * CHUNK_BYTES, bytes)?;
        if let Some(own) = self.contents.get_mut(&grant.lease).and_then(|it| it.crcs.get_mut(chunk as usize)) {
            *own = Some(crc);
        }
        Ok(())
    }

    /// Lets the process behind a share fill a piece. Returns false if there is no such share.
    pub fn fill(&mut self, grant: &Reservation, about: About, share: ShareId) -> Result<bool, Refusal> {
        if !self.shares.contains(&share) {
            return Ok(false);
        }
        let extents = self.begin(grant, about)?.reservation.extents.clone();
        self.filling.insert((grant.lease, share), extents);
        Ok(true)
    }

    /// Admits a writer to a piece that is not stored.
    fn begin(&mut self, grant: &Reservation, about: About) -> Result<&mut Contents, Refusal> {
        if grant.node != self.node {
            return Err(Refusal::OtherNode(grant.node.0));
        }
        if !are_sound(&grant.extents, self.capacity) {
            return Err(Refusal::Unsound);
        }
        let part = Part { object: grant.object, about, offset: grant.offset, bytes: grant.bytes() };
        if !layout::is_sound(&part) || grant.role == Role::Parity {
            return Err(Refusal::Unsound);
        }
        if self.retiring && !self.contents.contains_key(&grant.lease) {
            return Err(Refusal::Retiring);
        }
        if self.is_filled_by_another(grant) {
            return Err(Refusal::Filled);
        }
        self.last_write = Some(clock::now());
        self.store.admit(grant, clock::now_ns())?;
        let contents = self.contents.entry(grant.lease).or_insert_with(|| Contents {
            reservation: grant.clone(),
            about,
            crcs: vec![None; chunks(grant.bytes()) as usize],
            is_stored: false,
            begun: clock::now(),
        });
        if contents.is_stored {
            return Err(Refusal::Stored);
        }
        if contents.about != about {
            return Err(Refusal::OtherAttempt);
        }
        Ok(contents)
    }

    /// True if a process fills space of a grant under another lease, which has ended.
    fn is_filled_by_another(&self, grant: &Reservation) -> bool {
        let meets = |a: &Extent, b: &Extent| a.offset < b.end() && b.offset < a.end();
        let others = self.filling.iter().filter(|((lease, _), _)| *lease != grant.lease);
        others.flat_map(|(_, extents)| extents).any(|a| grant.extents.iter().any(|b| meets(a, b)))
    }

    /// The memory for the process behind a share, from now on until [`Buffer::close_share`].
    pub fn open_share(&mut self, share: ShareId) -> io::Result<OwnedFd> {
        let memory = self.arena.memory().try_clone_to_owned()?;
        self.shares.insert(share);
        Ok(memory)
    }

    /// Notes that the process behind a share writes no more. Space of dropped pieces that it could write to until now is zeroed
    /// at once: the coordinator may know that it is free.
    pub fn close_share(&mut self, share: ShareId) {
        self.shares.remove(&share);
        let mut closed = Vec::new();
        self.filling.retain(|(lease, by), extents| {
            let stays = *by != share;
            if !stays {
                closed.push((*lease, std::mem::take(extents)));
            }
            stays
        });
        for (lease, extents) in closed {
            if !self.contents.contains_key(&lease) && !self.is_filled(lease) {
                extents.into_iter().for_each(|extent| self.zero(extent));
            }
        }
    }

    /// True if a process may write to the space of a piece at any time.
    fn is_filled(&self, lease: Lease) -> bool {
        self.filling.keys().any(|(filled, _)| *filled == lease)
    }

    fn zero(&mut self, extent: Extent) {
        if !mutant::is(Mutant::SpaceNotZeroed) {
            self.arena.zero(extent).expect("the space of a piece is within the buffer");
        }
    }

    /// Zeroes a part of the space that has no owner any more; false if all of it is zero.
    pub fn zero_next(&mut self) -> bool {
        let Some(extent) = self.unzeroed.last_mut() else { return false };
        let part = Extent { offset: extent.offset, bytes: extent.bytes.min(ZEROED_BYTES) };
        extent.offset += part.bytes;
        extent.bytes -= part.bytes;
        if extent.bytes == 0 {
            self.unzeroed.pop();
        }
        self.zero(part);
        true
    }

    /// The job of a piece that is here.
    pub fn job_of(&self, lease: Lease) -> Option<JobId> {
        self.contents.get(&lease).map(|contents| contents.reservation.object.job)
    }

    /// Stores a piece whose chunks have all been written with these checksums.
    pub fn stored(&mut self, lease: Lease, crcs: &[u32]) -> Result<(), Refusal> {
        let given_back = || self.store.given_back(lease).map_or(Refusal::Unknown, Refusal::NotAdmitted);
        let contents = self.contents.get_mut(&lease).ok_or_else(given_back)?;
        if contents.crcs.len() != crcs.len() {
            return Err(Refusal::Length);
        }
        let is_filled = self.filling.keys().any(|(filled, _)| *filled == lease);
        if is_filled && !contents.is_stored {
            contents.crcs = crcs.iter().copied().map(Some).collect();
        }
        for (chunk, (&own, &writers)) in contents.crcs.iter().zip(crcs).enumerate() {
            match own {
                None => return Err(Refusal::Missing(chunk as u64)),
                Some(own) if own != writers => return Err(Refusal::Checksum(chunk as u64)),
                Some(_) => {}
            }
        }
        let stored = self.store.stored(lease, clock::now_ns());
        self.forget_dropped();
        let event = stored?;
        self.filling.retain(|(filled, _), _| *filled != lease);
        if let Some(contents) = self.contents.get_mut(&lease)
            && !std::mem::replace(&mut contents.is_stored, true)
        {
            self.push(event);
        }
        Ok(())
    }

    /// One chunk of a stored piece.
    pub fn read(&self, lease: Lease, chunk: u64) -> Result<Vec<u8>, Refusal> {
        let contents = self.contents.get(&lease).filter(|contents| contents.is_readable()).ok_or(Refusal::Unknown)?;
        let length = chunk_length(contents.bytes(), chunk);
        if length == 0 {
            return Err(Refusal::Length);
        }
        Ok(self.arena.read(&contents.reservation.extents, chunk * CHUNK_BYTES, length)?)
    }

    /// The parts of the memory that have a stored piece, for the process behind a share; none if there is no such share.
    pub fn locate(&self, lease: Lease, share: ShareId) -> Result<Option<Vec<Extent>>, Refusal> {
        let contents = self.contents.get(&lease).filter(|contents| contents.is_readable()).ok_or(Refusal::Unknown)?;
        Ok(self.shares.contains(&share).then(|| contents.reservation.extents.clone()))
    }

    /// The stored pieces of a job.
    pub fn pieces(&self, job: JobId) -> Vec<StoredPiece> {
        let of_job =
            |(_, contents): &(&Lease, &Contents)| contents.is_readable() && contents.reservation.object.job == job;
        let piece = |(&lease, contents): (&Lease, &Contents)| StoredPiece {
            lease,
            role: contents.reservation.role,
            part: contents.part(),
            crcs: contents.stored_crcs(),
        };
        self.contents.iter().filter(of_job).map(piece).collect()
    }

    pub fn status(&self) -> NodeStatus {
        let mut status = NodeStatus { epoch: self.store.epoch().map(|epoch| epoch.0), ..self.status.clone() };
        let now = clock::now();
        for contents in self.contents.values() {
            status.used += contents.bytes();
            if contents.is_stored && contents.reservation.role == Role::Primary {
                status.undrained += contents.bytes();
                let age = now.saturating_duration_since(contents.begun);
                status.undrained_for_ms = status.undrained_for_ms.max(age.as_millis() as u64);
            }
        }
        status
    }

    /// Takes no further piece.
    pub fn retire(&mut self) {
        self.retiring = true;
    }

    /// Time of the newest write of a writer.
    pub fn last_write(&self) -> Option<Instant> {
        self.last_write
    }

    fn push(&mut self, event: Event) {
        self.outbox.push_back((self.next_event, event));
        self.next_event += 1;
    }

    /// Forgets pieces that the store has dropped. Their space is to be zeroed: by and by, or when the process has ended that
    /// may still write to it.
    fn forget_dropped(&mut self) {
        let kept: BTreeSet<Lease> = self.store.pieces().map(|piece| piece.lease).collect();
        let (filling, unzeroed) = (&self.filling, &mut self.unzeroed);
        self.contents.retain(|lease, contents| {
            let stays = kept.contains(lease);
            if !stays && !filling.keys().any(|(filled, _)| filled == lease) {
                unzeroed.append(&mut contents.reservation.extents);
            }
            stays
        });
    }

    /// Drops writes whose leases have ended.
    pub fn tick(&mut self) {
        self.store.tick(clock::now_ns());
        self.forget_dropped();
    }

    /// Joins an epoch. `applied` is the number of the last event that this coordinator has applied, none if it does not
    /// know this start of the node: earlier events are part of the report then.
    pub fn join(&mut self, epoch: Epoch, applied: Option<u64>) -> Result<Report, NotAdmitted> {
        let same = self.store.epoch() == Some(epoch);
        let report = self.store.adopt(epoch)?;
        match applied.filter(|_| same) {
            Some(applied) => self.acknowledged(applied),
            None => self.outbox.clear(),
        }
        Ok(report)
    }

    /// Removes events that the coordinator has applied.
    pub fn acknowledged(&mut self, applied: u64) {
        while self.outbox.front().is_some_and(|&(number, _)| number <= applied) {
            self.outbox.pop_front();
        }
    }

    /// The first events for the coordinator.
    pub fn outbox(&self, most: usize) -> Vec<(u64, Event)> {
        self.outbox.iter().take(most).cloned().collect()
    }

    /// Obeys an order of the coordinator.
    pub fn obey(&mut self, order: Order) {
        let event = self.store.obey(order);
        self.forget_dropped();
        if let Some(event) = event {
            self.push(event);
        }
    }

    /// Begins the drain of the next piece among those of owners that `allowed` admits.
    pub fn next_drain(&mut self, order: DrainOrder, allowed: impl Fn(Owner) -> bool) -> Option<Drain> {
        let lease = self.store.next_drain_among(order, |reservation| allowed(reservation.owner))?.lease;
        let contents = self.contents.get(&lease)?;
        let owner = contents.reservation.owner;
        Some(Drain { lease, part: contents.part(), owner, crcs: contents.stored_crcs() })
    }

    /// Gives up a drain for now.
    pub fn postpone(&mut self, drain: &Drain) {
        self.store.postpone(drain.lease);
    }

    /// Ends a drain: the piece is durable on the PFS, and its space free.
    pub fn drained(&mut self, drain: &Drain) -> Result<(), NotAdmitted> {
        let event = self.store.drained(drain.lease, drain.part.bytes)?;
        self.forget_dropped();
        self.push(event);
        self.status.drained += drain.part.bytes;
        Ok(())
    }

    pub fn note_failure(&mut self, job: Option<JobId>, why: String) {
        self.status.pfs_failures += 1;
        self.status.failing = Some(why);
        self.status.failing_job = job;
    }

    pub fn note_success(&mut self) {
        self.status.failing = None;
        self.status.failing_job = None;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use entresol_burst::{CheckpointId, Object};
    use std::time::Duration;

    /// A grant of space of node 0 in epoch 1 for so long.
    pub fn grant(number: u64, offset: u64, bytes: u64, time: Duration) -> (Reservation, About) {
        let object = Object { job: JobId(1), checkpoint: CheckpointId(number), rank: 0 };
        let lease = Lease { epoch: Epoch(1), number };
        let expires_ns = clock::now_ns() + time.as_nanos() as u64;
        let extents = vec![Extent { offset, bytes }];
        let about = About { ranks: 1, total: bytes, attempt: number };
        let role = Role::Primary;
        let grant = Reservation {
            lease,
            node: NodeId(0),
            incarnation: 7,
            extents,
            role,
            object,
            owner: Owner::default(),
            offset: 0,
            guard: None,
            opened_ns: 0,
            expires_ns,
        };
        (grant, about)
    }

    #[test]
    fn space_that_a_process_may_still_fill_has_no_other_owner() {
        let mut buffer = Buffer::new(NodeId(0), 7, 1000).expect("memory");
        buffer.join(Epoch(1), None).expect("the first epoch");
        let share = ShareId { incarnation: 7, number: 3 };
        let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(20));
        let (late, about) = grant(1, 0, 100, moment);
        assert!(!buffer.fill(&late, about, share).expect("it is asked"), "the share is not open");
        let memory = buffer.open_share(share).expect("memory");
        assert_eq!(rustix::fs::fstat(&memory).expect("its length").st_size, 1000);
        assert!(buffer.fill(&late, about, share).expect("a grant"));
        std::thread::sleep(moment * 2);
        buffer.tick();
        assert!(buffer.contents.is_empty(), "the lease has ended");

        // Its process may be stopped in the middle of a copy. Others get other space alone.
        let (next, next_about) = grant(2, 99, 100, hour);
        assert!(matches!(buffer.write(&next, next_about, 0, &[1; 64], 0), Err(Refusal::Filled)));
        let (beside, beside_about) = grant(3, 100, 100, hour);
        buffer.write(&beside, beside_about, 0, &[1; 64], 0).expect("other space");
        let (again, again_about) = grant(4, 0, 50, hour);
        assert!(matches!(buffer.fill(&again, again_about, share), Err(Refusal::Filled)), "another lease");
        buffer.close_share(share);
        buffer.write(&again, again_about, 0, &[1; 50], 9).expect("the process writes no more");
        buffer.stored(again.lease, &[9]).expect("all is there");
    }

    #[test]
    fn a_piece_that_was_filled_is_stored_and_one_that_was_not_is_refused() {
        let mut buffer = Buffer::new(NodeId(0), 7, 1000).expect("memory");
        buffer.join(Epoch(1), None).expect("the first epoch");
        let share = ShareId { incarnation: 7, number: 3 };
        buffer.open_share(share).expect("memory");
        let hour = Duration::from_secs(3600);
        let (filled, about) = grant(1, 0, 100, hour);
        assert!(buffer.fill(&filled, about, share).expect("a grant"));
        assert!(matches!(buffer.stored(filled.lease, &[5]), Err(Refusal::Length)), "two chunks");
        buffer.stored(filled.lease, &[5, 6]).expect("it is filled");
        // The answer may be lost, and the message comes again.
        buffer.stored(filled.lease, &[5, 6]).expect("the same again");
        assert!(matches!(buffer.stored(filled.lease, &[5, 7]), Err(Refusal::Checksum(1))));
        assert!(matches!(buffer.fill(&filled, about, share), Err(Refusal::Stored)));
        assert!(buffer.filling.is_empty());

        let (lost, about) = grant(2, 100, 100, hour);
        assert!(buffer.fill(&lost, about, share).expect("a grant"));
        buffer.close_share(share);
        assert!(matches!(buffer.stored(lost.lease, &[5, 6]), Err(Refusal::Missing(0))), "its process has ended");
    }

    /// The memory of a node as a process on its host sees it.
    fn seen(memory: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0xFF; 1000];
        assert_eq!(rustix::io::pread(memory, &mut bytes[..], 0).expect("memory"), 1000);
        bytes
    }

    fn zero_all(buffer: &mut Buffer) {
        while buffer.zero_next() {}
    }

    /// Space of a piece that was drained, one that was given back, one whose lease has ended, and one that a process still fills.
    fn freed_space_is_zero() -> Result<(), String> {
        let mut buffer = Buffer::new(NodeId(0), 7, 1000).expect("memory");
        buffer.join(Epoch(1), None).expect("the first epoch");
        let share = ShareId { incarnation: 7, number: 3 };
        let memory = buffer.open_share(share).expect("memory");
        let check = |when: &str, from: usize| match seen(&memory)[from..from + 100].iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(format!("{when}: bytes are left")),
        };
        let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(20));
        let write = |buffer: &mut Buffer, (grant, about): &(Reservation, About)| {
            for chunk in 0..chunks(grant.bytes()) {
                let bytes = vec![7; chunk_length(grant.bytes(), chunk) as usize];
                buffer.write(grant, *about, chunk, &bytes, 9).expect("a grant");
            }
        };
        let drained = grant(1, 0, 100, hour);
        write(&mut buffer, &drained);
        buffer.stored(drained.0.lease, &[9, 9]).expect("all is there");
        let drain = buffer.next_drain(DrainOrder::Fifo, |_| true).expect("a piece");
        zero_all(&mut buffer);
        assert!(check("stored", 0).is_err(), "it is not freed yet");
        buffer.drained(&drain).expect("its drain");
        zero_all(&mut buffer);
        check("drained", 0)?;

        let reclaimed = grant(2, 100, 100, hour);
        write(&mut buffer, &reclaimed);
        let lease = reclaimed.0.lease;
        buffer.obey(Order::Reclaim { node: NodeId(0), lease, expires_ns: reclaimed.0.expires_ns, durable: false });
        zero_all(&mut buffer);
        check("given back", 100)?;

        let late = grant(3, 200, 100, moment);
        write(&mut buffer, &late);
        std::thread::sleep(moment * 2);
        buffer.tick();
        zero_all(&mut buffer);
        check("ended", 200)?;

        // The process writes once more after the end of its lease.
        let filled = grant(4, 300, 100, moment);
        assert!(buffer.fill(&filled.0, filled.1, share).expect("a grant"));
        std::thread::sleep(moment * 2);
        buffer.tick();
        zero_all(&mut buffer);
        rustix::io::pwrite(&memory, &[7; 100], 300).expect("its memory");
        assert!(check("filled", 300).is_err());
        buffer.close_share(share);
        check("closed", 300)
    }

    #[test]
    fn space_is_zeroed_before_it_is_free() {
        assert_eq!(freed_space_is_zero(), Ok(()));
        mutant::activate(Some(Mutant::SpaceNotZeroed));
        let found = freed_space_is_zero();
        mutant::activate(None);
        assert!(found.is_err(), "the mutant is not found");
    }

    #[test]
    fn large_space_is_zeroed_in_parts() {
        let mut buffer = Buffer::new(NodeId(0), 7, 10 * ZEROED_BYTES).expect("memory");
        buffer.unzeroed = vec![Extent { offset: 5, bytes: 2 * ZEROED_BYTES + 1 }, Extent { offset: 0, bytes: 1 }];
        let steps = std::iter::from_fn(|| buffer.zero_next().then_some(())).count();
        assert_eq!((steps, buffer.unzeroed.len()), (4, 0));
    }
}
