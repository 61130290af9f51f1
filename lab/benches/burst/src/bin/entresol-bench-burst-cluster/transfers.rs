//! The transfers of a run, from the coordinator's grant log and the records of the PFS; the time that the buckets have allowed each; and
//! the bytes that belong on each link.
//!
//! A writer sends the parts of an object one after the other, the copy of a part after it. So a transfer into a buffer begins when the one
//! before it was stored, and ends when the coordinator hears that it is stored.

use crate::pfs::Moved;
use crate::role::Put;
use anyhow::{Context, Result, ensure};
use entresol_burst::simulate::{Cluster, Run};
use entresol_burst::{Coordinator, Epoch, Event, Grant, LEASE_NS, Lease, Object, Place, Policy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;

/// A transfer is late if it took longer than its buckets have allowed by this factor, and this many seconds.
const LATE_FACTOR: f64 = 1.15;
const LATE_S: f64 = 0.010;
/// Largest share of late transfers in a run that counts.
pub const LATE_MAX: f64 = 0.03;

/// A bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bucket {
    Out(u32),
    Into(u32),
    Copy(u32),
    Pfs,
}

/// Purpose of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Local,
    Remote,
    Copy,
    Direct,
    Drain,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Local, Kind::Remote, Kind::Copy, Kind::Direct, Kind::Drain];

    const fn name(self) -> &'static str {
        match self {
            Kind::Local => "into the own node",
            Kind::Remote => "into another node",
            Kind::Copy => "copies",
            Kind::Direct => "to the PFS directly",
            Kind::Drain => "drains",
        }
    }
}

/// Bytes from one host to another.
struct Transfer {
    kind: Kind,
    buckets: Vec<Bucket>,
    bytes: u64,
    begin_ns: u64,
    end_ns: u64,
}

impl Transfer {
    fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9
    }
}

fn to_node(from: u32, to: u32) -> Vec<Bucket> {
    if from == to { vec![Bucket::Copy(to)] } else { vec![Bucket::Out(from), Bucket::Into(to)] }
}

/// The grants of one opening of an object, and its time.
struct Opened {
    node: u32,
    at_ns: u64,
    grants: Vec<Grant>,
}

/// The grant log of a coordinator.
#[derive(Default)]
pub struct GrantLog {
    /// The newest opening of each object.
    opened: BTreeMap<Object, Opened>,
    stored: BTreeMap<Lease, u64>,
    /// Events of writers and nodes.
    pub events: usize,
}

impl GrantLog {
    pub fn read(log: impl BufRead) -> Result<GrantLog> {
        let mut read = GrantLog::default();
        for line in log.lines().skip(1) {
            let mut line: Value = serde_json::from_str(&line?)?;
            let at_ns = line["now_ns"].as_u64().context("a time")?;
            let Some(event) = line["applied"].get_mut("Event").map(Value::take) else { continue };
            let event: Event = serde_json::from_value(event)?;
            read.events += usize::from(event != Event::Tick);
            match event {
                Event::Open { object, node, .. } => {
                    let grants: Vec<Grant> = serde_json::from_value(line["grants"].take())?;
                    if !grants.is_empty() {
                        read.opened.insert(object, Opened { node: node.0, at_ns, grants });
                    }
                }
                Event::Stored { lease } => {
                    read.stored.insert(lease, at_ns);
                }
                _ => {}
            }
        }
        Ok(read)
    }

    /// The ranks of a checkpoint in the order in which they opened.
    pub fn order(&self, job: u64, checkpoint: u64) -> Vec<u32> {
        let own = self.opened.iter().filter(|(object, _)| (object.job.0, object.checkpoint.0) == (job, checkpoint));
        let mut ranks: Vec<(u64, u32)> = own.map(|(object, opened)| (opened.at_ns, object.rank)).collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|(_, rank)| rank).collect()
    }
}

/// Name of a part on the PFS without that of its attempt: job, checkpoint, rank, offset.
fn part(moved: &Moved) -> Result<(Object, u64)> {
    let unknown = || format!("{}/{} is no part", moved.folder, moved.name);
    let mut numbers = moved.folder.split('/').filter_map(|part| part.rsplit('-').next()?.parse().ok());
    let field = |prefix: &str| moved.name.split('-').find_map(|field| field.strip_prefix(prefix)?.parse::<u64>().ok());
    let (job, checkpoint) = numbers.next().zip(numbers.next()).with_context(unknown)?;
    let (rank, offset) = field("r").zip(field("o")).with_context(unknown)?;
    let object = Object {
        job: entresol_burst::JobId(job),
        checkpoint: entresol_burst::CheckpointId(checkpoint),
        rank: rank as u32,
    };
    Ok((object, offset))
}

/// Bytes on the links of a node, and of copies in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    pub out: u64,
    pub into: u64,
    pub copied: u64,
}

/// Lateness of the transfers of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lateness {
    pub kind: String,
    pub transfers: usize,
    pub late: usize,
    pub bytes: u64,
    /// Median of the time taken over the time allowed.
    pub over_allowed: Option<f64>,
}

/// All transfers of a run.
pub struct Transfers {
    all: Vec<Transfer>,
}

impl Transfers {
    /// Puts the transfers together. `written` are the parts that the writers have sent to the PFS, `drained` those of each node.
    pub fn of(log: &GrantLog, written: &[Moved], drained: &[Vec<Moved>]) -> Result<Transfers> {
        let mut all = Vec::new();
        let mut direct: BTreeMap<(Object, u64), &Moved> = BTreeMap::new();
        for moved in written {
            direct.insert(part(moved)?, moved);
        }
        for (&object, Opened { node, at_ns, grants }) in &log.opened {
            let mut now_ns = *at_ns;
            for grant in grants {
                let Place::Buffer { primary, guard } = &grant.place else {
                    let moved = direct.remove(&(object, grant.offset));
                    let moved = moved.with_context(|| format!("{object}: a part is not on the PFS"))?;
                    now_ns = moved.end_ns;
                    let buckets = vec![Bucket::Out(*node), Bucket::Pfs];
                    let (bytes, begin_ns, end_ns) = (moved.bytes, moved.begin_ns, moved.end_ns);
                    all.push(Transfer { kind: Kind::Direct, buckets, bytes, begin_ns, end_ns });
                    continue;
                };
                for (reservation, is_copy) in [(Some(primary), false), (guard.as_ref(), true)] {
                    let Some(reservation) = reservation else { continue };
                    let end_ns = log.stored.get(&reservation.lease).copied();
                    let end_ns = end_ns.with_context(|| format!("{object}: a part was not stored"))?;
                    let to = reservation.node.0;
                    let kind = match (is_copy, to == *node) {
                        (true, _) => Kind::Copy,
                        (false, true) => Kind::Local,
                        (false, false) => Kind::Remote,
                    };
                    let (bytes, begin_ns) = (reservation.bytes(), now_ns);
                    all.push(Transfer { kind, buckets: to_node(*node, to), bytes, begin_ns, end_ns });
                    now_ns = end_ns;
                }
            }
        }
        ensure!(direct.is_empty(), "{} parts on the PFS have no grant", direct.len());
        for (node, drained) in (0..).zip(drained) {
            all.extend(drained.iter().map(|moved| Transfer {
                kind: Kind::Drain,
                buckets: vec![Bucket::Out(node), Bucket::Pfs],
                bytes: moved.bytes,
                begin_ns: moved.begin_ns,
                end_ns: moved.end_ns,
            }));
        }
        Ok(Transfers { all })
    }

    /// The bytes of each node's links, and of the PFS.
    pub fn bytes(&self, nodes: u32) -> (Vec<Bytes>, u64) {
        let (mut bytes, mut pfs) = (vec![Bytes::default(); nodes as usize], 0);
        for transfer in &self.all {
            for bucket in &transfer.buckets {
                match *bucket {
                    Bucket::Out(node) => bytes[node as usize].out += transfer.bytes,
                    Bucket::Into(node) => bytes[node as usize].into += transfer.bytes,
                    Bucket::Copy(node) => bytes[node as usize].copied += transfer.bytes,
                    Bucket::Pfs => pfs += transfer.bytes,
                }
            }
        }
        (bytes, pfs)
    }

    /// Lateness by kind.
    ///
    /// The allowed time of a transfer is the longest that one of its buckets needed for all bytes that left it meanwhile, those of other
    /// transfers too; of a stream to the PFS at least that of its own rate. Each transfer is taken as even over its time.
    pub fn lateness(&self, cluster: &Cluster) -> Vec<Lateness> {
        let mut steps: BTreeMap<Bucket, Vec<(u64, f64)>> = BTreeMap::new();
        for transfer in &self.all {
            let rate = transfer.bytes as f64 / transfer.seconds().max(1e-9);
            for bucket in &transfer.buckets {
                let of_bucket = steps.entry(*bucket).or_default();
                of_bucket.push((transfer.begin_ns, rate));
                of_bucket.push((transfer.end_ns.max(transfer.begin_ns + 1), -rate));
            }
        }
        let used: BTreeMap<Bucket, Used> = steps.into_iter().map(|(bucket, steps)| (bucket, Used::of(steps))).collect();
        let rate_of = |bucket: &Bucket| match bucket {
            Bucket::Out(_) | Bucket::Into(_) => cluster.link,
            Bucket::Copy(_) => cluster.copy,
            Bucket::Pfs => cluster.pfs,
        };
        let allowed_s = |transfer: &Transfer| {
            let of_bucket =
                |bucket: &Bucket| used[bucket].between(transfer.begin_ns, transfer.end_ns) / rate_of(bucket);
            let of_stream = if transfer.buckets.contains(&Bucket::Pfs) { cluster.stream } else { f64::INFINITY };
            transfer.buckets.iter().map(of_bucket).fold(transfer.bytes as f64 / of_stream, f64::max)
        };
        let of_kind = |kind: Kind| {
            let own: Vec<&Transfer> = self.all.iter().filter(|transfer| transfer.kind == kind).collect();
            let over: Vec<f64> = own.iter().map(|transfer| transfer.seconds() / allowed_s(transfer)).collect();
            let is_late = |transfer: &&&Transfer| transfer.seconds() > allowed_s(transfer) * LATE_FACTOR + LATE_S;
            Lateness {
                kind: kind.name().to_owned(),
                transfers: own.len(),
                late: own.iter().filter(is_late).count(),
                bytes: own.iter().map(|transfer| transfer.bytes).sum(),
                over_allowed: (!over.is_empty()).then(|| entresol_bench_common::median(&over)),
            }
        };
        Kind::ALL.map(of_kind).to_vec()
    }
}

/// Bytes that have left a bucket, as a function of time that is linear between its points.
struct Used {
    points: Vec<(u64, f64)>,
    /// Rate after each point, bytes a second.
    rates: Vec<f64>,
}

impl Used {
    fn of(mut steps: Vec<(u64, f64)>) -> Used {
        steps.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let (mut points, mut rates) = (Vec::new(), Vec::new());
        let (mut bytes, mut rate, mut last_ns) = (0.0, 0.0, steps.first().map_or(0, |step| step.0));
        for (at_ns, change) in steps {
            bytes += rate * (at_ns - last_ns) as f64 / 1e9;
            rate += change;
            last_ns = at_ns;
            points.push((at_ns, bytes));
            rates.push(rate);
        }
        Used { points, rates }
    }

    fn until(&self, at_ns: u64) -> f64 {
        match self.points.partition_point(|point| point.0 <= at_ns) {
            0 => 0.0,
            after => {
                let (from_ns, bytes) = self.points[after - 1];
                bytes + self.rates[after - 1] * (at_ns - from_ns) as f64 / 1e9
            }
        }
    }

    fn between(&self, begin_ns: u64, end_ns: u64) -> f64 {
        self.until(end_ns) - self.until(begin_ns)
    }
}

/// The bytes of each node's links in a simulated run, and those to the PFS. A copy leaves the node of the piece, not the writer's.
pub fn simulated_bytes(cluster: &Cluster, policy: Policy, run: &Run) -> Result<(Vec<Bytes>, u64)> {
    let (mut bytes, mut pfs) = (vec![Bytes::default(); cluster.nodes as usize], 0);
    let mut coordinator = Coordinator::new(policy, Epoch(1), LEASE_NS);
    let mut nodes: BTreeMap<Lease, u32> = BTreeMap::new();
    let mut send = |from: u32, to: u32, sent: u64| match from == to {
        true => bytes[to as usize].copied += sent,
        false => {
            bytes[from as usize].out += sent;
            bytes[to as usize].into += sent;
        }
    };
    let mut to_pfs = vec![0; cluster.nodes as usize];
    for (now_ns, event) in &run.events {
        let answer = coordinator.apply(*now_ns, event)?;
        match event {
            Event::Open { node, .. } => {
                for grant in &answer.grants {
                    let Place::Buffer { primary, guard } = &grant.place else {
                        to_pfs[node.0 as usize] += grant.bytes;
                        continue;
                    };
                    nodes.insert(primary.lease, primary.node.0);
                    send(node.0, primary.node.0, grant.bytes);
                    if let Some(guard) = guard {
                        send(primary.node.0, guard.node.0, grant.bytes);
                    }
                }
            }
            Event::Drained { lease, bytes } => {
                to_pfs[*nodes.get(lease).context("a piece that was granted")? as usize] += bytes;
            }
            _ => {}
        }
    }
    for (node, sent) in to_pfs.into_iter().enumerate() {
        bytes[node].out += sent;
        pfs += sent;
    }
    Ok((bytes, pfs))
}

/// Times of each checkpoint: from the time at which it was due to the last acknowledgement.
pub fn checkpoint_times(puts: &[Put], due_ns: impl Fn(u64, u64) -> u64) -> BTreeMap<(u64, u64), f64> {
    let mut times: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for put in puts {
        let took_s = put.end_ns.saturating_sub(due_ns(put.job, put.checkpoint)) as f64 / 1e9;
        let time = times.entry((put.job, put.checkpoint)).or_default();
        *time = time.max(took_s);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(kind: Kind, buckets: Vec<Bucket>, bytes: u64, begin_s: f64, end_s: f64) -> Transfer {
        Transfer { kind, buckets, bytes, begin_ns: (begin_s * 1e9) as u64, end_ns: (end_s * 1e9) as u64 }
    }

    /// Links of 100 bytes a second: two transfers that share one for two seconds are on time, one that is alone for two is late.
    #[test]
    fn a_transfer_is_late_when_none_of_its_buckets_was_busy() {
        let cluster = Cluster { link: 100.0, copy: 1000.0, stream: 50.0, pfs: 80.0, ..Cluster::thesis(1.0) };
        let shared = |to| transfer(Kind::Remote, to_node(0, to), 100, 1.0, 3.0);
        let alone = transfer(Kind::Copy, to_node(3, 4), 100, 0.0, 2.0);
        let stream = transfer(Kind::Drain, vec![Bucket::Out(5), Bucket::Pfs], 50, 0.0, 1.0);
        let slow = transfer(Kind::Direct, vec![Bucket::Out(6), Bucket::Pfs], 50, 5.0, 7.0);
        let all = vec![shared(1), shared(2), alone, stream, slow];
        let late: BTreeMap<String, (usize, usize)> = Transfers { all }
            .lateness(&cluster)
            .into_iter()
            .map(|lateness| (lateness.kind, (lateness.transfers, lateness.late)))
            .collect();
        let of = |kind: Kind| late[kind.name()];
        assert_eq!((of(Kind::Local), of(Kind::Remote), of(Kind::Copy)), ((0, 0), (2, 0), (1, 1)));
        assert_eq!((of(Kind::Drain), of(Kind::Direct)), ((1, 0), (1, 1)));
    }

    #[test]
    fn the_name_of_a_file_has_its_object_and_offset() {
        let moved = Moved {
            folder: "job-3/checkpoint-5".to_owned(),
            name: "part-r63-of64-a1790000000-o268435-b7-t9".to_owned(),
            bytes: 7,
            begin_ns: 0,
            end_ns: 1,
        };
        let (object, offset) = part(&moved).expect("a part");
        assert_eq!((object.job.0, object.checkpoint.0, object.rank, offset), (3, 5, 63, 268_435));
    }

    /// Without redundancy every byte leaves its buffer for the PFS once, and each byte that enters a node has left another.
    #[test]
    fn simulated_bytes_add_up() {
        use crate::setup::{scaled_cluster, scaled_policy, scaled_workload, workload};
        let cluster = scaled_cluster(&Cluster::thesis(1.97e9));
        let workload = scaled_workload(&workload("medium"), 6);
        let total: u64 = workload.programs.iter().map(|program| program.bytes * 6).sum();
        for kind in [entresol_burst::Kind::Ldbb, entresol_burst::Kind::Cdbb, entresol_burst::Kind::Chunked] {
            let policy = scaled_policy(kind);
            let run = entresol_burst::simulate::run(&cluster, &workload, policy, 0);
            let (bytes, pfs) = simulated_bytes(&cluster, policy, &run).expect("its events");
            assert_eq!(pfs, total);
            let (out, into): (u64, u64) = (bytes.iter().map(|it| it.out).sum(), bytes.iter().map(|it| it.into).sum());
            assert_eq!(out, into + pfs);
        }
    }
}
