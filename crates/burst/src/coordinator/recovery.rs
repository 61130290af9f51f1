//! Loss and return of nodes: reports, lost pieces, and copies that are drained in place of their primaries.

use super::{Coordinator, Entry, State, order_back, order_drain};
use crate::location::{Piece, Where};
use crate::mutant::{self, Mutant};
use crate::protocol::{Answer, HeldState, Lease, NodeId, Refused, Report, Reservation, Role};

impl Coordinator {
    pub(super) fn report(&mut self, report: &Report, answer: &mut Answer) -> Result<(), Refused> {
        let node = report.node;
        match self.status.incarnation(node) {
            Some(known) if known > report.incarnation => return Err(Refused::StaleReport(node)),
            Some(known) if known == report.incarnation => {
                self.status.arrive(node, known);
                self.repeat_orders(node, answer);
                return Ok(());
            }
            _ => {}
        }
        self.status.join(node, report.incarnation, report.capacity);
        self.take_stock(report, answer);
        Ok(())
    }

    /// Repeats orders that were lost with the connection, or that the node has obeyed already.
    fn repeat_orders(&self, node: NodeId, answer: &mut Answer) {
        for entry in self.leases.values().filter(|entry| entry.reservation.node == node) {
            match entry.state {
                State::Reclaiming { durable } => answer.orders.push(order_back(&entry.reservation, durable)),
                State::Stored if entry.promoted && !mutant::is(Mutant::PromoteOnce) => {
                    answer.orders.push(order_drain(&entry.reservation));
                }
                State::Stored | State::Reserved => {}
            }
        }
    }

    /// Compares the known reservations of a node with its report, after a restart of the node or of the coordinator.
    fn take_stock(&mut self, report: &Report, answer: &mut Answer) {
        let node = report.node;
        let known: Vec<Lease> = self.reservations(node).map(|reservation| reservation.lease).collect();
        let held = |lease: Lease| report.held.iter().any(|(reservation, _)| reservation.lease == lease);
        for lease in known.into_iter().filter(|&lease| !held(lease)) {
            // Running leases are lost as well: the node refuses grants of an earlier start.
            self.lose(lease, answer);
        }
        for (reservation, state) in &report.held {
            self.take_back(reservation, *state, answer);
        }
    }

    /// Adds a piece that a node holds.
    fn take_back(&mut self, reservation: &Reservation, state: HeldState, answer: &mut Answer) {
        let (node, lease) = (reservation.node, reservation.lease);
        let mut taken = Vec::new();
        for &extent in &reservation.extents {
            if !self.status.take_exactly(node, extent) {
                // A node that reports the same bytes twice is not trusted; the piece is ordered back.
                self.status.put(node, &taken);
                answer.orders.push(order_back(reservation, false));
                return;
            }
            taken.push(extent);
        }
        let known = self.leases.get(&lease).map(|entry| entry.state);
        let state = match (known, state) {
            (Some(reclaiming @ State::Reclaiming { .. }), _) => reclaiming,
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
        if let State::Reclaiming { durable } = state {
            answer.orders.push(order_back(reservation, durable));
        }
    }

    /// Handles the loss of a reservation that a node held in memory.
    fn lose(&mut self, lease: Lease, answer: &mut Answer) {
        let Some(entry) = self.remove(lease) else { return };
        if entry.reservation.role != Role::Primary {
            return;
        }
        let Some(guard) = entry.reservation.guard else {
            return self.resolve(&entry.reservation, Where::Lost { guard: None });
        };
        self.resolve(&entry.reservation, Where::Lost { guard: Some(guard) });
        let role = self.leases.get(&guard).map(|entry| entry.reservation.role);
        // The guard's node may not have reported yet. Its piece then has no member here, and is left to `all_reported`.
        if role.is_none() && mutant::is(Mutant::UnknownGuardKept) {
            return;
        }
        if let Some(members) = self.members.get_mut(&guard) {
            members.remove(&lease);
            if members.is_empty() {
                self.members.remove(&guard);
            }
        }
        match role {
            Some(Role::Copy) => self.promote(guard, answer),
            Some(_) => {
                // The parity is needed for the lost piece, and may protect no further one until then.
                self.bereaved.insert(guard);
                if !mutant::is(Mutant::BereavedJoined) {
                    self.close_stripe(entry.reservation.object, guard);
                }
            }
            None => {}
        }
    }

    /// Has a copy drained: now if it is stored, or else as soon as it is.
    fn promote(&mut self, copy: Lease, answer: &mut Answer) {
        let Some(entry) = self.leases.get_mut(&copy) else { return };
        entry.promoted = true;
        if entry.state == State::Stored {
            answer.orders.push(order_drain(&entry.reservation));
        }
    }

    /// Drains the copies of an absent node's pieces. If the node returns with its pieces, they are drained twice, to
    /// the same place.
    pub(super) fn node_lost(&mut self, node: NodeId, answer: &mut Answer) {
        self.status.depart(node);
        let guards: Vec<Lease> = self.reservations(node).filter_map(|reservation| reservation.guard).collect();
        for guard in guards {
            if self.leases.get(&guard).is_some_and(|entry| entry.reservation.role == Role::Copy) {
                self.promote(guard, answer);
            }
        }
    }

    /// Gives back guards that protect nothing. To be called when every node of the configuration has reported or was
    /// given up, and again after the report of one that was given up.
    ///
    /// A copy whose primary is on no node may be the last one, and is drained; bytes that are on the PFS already stay
    /// the same. A parity without members may be needed to rebuild a lost piece. It is kept until a newer checkpoint of
    /// its job is durable.
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
                Role::Parity
                    if self.leases[&lease].state == State::Stored && !mutant::is(Mutant::OrphanParityFreed) =>
                {
                    self.bereaved.insert(lease);
                }
                _ if self.bereaved.contains(&lease) => {}
                _ => self.reclaim(lease, false, &mut answer),
            }
        }
        answer
    }
}
