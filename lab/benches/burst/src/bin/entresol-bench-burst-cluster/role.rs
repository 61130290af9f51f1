//! The processes of the emulated cluster, which are this program under other arguments. Each enters its namespace first, prints a line
//! when it is ready, and ends with its standard input.

use crate::meter;
use crate::network::{Host, enter};
use crate::pfs::{self, Moved, Remote, now_ns};
use crate::result::write;
use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use entresol_bench_common::process_time;
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::client::{Client, ClientSettings, PATIENCE};
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings};
use entresol_core::Random;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const COORDINATOR_PORT: u16 = 7700;
/// Port of the coordinator behind a meter of its messages.
const METERED_PORT: u16 = 7710;
const NODE_PORT: u16 = 7701;
pub const PFS_PORT: u16 = 7702;

/// Arguments of a process on a node.
#[derive(clap::Args)]
pub struct OnNode {
    pub node: u32,
    /// Directory of the PFS.
    pub pfs: PathBuf,
    /// File for the results.
    pub result: PathBuf,
    /// Rate of one stream to the PFS in bytes a second.
    #[arg(long)]
    pub stream: Option<f64>,
}

/// A process of the emulated cluster.
#[derive(Subcommand)]
#[command(hide = true)]
pub enum Role {
    /// The coordinator
    Coordinate {
        state: PathBuf,
        policy: String,
        nodes: usize,
        lease_ns: u64,
        log: PathBuf,
        result: PathBuf,
        metered: u8,
    },
    /// A meter in front of the coordinator
    Meter { result: PathBuf },
    /// The PFS
    Pfs { root: PathBuf },
    /// A node
    Serve {
        memory: u64,
        #[command(flatten)]
        on: OnNode,
    },
    /// The writers of a node
    Write {
        plan: PathBuf,
        #[command(flatten)]
        on: OnNode,
    },
}

/// A writer and the times of its checkpoints in seconds after the begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Planned {
    pub job: u64,
    pub rank: u32,
    pub ranks: u32,
    pub bytes: u64,
    pub at_s: Vec<f64>,
}

/// An object that was put.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Put {
    pub job: u64,
    pub checkpoint: u64,
    pub rank: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub failures: Vec<String>,
}

/// Results of a node's daemon or of its writers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub puts: Vec<Put>,
    pub moved: Vec<Moved>,
    pub processor_s: f64,
}

/// The bytes of a rank, which follow from its name.
pub fn contents(job: u64, checkpoint: u64, rank: u32, bytes: u64) -> Vec<u8> {
    let mut random = Random::new((job << 48) ^ (checkpoint << 32) ^ u64::from(rank));
    let mut contents = Vec::with_capacity(bytes as usize + 8);
    while (contents.len() as u64) < bytes {
        contents.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    contents.truncate(bytes as usize);
    contents
}

impl Role {
    /// Does the process's work until standard input ends.
    pub fn play(&self) -> Result<()> {
        match self {
            Role::Coordinate { state, policy, nodes, lease_ns, log, result, metered } => {
                enter(Host::Coordinator)?;
                let listen = match metered {
                    0 => format!("{}:{COORDINATOR_PORT}", Host::Coordinator.control()),
                    _ => format!("127.0.0.1:{METERED_PORT}"),
                };
                let mut settings = CoordinatorSettings::new(&listen, state.clone());
                settings.policy = policy.parse()?;
                settings.nodes = Some(*nodes);
                settings.lease_ns = *lease_ns;
                settings.grant_log = Some(log.clone());
                let coordinator = CoordinatorDaemon::start(&settings)?;
                stay()?;
                let checked = coordinator.check();
                drop(coordinator);
                checked.map_err(anyhow::Error::msg)?;
                let processor_s = process_time().as_secs_f64();
                write(result, &Results { processor_s, ..Results::default() })
            }
            Role::Meter { result } => {
                enter(Host::Coordinator)?;
                let listen = format!("{}:{COORDINATOR_PORT}", Host::Coordinator.control());
                let metered = meter::start(&listen, &format!("127.0.0.1:{METERED_PORT}"))?;
                stay()?;
                write(result, &metered.messages())
            }
            Role::Pfs { root } => {
                enter(Host::Pfs)?;
                pfs::serve(&format!("{}:{PFS_PORT}", Host::Pfs.data()), root)?;
                stay()
            }
            Role::Serve { memory, on } => serve(*memory, on),
            Role::Write { plan, on } => write_plan(plan, on),
        }
    }
}

fn coordinator() -> String {
    format!("{}:{COORDINATOR_PORT}", Host::Coordinator.control())
}

fn remote(on: &OnNode) -> Result<Arc<Remote>> {
    let server = format!("{}:{PFS_PORT}", Host::Pfs.data());
    Ok(Arc::new(Remote::new(&on.pfs, &server, on.stream)?))
}

fn serve(memory: u64, on: &OnNode) -> Result<()> {
    let host = Host::Node(on.node);
    enter(host)?;
    let listen = format!("{}:{NODE_PORT}", host.data());
    // The name at which the node would share its memory is taken. So writers on the node send their bytes over its loopback, whose
    // bucket has the rate of local copies; no bucket could slow a copy of memory down.
    let name = SocketAddr::from_abstract_name(format!("entresol-burst {listen}"))?;
    let taken = UnixListener::bind_addr(&name)?;
    taken.set_nonblocking(true)?;
    let pfs = remote(on)?;
    let settings = NodeSettings {
        node: NodeId(on.node),
        listen,
        advertise: None,
        coordinator: coordinator(),
        capacity: memory,
        key: None,
        drain_rate: None,
    };
    let node = NodeDaemon::start(&settings, Arc::clone(&pfs) as _)?;
    drop(taken);
    stay()?;
    drop(node);
    let processor_s = process_time().as_secs_f64();
    write(&on.result, &Results { puts: Vec::new(), moved: pfs.moved(), processor_s })
}

fn write_plan(plan: &Path, on: &OnNode) -> Result<()> {
    enter(Host::Node(on.node))?;
    let planned: Vec<Planned> = crate::result::read(plan)?;
    let pfs = remote(on)?;
    let settings = ClientSettings {
        coordinator: Some(coordinator()),
        nodes: Vec::new(),
        node: NodeId(on.node),
        patience: PATIENCE,
        credential: None,
    };
    let client = Client::new(settings, Arc::clone(&pfs) as _);
    println!("ready");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let begin_ns: u64 = line.trim().parse().context("the time of the begin")?;
    // The writers end with the one who has started them.
    std::thread::spawn(|| {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let work = |writer: &Planned| -> Result<Vec<Put>> {
        let mut puts = Vec::new();
        for (checkpoint, at_s) in (0..).zip(&writer.at_s) {
            let bytes = contents(writer.job, checkpoint, writer.rank, writer.bytes);
            let due_ns = begin_ns + (at_s * 1e9) as u64;
            ensure!(
                now_ns() < due_ns,
                "rank {} of job {} is late for checkpoint {checkpoint}",
                writer.rank,
                writer.job
            );
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
            let object = Object { job: JobId(writer.job), checkpoint: CheckpointId(checkpoint), rank: writer.rank };
            let begin_ns = now_ns();
            let failures = client.put(object, writer.ranks, &bytes)?.failures;
            let end_ns = now_ns();
            puts.push(Put { job: writer.job, checkpoint, rank: writer.rank, begin_ns, end_ns, failures });
        }
        Ok(puts)
    };
    let puts: Result<Vec<Vec<Put>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = planned.iter().map(|writer| scope.spawn(move || work(writer))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a writer has panicked"))?).collect()
    });
    let processor_s = process_time().as_secs_f64();
    write(&on.result, &Results { puts: puts?.concat(), moved: pfs.moved(), processor_s })?;
    println!("done");
    std::io::stdout().flush()?;
    Ok(())
}

/// Prints a line and waits for the end of standard input.
fn stay() -> Result<()> {
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
