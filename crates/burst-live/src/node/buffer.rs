//! The buffer of a node: the pure [`NodeStore`] with the bytes, their checksums, and the events for the coordinator.

use crate::arena::{Arena, are_sound};
use crate::checksum::{CHUNK_BYTES, chunk_length, chunks, crc32c};
use crate::clock;
use crate::layout;
use crate::message::{About, NodeStatus, Part, StoredPiece};
use crate::mutant::{self, Mutant};
use entresol_burst::{
    DrainOrder, Epoch, Event, JobId, Lease, NodeId, NodeStore, NotAdmitted, Order, Report, Reservation, Role,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Instant;

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
    #[error("no such piece is stored here")]
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
    pub crcs: Vec<u32>,
}

pub(super) struct Buffer {
    node: NodeId,
    capacity: u64,
    store: NodeStore,
    arena: Arena,
    contents: BTreeMap<Lease, Contents>,
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
            outbox: VecDeque::new(),
            next_event: 1,
            last_write: None,
            retiring: false,
            status: NodeStatus { node: node.0, capacity, ..NodeStatus::default() },
        })
    }

    /// Writes one chunk of a piece.
    pub fn write(&mut self, grant: &Reservation, about: About, chunk: u64, bytes: &[u8]) -> Result<(), Refusal> {
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
        // The extents are those of the first admission, whatever a later grant of this lease says.
        let length = chunk_length(contents.bytes(), chunk);
        let Some(crc) = contents.crcs.get_mut(chunk as usize).filter(|_| bytes.len() as u64 == length) else {
            return Err(Refusal::Length);
        };
        self.arena.write(&contents.reservation.extents, chunk * CHUNK_BYTES, bytes)?;
        *crc = Some(crc32c(bytes));
        Ok(())
    }

    /// Stores a piece whose chunks have all been written with these checksums.
    pub fn stored(&mut self, lease: Lease, crcs: &[u32]) -> Result<(), Refusal> {
        let contents = self.contents.get_mut(&lease).ok_or(Refusal::Unknown)?;
        if contents.crcs.len() != crcs.len() {
            return Err(Refusal::Length);
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

    /// Forgets the bytes of pieces that the store has dropped.
    fn forget_dropped(&mut self) {
        let kept: BTreeSet<Lease> = self.store.pieces().map(|piece| piece.lease).collect();
        self.contents.retain(|lease, _| kept.contains(lease));
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

    /// Begins the drain of the next piece.
    pub fn next_drain(&mut self, order: DrainOrder) -> Option<Drain> {
        let lease = self.store.next_drain(order)?.lease;
        let contents = self.contents.get(&lease)?;
        Some(Drain { lease, part: contents.part(), crcs: contents.stored_crcs() })
    }

    /// Ends a drain: the piece is durable on the PFS, and its space free.
    pub fn drained(&mut self, drain: &Drain) -> Result<(), NotAdmitted> {
        let event = self.store.drained(drain.lease, drain.part.bytes)?;
        self.forget_dropped();
        self.push(event);
        self.status.drained += drain.part.bytes;
        Ok(())
    }

    pub fn note_failure(&mut self, why: String) {
        self.status.pfs_failures += 1;
        self.status.failing = Some(why);
    }

    pub fn note_success(&mut self) {
        self.status.failing = None;
    }
}
