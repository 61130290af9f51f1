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
use std::time::Duration;

/// First and longest pause after a failure of the PFS.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Time after a write in which a drain of low priority yields.
const FOREGROUND: Duration = Duration::from_millis(10);
/// Longest time that a drain of low priority yields before a chunk: a writer that never ends must not fill the buffer.
const YIELD_MAX: Duration = Duration::from_millis(50);

/// Drains until the daemon stops. A failure is reported, and the same piece is tried again.
pub(crate) fn run(shared: &Shared) {
    let mut pause = PAUSES.0;
    let mut current: Option<Drain> = None;
    let mut unfinished: BTreeSet<(JobId, CheckpointId)> = BTreeSet::new();
    while !shared.is_stopping() {
        if current.is_none() {
            let order = lock(&shared.policy).map_or(DrainOrder::Fifo, |policy| policy.order);
            current = lock(&shared.buffer).next_drain(order);
        }
        let result = match &current {
            Some(drain) => drain_one(shared, drain, &mut unfinished),
            None => finish(shared, &mut unfinished),
        };
        match result {
            Ok(()) => {
                pause = PAUSES.0;
                if current.take().is_none() {
                    lock(&shared.buffer).note_success();
                    shared.wait_for_work();
                }
            }
            Err(error) => {
                let of = current.as_ref().map_or_else(String::new, |drain| format!("{}: ", drain.part.object));
                report!("node {}: {of}not on the PFS yet, kept and tried again: {error}", shared.node.0);
                lock(&shared.buffer).note_failure(format!("{of}{error}"));
                if error.kind() == io::ErrorKind::InvalidData {
                    // Damaged bytes do not hold up the others. They stay, and a copy may have them.
                    current = None;
                    continue;
                }
                if mutant::is(Mutant::DrainNotRepeated) {
                    current = None;
                }
                shared.pause(pause);
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

fn drain_one(shared: &Shared, drain: &Drain, unfinished: &mut BTreeSet<(JobId, CheckpointId)>) -> io::Result<()> {
    let mut reader = PieceReader { shared, drain, chunk: 0, bytes: Vec::new(), at: 0 };
    let object = drain.part.object;
    if mutant::is(Mutant::FreedUndrained) {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        free(shared, drain);
        layout::write_part(&*shared.pfs, &drain.part, &drain.crcs, &mut &bytes[..])?;
    } else {
        layout::write_part(&*shared.pfs, &drain.part, &drain.crcs, &mut reader)?;
        free(shared, drain);
    }
    unfinished.insert((object.job, object.checkpoint));
    finish(shared, unfinished)
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
/// left to the node or writer that adds its last part.
fn finish(shared: &Shared, unfinished: &mut BTreeSet<(JobId, CheckpointId)>) -> io::Result<()> {
    while let Some(&(job, checkpoint)) = unfinished.first() {
        layout::finish(&*shared.pfs, job, checkpoint)?;
        unfinished.pop_first();
    }
    Ok(())
}

/// The bytes of a piece, chunk by chunk. A chunk that has lost its checksum in memory is not written.
struct PieceReader<'a> {
    shared: &'a Shared,
    drain: &'a Drain,
    chunk: usize,
    bytes: Vec<u8>,
    at: usize,
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
        }
        let part = buffer.len().min(self.bytes.len() - self.at);
        buffer[..part].copy_from_slice(&self.bytes[self.at..self.at + part]);
        self.at += part;
        Ok(part)
    }
}

impl PieceReader<'_> {
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
