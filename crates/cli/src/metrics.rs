//! `entresol metrics`: serves the figures of caches in use to Prometheus.

use crate::arguments::NameArgs;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_service::ending;
use entresol_service::metrics::{markdown, serve};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// Serve the figures of caches in use to Prometheus
///
/// Every request to /metrics asks the processes that serve the caches, as `entresol stats` does; a cache without such a
/// process has entresol_up 0. docs/metrics.md lists the metrics, contrib/grafana has a dashboard for them.
///
/// Prints the address once it can be reached, and serves until it is interrupted or terminated.
#[derive(Args)]
pub struct MetricsArgs {
    /// Caches, each by its path, its control socket, or a directory where it is mounted
    #[arg(value_name = "CACHE|SOCKET|DIR", required_unless_present = "markdown")]
    pub places: Vec<PathBuf>,
    /// Address to listen on; an address other than the loopback needs --beyond-loopback
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9631")]
    pub listen: SocketAddr,
    /// Let other machines read the figures
    #[arg(long)]
    pub beyond_loopback: bool,
    /// Number of tables and files with series of their own, those with the most requests; the others share one
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(..=1000))]
    pub objects: u16,
    /// Print all metrics as Markdown
    #[arg(long, hide = true, conflicts_with = "places")]
    pub markdown: bool,
    #[command(flatten)]
    pub names: NameArgs,
}

/// Refuses an address that other machines reach, unless that is allowed.
pub fn check_address(address: SocketAddr, beyond_loopback: bool) -> Result<()> {
    if !address.ip().is_loopback() && !beyond_loopback {
        bail!("{address}: not a loopback address: other machines could read the figures; --beyond-loopback allows it");
    }
    Ok(())
}

/// A listener, and the line with the address of its page.
pub fn listen(address: SocketAddr) -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    let address = listener.local_addr().context("the address of the listener")?;
    Ok((listener, format!("http://{address}/metrics\n")))
}

/// Runs the command.
pub fn run(arguments: &MetricsArgs) -> Result<()> {
    if arguments.markdown {
        return output::print(&markdown());
    }
    check_address(arguments.listen, arguments.beyond_loopback)?;
    if arguments.names.ask.is_some() && arguments.places.len() > 1 {
        bail!("--ask names one server, and there are {} caches", arguments.places.len());
    }
    for cache in &arguments.places {
        std::fs::metadata(cache).with_context(|| cache.display().to_string())?;
    }
    let mut signals = ending::signals()?;
    let (listener, url) = listen(arguments.listen)?;
    serve(listener, &arguments.places, &arguments.names.source(), arguments.objects.into())?;
    output::announce(&url);
    let _ = signals.forever().next();
    Ok(())
}
