//! `entresol burst coordinate` and `entresol burst serve`: the daemons of the live burst buffer.

use super::access::daemon_key;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use entresol_burst::{NodeId, Policy, Share};
use entresol_burst_live::pfs::Directory;
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, raise_descriptors};
use entresol_core::Size;
use entresol_render::NumberFormat;
use entresol_service::values::duration;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(50);

/// Run the coordinator of a burst buffer
///
/// One coordinator places the checkpoints of all jobs. It runs until it is interrupted or terminated, and may be killed
/// and started again at any time: each start has a higher epoch, waits for the reports of the nodes, and knows all that
/// is in their buffers. Nobody may use the state directory for a second coordinator of the same nodes. Without --key there is
/// no authentication: use a network that only trusted users reach then.
#[derive(Args)]
pub struct CoordinateArgs {
    /// Address to listen at, such as 10.0.0.1:7700
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: String,
    /// Directory of the epoch, which must outlive the coordinator
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// The policy: pfs, ldbb, cdbb or chunked, with the options of `burst simulate`; redundancy=none or partner
    #[arg(long, short, value_name = "SPEC", default_value = "chunked")]
    pub policy: Policy,
    /// Number of nodes to wait for after a start [default: as many as report within --wait]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: Option<u32>,
    /// Longest time to wait for nodes after a start: 30s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub wait: Duration,
    /// Length of a lease: a writer that takes longer renews it
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub lease: Duration,
    /// Write every event and its grants to a file, a line of JSON each; an existing file is replaced
    #[arg(long, value_name = "FILE")]
    pub grant_log: Option<PathBuf>,
    /// File with the key of the cluster, which has a ticket for each user's job [default: $ENTRESOL_BURST_KEY; without it,
    /// everybody is served]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Largest part of all memory that one user may have, copies included; needs a key. More goes to the PFS
    #[arg(long, value_name = "PERCENT", default_value_t = Share::ALL)]
    pub share: Share,
}

/// Offer memory of this node to a burst buffer
///
/// Pieces of checkpoints are taken into memory that is mapped and touched at the start, and drain to the directory of
/// the parallel file system (PFS). They are lost with this process, unless the policy keeps a copy on a partner. At an
/// interrupt or termination the node takes no new piece, drains those it has, and ends; a second signal ends it at once.
#[derive(Args)]
pub struct ServeArgs {
    /// Number of this node, which no other node has
    #[arg(long, value_name = "N")]
    pub node: u32,
    /// Address to listen at, such as 10.0.0.2:7701
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: String,
    /// Address at which writers reach this node, if it is another one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub advertise: Option<String>,
    /// Address of the coordinator
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub coordinator: String,
    /// Memory for checkpoints, such as 4GiB
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: u64,
    /// Directory on the PFS, the same one on every node
    #[arg(long, value_name = "DIR")]
    pub pfs: PathBuf,
    /// Most bytes a second that this node writes to the PFS, such as 200MB/s [default: no limit]. What writers send to the PFS
    /// themselves does not count
    #[arg(long, value_name = "RATE", value_parser = drain_rate)]
    pub drain_rate: Option<u64>,
    /// File with the key of the cluster [default: $ENTRESOL_BURST_KEY; without it, everybody is served]. A node of root's then
    /// writes to the PFS as the owner of each job
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Parses a size above 0.
pub fn memory(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err("it must be a size above 0 with its unit, such as 4GiB".to_owned()),
    }
}

/// Parses bytes a second: a size above 0, with or without `/s`.
fn drain_rate(text: &str) -> Result<u64, String> {
    memory(text.strip_suffix("/s").unwrap_or(text))
        .map_err(|_| "it must be a rate above 0 with its unit, such as 200MB/s".to_owned())
}

/// Runs the coordinator.
pub fn coordinate(arguments: &CoordinateArgs, quiet: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    raise_descriptors();
    let settings = CoordinatorSettings {
        listen: arguments.listen.clone(),
        state: arguments.state.clone(),
        policy: arguments.policy,
        nodes: arguments.nodes.map(|nodes| nodes as usize),
        wait: arguments.wait,
        lease_ns: u64::try_from(arguments.lease.as_nanos()).unwrap_or(u64::MAX / 4),
        grant_log: arguments.grant_log.clone(),
        key: daemon_key(arguments.key.as_deref())?,
        share: arguments.share,
    };
    if settings.key.is_none() && settings.share != Share::ALL {
        bail!("--share: users are told apart by their tickets: it needs --key");
    }
    let daemon = CoordinatorDaemon::start(&settings).context("the coordinator")?;
    if !quiet {
        output::print(&format!("epoch {} at {}, policy {}\n", daemon.epoch().0, daemon.address(), arguments.policy))?;
    }
    signals.forever().next();
    Ok(())
}

/// Runs a node.
pub fn serve(arguments: &ServeArgs, quiet: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    raise_descriptors();
    let key = daemon_key(arguments.key.as_deref())?;
    let pfs = Directory::open(&arguments.pfs).with_context(|| format!("--pfs {}", arguments.pfs.display()))?;
    let pfs = if key.is_some() { pfs.into_private() } else { pfs };
    let settings = NodeSettings {
        node: NodeId(arguments.node),
        listen: arguments.listen.clone(),
        advertise: arguments.advertise.clone(),
        coordinator: arguments.coordinator.clone(),
        capacity: arguments.memory,
        key,
        drain_rate: arguments.drain_rate,
    };
    let daemon = NodeDaemon::start(&settings, Arc::new(pfs)).context("the node")?;
    let size = |bytes: u64| NumberFormat::Bytes.short(bytes as f64);
    if !quiet {
        let (node, memory) = (arguments.node, size(arguments.memory));
        output::print(&format!("node {node} at {} with {memory}\n", daemon.address()))?;
    }
    if signals.forever().next().is_none() {
        return Err(anyhow!("signals"));
    }
    daemon.retire();
    loop {
        let undrained = daemon.status().undrained;
        if undrained == 0 {
            return Ok(());
        }
        if signals.pending().next().is_some() {
            bail!("ended with {} that are not on the PFS", size(undrained));
        }
        std::thread::sleep(POLL);
    }
}
