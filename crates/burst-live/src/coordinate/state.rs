//! State of the coordinator daemon: the pure [`Coordinator`], the nodes' connections, and the grant log.

use super::log::{Applied, GrantLog, apply};
use crate::clock;
use crate::message::{FromCoordinator, NodeEntry};
use crate::report::report;
use entresol_burst::{
    Answer, Coordinator, Event, Exposure, Grant, NodeId, Object, Order, Place, Policy, Refused, Report,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A node's connection and what was applied of its messages.
struct Link {
    /// Number of the connection; messages of earlier ones are dropped.
    generation: u64,
    incarnation: u64,
    address: String,
    /// Identity of the node's directory on the PFS, if it has one.
    pfs: Option<String>,
    /// True if this start of the node has reported in this epoch.
    is_known: bool,
    /// True if the node has reported on this connection.
    present: bool,
    /// Number of the last event applied from this start.
    applied: u64,
    orders: Vec<Order>,
}

pub(crate) struct State {
    coordinator: Coordinator,
    policy: Policy,
    log: Option<GrantLog>,
    links: BTreeMap<NodeId, Link>,
    next_generation: u64,
    now_ns: u64,
    /// Number of nodes that are waited for, until the time of giving them up.
    expected: Option<usize>,
    give_up: Instant,
    reported: BTreeSet<NodeId>,
    settled: bool,
    /// Objects whose writers write a part to the PFS directly, with the time at which they were opened.
    direct: BTreeMap<Object, Instant>,
    /// Longest time for which a writer counts as one of those: it may have been killed.
    direct_max: Duration,
}

impl State {
    pub fn new(
        coordinator: Coordinator,
        policy: Policy,
        log: Option<GrantLog>,
        expected: Option<usize>,
        wait: Duration,
        direct_max: Duration,
    ) -> State {
        State {
            coordinator,
            policy,
            log,
            links: BTreeMap::new(),
            next_generation: 0,
            now_ns: 0,
            expected,
            give_up: clock::now() + wait,
            reported: BTreeSet::new(),
            settled: false,
            direct: BTreeMap::new(),
            direct_max,
        }
    }

    /// Applies an event and keeps its orders for the nodes. The logged time never runs backwards.
    fn apply(&mut self, applied: &Applied) -> Result<Vec<Grant>, Refused> {
        self.now_ns = self.now_ns.max(clock::now_ns());
        let result = apply(&mut self.coordinator, self.now_ns, applied);
        let is_idle = matches!(applied, Applied::Event(Event::Tick)) && result.as_ref() == Ok(&Answer::default());
        let grants = result.as_ref().map_or(&[][..], |answer| &answer.grants);
        if let Some(log) = self.log.as_mut().filter(|_| !is_idle)
            && let Err(error) = log.append(self.now_ns, applied, grants)
        {
            report!("the grant log ends here: {error}");
            self.log = None;
        }
        let Answer { grants, orders } = result?;
        for order in orders {
            let (Order::Reclaim { node, .. } | Order::Promote { node, .. }) = order;
            // Orders for an absent node are repeated when it reports.
            if let Some(link) = self.links.get_mut(&node).filter(|link| link.present) {
                link.orders.push(order);
            }
        }
        Ok(grants)
    }

    /// An event of a writer. Bytes that may be the only ones of a rank are not given up for bytes that do not exist yet.
    pub fn writer(&mut self, event: &Event) -> FromCoordinator {
        if let &(Event::Open { object, .. } | Event::Abandon { object }) = event
            && self.coordinator.locations().is_kept(object)
        {
            return FromCoordinator::Kept { why: format!("{object} is in buffers already") };
        }
        match self.apply(&Applied::Event(event.clone())) {
            Ok(grants) => {
                self.note_direct(event, &grants);
                let (addresses, pfs) = (self.addresses(&grants), self.pfs());
                FromCoordinator::Grants { addresses, grants, pfs, seals: Vec::new() }
            }
            Err(absent @ Refused::UnknownNode(_)) => FromCoordinator::Absent { why: absent.to_string() },
            Err(refused) => FromCoordinator::Refused { why: refused.to_string() },
        }
    }

    /// A commit; none if parts are not stored yet.
    pub fn commit(&mut self, event: &Event) -> Option<FromCoordinator> {
        match self.apply(&Applied::Event(event.clone())) {
            Ok(grants) => {
                self.note_direct(event, &grants);
                Some(FromCoordinator::Grants { addresses: BTreeMap::new(), grants, pfs: None, seals: Vec::new() })
            }
            Err(Refused::Incomplete(_)) => None,
            Err(refused) => Some(FromCoordinator::Refused { why: refused.to_string() }),
        }
    }

    /// Notes whether the writer of an object writes to the PFS directly.
    fn note_direct(&mut self, event: &Event, grants: &[Grant]) {
        match *event {
            Event::Open { object, .. } if grants.iter().any(|grant| grant.place == Place::Pfs) => {
                self.direct.insert(object, clock::now());
            }
            Event::Open { object, .. } | Event::Commit { object } | Event::Abandon { object } => {
                self.direct.remove(&object);
            }
            _ => {}
        }
    }

    fn addresses(&self, grants: &[Grant]) -> BTreeMap<u32, String> {
        let buffers = grants.iter().filter_map(|grant| match &grant.place {
            Place::Buffer { primary, guard } => Some([Some(primary.node), guard.as_ref().map(|guard| guard.node)]),
            Place::Pfs => None,
        });
        let nodes = buffers.flatten().flatten();
        nodes.filter_map(|node| Some((node.0, self.links.get(&node)?.address.clone()))).collect()
    }

    /// Identity of the directory on the PFS to which the nodes drain: [`State::hello`] admits no other.
    fn pfs(&self) -> Option<String> {
        self.links.values().filter(|link| link.present).find_map(|link| link.pfs.clone())
    }

    pub fn nodes(&self) -> FromCoordinator {
        let known = self.links.iter().filter(|(_, link)| link.is_known);
        let entry =
            |(&node, link): (&NodeId, &Link)| NodeEntry { node, address: link.address.clone(), present: link.present };
        let Exposure { undrained, at_risk } = self.coordinator.locations().exposure();
        FromCoordinator::Nodes {
            nodes: known.map(entry).collect(),
            settled: self.settled,
            pfs: self.pfs(),
            epoch: self.coordinator.epoch().0,
            undrained,
            at_risk,
            undrained_jobs: self.coordinator.locations().undrained_jobs(),
        }
    }

    /// A node's first message on a connection. Returns the number of the connection. Refused are an earlier start of the node than the
    /// known one, and a node that drains to another directory than the others: writers and readers would not find its bytes.
    pub fn hello(
        &mut self,
        node: NodeId,
        incarnation: u64,
        address: String,
        pfs: Option<String>,
    ) -> Result<(u64, FromCoordinator), String> {
        let is_other = |link: &Link| link.present && link.pfs.is_some() && pfs.is_some() && link.pfs != pfs;
        if let Some((other, _)) = self.links.iter().find(|&(&of, link)| of != node && is_other(link)) {
            return Err(format!("node {} has another directory on the PFS than node {}", node.0, other.0));
        }
        let old = self.links.remove(&node);
        if let Some(link) = old.as_ref().filter(|link| link.is_known && link.incarnation > incarnation) {
            report!("node {}: start {incarnation} is older than start {}", node.0, link.incarnation);
            self.links.extend(old.map(|link| (node, link)));
            return Err("a later start of this node is known".to_owned());
        }
        if old.as_ref().is_some_and(|link| link.present) {
            // Its present connection is given up.
            let _ = self.apply(&Applied::Event(Event::NodeLost { node }));
        }
        let same = old.filter(|link| link.incarnation == incarnation && link.is_known);
        let applied = same.map(|link| link.applied);
        let generation = self.next_generation;
        self.next_generation += 1;
        let link = Link {
            generation,
            incarnation,
            address,
            pfs,
            is_known: applied.is_some(),
            present: false,
            applied: applied.unwrap_or(0),
            orders: Vec::new(),
        };
        self.links.insert(node, link);
        let (epoch, policy) = (self.coordinator.epoch().0, self.policy.to_string());
        Ok((generation, FromCoordinator::Welcome { epoch, applied, policy }))
    }

    fn is_current(&self, node: NodeId, generation: u64) -> bool {
        self.links.get(&node).is_some_and(|link| link.generation == generation)
    }

    /// A node's report on a connection.
    pub fn report(&mut self, node: NodeId, generation: u64, report: Report) -> FromCoordinator {
        let incarnation = report.incarnation;
        let fits = |link: &&mut Link| link.generation == generation && link.incarnation == incarnation;
        let Some(link) = self.links.get_mut(&node).filter(fits).filter(|_| report.node == node) else {
            return FromCoordinator::Refused { why: "a newer connection of this node is known".to_owned() };
        };
        // Orders of the report itself are for this node as well.
        link.present = true;
        if let Err(refused) = self.apply(&Applied::Event(Event::Report(report))) {
            if let Some(link) = self.links.get_mut(&node) {
                link.present = false;
            }
            return FromCoordinator::Refused { why: refused.to_string() };
        }
        if let Some(link) = self.links.get_mut(&node) {
            link.is_known = true;
        }
        self.settled &= !self.reported.insert(node);
        self.settle();
        self.orders(node)
    }

    /// Events of a node, in order. Those that were applied already are passed over.
    pub fn events(&mut self, node: NodeId, generation: u64, events: &[(u64, Event)]) -> FromCoordinator {
        for (number, event) in events {
            let is_current = |link: &&mut Link| link.generation == generation && link.present;
            let Some(link) = self.links.get_mut(&node).filter(is_current) else {
                return FromCoordinator::Refused { why: "a newer connection of this node is known".to_owned() };
            };
            if *number <= link.applied {
                continue;
            }
            link.applied = *number;
            if matches!(event, Event::Stored { .. } | Event::Drained { .. } | Event::Released { .. }) {
                // A lease that is unknown was given up with an earlier epoch or start.
                let _ = self.apply(&Applied::Event(event.clone()));
            }
        }
        match self.is_current(node, generation) {
            true => self.orders(node),
            false => FromCoordinator::Refused { why: "a newer connection of this node is known".to_owned() },
        }
    }

    fn orders(&mut self, node: NodeId) -> FromCoordinator {
        self.direct.retain(|_, since| clock::elapsed(*since) < self.direct_max);
        let direct = !self.direct.is_empty();
        let link = self.links.get_mut(&node);
        let (orders, applied) = link.map_or((Vec::new(), 0), |link| (std::mem::take(&mut link.orders), link.applied));
        FromCoordinator::Orders { orders, applied, direct }
    }

    /// The end of a node's connection.
    pub fn disconnected(&mut self, node: NodeId, generation: u64) {
        let Some(link) = self.links.get_mut(&node).filter(|link| link.generation == generation) else { return };
        link.orders.clear();
        if std::mem::replace(&mut link.present, false) {
            // The loss of a node is never refused.
            let _ = self.apply(&Applied::Event(Event::NodeLost { node }));
        }
    }

    /// Ends leases, and the wait for nodes.
    pub fn tick(&mut self) {
        // A tick is never refused.
        let _ = self.apply(&Applied::Event(Event::Tick));
        self.settle();
    }

    fn settle(&mut self) {
        let all = self.expected.is_some_and(|expected| self.reported.len() >= expected);
        if !self.settled && (all || clock::now() >= self.give_up) {
            self.settled = true;
            // The end of the wait is never refused.
            let _ = self.apply(&Applied::AllReported);
        }
    }

    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }
}
