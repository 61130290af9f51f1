//! One run: the coordinator and the nodes' stores, driven in virtual time by programs over the fluid model.

use super::fluid::{Fluid, Passed};
use super::model::{Cluster, CopiesBy, StreamOf, Workload};
use crate::{
    CheckpointId, Coordinator, DrainPriority, Epoch, Event, Grant, JobId, LEASE_NS, Lease, NodeId, NodeStore, Object,
    Order, Owner, Place, Policy, Report, Reservation, Role,
};
use std::collections::{BTreeMap, VecDeque};

/// One checkpoint of one program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoint {
    /// Position of the program in the workload.
    pub program: usize,
    /// Number of the checkpoint, from 0.
    pub number: u32,
    /// Time at which its writers opened.
    pub start_s: f64,
    /// Time at which its last writer had committed.
    pub end_s: f64,
}

/// Protection of a buffered piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    None,
    /// A copy on this node.
    Copy(u32),
    /// A parity on this node, by its name.
    Parity(u32, Lease),
}

/// A piece of a checkpoint in a buffer, for the study of failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffered {
    /// Position of the program in the workload.
    pub program: usize,
    /// The checkpoint's number.
    pub number: u32,
    /// The node.
    pub node: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Redundancy that protects the piece.
    pub protection: Protection,
    /// Time of the grant.
    pub from_s: f64,
    /// Time at which the piece was on the PFS.
    pub until_s: f64,
}

/// Bytes of all checkpoints, by their first destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Into the buffer of the writer's node.
    pub local: u64,
    /// Into the buffer of another node.
    pub remote: u64,
    /// To the PFS directly.
    pub pfs: u64,
}

/// Result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Start time of each program.
    pub starts_s: Vec<f64>,
    /// Every checkpoint, in the order of completion.
    pub checkpoints: Vec<Checkpoint>,
    /// Every piece that was buffered.
    pub buffered: Vec<Buffered>,
    /// Bytes by destination.
    pub destinations: Destinations,
    /// All events of the coordinator with their times. A new coordinator gives the same answers to them.
    pub events: Vec<(u64, Event)>,
}

impl Run {
    /// The sum of all checkpoints' completion times (figure 5.6).
    pub fn total_s(&self) -> f64 {
        self.checkpoints.iter().map(|checkpoint| checkpoint.end_s - checkpoint.start_s).sum()
    }

    /// The same sum for one program (figure 5.7).
    pub fn program_total_s(&self, program: usize) -> f64 {
        self.times_s(program).iter().sum()
    }

    /// The times of a program's checkpoints, in order (figure 5.8).
    pub fn times_s(&self, program: usize) -> Vec<f64> {
        let mut own: Vec<&Checkpoint> = self.checkpoints.iter().filter(|c| c.program == program).collect();
        own.sort_by_key(|checkpoint| checkpoint.number);
        own.iter().map(|checkpoint| checkpoint.end_s - checkpoint.start_s).collect()
    }
}

/// Runs a workload under a policy until the last byte is on the PFS.
///
/// # Panics
/// When the workload has more writers than the cluster has places for, or a rate is not above 0.
pub fn run(cluster: &Cluster, workload: &Workload, policy: Policy, seed: u64) -> Run {
    run_in_order(cluster, workload, policy, seed, &|program, _| (0..workload.programs[program].writers).collect())
}

/// As [`run`], but with the ranks of a program's checkpoint opening in this order, which may be that of a live run.
///
/// # Panics
/// As [`run`], or when a rank is missing.
pub fn run_in_order(
    cluster: &Cluster,
    workload: &Workload,
    policy: Policy,
    seed: u64,
    order: &dyn Fn(usize, u32) -> Vec<u32>,
) -> Run {
    let mut simulation = Simulation::new(cluster, workload, policy, seed, order);
    while simulation.step() {}
    simulation.result
}

#[derive(Clone, Copy, Debug)]
enum Tag {
    /// A part of a writer's object.
    Part { writer: usize, part: usize },
    /// A part's copy, or its share of a parity.
    Guard { writer: usize, part: usize },
    /// A piece being written to the PFS.
    Drain { node: u32, lease: Lease },
}

struct Writer {
    object: Object,
    node: u32,
    parts: Vec<Grant>,
    lanes: Vec<Lane>,
    /// The lane of each part.
    lane_of: Vec<usize>,
    /// Parts that are not at their destinations yet, guards included.
    missing: usize,
}

struct Running {
    /// Number of the next checkpoint, and the time in seconds at which it is due.
    number: u32,
    due_s: f64,
    start_s: f64,
    /// Number of writers that have not committed.
    writers: u32,
}

struct Simulation<'a> {
    cluster: &'a Cluster,
    workload: &'a Workload,
    policy: Policy,
    /// Ranks of a program's checkpoint in the order in which they open.
    order: &'a dyn Fn(usize, u32) -> Vec<u32>,
    now_s: f64,
    fluid: Fluid<Tag>,
    coordinator: Coordinator,
    nodes: Vec<NodeStore>,
    draining: Vec<bool>,
    programs: Vec<Running>,
    /// One slot for each writer of each program.
    writers: Vec<Option<Writer>>,
    first_writer: Vec<usize>,
    renewal_s: f64,
    pieces: BTreeMap<Lease, usize>,
    result: Run,
}

impl<'a> Simulation<'a> {
    fn new(
        cluster: &'a Cluster,
        workload: &'a Workload,
        policy: Policy,
        seed: u64,
        order: &'a dyn Fn(usize, u32) -> Vec<u32>,
    ) -> Self {
        let rates = [cluster.link, cluster.copy, cluster.stream, cluster.pfs];
        assert!(rates.iter().all(|&rate| rate > 0.0), "every rate is above 0: {cluster:?}");
        let starts_s = workload.starts(seed);
        let mut writers = 0;
        let first_writer = workload.programs.iter().map(|program| {
            let first = writers;
            writers += program.writers as usize;
            first
        });
        let first_writer = first_writer.collect();
        assert!(writers <= cluster.writers() as usize, "{writers} writers, {} places", cluster.writers());
        let each = cluster.nodes as usize;
        // For each node: out, in, copy and to the PFS; then the PFS.
        let of_node = [
            cluster.link,
            cluster.link.min(cluster.intake),
            cluster.copy,
            if cluster.stream_of == StreamOf::Node { cluster.stream } else { f64::INFINITY },
        ];
        let mut capacity: Vec<f64> = of_node.iter().flat_map(|&rate| vec![rate; each]).collect();
        capacity.push(cluster.pfs);
        let running = |&start_s: &f64| Running { number: 0, due_s: start_s + workload.interval_s, start_s, writers: 0 };
        let mut simulation = Simulation {
            cluster,
            workload,
            policy,
            order,
            now_s: 0.0,
            fluid: Fluid::new(capacity),
            coordinator: Coordinator::new(policy, Epoch(1), LEASE_NS),
            nodes: (0..cluster.nodes).map(|node| NodeStore::new(NodeId(node), 0, cluster.buffer_bytes)).collect(),
            draining: vec![false; each],
            programs: starts_s.iter().map(running).collect(),
            writers: (0..writers).map(|_| None).collect(),
            first_writer,
            renewal_s: f64::INFINITY,
            pieces: BTreeMap::new(),
            result: Run {
                starts_s,
                checkpoints: Vec::new(),
                buffered: Vec::new(),
                destinations: Destinations::default(),
                events: Vec::new(),
            },
        };
        for node in 0..each {
            let report: Report = simulation.nodes[node].adopt(Epoch(1)).expect("its first epoch");
            simulation.tell(Event::Report(report));
        }
        simulation
    }

    fn now_ns(&self) -> u64 {
        (self.now_s * 1e9) as u64
    }

    /// Sends an event to the coordinator, and has the nodes obey its orders.
    fn tell(&mut self, event: Event) -> Vec<Grant> {
        let now_ns = self.now_ns();
        let answer = self.coordinator.apply(now_ns, &event).unwrap_or_else(|refused| panic!("{event:?}: {refused}"));
        self.result.events.push((now_ns, event));
        for order in answer.orders {
            let (Order::Reclaim { node, .. } | Order::Promote { node, .. }) = order;
            if let Some(event) = self.nodes[node.0 as usize].obey(order) {
                self.tell(event);
            }
        }
        answer.grants
    }

    /// Advances to the next event; false if there is none.
    fn step(&mut self) -> bool {
        let is_due = |running: &&Running| running.writers == 0 && running.number < self.workload.checkpoints;
        let due = self.programs.iter().filter(is_due).map(|running| running.due_s).min_by(f64::total_cmp);
        let end_s = self.fluid.next_end_s().map(|seconds| self.now_s + seconds);
        let Some(next_s) = due.into_iter().chain(end_s).min_by(f64::total_cmp) else { return false };
        let next_s = next_s.min(self.renewal_s).max(self.now_s);
        let ended = self.fluid.advance(next_s - self.now_s);
        self.now_s = next_s;
        for passed in ended {
            match passed {
                Passed::End(tag) => self.ended(tag),
                Passed::Mark(tag) => self.marked(tag),
            }
        }
        if self.now_s >= self.renewal_s {
            self.renew();
        }
        for program in 0..self.programs.len() {
            let running = &self.programs[program];
            let idle = running.writers == 0 && running.number < self.workload.checkpoints;
            if idle && running.due_s <= self.now_s {
                self.checkpoint(program);
            }
        }
        true
    }

    /// Has all writers of a program open their objects, one after the other.
    fn checkpoint(&mut self, program: usize) {
        let spec = self.workload.programs[program];
        let running = &mut self.programs[program];
        running.start_s = self.now_s;
        running.writers = spec.writers;
        let checkpoint = CheckpointId(u64::from(running.number));
        let number = running.number;
        let ranks = (self.order)(program, number);
        assert_eq!(ranks.len(), spec.writers as usize, "each rank of {} opens once", spec.name);
        for rank in ranks {
            let slot = self.first_writer[program] + rank as usize;
            let node = self.cluster.node_of(slot as u32);
            let object = Object { job: JobId(program as u64), checkpoint, rank };
            // The bytes of a checkpoint are divided evenly; the first writers take one byte more if there is a
            // remainder.
            let (share, rest) = (spec.bytes / u64::from(spec.writers), spec.bytes % u64::from(spec.writers));
            let bytes = share + u64::from(u64::from(rank) < rest);
            let grants = self.tell(Event::Open {
                object,
                ranks: spec.writers,
                node: NodeId(node),
                bytes,
                owner: Owner::default(),
            });
            grants.iter().for_each(|grant| self.note(program, number, node, grant));
            let (lanes, lane_of) = lanes(&grants, self.policy.streams);
            let missing = grants.len();
            let begin: Vec<usize> = lanes.iter().map(|lane| lane.streams).collect();
            self.writers[slot] = Some(Writer { object, node, parts: grants, lanes, lane_of, missing });
            for (lane, streams) in begin.into_iter().enumerate() {
                (0..streams).for_each(|_| self.next_part(slot, lane));
            }
        }
        self.renewal_s = self.renewal_s.min(self.now_s + LEASE_NS as f64 / 2e9);
    }

    fn note(&mut self, program: usize, number: u32, writer: u32, grant: &Grant) {
        let Place::Buffer { primary, guard } = &grant.place else {
            self.result.destinations.pfs += grant.bytes;
            return;
        };
        let node = primary.node.0;
        match node == writer {
            true => self.result.destinations.local += grant.bytes,
            false => self.result.destinations.remote += grant.bytes,
        }
        let protection = match guard {
            Some(guard) if guard.role == Role::Parity => Protection::Parity(guard.node.0, guard.lease),
            Some(guard) => Protection::Copy(guard.node.0),
            None => Protection::None,
        };
        self.pieces.insert(primary.lease, self.result.buffered.len());
        let (from_s, until_s) = (self.now_s, f64::INFINITY);
        self.result.buffered.push(Buffered { program, number, node, bytes: grant.bytes, protection, from_s, until_s });
    }

    /// Starts the next part of a lane, if there is one.
    fn next_part(&mut self, slot: usize, lane: usize) {
        let writer = self.writers[slot].as_mut().expect("a writer at work");
        let Some(part) = writer.lanes[lane].parts.pop_front() else { return };
        let (node, grant) = (writer.node, writer.parts[part].clone());
        let tag = Tag::Part { writer: slot, part };
        match &grant.place {
            Place::Pfs => self.send_to_pfs(tag, node, grant.bytes, f64::INFINITY, false),
            Place::Buffer { primary, .. } => {
                self.admit(primary);
                self.send_to_node(tag, node, primary.node.0, grant.bytes);
            }
        }
    }

    fn admit(&mut self, reservation: &Reservation) {
        let now_ns = self.now_ns();
        let admitted = self.nodes[reservation.node.0 as usize].admit(reservation, now_ns);
        admitted.unwrap_or_else(|refused| panic!("{reservation:?}: {refused}"));
    }

    fn send_to_node(&mut self, tag: Tag, from: u32, to: u32, bytes: u64) {
        let each = self.cluster.nodes as u16;
        let (from, to) = (from as u16, to as u16);
        let (uses, limit) = match from == to {
            true => ([Some(2 * each + to), None, None], f64::INFINITY),
            false => ([Some(from), Some(each + to), None], self.cluster.peer_stream),
        };
        self.fluid.add(tag, bytes, uses, limit, false);
    }

    fn send_to_pfs(&mut self, tag: Tag, from: u32, bytes: u64, mark: f64, low: bool) {
        let (each, from) = (self.cluster.nodes as u16, from as u16);
        let link = Some(from).filter(|_| !self.cluster.pfs_apart);
        let (limit, own) = match self.cluster.stream_of {
            StreamOf::Stream => (self.cluster.stream, None),
            StreamOf::Node => (f64::INFINITY, Some(3 * each + from)),
        };
        self.fluid.add_marked(tag, bytes, mark, [link, own, Some(4 * each)], limit, low);
    }

    fn ended(&mut self, tag: Tag) {
        match tag {
            Tag::Part { writer, part } => self.part_ended(writer, part),
            Tag::Guard { writer, part } => {
                let at = self.writers[writer].as_ref().expect("a writer waits for it");
                let Place::Buffer { guard: Some(guard), .. } = at.parts[part].place.clone() else { unreachable!() };
                // A guard is given back early when its primary reaches the PFS first.
                let now_ns = self.now_ns();
                if let Ok(event) = self.nodes[guard.node.0 as usize].stored(guard.lease, now_ns) {
                    self.tell(event);
                }
                if self.cluster.copies_by == CopiesBy::Writer {
                    let lane = self.writers[writer].as_ref().expect("a writer waits for it").lane_of[part];
                    self.next_part(writer, lane);
                }
                self.part_done(writer);
            }
            Tag::Drain { node, lease } => {
                self.drained(node, lease, u64::MAX);
                self.draining[node as usize] = false;
                if let Some(piece) = self.pieces.remove(&lease) {
                    self.result.buffered[piece].until_s = self.now_s;
                }
                self.drain(node);
            }
        }
    }

    fn part_ended(&mut self, slot: usize, part: usize) {
        let writer = self.writers[slot].as_ref().expect("a writer at work");
        let place = writer.parts[part].place.clone();
        let (lane, node) = (writer.lane_of[part], writer.node);
        let by_writer = self.cluster.copies_by == CopiesBy::Writer;
        let mut done = true;
        if let Place::Buffer { primary, guard } = place {
            let now_ns = self.now_ns();
            let event = self.nodes[primary.node.0 as usize].stored(primary.lease, now_ns).expect("its lease runs");
            self.tell(event);
            if let Some(guard) = guard {
                self.admit(&guard);
                let (bytes, from) = (primary.bytes(), if by_writer { node } else { primary.node.0 });
                self.send_to_node(Tag::Guard { writer: slot, part }, from, guard.node.0, bytes);
                done = false;
            }
            self.drain(primary.node.0);
        }
        if done || !by_writer {
            self.next_part(slot, lane);
        }
        if done {
            self.part_done(slot);
        }
    }

    fn part_done(&mut self, slot: usize) {
        let writer = self.writers[slot].as_mut().expect("a writer at work");
        writer.missing -= 1;
        if writer.missing > 0 {
            return;
        }
        let object = writer.object;
        self.writers[slot] = None;
        self.tell(Event::Commit { object });
        let program = object.job.0 as usize;
        let running = &mut self.programs[program];
        running.writers -= 1;
        if running.writers == 0 {
            let (number, start_s) = (running.number, running.start_s);
            self.result.checkpoints.push(Checkpoint { program, number, start_s, end_s: self.now_s });
            running.number += 1;
            let from_start_s = self.result.starts_s[program] + f64::from(running.number + 1) * self.workload.interval_s;
            running.due_s = if self.workload.from_end { self.now_s + self.workload.interval_s } else { from_start_s };
        }
    }

    /// Starts a node's only stream to the PFS, for one piece at a time.
    fn drain(&mut self, node: u32) {
        if self.draining[node as usize] {
            return;
        }
        let Some(reservation) = self.nodes[node as usize].next_drain(self.policy.order) else { return };
        let (lease, bytes) = (reservation.lease, reservation.bytes());
        self.draining[node as usize] = true;
        let mark = self.cluster.batch_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
        let low = self.policy.drain == DrainPriority::Low;
        self.send_to_pfs(Tag::Drain { node, lease }, node, bytes, mark, low);
    }

    /// A batch of a drain is on the PFS. The rest of the piece, if any, is the last batch.
    fn marked(&mut self, tag: Tag) {
        let (Tag::Drain { node, lease }, Some(batch)) = (tag, self.cluster.batch_bytes) else { return };
        self.drained(node, lease, batch);
    }

    fn drained(&mut self, node: u32, lease: Lease, bytes: u64) {
        let drained = self.nodes[node as usize].drained(lease, bytes);
        self.tell(drained.expect("its drain is under way"));
    }

    /// Renews the leases of writers that have been at work for long.
    fn renew(&mut self) {
        self.renewal_s = f64::INFINITY;
        for slot in 0..self.writers.len() {
            let Some(writer) = &self.writers[slot] else { continue };
            self.renewal_s = self.now_s + LEASE_NS as f64 / 2e9;
            let object = writer.object;
            for grant in self.tell(Event::Renew { object }) {
                let writer = self.writers[slot].as_mut().expect("it is at work");
                let part = writer.parts.iter().position(|part| part.offset == grant.offset);
                let part = part.expect("a renewal is of a part");
                let waits = writer.lanes[writer.lane_of[part]].parts.contains(&part);
                writer.parts[part] = grant.clone();
                let Place::Buffer { primary, guard } = grant.place else { continue };
                // A node that knows the reservation is notified of the later end; any other node gets it with the
                // write.
                let known = |this: &Self, r: &Reservation| {
                    this.nodes[r.node.0 as usize].pieces().any(|piece| piece.lease == r.lease)
                };
                for reservation in [Some(primary), guard].into_iter().flatten() {
                    if !waits && known(self, &reservation) {
                        self.admit(&reservation);
                    }
                }
            }
        }
    }
}

/// Parts of an object that wait for a stream.
#[derive(Default)]
struct Lane {
    parts: VecDeque<usize>,
    /// Number of streams that send the parts.
    streams: usize,
}

/// Divides the parts of an object into lanes; also returns the lane of each part. `streams` streams send the parts in
/// order. If there are several, one more stream sends the parts for the PFS. With `None` every destination has a
/// stream.
fn lanes(parts: &[Grant], streams: Option<u32>) -> (Vec<Lane>, Vec<usize>) {
    let destination = |grant: &Grant| match &grant.place {
        Place::Buffer { primary, .. } => Some(primary.node),
        Place::Pfs => None,
    };
    let mut seen: Vec<Option<NodeId>> = Vec::new();
    let mut lane_of = |grant: &Grant| match streams {
        Some(1) => 0,
        Some(_) => usize::from(grant.place == Place::Pfs),
        None => {
            let own = destination(grant);
            seen.iter().position(|&other| other == own).unwrap_or_else(|| {
                seen.push(own);
                seen.len() - 1
            })
        }
    };
    let of_part: Vec<usize> = parts.iter().map(&mut lane_of).collect();
    let mut lanes: Vec<Lane> = Vec::new();
    lanes.resize_with(of_part.iter().max().map_or(0, |last| last + 1), Lane::default);
    for (part, &lane) in of_part.iter().enumerate() {
        lanes[lane].parts.push_back(part);
        lanes[lane].streams = if lane == 0 { streams.unwrap_or(1) as usize } else { 1 };
    }
    (lanes, of_part)
}
