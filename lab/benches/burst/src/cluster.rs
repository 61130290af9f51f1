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

/// Properties of a burst buffer.
pub struct Shape<'a> {
    /// Bytes of each node.
    pub memory: &'a [u64],
    pub policy: &'a str,
    /// False: nodes compute no checksums.
    pub checksums: bool,
    /// True: nodes cannot write to the PFS, so that bytes stay in memory.
    pub keeps: bool,
    /// Cap on the drain of each node in bytes a second; 0 is none.
    pub drain_rate: u64,
}

/// A coordinator, nodes, and a writer on node 0.
pub struct Cluster {
    coordinator: Process,
    nodes: Vec<Option<Process>>,
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
    /// Starts the processes, and waits until the nodes have joined.
    pub fn start(scratch: &Path, name: &str, shape: &Shape) -> Result<Cluster> {
        let memory = shape.memory;
        let [pfs, state, mountpoint] = ["pfs", "state", "mount"].map(|of| scratch.join(format!("{name}-{of}")));
        for directory in [&pfs, &mountpoint] {
            std::fs::create_dir(directory)?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let coordinator = Process::start(&["coordinate", &text(&state), &memory.len().to_string(), shape.policy])?;
        let mut nodes = Vec::new();
        for (node, bytes) in memory.iter().enumerate() {
            let (node, bytes, rate) = (node.to_string(), bytes.to_string(), shape.drain_rate.to_string());
            let [checksums, keeps] = [shape.checksums, shape.keeps].map(|is| u8::from(is).to_string());
            let role = ["serve", &node, &coordinator.address, &bytes, &text(&pfs), &checksums, &keeps, &rate];
            nodes.push(Some(Process::start(&role)?));
        }
        let client = Client::new(settings(&coordinator.address, 0), Arc::new(Directory::open(&pfs)?));
        let cluster = Cluster { coordinator, nodes, pfs, mountpoint, client, checkpoint: 0 };
        let until = Instant::now() + PATIENCE;
        while figures(&cluster.coordinator.address, None)?.nodes.len() < memory.len() {
            ensure!(Instant::now() < until, "the nodes do not join");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(cluster)
    }

    /// Stores a checkpoint, and returns the time until it was acknowledged. It is drained and removed afterwards; the first one is
    /// compared before.
    pub fn put(&mut self, bytes: &[u8]) -> Result<f64> {
        let object = self.next();
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

    fn next(&mut self) -> Object {
        self.checkpoint += 1;
        Object { job: JOB, checkpoint: CheckpointId(self.checkpoint), rank: 0 }
    }

    /// Stores a checkpoint that stays.
    pub fn store(&mut self, bytes: &[u8]) -> Result<()> {
        let object = self.next();
        self.client.put(object, 1, bytes)?;
        Ok(())
    }

    /// Waits until all is on the PFS.
    pub fn wait_for_drain(&self) -> Result<()> {
        drained(&self.client)
    }

    /// Removes what is on the PFS: memory is short.
    pub fn remove_drained(&self) -> Result<()> {
        drain(&self.client, &self.pfs)
    }

    /// Ends a node, and waits until the coordinator knows it.
    pub fn lose(&mut self, node: usize) -> Result<()> {
        self.nodes[node] = None;
        let until = Instant::now() + PATIENCE;
        while figures(&self.coordinator.address, None)?.nodes.iter().all(|(_, status)| status.is_some()) {
            ensure!(Instant::now() < until, "the loss of a node is not seen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Bytes that a node has drained.
    pub fn drained_bytes(&self, node: usize) -> Result<u64> {
        let figures = figures(&self.coordinator.address, None)?;
        let status = figures.nodes.into_iter().find(|(of, _)| of.0 as usize == node).and_then(|(_, status)| status);
        Ok(status.context("the node does not answer")?.drained)
    }

    /// Processor time of a node in seconds.
    pub fn processor_s(&self, node: usize) -> Result<f64> {
        let id = self.nodes[node].as_ref().context("the node is lost")?.child.id();
        let text = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name before may have spaces. Of the fields behind it the twelfth and the thirteenth are times, in hundredths of a second.
        let (_, fields) = text.rsplit_once(") ").context("the state of the node")?;
        let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>());
        Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
    }

    /// A reader on a node.
    pub fn reader(&self, node: u32) -> Result<Client> {
        Ok(Client::new(settings(&self.coordinator.address, node), Arc::new(Directory::open(&self.pfs)?)))
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
        drain(&Client::new(settings(&self.coordinator, 0), Arc::new(Directory::open(&self.pfs)?)), &self.pfs)
    }
}

/// Waits until all is on the PFS.
fn drained(client: &Client) -> Result<()> {
    let left = client.drain(JOB, None, PATIENCE)?;
    if !left.is_empty() {
        bail!("not drained: {left:?}");
    }
    Ok(())
}

/// Waits until all is on the PFS, and removes the bytes there: memory is short.
fn drain(client: &Client, pfs: &Path) -> Result<()> {
    drained(client)?;
    for entry in std::fs::read_dir(pfs)? {
        let entry = entry?;
        // The link with the directory's identity stays: a later client would make another one.
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
