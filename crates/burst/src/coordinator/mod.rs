//! The coordinator (004, section 5.3.2) as a state machine: it answers events with grants and orders.
//!
//! The coordinator does no I/O and reads no clock. The simulator and the live coordinator drive the same object. Four
//! rules ensure that no byte is used twice:
//!
//! 1. A grant reserves: its bytes leave the free space when the answer is made.
//! 2. Bytes return only when their node reports it: `Drained`, `Released`, or a `Report` of a later start. The end of a
//!    lease alone frees nothing. The node is ordered to reclaim the lease, and then refuses every later write under it.
//!    So safety does not depend on clocks that agree.
//! 3. A lease has the epoch of its coordinator in its name, and a node refuses leases of another epoch than its own.
//! 4. A coordinator grants from a node only after that node's report, which names all contents of the buffer.
//!
//! The transport must deliver a node's messages once and in order. Orders may be lost with a connection, and are
//! repeated when the node reports again.

mod recovery;

use crate::location::{LocationStore, Piece, Where};
use crate::mutant::{self, Mutant};
use crate::policy::{Choice, Guard, Kind, Policy, Stripe};
use crate::protocol::{
    Answer, CheckpointId, Epoch, Event, Grant, JobId, Lease, NodeId, Object, Order, Owner, Place, Refused, Reservation,
    Role,
};
use crate::shares::{Share, UsedBytes};
use crate::space::StatusStore;
use std::collections::{BTreeMap, BTreeSet};

/// Default length of a lease, in nanoseconds. It is longer than a write in the thesis's experiments; the value is not
/// measured.
pub const LEASE_NS: u64 = 600_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A writer may be writing.
    Reserved,
    /// The node was ordered to give it back: a copy of bytes that are on the PFS, or another reservation.
    Reclaiming {
        durable: bool,
    },
    Stored,
}

#[derive(Clone, Debug)]
struct Entry {
    reservation: Reservation,
    state: State,
    /// The entry is a copy whose primary is lost or out of reach: it is drained as soon as it is stored.
    promoted: bool,
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
    /// Primaries and copies by object.
    by_object: BTreeSet<(Object, Lease)>,
    /// Primaries by the reservation that protects them.
    members: BTreeMap<Lease, BTreeSet<Lease>>,
    /// Parities that have lost a member: kept until a newer checkpoint is durable.
    bereaved: BTreeSet<Lease>,
    stripes: BTreeMap<(JobId, CheckpointId), Vec<Stripe>>,
    /// Nodes on which ranks of each job have written: its next checkpoint will need space there.
    homes: BTreeMap<JobId, BTreeSet<NodeId>>,
    /// Orders that were due with a refused event.
    unsent: Vec<Order>,
    share: Share,
    used: UsedBytes,
}

impl Coordinator {
    /// A coordinator without nodes. The caller has made `epoch` durable; it is higher than all earlier ones.
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
            by_object: BTreeSet::new(),
            members: BTreeMap::new(),
            bereaved: BTreeSet::new(),
            stripes: BTreeMap::new(),
            homes: BTreeMap::new(),
            unsent: Vec::new(),
            share: Share::ALL,
            used: UsedBytes::default(),
        }
    }

    /// Bounds the space of each owner from now on. Parts of an object beyond it go to the PFS.
    pub fn set_share(&mut self, share: Share) {
        self.share = share;
    }

    /// Bytes that an owner has reserved or stored, copies included.
    pub fn used(&self, uid: u32) -> u64 {
        self.used.of(uid)
    }

    /// The coordinator's epoch.
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

    /// Live reservations on a node.
    pub fn reservations(&self, node: NodeId) -> impl Iterator<Item = &Reservation> {
        self.leases.values().map(|entry| &entry.reservation).filter(move |reservation| reservation.node == node)
    }

    /// Applies one event. Time never runs backwards: an earlier `now_ns` counts as the latest one.
    ///
    /// # Errors
    /// When the event is refused. Orders due by then, for leases that have ended, come with the next answer.
    pub fn apply(&mut self, now_ns: u64, event: &Event) -> Result<Answer, Refused> {
        self.now_ns = self.now_ns.max(now_ns);
        let mut answer = Answer { orders: std::mem::take(&mut self.unsent), ..Answer::default() };
        self.expire(&mut answer);
        match self.take_in(event, &mut answer) {
            Ok(()) => Ok(answer),
            Err(refused) => {
                if !mutant::is(Mutant::RefusalDropsOrders) {
                    self.unsent = answer.orders;
                }
                Err(refused)
            }
        }
    }

    fn take_in(&mut self, event: &Event, answer: &mut Answer) -> Result<(), Refused> {
        match event {
            &Event::Open { object, ranks, node, bytes, owner } => {
                self.open(object, ranks, node, bytes, owner, answer)?;
            }
            &Event::Renew { object } => self.renew(object, answer)?,
            &Event::Commit { object } => self.commit(object, answer)?,
            &Event::Abandon { object } => self.abandon(object, answer)?,
            &Event::Stored { lease } => self.stored(lease, answer)?,
            &Event::Drained { lease, bytes } => self.drained(lease, bytes, answer)?,
            &Event::Released { lease } => self.released(lease, answer)?,
            Event::Report(report) => self.report(report, answer)?,
            &Event::NodeLost { node } => self.node_lost(node, answer),
            Event::Tick => {}
        }
        Ok(())
    }

    /// Time at which the first lease ends.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.expiries.first().map(|&(at, _)| at)
    }

    fn expire(&mut self, answer: &mut Answer) {
        while let Some(&(_, lease)) = self.expiries.first().filter(|(at, _)| *at <= self.now_ns) {
            self.reclaim(lease, false, answer);
            if mutant::is(Mutant::FreedUnasked) {
                let _ = self.released(lease, answer);
            }
        }
    }

    /// Orders a reservation back, `durable` if it is a copy of bytes that are on the PFS. Its bytes become free when the node
    /// has answered.
    fn reclaim(&mut self, lease: Lease, durable: bool, answer: &mut Answer) {
        let Some(entry) = self.leases.get_mut(&lease) else { return };
        self.expiries.remove(&(entry.reservation.expires_ns, lease));
        if !matches!(entry.state, State::Reclaiming { .. }) {
            let durable = durable || mutant::is(Mutant::ReclaimSaysDurable);
            entry.state = State::Reclaiming { durable };
            answer.orders.push(order_back(&entry.reservation, durable));
        }
        if entry.reservation.role == Role::Parity {
            let object = entry.reservation.object;
            self.close_stripe(object, lease);
        }
    }

    /// Closes a parity to further pieces.
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
        owner: Owner,
        answer: &mut Answer,
    ) -> Result<(), Refused> {
        if bytes == 0 || ranks == 0 {
            return Err(Refused::Empty);
        }
        if self.policy.kind != Kind::Pfs && !self.status.is_present(node) {
            return Err(Refused::UnknownNode(node));
        }
        self.give_up(object, answer);
        let opened_ns = self.locations.open(object, ranks, self.now_ns);
        self.homes.entry(object.job).or_default().insert(node);
        let chunk = self.policy.chunk_bytes.filter(|_| !mutant::is(Mutant::ChunkIgnored)).unwrap_or(bytes);
        let mut offset = 0;
        while offset < bytes {
            let want = (offset / chunk + 1).saturating_mul(chunk).min(bytes) - offset;
            let stripes = self.stripes.get(&(object.job, object.checkpoint)).map_or(&[][..], Vec::as_slice);
            let own = &self.homes[&object.job];
            let choice = self.policy.choose(&self.status, stripes, own, node, want);
            let grant = match choice.and_then(|choice| self.within_share(choice, owner)) {
                Some(choice) => self.reserve(object, owner, offset, choice, opened_ns),
                None => Grant { offset, bytes: want, place: Place::Pfs },
            };
            offset += grant.bytes;
            self.note(object, &grant);
            push(&mut answer.grants, grant);
        }
        Ok(())
    }

    /// Cuts a choice to what is left of the owner's share; none if nothing is left.
    fn within_share(&self, choice: Choice, owner: Owner) -> Option<Choice> {
        if self.share == Share::ALL || mutant::is(Mutant::ShareIgnored) {
            return Some(choice);
        }
        let left = self.share.of(self.status.capacity()).saturating_sub(self.used.of(owner.uid));
        choice.within(left, self.policy.object)
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

    fn reserve(&mut self, object: Object, owner: Owner, offset: u64, choice: Choice, opened_ns: u64) -> Grant {
        let expires_ns = self.now_ns + self.lease_ns;
        let make = |coordinator: &mut Coordinator, node, role, guard| {
            let lease = Lease { epoch: coordinator.epoch, number: coordinator.next };
            coordinator.next += 1;
            let incarnation =
                coordinator.status.incarnation(node).expect("the policy chooses nodes that have reported");
            let extents = coordinator.status.take(node, choice.bytes);
            let reservation = Reservation {
                lease,
                node,
                incarnation,
                extents,
                role,
                object,
                owner,
                offset,
                guard,
                opened_ns,
                expires_ns,
            };
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

    /// Adds a member to a parity and extends the parity's lease to the member's.
    fn join(&mut self, object: Object, parity: Lease, member: NodeId) -> Reservation {
        let stripes = self.stripes.get_mut(&(object.job, object.checkpoint)).expect("the policy was shown it");
        let stripe = stripes.iter_mut().find(|stripe| stripe.parity == parity).expect("the policy was shown it");
        stripe.members.push(member);
        self.extend(parity).expect("a stripe that may be joined has its parity")
    }

    /// Restarts a reservation's lease now; none if the reservation is being given back.
    fn extend(&mut self, lease: Lease) -> Option<Reservation> {
        let entry = self.leases.get_mut(&lease).filter(|entry| !matches!(entry.state, State::Reclaiming { .. }))?;
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
        if reservation.role != Role::Parity {
            self.by_object.insert((reservation.object, lease));
        }
        self.used.add(&reservation);
        if let Some(replaced) = self.leases.insert(lease, Entry { reservation, state, promoted: false }) {
            self.used.remove(&replaced.reservation, replaced.reservation.bytes());
        }
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
            Where::Buffer { lease, guard, .. } => {
                stored(lease) && (guard.is_none_or(stored) || mutant::is(Mutant::CopyNotAwaited))
            }
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

    /// Forgets older checkpoints of a job once this one is durable.
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
                self.reclaim(parity, false, answer);
            }
        }
    }

    fn abandon(&mut self, object: Object, answer: &mut Answer) -> Result<(), Refused> {
        self.locations.pieces(object).ok_or(Refused::Unopened(object))?;
        self.give_up(object, answer);
        Ok(())
    }

    /// Orders back all reservations of an earlier attempt at an object, copies included: none may reach the PFS after
    /// this one.
    fn give_up(&mut self, object: Object, answer: &mut Answer) {
        let first = Lease { epoch: Epoch(0), number: 0 };
        let left = self.by_object.range((object, first)..).take_while(|(of, _)| *of == object);
        let left: Vec<Lease> = left.map(|&(_, lease)| lease).collect();
        left.into_iter()
            .filter(|_| !mutant::is(Mutant::AttemptKept))
            .for_each(|lease| self.reclaim(lease, false, answer));
        let Some(record) = self.locations.close(object) else { return };
        for piece in record.pieces {
            // A lost piece of an abandoned attempt needs its parity no more.
            if let Where::Lost { guard: Some(guard) } = piece.at
                && self.bereaved.remove(&guard)
                && !self.members.contains_key(&guard)
            {
                self.reclaim(guard, false, answer);
            }
        }
    }

    fn stored(&mut self, lease: Lease, answer: &mut Answer) -> Result<(), Refused> {
        let entry = self.leases.get_mut(&lease).ok_or(Refused::UnknownLease(lease))?;
        // A reservation that was ordered back stays so: the node answers that order after this message.
        if entry.state == State::Reserved {
            entry.state = State::Stored;
            self.expiries.remove(&(entry.reservation.expires_ns, lease));
            if entry.promoted && !mutant::is(Mutant::PromoteOnce) {
                answer.orders.push(order_drain(&entry.reservation));
            }
        }
        Ok(())
    }

    fn drained(&mut self, lease: Lease, bytes: u64, answer: &mut Answer) -> Result<(), Refused> {
        let entry = self.leases.get_mut(&lease).ok_or(Refused::UnknownLease(lease))?;
        let node = entry.reservation.node;
        let bytes = if mutant::is(Mutant::PartFreesAll) { entry.reservation.bytes() } else { bytes };
        let cut = entry.reservation.cut_front(bytes);
        let done = entry.reservation.extents.is_empty();
        if !mutant::is(Mutant::ShareNotReturned) {
            self.used.remove(&entry.reservation, cut.iter().map(|extent| extent.bytes).sum());
        }
        self.status.put(node, &cut);
        if done {
            let entry = self.remove(lease).expect("it was just seen");
            self.resolve(&entry.reservation, Where::Durable);
            self.leave_guard(&entry.reservation, true, answer);
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
            self.leave_guard(&entry.reservation, false, answer);
        }
        Ok(())
    }

    /// Forgets a reservation without freeing its bytes.
    fn remove(&mut self, lease: Lease) -> Option<Entry> {
        let entry = self.leases.remove(&lease)?;
        self.used.remove(&entry.reservation, entry.reservation.bytes());
        self.expiries.remove(&(entry.reservation.expires_ns, lease));
        self.by_object.remove(&(entry.reservation.object, lease));
        if entry.reservation.role == Role::Parity {
            self.bereaved.remove(&lease);
            self.close_stripe(entry.reservation.object, lease);
        }
        Some(entry)
    }

    /// Notes the fate of the piece of a reservation or of its copy. A durable piece stays durable.
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

    /// Removes a primary, whose bytes may be on the PFS, from its guard. The last one gives the guard back, except a parity of
    /// an earlier epoch. Members of such a parity may have been lost before their nodes reported here, so it is kept until a
    /// newer checkpoint is durable.
    fn leave_guard(&mut self, primary: &Reservation, durable: bool, answer: &mut Answer) {
        let Some(guard) = primary.guard else { return };
        let Some(members) = self.members.get_mut(&guard) else { return };
        members.remove(&primary.lease);
        if members.is_empty() {
            self.members.remove(&guard);
            let is_parity = self.leases.get(&guard).is_some_and(|entry| entry.reservation.role == Role::Parity);
            if is_parity && guard.epoch < self.epoch && !mutant::is(Mutant::OldParityFreed) {
                self.bereaved.insert(guard);
            }
            if !self.bereaved.contains(&guard) {
                self.reclaim(guard, durable && !is_parity, answer);
            }
        }
    }

    /// True if the reservation was ordered back.
    #[cfg(test)]
    pub(crate) fn is_reclaimed(&self, lease: Lease) -> bool {
        self.leases.get(&lease).is_none_or(|entry| matches!(entry.state, State::Reclaiming { .. }))
    }

    /// True for a parity that is kept because one of its members is lost.
    #[cfg(test)]
    pub(crate) fn is_bereaved(&self, lease: Lease) -> bool {
        self.bereaved.contains(&lease)
    }

    /// Invariant for tests: on every node the granted and the free extents are disjoint and make up the buffer, and the
    /// bytes of each owner are those of its reservations.
    ///
    /// # Errors
    /// The first node or the owners that violate it.
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
        let used = UsedBytes::sum(self.leases.values().map(|entry| &entry.reservation));
        if used != self.used {
            return Err(format!("{:?} are counted, and {used:?} reserved", self.used));
        }
        Ok(())
    }
}

fn order_back(reservation: &Reservation, durable: bool) -> Order {
    Order::Reclaim { node: reservation.node, lease: reservation.lease, expires_ns: reservation.expires_ns, durable }
}

fn order_drain(copy: &Reservation) -> Order {
    Order::Promote { node: copy.node, lease: copy.lease }
}

/// Adds a part. A part for the PFS that continues the last one lengthens that instead.
fn push(grants: &mut Vec<Grant>, grant: Grant) {
    match grants.last_mut() {
        Some(last) if last.place == Place::Pfs && grant.place == Place::Pfs => last.bytes += grant.bytes,
        _ => grants.push(grant),
    }
}
