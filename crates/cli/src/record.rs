//! `entresol record`: records the requests of a cache in use as a trace for the simulator.

use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_render::{NumberFormat, grouped};
use entresol_service::control::listen_in;
use entresol_service::record::take;
use entresol_service::stats::check_at_rest;
use entresol_service::values::{count, duration};
use entresol_trace::native::Spool;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Record the requests of a cache in use as a trace
///
/// The trace has every page request as the policy saw it, in that order, with its file, and can be simulated and
/// measured like any other. Requests never wait for the recording. If they come faster than they can be written, some
/// are left out, which is reported at the end and in the trace.
///
/// The recording ends after --for, after --limit, on an interrupt or termination, or with the server. The trace appears
/// only then; a command that is killed leaves none. Meanwhile the recording takes 13 bytes a request on the disk of
/// the trace, in files without a name, and as much again while the trace is put together.
#[derive(Args)]
pub struct RecordArgs {
    /// The cache, its control socket, or a directory where it is mounted
    #[arg(value_name = "CACHE|SOCKET|DIR")]
    pub place: PathBuf,
    /// The trace to write, in the native format; an existing file is replaced
    pub output: PathBuf,
    /// Duration of the recording: 90s, 15m, 2h [default: until it is interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// Most page requests to record
    #[arg(long, value_name = "N", value_parser = count)]
    pub limit: Option<u64>,
}

/// Runs the command.
pub fn run(arguments: &RecordArgs, quiet: bool) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("signals")?;
    }
    let Some(mut listener) = listen_in(&arguments.place)? else {
        check_at_rest(&arguments.place)?;
        bail!("{}: is not in use; there is nothing to record", arguments.place.display());
    };
    let mut spool = Spool::create(&arguments.output, listener.page_bytes())?;
    if !quiet {
        say!("recording {}", arguments.place.display());
    }
    let started = Instant::now();
    let end = take(arguments.limit, arguments.time, &mut listener, &mut spool, &stop, started)?;
    let seconds = NumberFormat::Seconds.short(started.elapsed().as_secs_f64());
    let (requests, pages, left_out) = (spool.requests(), spool.footprint(), listener.left_out());
    let mut provenance = format!("recorded from {} ({}), {seconds}", arguments.place.display(), listener.served_by());
    if left_out > 0 {
        provenance += &format!("; {left_out} requests left out");
    }
    if let Some(said) = end.said() {
        provenance += &format!("; {said}");
    }
    spool.finish(provenance)?;
    if !quiet {
        if let Some(said) = end.said() {
            say!("{said}");
        }
        let (requests, pages, left_out) = (grouped(requests.into()), grouped(pages.into()), grouped(left_out.into()));
        say!("{}: {requests} requests to {pages} pages in {seconds}, {left_out} left out", arguments.output.display());
    }
    Ok(())
}
