//! A burst buffer of processes on this machine, and a writer.

use crate::role::{JOB, settings};
use crate::seconds;
use anyhow::{Context, Result, bail, ensure};
use entresol_burst::{CheckpointId, Object};
use entresol_burst_live::client::{Client, Level, figures};
use entresol_burst_live::pfs::Directory;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for nodes and drains.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of the burst buffer. It ends when this is dropped.
pub struct Process {
    child: Child,
    /// Address that the process has printed.
    pub address: String,
}

impl Process {
    /// Starts this program in a role.
    pub fn start(role: &[&str]) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        ensure!(!line.is_empty(), "{role:?} has failed");
        Ok(Process { child, address: line.trim().to_owned() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// A coordinator, nodes, and a writer on node 0.
pub struct Cluster {
    coordinator: Process,
    _nodes: Vec<Process>,
    pfs: PathBuf,
    mountpoint: PathBuf,
    client: Client,
    checkpoint: u64,
}

/// A mount of the writer's node.
pub struct Mounted {
    _process: Process,
    pub path: PathBuf,
    coordinator: String,
    pfs: PathBuf,
}

impl Cluster {
    /// Starts nodes with so much memory each, and waits until they have joined.
    pub fn start(scratch: &Path, name: &str, memory: &[u64], checksums: bool) -> Result<Cluster> {
        let [pfs, state, mountpoint] = ["pfs", "state", "mount"].map(|of| scratch.join(format!("{name}-{of}")));
        for directory in [&pfs, &mountpoint] {
            std::fs::create_dir(directory)?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let coordinator = Process::start(&["coordinate", &text(&state), &memory.len().to_string()])?;
        let mut nodes = Vec::new();
        for (node, bytes) in memory.iter().enumerate() {
            let (node, bytes) = (node.to_string(), bytes.to_string());
            let checksums = u8::from(checksums).to_string();
            nodes.push(Process::start(&["serve", &node, &coordinator.address, &bytes, &text(&pfs), &checksums])?);
        }
        let client = Client::new(settings(&coordinator.address), Arc::new(Directory::open(&pfs)?));
        let cluster = Cluster { coordinator, _nodes: nodes, pfs, mountpoint, client, checkpoint: 0 };
        let until = Instant::now() + PATIENCE;
        while figures(&cluster.coordinator.address)?.nodes.len() < memory.len() {
            ensure!(Instant::now() < until, "the nodes do not join");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(cluster)
    }

    /// Stores a checkpoint, and returns the time until it was acknowledged. It is drained and removed afterwards; the first one is
    /// compared before.
    pub fn put(&mut self, bytes: &[u8]) -> Result<f64> {
        self.checkpoint += 1;
        let object = Object { job: JOB, checkpoint: CheckpointId(self.checkpoint), rank: 0 };
        let mut level = None;
        let time = seconds(|| {
            level = Some(self.client.put(object, 1, bytes)?.level);
            Ok(())
        })?;
        ensure!(level == Some(Level::Absorbed), "stored as {level:?}");
        if self.checkpoint == 1 {
            let restored = self.client.restore(JOB, Some(object.checkpoint), 0)?;
            ensure!(restored.bytes == bytes, "other bytes are restored");
        }
        drain(&self.client, &self.pfs)?;
        Ok(time)
    }

    /// Mounts the job for programs on node 0.
    pub fn mount(&self) -> Result<Mounted> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let role = ["mount", &self.coordinator.address, &text(&self.pfs), &text(&self.mountpoint)];
        Ok(Mounted {
            _process: Process::start(&role)?,
            path: self.mountpoint.clone(),
            coordinator: self.coordinator.address.clone(),
            pfs: self.pfs.clone(),
        })
    }
}

impl Mounted {
    /// Waits until all is on the PFS, and removes it there.
    pub fn wait_for_drain(&self) -> Result<()> {
        drain(&Client::new(settings(&self.coordinator), Arc::new(Directory::open(&self.pfs)?)), &self.pfs)
    }
}

/// Waits until all is on the PFS, and removes the bytes there: memory is short.
fn drain(client: &Client, pfs: &Path) -> Result<()> {
    let left = client.drain(JOB, None, PATIENCE)?;
    if !left.is_empty() {
        bail!("not drained: {left:?}");
    }
    for entry in std::fs::read_dir(pfs)? {
        std::fs::remove_dir_all(entry?.path())?;
    }
    Ok(())
}
