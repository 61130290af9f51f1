//! `entresol metrics`: the figures of caches in use for Prometheus.

mod http;
mod text;

use crate::live::stats::live;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// Serve the figures of caches in use to Prometheus
///
/// Every request to /metrics asks the processes that serve the caches, as `entresol stats` does; a cache that nobody serves
/// has entresol_up 0. docs/OPERATING.md lists the metrics, contrib/grafana has a dashboard for them.
///
/// Prints the address once it can be reached, and serves until it is interrupted or terminated.
#[derive(Args)]
pub struct MetricsArgs {
    /// Caches, each by itself, its control socket, or a directory where it is mounted
    #[arg(value_name = "CACHE|SOCKET|DIR", required = true)]
    pub places: Vec<PathBuf>,
    /// Where to listen; other than on the loopback only with --beyond-loopback
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9631")]
    pub listen: SocketAddr,
    /// Let other machines read the figures
    #[arg(long)]
    pub beyond_loopback: bool,
}

/// Runs the command.
pub fn run(arguments: &MetricsArgs) -> Result<()> {
    let address = arguments.listen;
    if !address.ip().is_loopback() && !arguments.beyond_loopback {
        bail!("{address}: is not of the loopback: other machines could read the figures; --beyond-loopback lets them");
    }
    for cache in &arguments.places {
        std::fs::metadata(cache).with_context(|| cache.display().to_string())?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    let address = listener.local_addr().context("its address")?;
    let caches = arguments.places.clone();
    let page = move || {
        let ask = |cache: &PathBuf| (cache.display().to_string(), live(cache).unwrap_or(None));
        text::exposition(&caches.iter().map(ask).collect::<Vec<_>>())
    };
    let page: Arc<http::Page> = Arc::new(page);
    std::thread::Builder::new().name("metrics".into()).spawn(move || http::serve(&listener, &page))?;
    output::print(&format!("http://{address}/metrics\n"))?;
    let _ = signals.forever().next();
    Ok(())
}
