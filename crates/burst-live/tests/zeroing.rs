//! Cost of zeroing freed space, in the time of a drain.

use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::client::{Client, ClientSettings, Level};
use entresol_burst_live::message::{FromCoordinator, ToCoordinator};
use entresol_burst_live::pfs::{Directory, Pfs};
use entresol_burst_live::wire::Peer;
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, without_zeroing};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const PAIRS: u64 = 10;
const RANKS: u32 = 8;
const RANK_BYTES: usize = 64 << 20;

/// A PFS whose writes wait until it is open.
struct Gate {
    inner: Directory,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, is_open: bool) {
        *self.is_open.lock().expect("a lock") = is_open;
        self.opened.notify_all();
    }
}

impl Pfs for Gate {
    fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
        drop(self.opened.wait_while(self.is_open.lock().expect("a lock"), |is_open| !*is_open));
        self.inner.create(folder, name, contents)
    }

    fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.inner.read(folder, name, at, bytes)
    }

    fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
        self.inner.read_small(folder, name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Seconds from the begin of a drain until the coordinator knows that all space is free.
fn drain(gate: &Gate, client: &Client, coordinator: &Peer, checkpoint: u64, bytes: &[u8]) -> f64 {
    gate.set(false);
    for rank in 0..RANKS {
        let object = Object { job: JobId(1), checkpoint: CheckpointId(checkpoint), rank };
        assert_eq!(client.put(object, RANKS, bytes).expect("stored").level, Level::Absorbed, "all space is free");
    }
    let begin = Instant::now();
    gate.set(true);
    loop {
        match coordinator.call(&ToCoordinator::Nodes, &[], MINUTE).expect("an answer").0 {
            FromCoordinator::Nodes { undrained_jobs, .. } if undrained_jobs.is_empty() => break,
            FromCoordinator::Nodes { .. } => assert!(begin.elapsed() < MINUTE, "it is not drained"),
            other => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    begin.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement of half a minute in 1 GB of memory: `make bench-burst-zeroing` runs it"]
fn what_zeroing_costs_a_drain() {
    let memory = Path::new("/dev/shm");
    let scratch = tempfile::tempdir_in(memory).expect("a file system in memory");
    let root = scratch.path().join("pfs");
    std::fs::create_dir(&root).expect("a directory");
    let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
    settings.policy = "cdbb:object=whole".parse().expect("a policy");
    settings.nodes = Some(1);
    let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
    let inner = Directory::open(&root).expect("a directory");
    let gate = Arc::new(Gate { inner, is_open: Mutex::new(true), opened: Condvar::new() });
    let settings = NodeSettings {
        node: NodeId(0),
        listen: "127.0.0.1:0".to_owned(),
        advertise: None,
        coordinator: coordinator.address().to_string(),
        capacity: u64::from(RANKS) * RANK_BYTES as u64,
        key: None,
        drain_rate: None,
    };
    let _node = NodeDaemon::start(&settings, gate.clone()).expect("a node");
    let address = settings.coordinator;
    let (coordinator, nodes, node) = (Some(address.clone()), Vec::new(), NodeId(0));
    let settings = ClientSettings { coordinator, nodes, node, patience: MINUTE, credential: None };
    let client = Client::new(settings, gate.clone());
    let bytes = vec![7; RANK_BYTES];
    let peer = Peer::connect(&address, MINUTE).expect("the coordinator");
    let mut took_s = [Vec::new(), Vec::new()];
    // The first pair warms up.
    for pair in 0..=PAIRS {
        for (kind, zeroes) in [true, false].into_iter().enumerate() {
            without_zeroing(!zeroes);
            let checkpoint = 2 * pair + kind as u64;
            let seconds = drain(&gate, &client, &peer, checkpoint, &bytes);
            // The node may be writing the manifest.
            let until = Instant::now() + MINUTE;
            while let Err(error) = std::fs::remove_dir_all(root.join("job-1")) {
                assert!(Instant::now() < until, "{error}");
                std::thread::sleep(Duration::from_millis(10));
            }
            if pair > 0 {
                took_s[kind].push(seconds);
            }
        }
    }
    let ratios = took_s[0].iter().zip(&took_s[1]).map(|(with, without)| with / without).collect::<Vec<f64>>();
    let mut sorted = ratios.clone();
    sorted.sort_by(f64::total_cmp);
    let [with, without] = took_s.map(median);
    println!(
        "a drain of {} MiB in {PAIRS} pairs: {with:.3} s with zeroing, {without:.3} s without; ratio {:.2}, from the second to the ninth {:.2} to {:.2}",
        RANKS as usize * (RANK_BYTES >> 20),
        median(ratios),
        sorted[1],
        sorted[sorted.len() - 2],
    );
    assert!(sorted.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0));
}
