//! `entresol metrics`: serves the figures of caches in use to Prometheus.

mod http;
mod objects;
mod text;

use crate::ending;
use crate::live::figures::Figures;
use crate::live::stats::live;
use crate::live::tables::{NameArgs, Tables};
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use objects::Bounded;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

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

/// One cache, and the state kept from one request to the next.
struct Watched {
    place: PathBuf,
    tables: Tables,
    bounded: Bounded,
}

impl Watched {
    /// Current figures, with the number of objects limited.
    fn figures(&mut self) -> Option<Figures> {
        let read = live(&self.place, &mut self.tables, Some(ANSWER_MAX));
        let mut figures = read.inspect_err(|error| say!("entresol: {}: {error:#}", self.place.display())).ok()??;
        figures.objects = self.bounded.take(&figures);
        Some(figures)
    }
}

/// Longest time that the process that serves a cache may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(1200);
/// Longest time for all caches together; a later cache counts as not up.
const PAGE_MAX: Duration = Duration::from_millis(1500);

/// A cache that is asked by a thread of its own, so that no other cache waits for it.
struct Asked {
    name: String,
    cache: Arc<Mutex<Watched>>,
}

impl Asked {
    fn new(cache: Watched) -> Self {
        Asked { name: cache.place.display().to_string(), cache: Arc::new(Mutex::new(cache)) }
    }

    /// Asks the cache; the answer comes later. A thread gives up at `until` if an earlier one still holds the cache, so
    /// that waiting threads do not pile up.
    fn ask(&self, until: Instant) -> Option<Receiver<Option<Figures>>> {
        let (answer, answered) = channel();
        let cache = self.cache.clone();
        let ask = move || {
            let mut cache = loop {
                match cache.try_lock() {
                    Ok(cache) => break cache,
                    // A request that failed half way has kept its readings.
                    Err(TryLockError::Poisoned(cache)) => break cache.into_inner(),
                    Err(TryLockError::WouldBlock) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(TryLockError::WouldBlock) => return,
                }
            };
            // The asker may have gone on.
            let _ = answer.send(cache.figures());
        };
        std::thread::Builder::new().name("metrics cache".into()).spawn(ask).ok().map(|_| answered)
    }
}

/// Runs the command.
pub fn run(arguments: &MetricsArgs) -> Result<()> {
    if arguments.markdown {
        return output::print(&text::markdown());
    }
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
    let mut signals = ending::signals()?;
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    let address = listener.local_addr().context("its address")?;
    let watched = |place: &PathBuf| {
        let (tables, bounded) = (Tables::new(&arguments.names), Bounded::new(arguments.objects.into()));
        Watched { place: place.clone(), tables, bounded }
    };
    let caches: Vec<_> = arguments.places.iter().map(|place| Asked::new(watched(place))).collect();
    let page = move || {
        let until = Instant::now() + PAGE_MAX;
        let answers: Vec<_> = caches.iter().map(|cache| cache.ask(until)).collect();
        let answer = |(cache, answer): (&Asked, Option<Receiver<_>>)| {
            let left = until.saturating_duration_since(Instant::now());
            let figures = answer.and_then(|answer| answer.recv_timeout(left).ok().flatten());
            (cache.name.clone(), figures)
        };
        text::exposition(&caches.iter().zip(answers).map(answer).collect::<Vec<_>>())
    };
    let page: Arc<http::Page> = Arc::new(page);
    std::thread::Builder::new().name("metrics".into()).spawn(move || http::serve(&listener, &page))?;
    output::announce(&format!("http://{address}/metrics\n"));
    let _ = signals.forever().next();
    Ok(())
}
