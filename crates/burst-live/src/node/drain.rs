//! The drain of a node: stored pieces go to the PFS one by one, and their space is free when they are durable there.

use super::Shared;
use super::buffer::Drain;
use super::cap::Cap;
use crate::checksum::{chunk_length, crc32c};
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
/// Longest pause of a drain under a cap: the end of the node is seen after it.
const CAPPED: Duration = Duration::from_millis(100);

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
    /// Cap on the rate, if there is one.
    cap: Option<Cap>,
}

/// Drains until the daemon stops. A failure is reported, and the same piece is tried again.
pub(crate) fn run(shared: &Shared) {
    let mut pause = PAUSES.0;
    let mut work = Work { cap: shared.drain_rate.map(Cap::new), ..Work::default() };
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
        drain_one(shared, drain, work.cap.as_mut())?;
        work.unfinished.insert((drain.part.object.job, drain.part.object.checkpoint), drain.owner);
    }
    let drained = work.current.take();
    if let Some(drain) = &drained {
        work.failing.owners.remove(&drain.owner.uid);
    }
    finish(shared, work)?;
    Ok(drained.is_some())
}

fn drain_one(shared: &Shared, drain: &Drain, cap: Option<&mut Cap>) -> io::Result<()> {
    let mut reader = PieceReader { shared, drain, cap, chunk: 0, bytes: Vec::new(), at: 0, way: WAY_MAX };
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
    cap: Option<&'a mut Cap>,
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
            self.keep_to_rate();
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
    /// Waits until the next chunk may be written under the cap.
    fn keep_to_rate(&mut self) {
        let Some(cap) = self.cap.as_deref_mut() else { return };
        loop {
            let wait = cap.wait();
            if wait.is_zero() || self.shared.is_stopping() {
                break;
            }
            self.shared.pause(wait.min(CAPPED));
        }
        cap.take(chunk_length(self.drain.part.bytes, self.chunk as u64));
    }

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
    use super::super::NodeSettings;
    use super::super::buffer::tests::grant;
    use super::super::cap::KEPT;
    use super::*;
    use crate::checksum::{CHUNK_BYTES, chunks, of_chunks};
    use crate::pfs::Pfs;
    use crate::simulated::{Actor, become_actor};
    use entresol_burst::{Epoch, NodeId};
    use entresol_core::Random;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::sync::{Arc, Condvar, Mutex};

    const RATE: u64 = 1000;
    const PIECES: u64 = 40;

    /// A thread whose time passes in its pauses alone, which end late.
    struct Virtual {
        begin: Instant,
        passed: Cell<Duration>,
        random: RefCell<Random>,
    }

    impl Actor for Virtual {
        fn now_ns(&self) -> u64 {
            self.passed.get().as_nanos() as u64
        }

        fn now(&self) -> Instant {
            self.begin + self.passed.get()
        }

        fn pause(&self, _: &'static str, _: Option<&Condvar>, time: Duration) {
            let late = Duration::from_millis(self.random.borrow_mut().below(30));
            self.passed.set(self.passed.get() + time + late);
        }

        fn notify_all(&self, _: &Condvar) {}

        fn connect(&self, _: &str, _: Duration) -> io::Result<u64> {
            unreachable!("the drain of a node needs no connection")
        }

        fn call(&self, _: u64, _: &[u8], _: Duration) -> io::Result<Vec<u8>> {
            unreachable!("the drain of a node needs no connection")
        }

        fn close(&self, _: u64) {}
    }

    /// A PFS that notes the times at which it takes the bytes of pieces.
    #[derive(Default)]
    struct Noting(Mutex<Vec<(Instant, u64)>>);

    impl Pfs for Noting {
        fn create(&self, _: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
            let mut part = [0; 100];
            loop {
                match contents.read(&mut part)? {
                    0 => return Ok(()),
                    _ if name.ends_with(".json") => {}
                    bytes => lock(&self.0).push((clock::now(), bytes as u64)),
                }
            }
        }

        fn read(&self, _: &str, _: &str, _: u64, _: u64) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn read_small(&self, _: &str, _: &str) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn list(&self, _: &str) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    /// Drains pieces of random lengths, which are stored at once or after random pauses. Returns the bytes with the times at which the PFS
    /// took them.
    fn drained(seed: u64, drain_rate: Option<u64>, pauses: bool) -> Vec<(Instant, u64)> {
        let random = RefCell::new(Random::new(seed));
        let actor = Rc::new(Virtual { begin: Instant::now(), passed: Cell::default(), random });
        become_actor(Some(actor.clone()));
        let settings = NodeSettings {
            node: NodeId(0),
            listen: String::new(),
            advertise: None,
            coordinator: String::new(),
            capacity: PIECES * RATE,
            key: None,
            drain_rate,
        };
        let pfs = Arc::new(Noting::default());
        let shared = Shared::new(&settings, 7, String::new(), pfs.clone()).expect("memory");
        lock(&shared.buffer).join(Epoch(1), None).expect("the first epoch");
        let mut work = Work { cap: shared.drain_rate.map(Cap::new), ..Work::default() };
        let mut random = Random::new(!seed);
        for number in 0..PIECES {
            let bytes = 1 + random.below(RATE);
            let (grant, about) = grant(number, number * RATE, bytes, Duration::from_secs(3600));
            let (contents, crcs) = (vec![7; bytes as usize], of_chunks(&vec![7; bytes as usize]));
            let mut buffer = lock(&shared.buffer);
            for (chunk, part) in contents.chunks(CHUNK_BYTES as usize).enumerate() {
                buffer.write(&grant, about, chunk as u64, part, crcs[chunk]).expect("a grant");
            }
            assert_eq!(crcs.len() as u64, chunks(bytes));
            buffer.stored(grant.lease, &crcs).expect("all is there");
            drop(buffer);
            if pauses {
                clock::sleep(Duration::from_millis(random.below(1500)));
                while step(&shared, &mut work).expect("the PFS works") {}
            }
        }
        while step(&shared, &mut work).expect("the PFS works") {}
        assert_eq!(lock(&shared.buffer).status().undrained, 0);
        become_actor(None);
        std::mem::take(&mut *lock(&pfs.0))
    }

    /// True if no time has more bytes than the cap lets through in it.
    fn keeps_to(rate: u64, noted: &[(Instant, u64)]) -> bool {
        (0..noted.len()).all(|first| {
            let mut bytes = 0;
            noted[first..].iter().all(|&(at, more)| {
                bytes += more;
                let time = at.duration_since(noted[first].0) + KEPT;
                bytes as f64 <= rate as f64 * time.as_secs_f64() + CHUNK_BYTES as f64 + 1e-3
            })
        })
    }

    #[test]
    fn a_drain_keeps_to_its_cap_and_uses_it() {
        for seed in 0..20 {
            println!("seed {seed}");
            let noted = drained(seed, Some(RATE), false);
            assert!(keeps_to(RATE, &noted));
            let bytes: u64 = noted.iter().map(|&(_, bytes)| bytes).sum();
            let took = noted[noted.len() - 1].0.duration_since(noted[0].0).as_secs_f64();
            assert!(bytes as f64 / took >= 0.99 * RATE as f64, "{bytes} bytes in {took} s");
            assert!(keeps_to(RATE, &drained(seed, Some(RATE), true)));
            assert!(!keeps_to(RATE, &drained(seed, None, true)), "a drain without a cap is slow too");
        }
    }
}
