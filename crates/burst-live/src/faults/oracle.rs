//! The oracle: it knows the bytes of every put and the media that each writer was told, and nothing of the code.

use super::cluster::NODES;
use crate::client::Acknowledgement;
use crate::message::NodeStatus;
use entresol_burst::{CheckpointId, JobId, Object, Reservation};
use entresol_core::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The job of all schedules.
pub const JOB: JobId = JobId(3);
/// Number of ranks of every checkpoint.
pub const RANKS: u32 = NODES as u32;
/// Longest time that a writer may be blocked.
pub const BLOCKED_MAX: Duration = Duration::from_secs(10);

/// One call of `put`.
#[derive(Clone, Debug)]
struct Put {
    /// Number of the bytes: a program that starts again has computed others.
    salt: u64,
    /// The start of each node when the call began.
    starts: [usize; NODES],
    acknowledged: Option<Acknowledgement>,
}

/// All puts of a schedule, and the nodes that were lost.
#[derive(Debug, Default)]
pub struct Oracle {
    puts: BTreeMap<Object, Vec<Put>>,
    /// Starts of nodes that have ended.
    lost: BTreeSet<(usize, usize)>,
    stalls: Vec<(Duration, Duration)>,
    /// The longest put that no stalled PFS excuses.
    pub blocked: Duration,
    /// Acknowledged puts by level, the weakest first.
    pub acknowledged: [u64; 3],
}

pub fn object(checkpoint: u64, rank: usize) -> Object {
    Object { job: JOB, checkpoint: CheckpointId(checkpoint), rank: rank as u32 }
}

/// Bytes of an object as one program has computed them.
pub fn contents(object: Object, salt: u64, bytes_max: u64) -> Vec<u8> {
    let mut random = Random::new(object.checkpoint.0 << 40 | u64::from(object.rank) << 32 | salt);
    let bytes = 1 + random.below(bytes_max);
    (0..bytes).map(|_| random.next_u64() as u8).collect()
}

impl Oracle {
    /// A put begins.
    pub fn begins(&mut self, object: Object, salt: u64, starts: [usize; NODES]) {
        self.puts.entry(object).or_default().push(Put { salt, starts, acknowledged: None });
    }

    /// The put that began last was acknowledged.
    pub fn acknowledged(&mut self, object: Object, acknowledged: Acknowledgement) {
        self.acknowledged[acknowledged.level as usize] += 1;
        let put = self.puts.get_mut(&object).and_then(|puts| puts.last_mut()).expect("it has begun");
        put.acknowledged = Some(acknowledged);
    }

    pub fn node_lost(&mut self, node: usize, start: usize) {
        self.lost.insert((node, start));
    }

    /// True if some put of an object was acknowledged.
    pub fn is_acknowledged(&self, object: Object) -> bool {
        self.puts.get(&object).is_some_and(|puts| puts.iter().any(|put| put.acknowledged.is_some()))
    }

    /// True if the bytes of an acknowledged put must still exist: each part is durable, or one of the nodes that the
    /// writer was told has not been lost since the put began.
    fn survives(&self, put: &Put) -> bool {
        let is_kept = |medium: &String| match medium.strip_prefix("memory of node ") {
            Some(node) => {
                let node: usize = node.parse().expect("a number");
                !self.lost.contains(&(node, put.starts[node]))
            }
            None => true,
        };
        let parts = put.acknowledged.iter().flat_map(|acknowledged| &acknowledged.parts);
        put.acknowledged.is_some() && parts.into_iter().all(|part| part.media.iter().any(is_kept))
    }

    /// Checkpoints that must be complete.
    pub fn promised(&self) -> Vec<CheckpointId> {
        let checkpoints: BTreeSet<CheckpointId> = self.puts.keys().map(|object| object.checkpoint).collect();
        let is_promised = |&checkpoint: &CheckpointId| {
            (0..RANKS).all(|rank| {
                let puts = self.puts.get(&Object { job: JOB, checkpoint, rank });
                puts.is_some_and(|puts| puts.iter().any(|put| self.survives(put)))
            })
        };
        checkpoints.into_iter().filter(is_promised).collect()
    }

    /// Numbers of the bytes that an object may have now: those of the newest put that survives, or of a later one.
    fn allowed(&self, object: Object) -> Vec<u64> {
        let puts = self.puts.get(&object).map_or(&[][..], Vec::as_slice);
        let first = puts.iter().rposition(|put| self.survives(put)).unwrap_or(0);
        puts[first..].iter().map(|put| put.salt).collect()
    }

    /// Compares the bytes of an object.
    ///
    /// # Errors
    /// When no writer had these, or they are of a put before one that must still exist.
    pub fn check_bytes(&self, object: Object, bytes: &[u8], bytes_max: u64) -> Result<(), String> {
        let allowed = self.allowed(object);
        match allowed.iter().any(|&salt| bytes == contents(object, salt, bytes_max)) {
            true => Ok(()),
            false => Err(format!("{object}: {} bytes that no writer had, or earlier ones; {allowed:?}", bytes.len())),
        }
    }

    /// Compares the bytes of an object under a manifest, which may be of an earlier put.
    ///
    /// # Errors
    /// When no writer had these.
    pub fn check_manifest_bytes(&self, object: Object, bytes: &[u8], bytes_max: u64) -> Result<(), String> {
        let puts = self.puts.get(&object).map_or(&[][..], Vec::as_slice);
        match puts.iter().any(|put| bytes == contents(object, put.salt, bytes_max)) {
            true => Ok(()),
            false => Err(format!("{object}: a manifest names {} bytes that no writer had", bytes.len())),
        }
    }

    /// Checks a write that a node has admitted.
    ///
    /// # Errors
    /// When the node knows a newer coordinator than the one that granted, or the lease has ended.
    pub fn admitted(grant: &Reservation, node: &NodeStatus, now_ns: u64) -> Result<(), String> {
        if node.epoch != Some(grant.lease.epoch.0) {
            return Err(format!("node {} of epoch {:?} admits {:?}", node.node, node.epoch, grant.lease));
        }
        if grant.expires_ns <= now_ns {
            return Err(format!("node {} admits {:?} after its end", node.node, grant.lease));
        }
        Ok(())
    }

    /// The PFS hangs until a time.
    pub fn stalls(&mut self, from: Duration, until: Duration) {
        self.stalls.push((from, until));
    }

    /// Notes the time that a put took. A writer that has no other destination waits for a PFS that hangs.
    ///
    /// # Errors
    /// When it is too long.
    pub fn took(&mut self, object: Object, begin: Duration, end: Duration) -> Result<(), String> {
        if self.stalls.iter().any(|&(from, until)| from < end && begin < until) {
            return Ok(());
        }
        let time = end - begin;
        self.blocked = self.blocked.max(time);
        match time <= BLOCKED_MAX {
            true => Ok(()),
            false => Err(format!("{object}: the writer was blocked for {time:?}")),
        }
    }
}
