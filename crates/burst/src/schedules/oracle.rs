//! Invariants of every schedule, kept apart from the code under test: contents of each node, the order of its drains,
//! and the promises of commits.

use super::{CAPACITY, Checked, NODES};
use crate::*;
use std::collections::{BTreeMap, BTreeSet};

/// A piece as its node should hold it.
struct HeldChunk {
    reservation: Reservation,
    expires: u64,
    stored: bool,
}

/// A committed piece that was in a buffer at the commit.
struct Promise {
    lease: Lease,
    node: usize,
    guard: Option<(Lease, usize, Role)>,
    /// Nodes that have lost their buffers since the grant.
    failed: [bool; NODES],
}

pub(super) struct Oracle {
    policy: Policy,
    share: Share,
    /// True if the node has reported to the current coordinator, over a connection that still stands.
    pub(super) reported: [bool; NODES],
    /// Piece of each node that is being written to the PFS.
    pub(super) draining: [Option<Lease>; NODES],
    epoch: [Option<Epoch>; NODES],
    held: [BTreeMap<Lease, HeldChunk>; NODES],
    /// Pieces of each node that wait for the PFS, in order of arrival.
    queue: [Vec<Lease>; NODES],
    /// Leases under which a write has begun, in any run of their node.
    begun: BTreeSet<Lease>,
    /// Leases whose bytes are all on the PFS.
    durable: BTreeSet<Lease>,
    /// Primaries whose write has begun, by their copies.
    primaries: BTreeMap<Lease, Lease>,
    promises: BTreeMap<Object, Vec<Promise>>,
    /// Starts of each node, and their numbers when an object was opened.
    starts: [u64; NODES],
    opened: BTreeMap<Object, [u64; NODES]>,
}

impl Oracle {
    pub(super) fn new(policy: Policy, share: Share) -> Oracle {
        Oracle {
            policy,
            share,
            reported: [false; NODES],
            draining: [None; NODES],
            epoch: [None; NODES],
            held: Default::default(),
            queue: Default::default(),
            begun: BTreeSet::new(),
            durable: BTreeSet::new(),
            primaries: BTreeMap::new(),
            promises: BTreeMap::new(),
            starts: [0; NODES],
            opened: BTreeMap::new(),
        }
    }

    pub(super) fn joined(&mut self, node: usize, epoch: Epoch) {
        self.reported[node] = true;
        self.epoch[node] = Some(epoch);
    }

    pub(super) fn restarted(&mut self, node: usize) {
        self.epoch[node] = None;
        self.starts[node] += 1;
        self.draining[node] = None;
        self.held[node].clear();
        self.queue[node].clear();
        self.promises.values_mut().flatten().for_each(|promise| promise.failed[node] = true);
    }

    /// Takes an event that the coordinator has carried out.
    pub(super) fn accepted(&mut self, event: &Event, answer: &Answer, coordinator: &Coordinator) -> Checked {
        answer.orders.iter().try_for_each(|order| self.check_durable(order))?;
        match *event {
            Event::Open { object, bytes, owner, .. } => {
                self.check_share(owner, &answer.grants, coordinator)?;
                self.promises.remove(&object);
                self.opened.insert(object, self.starts);
                let fresh: Vec<Lease> = super::reservations(answer.grants.clone()).map(|grant| grant.lease).collect();
                check_given_up(object, &fresh, coordinator)?;
                self.check_grants(bytes, &answer.grants, coordinator)
            }
            Event::Abandon { object } => {
                self.promises.remove(&object);
                check_given_up(object, &[], coordinator)
            }
            Event::Commit { object } => self.committed(object, coordinator),
            _ => Ok(()),
        }
    }

    /// Checks that a writer is excused from a copy only after all bytes of the primary are on the PFS.
    fn check_durable(&self, order: &Order) -> Checked {
        let Order::Reclaim { lease, durable: true, .. } = order else { return Ok(()) };
        let is_durable = self.primaries.get(lease).is_some_and(|primary| self.durable.contains(primary));
        if is_durable { Ok(()) } else { Err(format!("{lease:?} is not a copy of what is on the PFS")) }
    }

    /// Checks that an owner that was granted space has no more than its share, and that each reservation is its owner's.
    fn check_share(&self, owner: Owner, grants: &[Grant], coordinator: &Coordinator) -> Checked {
        let granted: Vec<Reservation> = super::reservations(grants.to_vec()).collect();
        if let Some(foreign) = granted.iter().find(|reservation| reservation.owner != owner) {
            return Err(format!("{foreign:?} is not of {owner:?}"));
        }
        let nodes: Vec<NodeId> = coordinator.status().nodes().collect();
        let all = nodes.iter().flat_map(|&node| coordinator.reservations(node));
        let used: u64 = all.filter(|it| it.owner.uid == owner.uid).map(Reservation::bytes).sum();
        let most = self.share.of(nodes.len() as u64 * CAPACITY);
        if !granted.is_empty() && used > most {
            return Err(format!("{owner:?} has {used} bytes of at most {most}"));
        }
        match used == coordinator.used(owner.uid) {
            true => Ok(()),
            false => Err(format!("{owner:?} has {used} bytes, and {} are counted", coordinator.used(owner.uid))),
        }
    }

    /// Checks grants: the parts are disjoint and cover the object in order, none exceeds a chunk, no node is absent,
    /// and no guard is on the node of its piece.
    fn check_grants(&self, bytes: u64, grants: &[Grant], coordinator: &Coordinator) -> Checked {
        let mut end = 0;
        for grant in grants {
            if grant.offset != end || grant.bytes == 0 {
                return Err(format!("{grant:?} does not begin at {end}"));
            }
            end += grant.bytes;
            let Place::Buffer { primary, guard } = &grant.place else { continue };
            let chunk = self.policy.chunk_bytes.unwrap_or(u64::MAX);
            if grant.offset / chunk != (end - 1) / chunk {
                return Err(format!("{grant:?} is not within a chunk of {chunk}"));
            }
            if primary.bytes() != grant.bytes || guard.as_ref().is_some_and(|guard| guard.bytes() < grant.bytes) {
                return Err(format!("{grant:?} has other lengths"));
            }
            if (self.policy.redundancy == Redundancy::None) != guard.is_none() {
                return Err(format!("{grant:?}: not the redundancy that was asked for"));
            }
            if guard.as_ref().is_some_and(|guard| guard.node == primary.node) {
                return Err(format!("{grant:?} is protected by its own node"));
            }
            if guard.as_ref().is_some_and(|guard| coordinator.is_bereaved(guard.lease)) {
                return Err(format!("{grant:?} joins a parity that has lost a member"));
            }
            for reservation in [Some(primary), guard.as_ref()].into_iter().flatten() {
                if !self.reported[reservation.node.0 as usize] {
                    return Err(format!("{reservation:?} is of an absent node"));
                }
            }
        }
        if end == bytes { Ok(()) } else { Err(format!("{end} of {bytes} bytes were granted")) }
    }

    /// Notes a commit: from now on the object must survive the loss of one node, if its redundancy promises that.
    fn committed(&mut self, object: Object, coordinator: &Coordinator) -> Checked {
        let mut promised = Vec::new();
        let opened = self.opened[&object];
        let failed = std::array::from_fn(|node| self.starts[node] > opened[node]);
        for piece in coordinator.locations().pieces(object).unwrap_or_default() {
            let Where::Buffer { lease, node, guard } = piece.at else { continue };
            let reservation = |lease| {
                let mut all = (0..NODES as u32).flat_map(|node| coordinator.reservations(NodeId(node)));
                all.find(|reservation| reservation.lease == lease).map(|r| (r.lease, r.node.0 as usize, r.role))
            };
            let guard = guard.and_then(reservation);
            if guard.is_none() && self.policy.redundancy != Redundancy::None {
                return Err(format!("{object} was committed without redundancy"));
            }
            // Only the writer can confirm that a member's share is in its parity: the coordinator is notified of the
            // parity as a whole. A writer whose share was refused, because the node has restarted, would not commit.
            if guard.is_some_and(|(parity, at, role)| role == Role::Parity && !self.is_kept(at, parity)) {
                continue;
            }
            promised.push(Promise { lease, node: node.0 as usize, guard, failed });
        }
        self.promises.insert(object, promised);
        Ok(())
    }

    /// Notes that a node has admitted a writer, to begin or to continue.
    pub(super) fn admitted(&mut self, grant: &Reservation, clock: u64, incarnation: u64) -> Checked {
        let node = grant.node.0 as usize;
        if grant.expires_ns <= clock {
            return Err(format!("{grant:?} outlived its lease at {clock}"));
        }
        if Some(grant.lease.epoch) != self.epoch[node] {
            return Err(format!("{grant:?}: wrong epoch"));
        }
        if let Some(held) = self.held[node].get_mut(&grant.lease) {
            held.expires = held.expires.max(grant.expires_ns);
            return Ok(());
        }
        if !self.begun.insert(grant.lease) {
            return Err(format!("{grant:?} was begun a second time"));
        }
        if grant.incarnation != incarnation {
            return Err(format!("{grant:?} is of an earlier start than {incarnation}"));
        }
        if let (Role::Primary, Some(guard)) = (grant.role, grant.guard) {
            self.primaries.insert(guard, grant.lease);
        }
        let held = HeldChunk { reservation: grant.clone(), expires: grant.expires_ns, stored: false };
        self.held[node].insert(grant.lease, held);
        Ok(())
    }

    pub(super) fn stored(&mut self, node: usize, lease: Lease) {
        let held = self.held[node].get_mut(&lease).expect("it is there");
        if !std::mem::replace(&mut held.stored, true) && held.reservation.role == Role::Primary {
            self.queue[node].push(lease);
        }
    }

    pub(super) fn dropped(&mut self, node: usize, lease: Lease) {
        self.held[node].remove(&lease);
        self.queue[node].retain(|&queued| queued != lease);
        // No write may begin under it again, however it ended.
        self.begun.insert(lease);
    }

    pub(super) fn ticked(&mut self, node: usize, clock: u64) {
        self.held[node].retain(|_, held| held.stored || held.expires > clock);
    }

    pub(super) fn obeyed(&mut self, node: usize, order: Order, answered: bool) {
        match order {
            Order::Reclaim { lease, .. } if answered => self.dropped(node, lease),
            Order::Reclaim { .. } => {}
            Order::Promote { lease, .. } => {
                let waits = self.held[node].get(&lease).is_some_and(|held| held.stored)
                    && self.draining[node] != Some(lease)
                    && !self.queue[node].contains(&lease);
                if waits {
                    self.queue[node].push(lease);
                }
            }
        }
    }

    pub(super) fn may_drain(&self, node: usize) -> bool {
        !self.queue[node].is_empty()
    }

    pub(super) fn nothing_to_drain(&self, node: usize) -> Checked {
        if self.queue[node].is_empty() { Ok(()) } else { Err(format!("{:?} is not drained", self.queue[node])) }
    }

    /// Checks the order of drains: FIFO, or the first piece of the checkpoint that was opened first.
    pub(super) fn begins_drain(&mut self, node: usize, lease: Lease) -> Checked {
        let opened = |lease: &Lease| {
            let reservation = &self.held[node][lease].reservation;
            (reservation.opened_ns, reservation.object.job, reservation.object.checkpoint)
        };
        let expected = match self.policy.order {
            DrainOrder::Fifo => self.queue[node].first().copied(),
            DrainOrder::Oldest => {
                let oldest = self.queue[node].iter().map(opened).min();
                self.queue[node].iter().find(|lease| Some(opened(lease)) == oldest).copied()
            }
        };
        if expected != Some(lease) {
            return Err(format!("{lease:?} drained before {expected:?}"));
        }
        self.queue[node].retain(|&queued| queued != lease);
        self.draining[node] = Some(lease);
        Ok(())
    }

    pub(super) fn postponed(&mut self, node: usize, lease: Lease) {
        self.queue[node].insert(0, lease);
        self.draining[node] = None;
    }

    pub(super) fn drained(&mut self, node: usize, lease: Lease, bytes: u64) {
        let held = self.held[node].get_mut(&lease).expect("it is there");
        // From the front: extents in order, each from its beginning.
        let mut left = bytes;
        for extent in &mut held.reservation.extents {
            let part = extent.bytes.min(left);
            *extent = Extent { offset: extent.offset + part, bytes: extent.bytes - part };
            left -= part;
        }
        if held.reservation.bytes() == 0 {
            self.held[node].remove(&lease);
            self.durable.insert(lease);
            self.draining[node] = None;
        }
    }

    /// Checks that a node has the expected pieces, and no byte belongs to two.
    pub(super) fn check_node(&self, node: usize, store: &NodeStore) -> Checked {
        let mut used = [false; CAPACITY as usize];
        let mut count = 0;
        for piece in store.pieces() {
            count += 1;
            let held = self.held[node].get(&piece.lease).ok_or_else(|| format!("{piece:?} should not be there"))?;
            if held.reservation.bytes() != piece.bytes() {
                return Err(format!("{piece:?} should have {} bytes", held.reservation.bytes()));
            }
            for extent in &piece.extents {
                for byte in &mut used[extent.offset as usize..extent.end() as usize] {
                    if std::mem::replace(byte, true) {
                        return Err(format!("a byte of {extent:?} has two owners"));
                    }
                }
            }
        }
        if count == self.held[node].len() { Ok(()) } else { Err(format!("node {node} lost one of its pieces")) }
    }

    fn is_kept(&self, node: usize, lease: Lease) -> bool {
        self.durable.contains(&lease) || self.held[node].get(&lease).is_some_and(|held| held.stored)
    }

    /// Checks that every committed piece is somewhere, unless more nodes have failed than its redundancy covers.
    pub(super) fn check_promises(&mut self, coordinator: &Coordinator) -> Checked {
        // A repair of an older checkpoint is not needed once a newer one is durable.
        let superseded = |object: &Object| {
            let newer = (object.checkpoint.0 + 1..3).map(CheckpointId);
            newer.into_iter().any(|at| coordinator.locations().progress(object.job, at).is_some_and(|it| it.durable))
        };
        if self.policy.redundancy == Redundancy::Xor {
            self.promises.retain(|object, _| !superseded(object));
        }
        for (object, promises) in &self.promises {
            for promise in promises {
                if self.is_kept(promise.node, promise.lease) {
                    continue;
                }
                let kept = match promise.guard {
                    None => promise.failed[promise.node],
                    Some((copy, at, Role::Copy)) => {
                        self.is_kept(at, copy) || (promise.failed[promise.node] && promise.failed[at])
                    }
                    Some((parity, at, _)) => {
                        let others = (0..NODES).any(|node| node != promise.node && promise.failed[node]);
                        promise.failed[promise.node] && (others || self.is_kept(at, parity))
                    }
                };
                if !kept {
                    return Err(format!("{object} was committed, and {:?} is gone", promise.lease));
                }
            }
        }
        Ok(())
    }

    /// After the calm nodes hold only parities.
    pub(super) fn check_empty(&self) -> Checked {
        let left = self.held.iter().flat_map(BTreeMap::values).find(|held| held.reservation.role != Role::Parity);
        left.map_or(Ok(()), |held| Err(format!("{:?} is held for ever", held.reservation)))
    }
}

/// Checks that all reservations of an earlier attempt were ordered back: stale bytes must not reach the PFS after newer
/// ones.
fn check_given_up(object: Object, fresh: &[Lease], coordinator: &Coordinator) -> Checked {
    let mut all = (0..NODES as u32).flat_map(|node| coordinator.reservations(NodeId(node)));
    let stale = all.find(|left| {
        left.object == object
            && left.role != Role::Parity
            && !fresh.contains(&left.lease)
            && !coordinator.is_reclaimed(left.lease)
    });
    stale.map_or(Ok(()), |left| Err(format!("{left:?} of an earlier attempt goes on")))
}
