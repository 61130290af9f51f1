//! A coordinator and nodes in threads of the test, and a PFS directory that fails on demand.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod processes;
pub mod stage;

use entresol_burst::{CheckpointId, JobId, NodeId, Object, Policy};
use entresol_burst_live::client::{Client, ClientSettings};
use entresol_burst_live::message::{FromCoordinator, FromNode, ToCoordinator, ToNode};
use entresol_burst_live::pfs::{Directory, Pfs};
use entresol_burst_live::wire::Peer;
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings};
use entresol_core::Random;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
pub const JOB: JobId = JobId(7);
/// Time within which a daemon of this process answers, on processors that are busy with other tests.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// A directory whose writes fail or stall while a switch is on.
pub struct FaultyPfs {
    inner: Directory,
    pub full: AtomicBool,
    /// True while manifests alone are refused.
    pub refuses_manifests: AtomicBool,
    pub refused: AtomicU64,
}

impl FaultyPfs {
    pub fn open(root: &Path) -> Arc<FaultyPfs> {
        let inner = Directory::open(root).expect("a directory");
        Arc::new(FaultyPfs {
            inner,
            full: AtomicBool::new(false),
            refuses_manifests: AtomicBool::new(false),
            refused: AtomicU64::new(0),
        })
    }

    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }
}

impl Pfs for FaultyPfs {
    fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
        let refuses_manifests = self.refuses_manifests.load(Ordering::SeqCst);
        if self.full.load(Ordering::SeqCst) || refuses_manifests && name == "manifest.json" {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
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

/// A cluster in this process.
pub struct Testbed {
    scratch: tempfile::TempDir,
    policy: Policy,
    pub pfs: Arc<FaultyPfs>,
    pub coordinator: Option<CoordinatorDaemon>,
    address: String,
    pub nodes: Vec<Option<NodeDaemon>>,
    capacity: u64,
}

impl Testbed {
    /// A coordinator, and nodes that have reported to it.
    pub fn new(policy: &str, nodes: usize, capacity: u64) -> Testbed {
        let scratch = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(scratch.path().join("pfs")).expect("a directory");
        let pfs = FaultyPfs::open(&scratch.path().join("pfs"));
        let mut testbed = Testbed {
            scratch,
            policy: policy.parse().expect(policy),
            pfs,
            coordinator: None,
            address: "127.0.0.1:0".to_owned(),
            nodes: (0..nodes).map(|_| None).collect(),
            capacity,
        };
        testbed.start_coordinator();
        (0..nodes).for_each(|node| testbed.start_node(node));
        testbed.wait_for_nodes();
        testbed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn start_coordinator(&mut self) {
        let mut settings = CoordinatorSettings::new(&self.address, self.path("state"));
        settings.policy = self.policy;
        settings.nodes = Some(self.nodes.len());
        settings.wait = Duration::from_secs(2);
        settings.grant_log = Some(self.path("grants"));
        let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
        self.address = coordinator.address().to_string();
        self.coordinator = Some(coordinator);
    }

    pub fn start_node(&mut self, node: usize) {
        let settings = NodeSettings {
            node: NodeId(node as u32),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            coordinator: self.address.clone(),
            capacity: self.capacity,
            key: None,
            drain_rate: None,
        };
        self.nodes[node] = Some(NodeDaemon::start(&settings, self.pfs.clone()).expect("a node"));
    }

    /// Waits until a writer can open on every node.
    pub fn wait_for_nodes(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        for node in (0..self.nodes.len()).filter(|&node| self.nodes[node].is_some()) {
            let address = self.nodes[node].as_ref().expect("it runs").address().to_string();
            while !self.present().contains(&address) {
                assert!(Instant::now() < until, "node {node} has not reported");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Waits until the copies of drained pieces were given back.
    pub fn wait_for_empty_buffers(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        for node in self.nodes.iter().flatten() {
            let peer = Peer::connect(&node.address().to_string(), ANSWERED_WITHIN).expect("a node");
            loop {
                let (answer, _) = peer.call(&ToNode::Pieces { job: JOB }, &[], ANSWERED_WITHIN).expect("an answer");
                match answer {
                    FromNode::Pieces { pieces, .. } if pieces.is_empty() => break,
                    other => assert!(Instant::now() < until, "{other:?}"),
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn present(&self) -> Vec<String> {
        let peer = Peer::connect(&self.address, ANSWERED_WITHIN).expect("the coordinator");
        match peer.call(&ToCoordinator::Nodes, &[], ANSWERED_WITHIN).expect("an answer").0 {
            FromCoordinator::Nodes { nodes, .. } => {
                nodes.into_iter().filter(|node| node.present).map(|node| node.address).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn settings(&self, node: usize) -> ClientSettings {
        ClientSettings {
            coordinator: Some(self.address.clone()),
            nodes: Vec::new(),
            node: NodeId(node as u32),
            patience: Duration::from_secs(3),
            credential: None,
        }
    }

    pub fn client(&self, node: usize) -> Client {
        Client::new(self.settings(node), self.pfs.clone())
    }
}

pub fn object(checkpoint: u64, rank: u32) -> Object {
    Object { job: JOB, checkpoint: CheckpointId(checkpoint), rank }
}

/// Bytes that differ for every object.
pub fn contents(object: Object, bytes: u64) -> Vec<u8> {
    let mut random = Random::new(object.checkpoint.0 << 32 | u64::from(object.rank));
    (0..bytes.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(bytes as usize).collect()
}
