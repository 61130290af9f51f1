//! A node's side of the protocol: its `DataStore` and `MetaStore` (004, section 5.3.3) without the bytes.
//!
//! The node decides finally about its buffer. It admits a write only under a lease of its own epoch that has neither
//! ended nor been given back, and only into bytes that nothing else occupies.

use crate::mutant::{self, Mutant};
use crate::policy::DrainOrder;
use crate::protocol::{Epoch, Event, HeldState, Lease, NodeId, Order, Report, Reservation, Role};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Reason why a node refuses a write or another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The grant is of an older coordinator.
    #[error("the grant is of epoch {}, this node is in epoch {}: open again", .0.0, .1.0)]
    OldEpoch(Epoch, Epoch),
    /// The grant is of a coordinator to which the node has not reported.
    #[error("the grant is of epoch {}, which this node has not joined", .0.0)]
    UnknownEpoch(Epoch),
    /// The lease has ended.
    #[error("the lease ended at {0} ns: open again")]
    Expired(u64),
    /// The grant is of an earlier start of this node, whose buffer is lost.
    #[error("the grant is of start {0} of this node, this is start {1}: open again")]
    EarlierStart(u64, u64),
    /// The lease was given back.
    #[error("the lease was given back: open again")]
    Revoked,
    /// The lease was given back: it is of a copy of bytes that are on the PFS, which needs not be written.
    #[error("the bytes are on the PFS already")]
    Durable,
    /// The bytes belong to another piece, or lie beyond the buffer.
    #[error("the bytes of the grant are not free here")]
    Occupied,
    /// No such piece is here.
    #[error("no such piece is here")]
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Writing,
    Stored,
    Draining,
}

#[derive(Clone, Debug)]
struct HeldChunk {
    reservation: Reservation,
    stage: Stage,
}

/// Contents of the buffer of one node.
#[derive(Clone, Debug)]
pub struct NodeStore {
    node: NodeId,
    incarnation: u64,
    capacity: u64,
    epoch: Option<Epoch>,
    pieces: BTreeMap<Lease, HeldChunk>,
    /// Occupied extents: end by start.
    occupied: BTreeMap<u64, u64>,
    /// Pieces waiting to be drained, in the order in which they were stored.
    queue: VecDeque<Lease>,
    /// Leases that were given back, each until the end that it would have had, and true for copies of bytes that are on the PFS.
    revoked: BTreeMap<Lease, (u64, bool)>,
    /// Leases of this epoch whose pieces were drained, or dropped as late. A grant presented again, even one renewed
    /// meanwhile, must not begin a second write.
    spent: BTreeSet<Lease>,
}

impl NodeStore {
    /// An empty buffer. `incarnation` counts the starts of this node.
    pub fn new(node: NodeId, incarnation: u64, capacity: u64) -> NodeStore {
        NodeStore {
            node,
            incarnation,
            capacity,
            epoch: None,
            pieces: BTreeMap::new(),
            occupied: BTreeMap::new(),
            queue: VecDeque::new(),
            revoked: BTreeMap::new(),
            spent: BTreeSet::new(),
        }
    }

    /// The node's epoch.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Joins a coordinator's epoch and reports the buffer's contents. From now on leases of older epochs are refused; a
    /// write admitted before may end.
    ///
    /// # Errors
    /// When the epoch is older than the node's.
    pub fn adopt(&mut self, epoch: Epoch) -> Result<Report, NotAdmitted> {
        if let Some(own) = self.epoch.filter(|&own| own > epoch) {
            return Err(NotAdmitted::OldEpoch(epoch, own));
        }
        self.spent.retain(|lease| lease.epoch >= epoch);
        self.epoch = Some(epoch);
        let state = |held: &HeldChunk| match held.stage {
            Stage::Writing => HeldState::Writing,
            Stage::Stored | Stage::Draining => HeldState::Stored,
        };
        let held = self.pieces.values().map(|held| (held.reservation.clone(), state(held))).collect();
        Ok(Report { node: self.node, incarnation: self.incarnation, capacity: self.capacity, held })
    }

    /// Admits a writer with a grant: to begin, or to continue with a later end.
    ///
    /// # Errors
    /// When the write is refused; nothing has changed then.
    pub fn admit(&mut self, grant: &Reservation, now_ns: u64) -> Result<(), NotAdmitted> {
        let (epoch, lease) = (grant.lease.epoch, grant.lease);
        match self.epoch {
            _ if mutant::is(Mutant::EpochNotCompared) => {}
            Some(own) if epoch < own => return Err(NotAdmitted::OldEpoch(epoch, own)),
            Some(own) if epoch == own => {}
            _ => return Err(NotAdmitted::UnknownEpoch(epoch)),
        }
        if now_ns >= grant.expires_ns && !mutant::is(Mutant::LeaseIgnored) {
            return Err(NotAdmitted::Expired(grant.expires_ns));
        }
        if self.spent.contains(&lease) {
            return Err(NotAdmitted::Revoked);
        }
        if let Some(refusal) = self.given_back(lease).filter(|_| !mutant::is(Mutant::RevokedAdmitted)) {
            return Err(refusal);
        }
        if let Some(held) = self.pieces.get_mut(&lease) {
            held.reservation.expires_ns = held.reservation.expires_ns.max(grant.expires_ns);
            return Ok(());
        }
        if grant.incarnation != self.incarnation && !mutant::is(Mutant::StartNotCompared) {
            return Err(NotAdmitted::EarlierStart(grant.incarnation, self.incarnation));
        }
        if !grant.extents.iter().all(|extent| self.is_free(extent.offset, extent.end())) {
            return Err(NotAdmitted::Occupied);
        }
        self.occupied.extend(grant.extents.iter().map(|extent| (extent.offset, extent.end())));
        self.pieces.insert(lease, HeldChunk { reservation: grant.clone(), stage: Stage::Writing });
        Ok(())
    }

    /// The refusal of a write under a lease that was given back.
    pub fn given_back(&self, lease: Lease) -> Option<NotAdmitted> {
        let &(_, durable) = self.revoked.get(&lease)?;
        Some(if durable { NotAdmitted::Durable } else { NotAdmitted::Revoked })
    }

    fn is_free(&self, offset: u64, end: u64) -> bool {
        let before = self.occupied.range(..end).next_back();
        end <= self.capacity && before.is_none_or(|(_, &until)| until <= offset)
    }

    /// Notes that all bytes of a piece have arrived. The event is for the coordinator.
    ///
    /// # Errors
    /// When the lease has ended, and the piece is dropped, or when it was given back. The writer must open again, except
    /// after [`NotAdmitted::Durable`].
    pub fn stored(&mut self, lease: Lease, now_ns: u64) -> Result<Event, NotAdmitted> {
        let refusal = self.given_back(lease).unwrap_or(NotAdmitted::Unknown);
        let held = self.pieces.get_mut(&lease).ok_or(refusal)?;
        let expires_ns = held.reservation.expires_ns;
        if held.stage == Stage::Writing {
            if now_ns >= expires_ns && !mutant::is(Mutant::LeaseIgnored) {
                self.drop_late(lease);
                return Err(NotAdmitted::Expired(expires_ns));
            }
            held.stage = Stage::Stored;
            if held.reservation.role == Role::Primary {
                self.queue.push_back(lease);
            }
        }
        Ok(Event::Stored { lease })
    }

    /// Drops writes whose leases have ended. The coordinator keeps their bytes until it has asked the node for them.
    pub fn tick(&mut self, now_ns: u64) {
        let ended = |held: &HeldChunk| held.stage == Stage::Writing && held.reservation.expires_ns <= now_ns;
        let late: Vec<Lease> = self.pieces.values().filter(|h| ended(h)).map(|h| h.reservation.lease).collect();
        if !mutant::is(Mutant::LeaseIgnored) {
            late.into_iter().for_each(|lease| self.drop_late(lease));
        }
        self.revoked.retain(|_, &mut (until, _)| until > now_ns);
    }

    /// Obeys an order of the coordinator; the event is the answer, if one is due now.
    pub fn obey(&mut self, order: Order) -> Option<Event> {
        match order {
            Order::Reclaim { lease, expires_ns, durable, .. } => {
                if self.pieces.get(&lease).is_some_and(|held| held.stage == Stage::Draining) {
                    // The drain under way ends with `Drained`, which also frees the bytes.
                    return None;
                }
                self.drop_piece(lease);
                self.revoked.insert(lease, (expires_ns, durable));
                Some(Event::Released { lease })
            }
            Order::Promote { .. } if mutant::is(Mutant::PromoteIgnored) => None,
            Order::Promote { lease, .. } => {
                let held = self.pieces.get(&lease).filter(|held| held.stage == Stage::Stored)?;
                if held.reservation.role != Role::Primary && !self.queue.contains(&lease) {
                    self.queue.push_back(lease);
                }
                None
            }
        }
    }

    /// Drops a write that has not ended by its lease's end, for good. The coordinator may have renewed the lease by its
    /// own clock, and the bytes written so far are lost.
    fn drop_late(&mut self, lease: Lease) {
        self.drop_piece(lease);
        if !mutant::is(Mutant::LateForgotten) {
            self.spent.insert(lease);
        }
    }

    fn drop_piece(&mut self, lease: Lease) {
        if let Some(held) = self.pieces.remove(&lease) {
            for extent in &held.reservation.extents {
                self.occupied.remove(&extent.offset);
            }
            self.queue.retain(|&queued| queued != lease);
        }
    }

    /// Begins the drain of the next piece.
    pub fn next_drain(&mut self, order: DrainOrder) -> Option<&Reservation> {
        self.next_drain_among(order, |_| true)
    }

    /// Begins the drain of the next piece among those that `allowed` admits.
    pub fn next_drain_among(
        &mut self,
        order: DrainOrder,
        allowed: impl Fn(&Reservation) -> bool,
    ) -> Option<&Reservation> {
        let age = |lease: &Lease| {
            let reservation = &self.pieces[lease].reservation;
            (reservation.opened_ns, reservation.object.job, reservation.object.checkpoint)
        };
        let mut waiting = (0..self.queue.len()).filter(|&at| allowed(&self.pieces[&self.queue[at]].reservation));
        let at = match order {
            DrainOrder::Fifo if mutant::is(Mutant::FifoBroken) => waiting.last()?,
            DrainOrder::Fifo => waiting.next()?,
            DrainOrder::Oldest if mutant::is(Mutant::OldestBroken) => waiting.next()?,
            // The first of equals.
            DrainOrder::Oldest => waiting.min_by_key(|&at| age(&self.queue[at]))?,
        };
        let lease = self.queue.remove(at)?;
        let held = self.pieces.get_mut(&lease).expect("what is queued is here");
        held.stage = Stage::Draining;
        Some(&held.reservation)
    }

    /// Gives up the drain of a piece for now. It is the first in the queue again.
    pub fn postpone(&mut self, lease: Lease) {
        if let Some(held) = self.pieces.get_mut(&lease).filter(|held| held.stage == Stage::Draining) {
            held.stage = Stage::Stored;
            self.queue.push_front(lease);
        }
    }

    /// The next `bytes` of a piece being drained are durable on the PFS; their space in the buffer is free.
    ///
    /// # Errors
    /// When no such piece is being drained.
    pub fn drained(&mut self, lease: Lease, bytes: u64) -> Result<Event, NotAdmitted> {
        let held = self.pieces.get_mut(&lease).filter(|held| held.stage == Stage::Draining);
        let held = held.ok_or(NotAdmitted::Unknown)?;
        let bytes = bytes.min(held.reservation.bytes());
        for extent in &held.reservation.extents {
            self.occupied.remove(&extent.offset);
        }
        held.reservation.cut_front(bytes);
        self.occupied.extend(held.reservation.extents.iter().map(|extent| (extent.offset, extent.end())));
        if held.reservation.extents.is_empty() {
            self.pieces.remove(&lease);
            self.spent.insert(lease);
        }
        Ok(Event::Drained { lease, bytes })
    }

    /// All pieces in the buffer.
    pub fn pieces(&self) -> impl Iterator<Item = &Reservation> {
        self.pieces.values().map(|held| &held.reservation)
    }
}
