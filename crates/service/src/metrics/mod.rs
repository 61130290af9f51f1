//! Figures of caches in use, served to Prometheus.

mod http;
mod objects;
mod text;

pub use text::markdown;

use super::figures::Figures;
use super::stats::live;
use super::tables::{NameSource, Tables};
use anyhow::Result;
use objects::Bounded;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

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

/// Serves the figures of these caches from now on, by threads of its own. Of each cache at most `objects` tables and
/// files have series of their own.
pub fn serve(listener: TcpListener, places: &[PathBuf], names: &NameSource, objects: usize) -> Result<()> {
    let watched = |place: &PathBuf| {
        let (tables, bounded) = (Tables::new(names), Bounded::new(objects));
        Watched { place: place.clone(), tables, bounded }
    };
    let caches: Vec<_> = places.iter().map(|place| Asked::new(watched(place))).collect();
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
    serve_page(listener, page)
}

/// Serves what a function prints at /metrics from now on, by threads of its own.
pub fn serve_page(listener: TcpListener, page: impl Fn() -> String + Send + Sync + 'static) -> Result<()> {
    let page: Arc<http::Page> = Arc::new(page);
    std::thread::Builder::new().name("metrics".into()).spawn(move || http::serve(&listener, &page))?;
    Ok(())
}
