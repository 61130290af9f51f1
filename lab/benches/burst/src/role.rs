//! The processes of a burst buffer, which are this program under other arguments. Each prints its address, and ends with its standard input.

use crate::touched;
use anyhow::{Context, Result};
use clap::Subcommand;
use entresol_burst::{JobId, NodeId};
use entresol_burst_fuse::Mount;
use entresol_burst_live::client::{Client, ClientSettings, Files, PATIENCE};
use entresol_burst_live::pfs::Directory;
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, without_checksums};
use std::io::{Read, Write};
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
    Coordinate { state: PathBuf, nodes: usize },
    /// A node
    Serve { node: u32, coordinator: String, memory: u64, pfs: PathBuf, checksums: u8 },
    /// A mount
    Mount { coordinator: String, pfs: PathBuf, at: PathBuf },
    /// A receiver of TCP streams of so many bytes
    Sink { bytes: usize },
}

/// Settings of a writer on node 0.
pub fn settings(coordinator: &str) -> ClientSettings {
    ClientSettings { coordinator: Some(coordinator.to_owned()), nodes: Vec::new(), node: NodeId(0), patience: PATIENCE }
}

impl Role {
    /// Does the process's work until standard input ends.
    pub fn play(&self) -> Result<()> {
        match self {
            Role::Coordinate { state, nodes } => {
                let mut settings = CoordinatorSettings::new(ANY, state.clone());
                settings.policy = "cdbb:drain=low".parse().context("the policy")?;
                settings.nodes = Some(*nodes);
                let coordinator = CoordinatorDaemon::start(&settings)?;
                stay(&coordinator.address().to_string())
            }
            Role::Serve { node, coordinator, memory, pfs, checksums } => {
                without_checksums(*checksums == 0);
                let settings = NodeSettings {
                    node: NodeId(*node),
                    listen: ANY.to_owned(),
                    advertise: None,
                    coordinator: coordinator.clone(),
                    capacity: *memory,
                };
                let node = NodeDaemon::start(&settings, Arc::new(Directory::open(pfs)?))?;
                stay(&node.address().to_string())
            }
            Role::Mount { coordinator, pfs, at } => {
                let directory = Arc::new(Directory::open(pfs)?);
                let client = Client::new(settings(coordinator), Arc::clone(&directory) as _);
                let mount = Mount::start(Arc::new(Files::new(client, directory, JOB, 1)?), at)?;
                stay(&at.display().to_string())?;
                drop(mount);
                Ok(())
            }
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
