//! `entresol metrics`: the figures of caches in use for Prometheus.

mod http;
mod objects;
mod text;

use crate::live::figures::Figures;
use crate::live::stats::live;
use crate::live::tables::{NameArgs, Tables};
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use objects::Bounded;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Tables and files that have series of their own, those with the most requests; the others have one together
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(..=1000))]
    pub objects: u16,
    #[command(flatten)]
    pub names: NameArgs,
}

/// One cache, and what is remembered of it from one request to the next.
struct Watched {
    place: PathBuf,
    tables: Tables,
    bounded: Bounded,
}

impl Watched {
    /// Its figures now, with no more objects than there may be.
    fn figures(&mut self) -> Option<Figures> {
        let read = live(&self.place, &mut self.tables);
        let mut figures =
            read.inspect_err(|error| eprintln!("entresol: {}: {error:#}", self.place.display())).ok()??;
        figures.objects = self.bounded.take(&figures);
        Some(figures)
    }
}

/// Runs the command.
pub fn run(arguments: &MetricsArgs) -> Result<()> {
    let address = arguments.listen;
    if !address.ip().is_loopback() && !arguments.beyond_loopback {
        bail!("{address}: is not of the loopback: other machines could read the figures; --beyond-loopback lets them");
    }
    if arguments.names.ask.is_some() && arguments.places.len() > 1 {
        bail!("--ask names one server, and there are {} caches", arguments.places.len());
    }
    for cache in &arguments.places {
        std::fs::metadata(cache).with_context(|| cache.display().to_string())?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    let address = listener.local_addr().context("its address")?;
    let watched = |place: &PathBuf| {
        let (tables, bounded) = (Tables::new(&arguments.names), Bounded::new(arguments.objects.into()));
        Watched { place: place.clone(), tables, bounded }
    };
    let caches = Mutex::new(arguments.places.iter().map(watched).collect::<Vec<_>>());
    let page = move || {
        // A request that failed half way through has remembered what it read.
        let mut caches = caches.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |cache: &mut Watched| (cache.place.display().to_string(), cache.figures());
        text::exposition(&caches.iter_mut().map(ask).collect::<Vec<_>>())
    };
    let page: Arc<http::Page> = Arc::new(page);
    std::thread::Builder::new().name("metrics".into()).spawn(move || http::serve(&listener, &page))?;
    output::print(&format!("http://{address}/metrics\n"))?;
    let _ = signals.forever().next();
    Ok(())
}
