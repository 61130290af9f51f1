//! `LocationStore` (004, section 5.3.2): the location of every part of every checkpoint, for a restart.

use crate::protocol::{CheckpointId, JobId, Lease, NodeId, Object};
use std::collections::{BTreeMap, BTreeSet};

/// Location of a part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In a node's buffer, or on its way there.
    Buffer {
        /// The reservation.
        lease: Lease,
        /// The node.
        node: NodeId,
        /// Redundancy that protects the part.
        guard: Option<Lease>,
    },
    /// Granted to be written to the PFS directly; not yet committed.
    Direct,
    /// On the PFS.
    Durable,
    /// Given back or lost with its node; a guard may still hold it.
    Lost {
        /// Redundancy that protects the part.
        guard: Option<Lease>,
    },
}

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the object, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Location of the part.
    pub at: Where,
}

/// State of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// False if the object was found in a node's report, and not opened in this epoch.
    pub opened: bool,
    pub committed: bool,
    pub pieces: Vec<Piece>,
}

/// Progress of one checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time at which the first rank opened.
    pub opened_ns: u64,
    /// Number of ranks that take part; 0 when the checkpoint was only found in reports.
    pub ranks: u32,
    /// Number of ranks that have committed.
    pub committed: u32,
    /// True if every part is on the PFS.
    pub durable: bool,
}

impl Progress {
    /// True if all ranks have committed.
    pub fn is_complete(&self) -> bool {
        self.ranks > 0 && self.committed == self.ranks
    }
}

/// Number of checkpoints that a loss of memory threatens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Checkpoints with committed bytes that are not on the PFS.
    pub undrained: u64,
    /// Those of them with bytes that one node alone has, or none any more: its loss takes them along.
    pub at_risk: u64,
}

/// The index of checkpoints by location. For each job it keeps the newest durable checkpoint and all newer ones.
#[derive(Clone, Debug, Default)]
pub struct LocationStore {
    objects: BTreeMap<Object, Record>,
    checkpoints: BTreeMap<(JobId, CheckpointId), Progress>,
}

impl LocationStore {
    /// The parts of an object.
    pub fn pieces(&self, object: Object) -> Option<&[Piece]> {
        self.objects.get(&object).map(|record| record.pieces.as_slice())
    }

    /// True if bytes of an object are in buffers that may be the only whole ones: an attempt was committed, or was found
    /// in reports of nodes.
    pub fn is_kept(&self, object: Object) -> bool {
        let in_buffers = |piece: &Piece| matches!(piece.at, Where::Buffer { .. } | Where::Lost { guard: Some(_) });
        self.objects
            .get(&object)
            .is_some_and(|record| (record.committed || !record.opened) && record.pieces.iter().any(in_buffers))
    }

    /// Progress of a checkpoint.
    pub fn progress(&self, job: JobId, checkpoint: CheckpointId) -> Option<Progress> {
        self.checkpoints.get(&(job, checkpoint)).copied()
    }

    /// The newest checkpoint of a job that all ranks have committed.
    pub fn newest_complete(&self, job: JobId) -> Option<CheckpointId> {
        let of_job = self.checkpoints.range((job, CheckpointId(0))..=(job, CheckpointId(u64::MAX)));
        of_job.rev().find(|(_, progress)| progress.is_complete()).map(|(&(_, checkpoint), _)| checkpoint)
    }

    /// Number of checkpoints that a loss of memory threatens.
    pub fn exposure(&self) -> Exposure {
        let mut exposure = Exposure::default();
        for &(job, checkpoint) in self.checkpoints.keys() {
            let committed = self.objects_of(job, checkpoint).filter(|(_, record)| record.committed);
            let (mut undrained, mut at_risk) = (false, false);
            for piece in committed.flat_map(|(_, record)| &record.pieces) {
                undrained |= !matches!(piece.at, Where::Durable | Where::Direct);
                at_risk |= matches!(piece.at, Where::Buffer { guard: None, .. } | Where::Lost { .. });
            }
            exposure.undrained += u64::from(undrained);
            exposure.at_risk += u64::from(at_risk);
        }
        exposure
    }

    /// Jobs with bytes that are not on the PFS, in buffers or lost.
    pub fn undrained_jobs(&self) -> BTreeSet<JobId> {
        let is_undrained = |piece: &Piece| !matches!(piece.at, Where::Durable | Where::Direct);
        let undrained = self.objects.iter().filter(|(_, record)| record.pieces.iter().any(is_undrained));
        undrained.map(|(object, _)| object.job).collect()
    }

    /// Number of known checkpoints.
    pub fn len(&self) -> usize {
        self.checkpoints.len()
    }

    /// True if no checkpoint is known.
    pub fn is_empty(&self) -> bool {
        self.checkpoints.is_empty()
    }

    pub(crate) fn record(&mut self, object: Object) -> Option<&mut Record> {
        self.objects.get_mut(&object)
    }

    /// Begins an object; returns the time at which its checkpoint was opened.
    pub(crate) fn open(&mut self, object: Object, ranks: u32, now_ns: u64) -> u64 {
        self.objects.insert(object, Record { opened: true, ..Record::default() });
        let progress = self.checkpoints.entry((object.job, object.checkpoint)).or_default();
        if progress.ranks == 0 {
            *progress = Progress { opened_ns: now_ns, ranks, ..Progress::default() };
        }
        progress.opened_ns
    }

    /// Removes an object, and returns its record.
    pub(crate) fn close(&mut self, object: Object) -> Option<Record> {
        let record = self.objects.remove(&object)?;
        if let Some(progress) = self.checkpoints.get_mut(&(object.job, object.checkpoint)) {
            progress.committed -= u32::from(record.committed);
            progress.durable = false;
        }
        Some(record)
    }

    /// Adds a piece that a node holds from an earlier epoch.
    pub(crate) fn found(&mut self, object: Object, piece: Piece, opened_ns: u64) {
        let progress = self.checkpoints.entry((object.job, object.checkpoint)).or_default();
        if progress.ranks == 0 {
            progress.opened_ns = opened_ns;
        }
        self.objects.entry(object).or_default().pieces.push(piece);
    }

    /// Marks an object as committed: the parts written to the PFS directly are durable.
    pub(crate) fn commit(&mut self, object: Object) {
        let record = self.objects.get_mut(&object).expect("an opened object");
        for piece in record.pieces.iter_mut().filter(|piece| piece.at == Where::Direct) {
            piece.at = Where::Durable;
        }
        if !record.committed {
            record.committed = true;
            let checkpoint = self.checkpoints.get_mut(&(object.job, object.checkpoint));
            checkpoint.expect("the checkpoint of an opened object").committed += 1;
        }
    }

    /// True if the checkpoint is complete and whole on the PFS, and was not before.
    pub(crate) fn becomes_durable(&mut self, job: JobId, checkpoint: CheckpointId) -> bool {
        let Some(progress) = self.checkpoints.get(&(job, checkpoint)) else { return false };
        if progress.durable || !progress.is_complete() {
            return false;
        }
        let durable = self
            .objects_of(job, checkpoint)
            .all(|(_, record)| record.committed && record.pieces.iter().all(|piece| piece.at == Where::Durable));
        self.checkpoints.get_mut(&(job, checkpoint)).expect("it was just seen").durable = durable;
        durable
    }

    fn objects_of(&self, job: JobId, checkpoint: CheckpointId) -> impl Iterator<Item = (&Object, &Record)> {
        let at = |rank| Object { job, checkpoint, rank };
        self.objects.range(at(0)..=at(u32::MAX))
    }

    /// Forgets checkpoints of a job before this one.
    pub(crate) fn forget_before(&mut self, job: JobId, checkpoint: CheckpointId) {
        let old = self.checkpoints.range((job, CheckpointId(0))..(job, checkpoint));
        let old: Vec<CheckpointId> = old.map(|(&(_, checkpoint), _)| checkpoint).collect();
        for &checkpoint in &old {
            self.checkpoints.remove(&(job, checkpoint));
            let ranks: Vec<Object> = self.objects_of(job, checkpoint).map(|(&object, _)| object).collect();
            ranks.iter().for_each(|object| drop(self.objects.remove(object)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_at_risk_while_one_node_alone_has_committed_bytes() {
        let job = JobId(1);
        let (lease, node) = (Lease { epoch: crate::Epoch(1), number: 1 }, NodeId(2));
        let buffer = |guard| Where::Buffer { lease, node, guard };
        let mut store = LocationStore::default();
        let threatened = |at: &[Where], committed: bool| {
            let mut store = LocationStore::default();
            let object = Object { job, checkpoint: CheckpointId(3), rank: 0 };
            store.open(object, 1, 0);
            let pieces = at.iter().map(|&at| Piece { offset: 0, bytes: 1, at });
            store.record(object).expect("it was opened").pieces.extend(pieces);
            if committed {
                store.commit(object);
            }
            let Exposure { undrained, at_risk } = store.exposure();
            let is_undrained = at.iter().any(|at| !matches!(at, Where::Durable | Where::Direct));
            assert_eq!(store.undrained_jobs().contains(&job), is_undrained);
            (undrained, at_risk)
        };
        assert_eq!(store.exposure(), Exposure::default());
        store.open(Object { job, checkpoint: CheckpointId(1), rank: 0 }, 1, 0);
        assert_eq!(store.exposure(), Exposure::default());
        assert_eq!(threatened(&[buffer(None)], false), (0, 0));
        assert_eq!(threatened(&[buffer(None)], true), (1, 1));
        assert_eq!(threatened(&[buffer(Some(lease))], true), (1, 0));
        assert_eq!(threatened(&[Where::Direct, Where::Durable], true), (0, 0));
        assert_eq!(threatened(&[Where::Durable, Where::Lost { guard: Some(lease) }], true), (1, 1));
    }
}
