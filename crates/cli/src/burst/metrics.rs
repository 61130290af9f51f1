//! `entresol burst metrics`: figures of a burst buffer for Prometheus.

use super::access::{administrator, key_file};
use crate::metrics::{check_address, listen};
use crate::output;
use anyhow::Result;
use clap::Args;
use entresol_burst_live::client::{Figures, figures};
use entresol_burst_live::message::NodeStatus;
use entresol_service::ending;
use entresol_service::metrics::serve_page;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve the figures of a burst buffer to Prometheus
///
/// Every request to /metrics asks the coordinator and the nodes. docs/HPC.md lists the metrics. Prints the address once it
/// can be reached, and serves until it is interrupted or terminated.
#[derive(Args)]
pub struct BurstMetricsArgs {
    /// Address of the coordinator
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub coordinator: String,
    /// Address to listen on; an address other than the loopback needs --beyond-loopback
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9632")]
    pub listen: SocketAddr,
    /// File with the key of the cluster, if it has one [default: $ENTRESOL_BURST_KEY]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Let other machines read the figures
    #[arg(long)]
    pub beyond_loopback: bool,
}

/// Name, help, and value of a metric of all.
type OfAll = (&'static str, &'static str, fn(&Figures) -> f64);

const OF_ALL: [OfAll; 3] = [
    ("entresol_burst_epoch", "Number of the coordinator's start.", |figures| f64::from(figures.epoch)),
    (
        "entresol_burst_checkpoints_undrained",
        "Checkpoints with committed bytes that are not on the parallel file system.",
        |figures| figures.undrained as f64,
    ),
    (
        "entresol_burst_checkpoints_at_risk",
        "Those of them with bytes that one node alone has: its loss takes them along.",
        |figures| figures.at_risk as f64,
    ),
];

/// Name, help, and value of a metric of each node.
type OfNode = (&'static str, &'static str, fn(&NodeStatus) -> f64);

const OF_NODE: [OfNode; 8] = [
    ("entresol_burst_buffer_bytes", "Size of a node's buffer.", |node| node.capacity as f64),
    ("entresol_burst_used_bytes", "Bytes of it that are taken, copies included.", |node| node.used as f64),
    (
        "entresol_burst_undrained_bytes",
        "Bytes of a node that are not on the parallel file system, copies apart.",
        |node| node.undrained as f64,
    ),
    ("entresol_burst_undrained_seconds", "Time for which the oldest of these have been in the buffer.", |node| {
        node.undrained_for_ms as f64 / 1e3
    }),
    ("entresol_burst_drained_bytes_total", "Bytes that a node has written to the parallel file system.", |node| {
        node.drained as f64
    }),
    (
        "entresol_burst_drain_rate_limit_bytes",
        "Most bytes a second that a node may write to the parallel file system; 0 without a limit.",
        |node| node.drain_rate.unwrap_or(0) as f64,
    ),
    (
        "entresol_burst_pfs_failures_total",
        "Attempts of a node to write to the parallel file system that failed.",
        |node| node.pfs_failures as f64,
    ),
    ("entresol_burst_pfs_failing", "1 while the newest attempt of a node has failed.", |node| {
        f64::from(u8::from(node.failing.is_some()))
    }),
];

/// The page: the figures, or that there are none.
fn page(figures: Option<&Figures>) -> String {
    let mut page = String::new();
    let mut family = |name: &str, help: &str, samples: &[(String, f64)]| {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(page, "{name}{labels} {value}");
        }
    };
    let up = f64::from(u8::from(figures.is_some()));
    family("entresol_burst_up", "1 if the coordinator answers.", &[(String::new(), up)]);
    let Some(figures) = figures else { return page };
    for (name, help, of) in OF_ALL {
        family(name, help, &[(String::new(), of(figures))]);
    }
    let label = |node: u32| format!("{{node=\"{node}\"}}");
    let up = figures.nodes.iter().map(|(node, status)| (label(node.0), f64::from(u8::from(status.is_some()))));
    family("entresol_burst_node_up", "1 if a node is connected and answers.", &up.collect::<Vec<_>>());
    for (name, help, of) in OF_NODE {
        let known = figures.nodes.iter().filter_map(|(node, status)| Some((label(node.0), of(status.as_ref()?))));
        family(name, help, &known.collect::<Vec<_>>());
    }
    page
}

/// Runs the command.
pub fn metrics(arguments: &BurstMetricsArgs) -> Result<()> {
    check_address(arguments.listen, arguments.beyond_loopback)?;
    let credential = administrator(key_file(arguments.key.as_deref()).as_deref())?;
    let mut signals = ending::signals()?;
    let (listener, url) = listen(arguments.listen)?;
    let coordinator = arguments.coordinator.clone();
    serve_page(listener, move || page(figures(&coordinator, credential.as_ref()).ok().as_ref()))?;
    output::announce(&url);
    let _ = signals.forever().next();
    Ok(())
}
