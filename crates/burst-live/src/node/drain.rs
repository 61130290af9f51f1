//! The drain of a node: stored pieces go to the PFS one by one, and their space is free when they are durable there.

use super::Shared;
use super::buffer::Drain;
use crate::checksum::crc32c;
use crate::clock;
use crate::layout;
use crate::mutant::{self, Mutant};
use crate::report::report;
use crate::server::lock;
use entresol_burst::{CheckpointId, DrainOrder, DrainPriority, JobId};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// First and longest pause after a failure of the PFS.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Time after a write in which a drain of low priority yields.
const FOREGROUND: Duration = Duration::from_millis(10);
/// Longest time that a drain of low priority yields before a chunk: a writer that never ends must not fill the buffer.
const YIELD_MAX: Duration = Duration::from_millis(50);

/// Longest time that a drain of low priority makes way, for each chunk of 1 MiB, to writers that write to the PFS directly; and a pause
/// in it. Longer, and a node whose buffer is full would hardly drain beside a writer that never has a buffer: all others would go to the
/// PFS too.
pub(crate) const WAY_MAX: Duration = Duration::from_millis(500);
const WAY: Duration = Duration::from_millis(10);

/// Drains until the daemon stops. A failure is reported, and the same piece is tried again.
pub(crate) fn run(shared: &Shared) {
    let mut pause = PAUSES.0;
    let mut current: Option<Drain> = None;
    let mut unfinished: BTreeSet<(JobId, CheckpointId)> = BTreeSet::new();
    while !shared.is_stopping() {
        match step(shared, &mut current, &mut unfinished) {
            Ok(true) => pause = PAUSES.0,
            Ok(false) => {
                pause = PAUSES.0;
                lock(&shared.buffer).note_success();
                shared.wait_for_work();
            }
            Err(error) => {
                let of = current.as_ref().map_or_else(String::new, |drain| format!("{}: ", drain.part.object));
                report!("node {}: {of}not on the PFS yet, kept and tried again: {error}", shared.node.0);
                lock(&shared.buffer).note_failure(format!("{of}{error}"));
                if mutant::is(Mutant::DrainNotRepeated) {
                    current = None;
                }
                // Damaged bytes do not hold up the others. They stay, and a copy may have them.
                if error.kind() != io::ErrorKind::InvalidData || current.take().is_none() {
                    shared.pause(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

/// Drains the next piece and writes the manifests that are due. Returns false if no piece was stored. A piece that is
/// durable is not drained again when its manifest fails.
fn step(
    shared: &Shared,
    current: &mut Option<Drain>,
    unfinished: &mut BTreeSet<(JobId, CheckpointId)>,
) -> io::Result<bool> {
    if current.is_none() {
        let order = lock(&shared.policy).map_or(DrainOrder::Fifo, |policy| policy.order);
        *current = lock(&shared.buffer).next_drain(order);
    }
    if let Some(drain) = current {
        drain_one(shared, drain)?;
        unfinished.insert((drain.part.object.job, drain.part.object.checkpoint));
    }
    let drained = current.take().is_some();
    finish(shared, unfinished)?;
    Ok(drained)
}

fn drain_one(shared: &Shared, drain: &Drain) -> io::Result<()> {
    let mut reader = PieceReader { shared, drain, chunk: 0, bytes: Vec::new(), at: 0, way: WAY_MAX };
    if mutant::is(Mutant::FreedUndrained) {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        free(shared, drain);
        return layout::write_part(&*shared.pfs, &drain.part, &drain.crcs, &mut &bytes[..]);
    }
    layout::write_part(&*shared.pfs, &drain.part, &drain.crcs, &mut reader)?;
    free(shared, drain);
    Ok(())
}

/// Gives up the space of a piece that is durable on the PFS.
fn free(shared: &Shared, drain: &Drain) {
    // The lock ends before the events are announced.
    let drained = lock(&shared.buffer).drained(drain);
    if let Err(error) = drained {
        report!("node {}: {}: {error}", shared.node.0, drain.part.object);
    }
    shared.announce();
}

/// Writes the manifests of checkpoints whose last part this node may have drained. A checkpoint that is not complete is
/// left to the node or writer that adds its last part. One that fails does not hold up the others.
fn finish(shared: &Shared, unfinished: &mut BTreeSet<(JobId, CheckpointId)>) -> io::Result<()> {
    let mut failure = None;
    unfinished.retain(|&(job, checkpoint)| {
        let finished = layout::finish(&*shared.pfs, job, checkpoint);
        let failed = finished.is_err();
        failure = finished.err().or(failure.take());
        failed
    });
    failure.map_or(Ok(()), Err)
}

/// The bytes of a piece, chunk by chunk. A chunk that has lost its checksum in memory is not written.
struct PieceReader<'a> {
    shared: &'a Shared,
    drain: &'a Drain,
    chunk: usize,
    bytes: Vec<u8>,
    at: usize,
    /// Time for which this chunk may still make way.
    way: Duration,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.bytes.len() {
            let Some(&crc) = self.drain.crcs.get(self.chunk) else { return Ok(0) };
            if self.shared.is_stopping() {
                return Err(io::Error::other("the node stops"));
            }
            self.yield_to_writers();
            let read = lock(&self.shared.buffer).read(self.drain.lease, self.chunk as u64);
            self.bytes = read.map_err(io::Error::other)?;
            if crc32c(&self.bytes) != crc {
                let why = format!("chunk {} has changed in memory", self.chunk);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            self.chunk += 1;
            self.at = 0;
            self.way = WAY_MAX;
        }
        self.make_way();
        let part = buffer.len().min(self.bytes.len() - self.at);
        buffer[..part].copy_from_slice(&self.bytes[self.at..self.at + part]);
        self.at += part;
        Ok(part)
    }
}

impl PieceReader<'_> {
    /// Waits while writers write to the PFS directly: a checkpoint waits for them, and for no drain.
    fn make_way(&mut self) {
        while self.shared.direct.load(Ordering::Relaxed) && !self.way.is_zero() && !self.shared.is_stopping() {
            clock::sleep(WAY);
            self.way = self.way.saturating_sub(WAY);
        }
    }

    fn yield_to_writers(&self) {
        let is_low = lock(&self.shared.policy).is_some_and(|policy| policy.drain == DrainPriority::Low);
        let until = clock::now() + YIELD_MAX;
        while is_low && clock::now() < until && !self.shared.is_stopping() {
            // The lock ends before the pause, or the writers would wait for it.
            let last = lock(&self.shared.buffer).last_write();
            match last {
                Some(last) if clock::elapsed(last) < FOREGROUND => clock::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
    }
}
