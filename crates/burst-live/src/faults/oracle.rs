//! The oracle: it knows the bytes of every put and the media that each writer was told, and nothing of the code.

use super::cluster::NODES;
use crate::client::{Acknowledgement, Level};
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
    /// Newest progress of each put.
    progress: BTreeMap<Object, Duration>,
    /// The longest time without progress that no stalled PFS excuses.
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

/// Safety of bytes on these media.
fn level_of(media: &[String]) -> Level {
    let nodes: BTreeSet<&String> = media.iter().filter(|medium| medium.starts_with("memory")).collect();
    match (nodes.len() < media.len(), nodes.len()) {
        (true, _) => Level::Durable,
        (false, 0..2) => Level::Absorbed,
        (false, _) => Level::Replicated,
    }
}

impl Oracle {
    /// A put begins.
    pub fn begins(&mut self, object: Object, salt: u64, starts: [usize; NODES], now: Duration) {
        self.progress.insert(object, now);
        self.puts.entry(object).or_default().push(Put { salt, starts, acknowledged: None });
    }

    /// The put that began last was acknowledged.
    ///
    /// # Errors
    /// When the level says more than the media.
    pub fn acknowledged(&mut self, object: Object, acknowledged: Acknowledgement) -> Result<(), String> {
        let told = acknowledged.parts.iter().map(|part| level_of(&part.media)).min();
        if told < Some(acknowledged.level) {
            return Err(format!("{object}: another level than that of the media: {acknowledged:?}"));
        }
        self.acknowledged[acknowledged.level as usize] += 1;
        let put = self.puts.get_mut(&object).and_then(|puts| puts.last_mut()).expect("it has begun");
        put.acknowledged = Some(acknowledged);
        Ok(())
    }

    pub fn node_lost(&mut self, node: usize, start: usize) {
        self.lost.insert((node, start));
    }

    /// True if some put of an object was acknowledged.
    pub fn is_acknowledged(&self, object: Object) -> bool {
        self.puts.get(&object).is_some_and(|puts| puts.iter().any(|put| put.acknowledged.is_some()))
    }

    /// The newest acknowledged put of an object, if its bytes must still exist: each part is durable, or one of the nodes
    /// that the writer was told has not been lost since the put began. Later puts follow it.
    fn promised_puts(&self, object: Object) -> Option<&[Put]> {
        let puts = self.puts.get(&object)?;
        let newest = puts.iter().rposition(|put| put.acknowledged.is_some())?;
        self.survives(&puts[newest]).then_some(&puts[newest..])
    }

    fn survives(&self, put: &Put) -> bool {
        let is_kept = |medium: &String| match medium.strip_prefix("memory of node ") {
            Some(node) => {
                let node: usize = node.parse().expect("a number");
                !self.lost.contains(&(node, put.starts[node]))
            }
            None => true,
        };
        let parts = put.acknowledged.iter().flat_map(|acknowledged| &acknowledged.parts);
        parts.into_iter().all(|part| part.media.iter().any(is_kept))
    }

    /// True if the newest put of every rank was acknowledged.
    pub fn is_settled(&self, checkpoint: CheckpointId) -> bool {
        (0..RANKS).all(|rank| {
            let newest = self.puts.get(&Object { job: JOB, checkpoint, rank }).and_then(|puts| puts.last());
            newest.is_some_and(|put| put.acknowledged.is_some())
        })
    }

    /// Checkpoints that must be complete.
    pub fn promised(&self) -> Vec<CheckpointId> {
        let checkpoints: BTreeSet<CheckpointId> = self.puts.keys().map(|object| object.checkpoint).collect();
        let is_promised = |&checkpoint: &CheckpointId| {
            (0..RANKS).all(|rank| self.promised_puts(Object { job: JOB, checkpoint, rank }).is_some())
        };
        checkpoints.into_iter().filter(is_promised).collect()
    }

    /// Numbers of the bytes that an object may have now: those of a promised put or a later one, or of any put if none
    /// is promised.
    fn allowed(&self, object: Object) -> Vec<u64> {
        let all = || self.puts.get(&object).map_or(&[][..], Vec::as_slice);
        self.promised_puts(object).unwrap_or_else(all).iter().map(|put| put.salt).collect()
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

    /// Compares the bytes of an object, which may be of an earlier put.
    ///
    /// # Errors
    /// When no writer had these.
    pub fn check_some_bytes(&self, object: Object, bytes: &[u8], bytes_max: u64) -> Result<(), String> {
        let puts = self.puts.get(&object).map_or(&[][..], Vec::as_slice);
        match puts.iter().any(|put| bytes == contents(object, put.salt, bytes_max)) {
            true => Ok(()),
            false => Err(format!("{object}: {} bytes that no writer had", bytes.len())),
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

    /// Bytes of an object were taken by a node, or its put has ended.
    ///
    /// # Errors
    /// When the writer was blocked too long before. One that has no other destination waits for a PFS that hangs.
    pub fn progress(&mut self, object: Object, now: Duration) -> Result<(), String> {
        let since = self.progress.insert(object, now).unwrap_or(now);
        if self.stalls.iter().any(|&(from, until)| from < now && since < until) {
            return Ok(());
        }
        let time = now - since;
        self.blocked = self.blocked.max(time);
        match time <= BLOCKED_MAX {
            true => Ok(()),
            false => Err(format!("{object}: the writer was blocked for {time:?}")),
        }
    }
}
