//! The coordinator (004, section 5.3.2) as a state machine: told of events with their times, it answers with grants and orders.
//!
//! It does no I/O and reads no clock. The simulator and the live coordinator drive the same object. Four rules keep a byte from
//! being used twice:
//!
//! 1. A grant reserves: its bytes leave the free space when the answer is made.
//! 2. Bytes return only when their node says so: `Drained`, `Released`, or a `Report` of a later start. The end of a lease alone
//!    frees nothing; the node is ordered to reclaim it, and a node that has done so refuses every later write under that lease. So
//!    safety does not depend on clocks that agree.
//! 3. A lease has the epoch of its coordinator in its name, and a node refuses leases of another epoch than its own.
//! 4. A coordinator grants from a node only after that node's report, which names everything that is in the buffer.
//!
//! The transport must deliver a node's messages once and in order; orders may be lost with a connection, and are repeated when the
//! node reports again.

use crate::location::{LocationStore, Piece, Where};
use crate::mutant::{self, Mutant};
use crate::policy::{Choice, Guard, Kind, Policy, Stripe};
use crate::protocol::{
    Answer, CheckpointId, Epoch, Event, Grant, HeldState, JobId, Lease, NodeId, Object, Order, Place, Refused, Report,
    Reservation, Role,
};
use crate::space::StatusStore;
use std::collections::{BTreeMap, BTreeSet};

/// Default length of a lease, in nanoseconds; chosen longer than a write of the experiments in the thesis, not measured.
pub const LEASE_NS: u64 = 600_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A writer may be at it.
    Reserved,
    /// The node was ordered to give it back.
    Reclaiming,
    Stored,
}

#[derive(Clone, Debug)]
struct Entry {
    reservation: Reservation,
    state: State,
}

/// The coordinator's whole state.
#[derive(Clone, Debug)]
pub struct Coordinator {
    policy: Policy,
    lease_ns: u64,
    epoch: Epoch,
    next: u64,
    now_ns: u64,
    status: StatusStore,
    locations: LocationStore,
    leases: BTreeMap<Lease, Entry>,
    expiries: BTreeSet<(u64, Lease)>,
    /// Primaries by what protects them.
    members: BTreeMap<Lease, BTreeSet<Lease>>,
    /// Parities that have lost a member: kept until a newer checkpoint is durable.
    bereaved: BTreeSet<Lease>,
    stripes: BTreeMap<(JobId, CheckpointId), Vec<Stripe>>,
}

impl Coordinator {
    /// A coordinator that knows no node yet. The caller has made `epoch` durable, and it is higher than any before.
    pub fn new(policy: Policy, epoch: Epoch, lease_ns: u64) -> Coordinator {
        Coordinator {
            policy,
            lease_ns,
            epoch,
            next: 0,
            now_ns: 0,
            status: StatusStore::default(),
            locations: LocationStore::default(),
            leases: BTreeMap::new(),
            expiries: BTreeSet::new(),
            members: BTreeMap::new(),
            bereaved: BTreeSet::new(),
            stripes: BTreeMap::new(),
        }
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The free space of the nodes.
    pub fn status(&self) -> &StatusStore {
        &self.status
    }

    /// Index of checkpoints by location.
    pub fn locations(&self) -> &LocationStore {
        &self.locations
    }

    /// Reservations that are alive on a node.
    pub fn reservations(&self, node: NodeId) -> impl Iterator<Item = &Reservation> {
        self.leases.values().map(|entry| &entry.reservation).filter(move |reservation| reservation.node == node)
    }

    /// Takes in one event. Time never runs backwards: an earlier `now_ns` counts as the latest one.
    pub fn apply(&mut self, now_ns: u64, event: &Event) -> Result<Answer, Refused> {
        self.now_ns = self.now_ns.max(now_ns);
        let mut answer = Answer::default();
        self.expire(&mut answer);
        match event {
            &Event::Open { object, ranks, node, bytes } => self.open(object, ranks, node, bytes, &mut answer)?,
            &Event::Renew { object } => self.renew(object, &mut answer)?,
            &Event::Commit { object } => self.commit(object, &mut answer)?,
            &Event::Abandon { object } => self.abandon(object, &mut answer)?,
            &Event::Stored { lease } => self.stored(lease)?,
            &Event::Drained { lease, bytes } => self.drained(lease, bytes, &mut answer)?,
            &Event::Released { lease } => self.released(lease, &mut answer)?,
            Event::Report(report) => self.report(report, &mut answer)?,
            &Event::NodeLost { node } => self.node_lost(node, &mut answer),
            Event::Tick => {}
        }
        Ok(answer)
    }

    /// The first lease to end.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.expiries.first().map(|&(at, _)| at)
    }

    fn expire(&mut self, answer: &mut Answer) {
        while let Some(&(_, lease)) = self.expiries.first().filter(|(at, _)| *at <= self.now_ns) {
            self.reclaim(lease, answer);
            if mutant::is(Mutant::FreedUnasked) {
                let _ = self.released(lease, answer);
            }
        }
    }

    /// Orders a reservation back. Its bytes are free when the node has answered.
    fn reclaim(&mut self, lease: Lease, answer: &mut Answer) {
        let Some(entry) = self.leases.get_mut(&lease) else { return };
        self.expiries.remove(&(entry.reservation.expires_ns, lease));
        if entry.state != State::Reclaiming {
            entry.state = State::Reclaiming;
            answer.orders.push(order_back(&entry.reservation));
        }
        if entry.reservation.role == Role::Parity {
            let object = entry.reservation.object;
            self.close_stripe(object, lease);
        }
    }

    /// No piece may join this parity any more.
    fn close_stripe(&mut self, object: Object, parity: Lease) {
        let key = (object.job, object.checkpoint);
        if let Some(stripes) = self.stripes.get_mut(&key) {
            stripes.retain(|stripe| stripe.parity != parity);
            if stripes.is_empty() {
                self.stripes.remove(&key);
            }
        }
    }

    fn open(
        &mut self,
        object: Object,
        ranks: u32,
        node: NodeId,
        bytes: u64,
        answer: &mut Answer,
    ) -> Result<(), Refused> {
        if bytes == 0 || ranks == 0 {
            return Err(Refused::Empty);
        }
        if self.policy.kind != Kind::Pfs && !self.status.is_present(node) {
            return Err(Refused::UnknownNode(node));
        }
        if self.locations.pieces(object).is_some() {
            self.abandon(object, answer)?;
        }
        let opened_ns = self.locations.open(object, ranks, self.now_ns);
        let chunk = self.policy.chunk_bytes.unwrap_or(bytes);
        let mut offset = 0;
        while offset < bytes {
            let want = (offset / chunk + 1).saturating_mul(chunk).min(bytes) - offset;
            let stripes = self.stripes.get(&(object.job, object.checkpoint)).map_or(&[][..], Vec::as_slice);
            let grant = match self.policy.choose(&self.status, stripes, node, want) {
                Some(choice) => self.reserve(object, offset, choice, opened_ns),
                None => Grant { offset, bytes: want, place: Place::Pfs },
            };
            offset += grant.bytes;
            self.note(object, &grant);
            push(&mut answer.grants, grant);
        }
        Ok(())
    }

    /// Enters a granted part into the `LocationStore`.
    fn note(&mut self, object: Object, grant: &Grant) {
        let at = match &grant.place {
            Place::Buffer { primary, .. } => {
                Where::Buffer { lease: primary.lease, node: primary.node, guard: primary.guard }
            }
            Place::Pfs => Where::Direct,
        };
        let record = self.locations.record(object).expect("an opened object");
        record.pieces.push(Piece { offset: grant.offset, bytes: grant.bytes, at });
    }

    fn reserve(&mut self, object: Object, offset: u64, choice: Choice, opened_ns: u64) -> Grant {
        let expires_ns = self.now_ns + self.lease_ns;
        let make = |coordinator: &mut Coordinator, node, role, guard| {
            let lease = Lease { epoch: coordinator.epoch, number: coordinator.next };
            coordinator.next += 1;
            let extents = coordinator.status.take(node, choice.bytes);
            let reservation = Reservation { lease, node, extents, role, object, offset, guard, opened_ns, expires_ns };
            coordinator.enter(reservation.clone(), State::Reserved);
            reservation
        };
        // The primary first: a copy on the same node is ruled out by the policy.
        let mut primary = make(self, choice.node, Role::Primary, None);
        let guard = match choice.guard {
            Guard::None => None,
            Guard::Copy(node) => Some(make(self, node, Role::Copy, None)),
            Guard::Parity(node) => {
                let parity = make(self, node, Role::Parity, None);
                let stripe = Stripe { parity: parity.lease, node, bytes: choice.bytes, members: vec![choice.node] };
                self.stripes.entry((object.job, object.checkpoint)).or_default().push(stripe);
                Some(parity)
            }
            Guard::Join(parity) => Some(self.join(object, parity, choice.node)),
        };
        if let Some(guard) = &guard {
            primary.guard = Some(guard.lease);
            self.leases.get_mut(&primary.lease).expect("it was just entered").reservation.guard = primary.guard;
            self.members.entry(guard.lease).or_default().insert(primary.lease);
        }
        Grant { offset, bytes: choice.bytes, place: Place::Buffer { primary, guard } }
    }

    /// One more member of a parity, whose lease runs as long as the member's.
    fn join(&mut self, object: Object, parity: Lease, member: NodeId) -> Reservation {
        let stripes = self.stripes.get_mut(&(object.job, object.checkpoint)).expect("the policy was shown it");
        let stripe = stripes.iter_mut().find(|stripe| stripe.parity == parity).expect("the policy was shown it");
        stripe.members.push(member);
        self.extend(parity).expect("a stripe that may be joined has its parity")
    }

    /// Lets a reservation run from now; nothing when it is being given back.
    fn extend(&mut self, lease: Lease) -> Option<Reservation> {
        let entry = self.leases.get_mut(&lease).filter(|entry| entry.state != State::Reclaiming)?;
        if entry.state == State::Reserved {
            self.expiries.remove(&(entry.reservation.expires_ns, lease));
            entry.reservation.expires_ns = self.now_ns + self.lease_ns;
            self.expiries.insert((entry.reservation.expires_ns, lease));
        }
        Some(entry.reservation.clone())
    }

    fn enter(&mut self, reservation: Reservation, state: State) {
        let lease = reservation.lease;
        if state == State::Reserved {
            self.expiries.insert((reservation.expires_ns, lease));
        }
        self.leases.insert(lease, Entry { reservation, state });
    }

    fn renew(&mut self, object: Object, answer: &mut Answer) -> Result<(), Refused> {
        let pieces = self.locations.pieces(object).ok_or(Refused::Unopened(object))?.to_vec();
        for piece in pieces {
            let Where::Buffer { lease, guard, .. } = piece.at else { continue };
            let unfinished = |lease: Lease| self.leases.get(&lease).is_some_and(|e| e.state == State::Reserved);
            if !unfinished(lease) && !guard.is_some_and(unfinished) {
                continue;
            }
            let guard = guard.and_then(|guard| self.extend(guard));
            if let Some(primary) = self.extend(lease) {
                let place = Place::Buffer { primary, guard };
                answer.grants.push(Grant { offset: piece.offset, bytes: piece.bytes, place });
            }
        }
        Ok(())
    }

    fn commit(&mut self, object: Object, answer: &mut Answer) -> Result<(), Refused> {
        let record = self.locations.record(object).filter(|record| record.opened);
        let pieces = record.ok_or(Refused::Unopened(object))?.pieces.clone();
        let stored = |lease: Lease| self.leases.get(&lease).is_some_and(|entry| entry.state == State::Stored);
        let kept = |piece: &Piece| match piece.at {
            Where::Buffer { lease, guard, .. } => stored(lease) && guard.is_none_or(stored),
            Where::Direct | Where::Durable => true,
            Where::Lost { .. } => false,
        };
        if !pieces.iter().all(kept) {
            return Err(Refused::Incomplete(object));
        }
        self.locations.commit(object);
        self.settle(object.job, object.checkpoint, answer);
        Ok(())
    }

    /// Once a checkpoint is durable, older ones of its job are of no use any more.
    fn settle(&mut self, job: JobId, checkpoint: CheckpointId, answer: &mut Answer) {
        if !self.locations.becomes_durable(job, checkpoint) {
            return;
        }
        self.locations.forget_before(job, checkpoint);
        let of_older = |parity: &&Lease| {
            let object = self.leases[parity].reservation.object;
            object.job == job && object.checkpoint < checkpoint
        };
        let old: Vec<Lease> = self.bereaved.iter().filter(of_older).copied().collect();
        for parity in old {
            self.bereaved.remove(&parity);
            if !self.members.contains_key(&parity) {
                self.reclaim(parity, answer);
            }
        }
    }

    fn abandon(&mut self, object: Object, answer: &mut Answer) -> Result<(), Refused> {
        let record = self.locations.close(object).ok_or(Refused::Unopened(object))?;
        for piece in record.pieces {
            if let Where::Buffer { lease, .. } = piece.at {
                self.reclaim(lease, answer);
            }
        }
        Ok(())
    }

    fn stored(&mut self, lease: Lease) -> Result<(), Refused> {
        let entry = self.leases.get_mut(&lease).ok_or(Refused::UnknownLease(lease))?;
        // What was ordered back stays so: the node answers that order after this message.
        if entry.state == State::Reserved {
            entry.state = State::Stored;
            self.expiries.remove(&(entry.reservation.expires_ns, lease));
        }
        Ok(())
    }

    fn drained(&mut self, lease: Lease, bytes: u64, answer: &mut Answer) -> Result<(), Refused> {
        let entry = self.leases.get_mut(&lease).ok_or(Refused::UnknownLease(lease))?;
        let node = entry.reservation.node;
        let cut = entry.reservation.cut_front(bytes);
        let done = entry.reservation.extents.is_empty();
        self.status.put(node, &cut);
        if done {
            let entry = self.remove(lease).expect("it was just seen");
            self.resolve(&entry.reservation, Where::Durable);
            self.leave_guard(&entry.reservation, answer);
            let object = entry.reservation.object;
            self.settle(object.job, object.checkpoint, answer);
        }
        Ok(())
    }

    fn released(&mut self, lease: Lease, answer: &mut Answer) -> Result<(), Refused> {
        let entry = self.remove(lease).ok_or(Refused::UnknownLease(lease))?;
        self.status.put(entry.reservation.node, &entry.reservation.extents);
        if entry.reservation.role == Role::Primary {
            self.resolve(&entry.reservation, Where::Lost { guard: None });
            self.leave_guard(&entry.reservation, answer);
        }
        Ok(())
    }

    /// Forgets a reservation without freeing its bytes.
    fn remove(&mut self, lease: Lease) -> Option<Entry> {
        let entry = self.leases.remove(&lease)?;
        self.expiries.remove(&(entry.reservation.expires_ns, lease));
        if entry.reservation.role == Role::Parity {
            self.bereaved.remove(&lease);
            self.close_stripe(entry.reservation.object, lease);
        }
        Some(entry)
    }

    /// Notes what has become of the piece that a reservation, or its copy, was for. A durable piece stays so.
    fn resolve(&mut self, reservation: &Reservation, at: Where) {
        let Some(record) = self.locations.record(reservation.object) else { return };
        let lease = reservation.lease;
        let is_its = |piece: &&mut Piece| match piece.at {
            Where::Buffer { lease: primary, guard, .. } => primary == lease || guard == Some(lease),
            Where::Lost { guard } => guard == Some(lease),
            Where::Direct | Where::Durable => false,
        };
        if let Some(piece) = record.pieces.iter_mut().find(is_its) {
            piece.at = at;
        }
    }

    /// A primary needs its guard no more. The last one gives the guard back.
    fn leave_guard(&mut self, primary: &Reservation, answer: &mut Answer) {
        let Some(guard) = primary.guard else { return };
        let Some(members) = self.members.get_mut(&guard) else { return };
        members.remove(&primary.lease);
        if members.is_empty() {
            self.members.remove(&guard);
            if !self.bereaved.contains(&guard) {
                self.reclaim(guard, answer);
            }
        }
    }

    fn report(&mut self, report: &Report, answer: &mut Answer) -> Result<(), Refused> {
        let node = report.node;
        match self.status.incarnation(node) {
            Some(known) if known > report.incarnation => return Err(Refused::StaleReport(node)),
            Some(known) if known == report.incarnation => {
                self.status.arrive(node, known);
                let back = self.leases.values().filter(|e| e.reservation.node == node && e.state == State::Reclaiming);
                answer.orders.extend(back.map(|entry| order_back(&entry.reservation)));
                return Ok(());
            }
            _ => {}
        }
        self.status.join(node, report.incarnation, report.capacity);
        self.take_stock(report, answer);
        Ok(())
    }

    /// Compares what is known of a node with what it has after a start of its own, or of the coordinator's.
    fn take_stock(&mut self, report: &Report, answer: &mut Answer) {
        let node = report.node;
        let known: Vec<Lease> = self.reservations(node).map(|reservation| reservation.lease).collect();
        let held = |lease: Lease| report.held.iter().any(|(reservation, _)| reservation.lease == lease);
        for lease in known.into_iter().filter(|&lease| !held(lease)) {
            let entry = &self.leases[&lease];
            let extents = entry.reservation.extents.clone();
            // A writer may still come with a lease that runs; its bytes stay reserved.
            let runs = entry.state == State::Reserved && extents.iter().all(|extent| extent.end() <= report.capacity);
            if !runs {
                self.lose(lease, answer);
            } else {
                extents.iter().for_each(|&extent| assert!(self.status.take_exactly(node, extent), "{extent:?}"));
            }
        }
        for (reservation, state) in &report.held {
            self.take_back(reservation, *state, answer);
        }
    }

    /// Enters what a node has.
    fn take_back(&mut self, reservation: &Reservation, state: HeldState, answer: &mut Answer) {
        let (node, lease) = (reservation.node, reservation.lease);
        let mut taken = Vec::new();
        for &extent in &reservation.extents {
            if !self.status.take_exactly(node, extent) {
                // A node that reports the same bytes twice is not believed; the piece goes.
                self.status.put(node, &taken);
                answer.orders.push(order_back(reservation));
                return;
            }
            taken.push(extent);
        }
        let known = self.leases.get(&lease).map(|entry| entry.state);
        let state = match (known, state) {
            (Some(State::Reclaiming), _) => State::Reclaiming,
            (_, HeldState::Stored) => State::Stored,
            (_, HeldState::Writing) => State::Reserved,
        };
        if let Some(entry) = self.leases.get(&lease) {
            self.expiries.remove(&(entry.reservation.expires_ns, lease));
        } else if reservation.role == Role::Primary {
            let at = Where::Buffer { lease, node, guard: reservation.guard };
            let piece = Piece { offset: reservation.offset, bytes: reservation.bytes(), at };
            self.locations.found(reservation.object, piece, reservation.opened_ns);
        }
        if let (Role::Primary, Some(guard)) = (reservation.role, reservation.guard) {
            self.members.entry(guard).or_default().insert(lease);
        }
        self.enter(reservation.clone(), state);
        if state == State::Reclaiming {
            answer.orders.push(order_back(reservation));
        }
    }

    /// A reservation is gone with what a node had in memory.
    fn lose(&mut self, lease: Lease, answer: &mut Answer) {
        let Some(entry) = self.remove(lease) else { return };
        if entry.reservation.role != Role::Primary {
            return;
        }
        let guard = entry.reservation.guard.filter(|guard| self.leases.contains_key(guard));
        self.resolve(&entry.reservation, Where::Lost { guard });
        let Some(guard) = guard else { return };
        match self.leases[&guard].reservation.role {
            Role::Copy => self.promote(guard, answer),
            _ => drop(self.bereaved.insert(guard)),
        }
        if let Some(members) = self.members.get_mut(&guard) {
            members.remove(&lease);
            if members.is_empty() {
                self.members.remove(&guard);
            }
        }
    }

    fn promote(&self, copy: Lease, answer: &mut Answer) {
        let entry = &self.leases[&copy];
        if entry.state == State::Stored {
            answer.orders.push(Order::Promote { node: entry.reservation.node, lease: copy });
        }
    }

    /// Copies of what an absent node has are drained; if it comes back with its pieces, they are drained twice, to the same place.
    fn node_lost(&mut self, node: NodeId, answer: &mut Answer) {
        self.status.depart(node);
        let guards: Vec<Lease> = self.reservations(node).filter_map(|reservation| reservation.guard).collect();
        let copies = guards
            .into_iter()
            .filter(|guard| self.leases.get(guard).is_some_and(|entry| entry.reservation.role == Role::Copy));
        copies.for_each(|copy| self.promote(copy, answer));
    }

    /// Gives back what protects nothing: called when every node of the configuration has reported, or has been given up. A copy
    /// whose primary nobody has may be the last one, and is drained; the bytes on the PFS are the same if they were there already.
    pub fn all_reported(&mut self) -> Answer {
        let mut answer = Answer::default();
        let is_orphan = |entry: &&Entry| {
            let reservation = &entry.reservation;
            reservation.role != Role::Primary && !self.members.contains_key(&reservation.lease)
        };
        let orphans: Vec<(Lease, Role)> =
            self.leases.values().filter(is_orphan).map(|e| (e.reservation.lease, e.reservation.role)).collect();
        for (lease, role) in orphans {
            match role {
                Role::Copy if self.leases[&lease].state == State::Stored => self.promote(lease, &mut answer),
                _ if self.bereaved.contains(&lease) => {}
                _ => self.reclaim(lease, &mut answer),
            }
        }
        answer
    }

    /// Invariant that tests check: on every node the extents granted and those free are disjoint and make up the buffer.
    ///
    /// # Errors
    /// The first node on which it does not.
    pub fn check(&self) -> Result<(), String> {
        for node in self.status.nodes() {
            let (free, capacity) = self.status.space(node).expect("it has reported");
            let mut extents = self.status.free_extents(node);
            let listed: u64 = extents.iter().map(|extent| extent.bytes).sum();
            let granted: u64 = self.reservations(node).map(Reservation::bytes).sum();
            extents.extend(self.reservations(node).flat_map(|reservation| reservation.extents.iter().copied()));
            extents.sort_unstable();
            let end = extents.iter().try_fold(0, |end, extent| (extent.offset == end).then(|| extent.end()));
            if listed != free || granted + free != capacity || end != Some(capacity) {
                return Err(format!("node {}: {granted} granted + {free} free of {capacity}: {extents:?}", node.0));
            }
        }
        Ok(())
    }
}

fn order_back(reservation: &Reservation) -> Order {
    Order::Reclaim { node: reservation.node, lease: reservation.lease, expires_ns: reservation.expires_ns }
}

/// Adds a part; one that continues the last part on the PFS makes that longer.
fn push(grants: &mut Vec<Grant>, grant: Grant) {
    match grants.last_mut() {
        Some(last) if last.place == Place::Pfs && grant.place == Place::Pfs => last.bytes += grant.bytes,
        _ => grants.push(grant),
    }
}
