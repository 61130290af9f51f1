//! The drain of a node: stored pieces go to the PFS one by one, and their space is free when they are durable there.

use super::Shared;
use super::buffer::Drain;
use crate::checksum::crc32c;
use crate::clock;
use crate::layout;
use crate::mutant::{self, Mutant};
use crate::report::report;
use crate::server::lock;
use entresol_burst::{CheckpointId, DrainOrder, DrainPriority, JobId, Owner};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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

/// Owners for whom the PFS has failed. Under a key it may fail one user alone, whose quota is used up or whose folder is not
/// writable: the pieces of others go on.
#[derive(Default)]
struct Failing {
    /// Time of the next attempt by the owner's number, and the pause before it.
    owners: BTreeMap<u32, (Instant, Duration)>,
}

impl Failing {
    fn note(&mut self, owner: Owner) {
        let pause = self.owners.get(&owner.uid).map_or(PAUSES.0, |&(_, pause)| (pause * 2).min(PAUSES.1));
        self.owners.insert(owner.uid, (clock::now() + pause, pause));
    }

    fn waits(&self, owner: Owner) -> bool {
        self.owners.get(&owner.uid).is_some_and(|&(until, _)| clock::now() < until)
    }
}

/// Pieces and manifests under way.
#[derive(Default)]
struct Work {
    current: Option<Drain>,
    /// Checkpoints whose manifests may be due, and their owners.
    unfinished: BTreeMap<(JobId, CheckpointId), Owner>,
    failing: Failing,
}

/// Drains until the daemon stops. A failure is reported, and the same piece is tried again.
pub(crate) fn run(shared: &Shared) {
    let mut pause = PAUSES.0;
    let mut work = Work::default();
    while !shared.is_stopping() {
        match step(shared, &mut work) {
            Ok(true) => pause = PAUSES.0,
            Ok(false) => {
                pause = PAUSES.0;
                if work.failing.owners.is_empty() {
                    lock(&shared.buffer).note_success();
                }
                shared.wait_for_work();
            }
            Err(error) => {
                let of = work.current.as_ref().map_or_else(String::new, |drain| format!("{}: ", drain.part.object));
                report!("node {}: {of}not on the PFS yet, kept and tried again: {error}", shared.node.0);
                let job = work.current.as_ref().map(|drain| drain.part.object.job);
                lock(&shared.buffer).note_failure(job, format!("{of}{error}"));
                if mutant::is(Mutant::DrainNotRepeated) {
                    work.current = None;
                }
                // Damaged bytes do not hold up the others. They stay, and a copy may have them.
                let is_damaged = error.kind() == io::ErrorKind::InvalidData && work.current.take().is_some();
                if shared.key.is_some() {
                    if let Some(drain) = work.current.take() {
                        lock(&shared.buffer).postpone(&drain);
                        work.failing.note(drain.owner);
                    }
                } else if !is_damaged {
                    shared.pause(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

/// Drains the next piece and writes the manifests that are due. Returns false if no piece was stored. A piece that is
/// durable is not drained again when its manifest fails.
fn step(shared: &Shared, work: &mut Work) -> io::Result<bool> {
    if work.current.is_none() {
        let order = lock(&shared.policy).map_or(DrainOrder::Fifo, |policy| policy.order);
        work.current = lock(&shared.buffer).next_drain(order, |owner| !work.failing.waits(owner));
    }
    if let Some(drain) = &work.current {
        drain_one(shared, drain)?;
        work.unfinished.insert((drain.part.object.job, drain.part.object.checkpoint), drain.owner);
    }
    let drained = work.current.take();
    if let Some(drain) = &drained {
        work.failing.owners.remove(&drain.owner.uid);
    }
    finish(shared, work)?;
    Ok(drained.is_some())
}

fn drain_one(shared: &Shared, drain: &Drain) -> io::Result<()> {
    let mut reader = PieceReader { shared, drain, chunk: 0, bytes: Vec::new(), at: 0, way: WAY_MAX };
    if mutant::is(Mutant::FreedUndrained) {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        free(shared, drain);
        return layout::write_part(&*shared.pfs, &drain.part, &drain.crcs, &mut &bytes[..]);
    }
    let acting = shared.act_for(drain.owner)?;
    layout::write_part(&*shared.pfs, &drain.part, &drain.crcs, &mut reader)?;
    drop(acting);
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
fn finish(shared: &Shared, work: &mut Work) -> io::Result<()> {
    let mut failure = None;
    let failing = &mut work.failing;
    work.unfinished.retain(|&(job, checkpoint), &mut owner| {
        if failing.waits(owner) {
            return true;
        }
        let acting = shared.act_for(owner);
        let finished = acting.and_then(|_acting| layout::finish(&*shared.pfs, job, checkpoint));
        let failed = finished.is_err();
        match failed && shared.key.is_some() {
            true => failing.note(owner),
            false => drop(failing.owners.remove(&owner.uid)),
        }
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
