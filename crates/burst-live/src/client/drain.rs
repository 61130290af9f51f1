//! The state of checkpoints, and the wait until they are durable.

use super::files::ReadIndex;
use super::inventory::{Found, Source};
use super::{Client, ClientError, Level, Peers};
use crate::clock;
use crate::layout::{self, Census};
use entresol_burst::{CheckpointId, JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(100);

/// State of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Ranks are missing, or parts of them.
    Incomplete,
    /// Every rank can be restored; the level is that of the weakest part.
    Complete(Level),
}

impl State {
    /// The name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Complete(level) => level.name(),
        }
    }
}

/// A checkpoint in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointState {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// State of the whole.
    pub state: State,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of ranks that can be restored.
    pub whole: u32,
    /// Bytes of the ranks that can be restored, or of the pieces of files.
    pub bytes: u64,
    /// Bytes that are in buffers and not on the PFS.
    pub undrained: u64,
}

impl Client {
    /// The checkpoints of a job, the oldest first, and the nodes that could not be asked.
    ///
    /// # Errors
    /// When the coordinator or the PFS cannot be asked.
    pub fn list(&self, job: JobId) -> Result<(Vec<CheckpointState>, Vec<String>), ClientError> {
        let (states, warnings, _) = self.states(job)?;
        Ok((states, warnings))
    }

    /// The states, the nodes that could not be asked, and the failures of the PFS that nodes report.
    #[allow(clippy::type_complexity, reason = "three lists that are used once")]
    fn states(&self, job: JobId) -> Result<(Vec<CheckpointState>, Vec<String>, Vec<String>), ClientError> {
        let mut peers = self.peers();
        let inventory = self.inventory(job, &mut peers)?;
        let mut states = Vec::new();
        for (&checkpoint, found) in inventory.checkpoints.iter().filter(|(_, found)| !found.parts.is_empty()) {
            states.push(self.state(job, checkpoint, found, &mut peers)?);
        }
        Ok((states, inventory.missing, inventory.failing))
    }

    fn state(
        &self,
        job: JobId,
        checkpoint: CheckpointId,
        found: &Found,
        peers: &mut Peers,
    ) -> Result<CheckpointState, ClientError> {
        let mut census = found.census();
        let counted = if census.is_files { &census.pieces } else { &census.whole };
        let bytes = counted.values().map(|about| about.total).sum();
        let on_pfs = found.on_pfs();
        // What is newest may still be in buffers, although what it replaces is durable.
        let is_durable = Census::of(&on_pfs).whole == census.whole
            && layout::is_durable(&*self.pfs, job, checkpoint, &on_pfs).map_err(ClientError::Pfs)?;
        let level = if is_durable { Level::Durable } else { weakest(found) };
        if census.is_files && census.is_complete() && level != Level::Durable {
            // A file whose pieces are lost is none.
            let (found, indexes, _) = self.found_files(job, checkpoint, &BTreeMap::new(), peers)?;
            census = found.census();
            let is_whole = |index: &ReadIndex| matches!(&index.1, Ok(index) if index.pieces(&census.pieces).is_some());
            let whole: BTreeSet<u32> =
                indexes.into_iter().filter(|(_, it)| is_whole(it)).map(|(rank, _)| rank).collect();
            census.whole.retain(|rank, _| whole.contains(rank));
        }
        Ok(CheckpointState {
            checkpoint,
            state: if census.is_complete() { State::Complete(level) } else { State::Incomplete },
            ranks: census.ranks,
            whole: census.whole.len() as u32,
            bytes,
            undrained: undrained(found),
        })
    }

    /// Waits until every checkpoint of a job, or one, is durable. Returns what is left when the time has passed: nothing
    /// if all is durable. Incomplete checkpoints before a durable one do not count unless bytes of them are in buffers.
    ///
    /// # Errors
    /// When the coordinator or the PFS cannot be asked.
    pub fn drain(
        &self,
        job: JobId,
        checkpoint: Option<CheckpointId>,
        within: Duration,
    ) -> Result<Vec<String>, ClientError> {
        let until = clock::now() + within;
        loop {
            let left = self.left(job, checkpoint)?;
            if left.is_empty() || clock::now() >= until {
                return Ok(left);
            }
            clock::sleep(PAUSE);
        }
    }

    fn left(&self, job: JobId, checkpoint: Option<CheckpointId>) -> Result<Vec<String>, ClientError> {
        let mut left = Vec::new();
        let (states, missing, failing) = self.states(job)?;
        let is_durable = |state: &&CheckpointState| state.state == State::Complete(Level::Durable);
        let newest = states.iter().filter(is_durable).map(|state| state.checkpoint).max();
        let asked = |state: &&CheckpointState| checkpoint.is_none_or(|checkpoint| checkpoint == state.checkpoint);
        for state in states.iter().filter(asked).filter(|state| !is_durable(state)) {
            // The last part may have come from a process that ended before it wrote the manifest.
            let finished = match self.may_finish() {
                true => layout::finish(&*self.pfs, job, state.checkpoint),
                false => Ok(false),
            };
            if matches!(finished, Ok(true)) && state.undrained == 0 {
                continue;
            }
            if state.undrained > 0 || checkpoint.is_some() || newest.is_none_or(|newest| newest < state.checkpoint) {
                left.push(format!(
                    "checkpoint {}: {}, {} of {} ranks, {} bytes are not on the PFS",
                    state.checkpoint.0,
                    state.state.name(),
                    state.whole,
                    state.ranks,
                    state.undrained
                ));
            }
            left.extend(finished.err().map(|error| format!("checkpoint {}: {error}", state.checkpoint.0)));
        }
        if let Some(checkpoint) = checkpoint.filter(|it| !states.iter().any(|state| state.checkpoint == *it)) {
            left.push(format!("checkpoint {}: nothing of it is stored", checkpoint.0));
        }
        // Buffers of nodes that cannot be asked may have bytes.
        left.extend(missing);
        if !left.is_empty() {
            left.extend(failing);
        }
        Ok(left)
    }
}

/// Key of a part among those of its checkpoint.
type Key = (u32, u64, u64, u64);

fn key(part: &crate::message::Part) -> Key {
    (part.object.rank, part.about.attempt, part.offset, part.bytes)
}

/// Safety of the weakest part. A checkpoint whose parts are all on the PFS lacks its manifest, and is not durable yet.
fn weakest(found: &Found) -> Level {
    let mut sources: BTreeMap<Key, (BTreeSet<NodeId>, bool)> = BTreeMap::new();
    for (part, source) in found.chosen() {
        let (nodes, on_pfs) = sources.entry(key(part)).or_default();
        match source {
            Source::Node { node, .. } => drop(nodes.insert(*node)),
            Source::Pfs => *on_pfs = true,
        }
    }
    let weak = |(nodes, on_pfs): &(BTreeSet<NodeId>, bool)| !on_pfs && nodes.len() < 2;
    if sources.values().any(weak) { Level::Absorbed } else { Level::Replicated }
}

/// Bytes of parts that are in buffers and not on the PFS.
fn undrained(found: &Found) -> u64 {
    let of = |on_pfs: bool| {
        let has = move |(_, source): &&(_, Source)| matches!(source, Source::Pfs) == on_pfs;
        found.parts.iter().filter(has).map(|(part, _)| key(part)).collect::<BTreeSet<Key>>()
    };
    of(false).difference(&of(true)).map(|&(.., bytes)| bytes).sum()
}
