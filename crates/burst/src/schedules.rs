//! Random schedules of writers, nodes and coordinators, checked at each step by an oracle of their own.

use crate::mutant::{self, Mutant};
use crate::*;
use entresol_core::Random;
use std::collections::{BTreeSet, VecDeque};

const LEASE: u64 = 20;
const CAPACITY: u64 = 16;
const NODES: usize = 3;
const POLICIES: [&str; 5] = ["ldbb", "cdbb", "cdbb:object=whole", "cdbb:redundancy=partner", "cdbb:redundancy=xor"];

struct World {
    random: Random,
    policy: Policy,
    now: u64,
    skew: [u64; NODES],
    current: Coordinator,
    older: Option<Coordinator>,
    nodes: Vec<NodeStore>,
    granted: Vec<Reservation>,
    to_coordinator: Vec<VecDeque<Event>>,
    to_nodes: VecDeque<Order>,
    released: BTreeSet<Lease>,
    /// Primaries of each node as they were stored.
    stored: Vec<VecDeque<Lease>>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let policy: Policy = POLICIES[random.below(5) as usize].parse().expect("a policy");
        let mut world = World {
            skew: [random.below(8), random.below(8), 0],
            random,
            policy,
            now: 0,
            current: Coordinator::new(policy, Epoch(1), LEASE),
            older: None,
            nodes: (0..NODES as u32).map(|node| NodeStore::new(NodeId(node), 0, CAPACITY)).collect(),
            granted: Vec::new(),
            to_coordinator: vec![VecDeque::new(); NODES],
            to_nodes: VecDeque::new(),
            released: BTreeSet::new(),
            stored: vec![VecDeque::new(); NODES],
        };
        world.adopt();
        world
    }

    /// All nodes join the current epoch; what was on its way to or from the older coordinator is lost.
    fn adopt(&mut self) {
        self.to_nodes.clear();
        for node in 0..NODES {
            self.to_coordinator[node].clear();
            let report = self.nodes[node].adopt(self.current.epoch()).expect("a higher epoch");
            self.tell(Event::Report(report));
        }
    }

    fn tell(&mut self, event: Event) {
        if let Ok(answer) = self.current.apply(self.now, &event) {
            self.take(answer);
        }
    }

    fn take(&mut self, answer: Answer) {
        self.to_nodes.extend(answer.orders);
        for grant in answer.grants {
            if let Place::Buffer { primary, guard } = grant.place {
                self.granted.push(primary);
                self.granted.extend(guard);
            }
        }
    }

    fn object(&mut self) -> Object {
        let checkpoint = CheckpointId(self.random.below(3));
        Object { job: JobId(0), checkpoint, rank: self.random.below(2) as u32 }
    }

    fn step(&mut self) -> Result<(), String> {
        let node = self.random.below(NODES as u64) as usize;
        let clock = self.now + self.skew[node];
        let object = self.object();
        let bytes = 1 + self.random.below(12);
        let open = Event::Open { object, ranks: 2, node: NodeId(node as u32), bytes };
        match self.random.below(20) {
            0..3 => self.tell(open),
            // An older coordinator that does not know of its successor.
            3 => {
                let answer = self.older.as_mut().and_then(|older| older.apply(self.now, &open).ok());
                self.granted.extend(answer.into_iter().flat_map(|answer| answer.grants).filter_map(|grant| {
                    if let Place::Buffer { primary, .. } = grant.place { Some(primary) } else { None }
                }));
            }
            4..8 if !self.granted.is_empty() => self.admit()?,
            8..11 => {
                let pieces: Vec<Lease> = self.nodes[node].pieces().map(|piece| piece.lease).collect();
                if pieces.is_empty() {
                    return Ok(());
                }
                let lease = pieces[self.random.below(pieces.len() as u64) as usize];
                let piece = self.nodes[node].pieces().find(|piece| piece.lease == lease).expect("it is there").clone();
                if let Ok(event) = self.nodes[node].stored(lease, clock) {
                    // Saying it again changes nothing.
                    if piece.role == Role::Primary && !self.stored[node].contains(&lease) {
                        self.stored[node].push_back(lease);
                    }
                    self.to_coordinator[node].push_back(event);
                }
            }
            11..13 => self.drain(node)?,
            13..16 => {
                if let Some(event) = self.to_coordinator[node].pop_front() {
                    self.tell(event);
                }
            }
            16 => {
                if let Some(order) = self.to_nodes.pop_front() {
                    let (Order::Reclaim { node, .. } | Order::Promote { node, .. }) = order;
                    let node = node.0 as usize;
                    if let Some(event) = self.nodes[node].obey(order) {
                        if let Event::Released { lease } = event {
                            self.released.insert(lease);
                            self.stored[node].retain(|&stored| stored != lease);
                        }
                        self.to_coordinator[node].push_back(event);
                    }
                }
            }
            17 => {
                self.now += self.random.below(LEASE);
                self.tell(Event::Tick);
            }
            18 if self.random.chance(0.1) => {
                let next = Coordinator::new(self.policy, Epoch(self.current.epoch().0 + 1), LEASE);
                self.older = Some(std::mem::replace(&mut self.current, next));
                self.adopt();
            }
            18 => self.tell(Event::Abandon { object }),
            _ => self.tell(if bytes.is_multiple_of(2) { Event::Commit { object } } else { Event::Renew { object } }),
        }
        self.check()
    }

    fn admit(&mut self) -> Result<(), String> {
        let at = self.random.below(self.granted.len() as u64) as usize;
        let grant = self.granted[at].clone();
        let node = grant.node.0 as usize;
        let clock = self.now + self.skew[node];
        match self.nodes[node].admit(&grant, clock) {
            Ok(()) if grant.expires_ns <= clock => Err(format!("{grant:?} outlived its lease at {clock}")),
            Ok(()) if Some(grant.lease.epoch) != self.nodes[node].epoch() => Err(format!("{grant:?}: wrong epoch")),
            Ok(()) if self.released.contains(&grant.lease) => Err(format!("{grant:?} was given back")),
            // Its own piece may have gone to the PFS in part or whole; other bytes were granted twice.
            Err(NotAdmitted::Occupied) if self.is_live(&grant) => Err(format!("{grant:?}: bytes granted twice")),
            _ => Ok(()),
        }
    }

    fn is_live(&self, grant: &Reservation) -> bool {
        self.current.reservations(grant.node).any(|live| live.lease == grant.lease)
    }

    fn drain(&mut self, node: usize) -> Result<(), String> {
        let Some(piece) = self.nodes[node].next_drain(DrainOrder::Fifo).cloned() else { return Ok(()) };
        if piece.role == Role::Primary {
            let first = self.stored[node].pop_front();
            if first != Some(piece.lease) {
                return Err(format!("{piece:?} drained before {first:?}"));
            }
        }
        let event = self.nodes[node].drained(piece.lease, piece.bytes()).expect("its drain is under way");
        self.to_coordinator[node].push_back(event);
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.current.check()?;
        for node in &self.nodes {
            let mut used = [false; CAPACITY as usize];
            for extent in node.pieces().flat_map(|piece| &piece.extents) {
                for byte in &mut used[extent.offset as usize..extent.end() as usize] {
                    if std::mem::replace(byte, true) {
                        return Err(format!("a byte of {extent:?} has two owners"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The first seed of a broken schedule, and what broke.
fn broken(seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let mut world = World::new(seed);
        (0..60).find_map(|_| world.step().err()).map(|why| (seed, why))
    })
}

#[test]
fn random_schedules_use_no_byte_twice() {
    assert_eq!(broken(0..20_000), None);
}

#[test]
#[ignore = "a million schedules take about a minute: `make test-long` runs it"]
fn a_million_random_schedules_use_no_byte_twice() {
    assert_eq!(broken(0..1_000_000), None);
}

#[test]
fn the_schedules_find_every_mutant() {
    for mutant in Mutant::ALL {
        mutant::activate(Some(mutant));
        let found = broken(0..20_000);
        mutant::activate(None);
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?} was not found");
    }
}
