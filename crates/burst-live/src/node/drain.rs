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

/// Longest time that a drain of low priority makes way, for each chunk, to writers that write to the PFS directly; and a pause in it.
const WAY_MAX: Duration = Duration::from_secs(10);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientSettings, Level};
    use crate::message::{FromCoordinator, ToCoordinator};
    use crate::pfs::Directory;
    use crate::wire::Peer;
    use crate::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings};
    use entresol_burst::{Event, NodeId, Object};
    use std::sync::Arc;
    use std::time::Instant;

    const MINUTE: Duration = Duration::from_secs(60);

    fn wait_until(is: impl Fn() -> bool, why: &str) {
        let until = Instant::now() + MINUTE;
        while !is() {
            assert!(Instant::now() < until, "{why}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_drain_of_low_priority_makes_way_to_a_writer_on_the_pfs() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
        settings.policy = "cdbb:object=whole:drain=low".parse().expect("a policy");
        let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
        let address = coordinator.address().to_string();
        let pfs = Arc::new(Directory::open(scratch.path()).expect("a directory"));
        let settings = NodeSettings {
            node: NodeId(0),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            coordinator: address.clone(),
            capacity: 1 << 20,
        };
        let node = NodeDaemon::start(&settings, pfs.clone()).expect("a node");
        let large = Object { job: JobId(1), checkpoint: CheckpointId(1), rank: 0 };
        let tell = |event| {
            let peer = Peer::connect(&address, MINUTE).expect("a connection");
            peer.call::<FromCoordinator>(&ToCoordinator::Writer(event), &[], MINUTE).expect("an answer").0
        };
        let open = || tell(Event::Open { object: large, ranks: 1, node: NodeId(0), bytes: 2 << 20 });
        wait_until(|| matches!(open(), FromCoordinator::Grants { .. }), "the node does not join");
        let is_direct = || node.shared.direct.load(Ordering::Relaxed);
        wait_until(is_direct, "the node does not hear of the writer");

        let settings =
            ClientSettings { coordinator: Some(address.clone()), nodes: Vec::new(), node: NodeId(0), patience: MINUTE };
        let small = Object { job: JobId(2), ..large };
        let bytes = vec![7; 1 << 19];
        assert_eq!(Client::new(settings, pfs).put(small, 1, &bytes).expect("stored").level, Level::Absorbed);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(node.status().drained, 0, "the drain has not made way");
        let begin = Instant::now();
        tell(Event::Abandon { object: large });
        wait_until(|| node.status().drained == 1 << 19, "the drain does not go on");
        assert!(begin.elapsed() < WAY_MAX / 2 && !is_direct(), "{:?}", begin.elapsed());
    }
}
