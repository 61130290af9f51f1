//! The processes of a burst buffer, which are this program under other arguments. Each prints its address, and ends with its standard input.

use crate::touched;
use crate::triad::triads;
use anyhow::{Context, Result};
use clap::Subcommand;
use entresol_burst::{JobId, NodeId};
use entresol_burst_fuse::Mount;
use entresol_burst_live::client::{Client, ClientSettings, Files, PATIENCE};
use entresol_burst_live::pfs::{Directory, Pfs};
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, without_checksums};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

/// The job of all checkpoints.
pub const JOB: JobId = JobId(1);
/// An address of this host with a port of the system's choice.
const ANY: &str = "127.0.0.1:0";

/// A process of a burst buffer.
#[derive(Subcommand)]
#[command(hide = true)]
pub enum Role {
    /// The coordinator
    Coordinate { state: PathBuf, nodes: usize, policy: String },
    /// A node, with its checksums, with bytes that stay in its memory, and with a cap on its drain if that is not 0
    Serve { node: u32, coordinator: String, memory: u64, pfs: PathBuf, checksums: u8, keeps: u8, drain_rate: u64 },
    /// A mount
    Mount { coordinator: String, pfs: PathBuf, at: PathBuf },
    /// A program over arrays of so many MiB
    Triads { mib: usize },
    /// A receiver of TCP streams of so many bytes
    Sink { bytes: usize },
    /// A sender of TCP streams of so many bytes
    Source { bytes: usize },
}

/// Settings of a writer or reader on a node.
pub fn settings(coordinator: &str, node: u32) -> ClientSettings {
    ClientSettings {
        coordinator: Some(coordinator.to_owned()),
        nodes: Vec::new(),
        node: NodeId(node),
        patience: PATIENCE,
        credential: None,
    }
}

/// A PFS on which nodes cannot write: what is in their memory stays there.
struct FullPfs(Directory);

impl Pfs for FullPfs {
    fn create(&self, _: &str, _: &str, _: &mut dyn Read) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.0.read(folder, name, at, bytes)
    }

    fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
        self.0.read_small(folder, name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }
}

impl Role {
    /// Does the process's work until standard input ends.
    pub fn play(&self) -> Result<()> {
        match self {
            Role::Coordinate { state, nodes, policy } => {
                let mut settings = CoordinatorSettings::new(ANY, state.clone());
                settings.policy = policy.parse().context("the policy")?;
                settings.nodes = Some(*nodes);
                let coordinator = CoordinatorDaemon::start(&settings)?;
                stay(&coordinator.address().to_string())
            }
            Role::Serve { node, coordinator, memory, pfs, checksums, keeps, drain_rate } => {
                without_checksums(*checksums == 0);
                let settings = NodeSettings {
                    node: NodeId(*node),
                    listen: ANY.to_owned(),
                    advertise: None,
                    coordinator: coordinator.clone(),
                    capacity: *memory,
                    key: None,
                    drain_rate: Some(*drain_rate).filter(|&rate| rate > 0),
                };
                let directory = Directory::open(pfs)?;
                let pfs: Arc<dyn Pfs> = if *keeps == 0 { Arc::new(directory) } else { Arc::new(FullPfs(directory)) };
                let node = NodeDaemon::start(&settings, pfs)?;
                stay(&node.address().to_string())
            }
            Role::Mount { coordinator, pfs, at } => {
                let directory = Arc::new(Directory::open(pfs)?);
                let client = Client::new(settings(coordinator, 0), Arc::clone(&directory) as _);
                let mount = Mount::start(Arc::new(Files::new(client, directory, JOB, 1)?), at)?;
                stay(&at.display().to_string())?;
                drop(mount);
                Ok(())
            }
            Role::Triads { mib } => triads(*mib),
            Role::Sink { bytes } => {
                let listener = TcpListener::bind(ANY)?;
                let memory = touched(*bytes, false)?;
                let address = listener.local_addr()?.to_string();
                std::thread::spawn(move || {
                    while let Ok((mut stream, _)) = listener.accept() {
                        let received = memory.chunks_mut(crate::WRITE).try_for_each(|part| stream.read_exact(part));
                        // A stream that breaks is the sender's error.
                        let _ = received.and_then(|()| stream.write_all(&[1]));
                    }
                });
                stay(&address)
            }
            Role::Source { bytes } => {
                let listener = TcpListener::bind(ANY)?;
                let memory = &*touched(*bytes, false)?;
                let address = listener.local_addr()?.to_string();
                std::thread::spawn(move || {
                    while let Ok((mut stream, _)) = listener.accept() {
                        // A stream that breaks is the receiver's error.
                        let _ = memory.chunks(crate::WRITE).try_for_each(|part| stream.write_all(part));
                    }
                });
                stay(&address)
            }
        }
    }
}

/// Prints the address and waits for the end of standard input.
fn stay(address: &str) -> Result<()> {
    println!("{address}");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
