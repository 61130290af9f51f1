//! End of a server: by a signal, or because one of its threads panicked.

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Longest time for an orderly end after a panic, which may never come because the panicked thread may hold a lock for
/// ever. The next start then finds the cache as after a crash.
const ORDER_MAX: Duration = Duration::from_secs(20);

static PANICKED: AtomicBool = AtomicBool::new(false);
static LAST_RESORT: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Signals that end a server in order. From now on a panic in any thread ends it too. A file that reaches this
/// process's size limit is an error of that write alone.
pub fn signals() -> Result<Signals> {
    // `nohup` ignores SIGHUP so that the end of a terminal does not end its command.
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up)).context("signals")?;
    watch()?;
    Ok(signals)
}

/// Makes a panic in any thread end the process as SIGTERM does, whose handler is the caller's, and heeds size limits.
pub fn watch() -> Result<()> {
    heed_size_limit()?;
    watch_panics()
}

/// Makes a file that reaches this process's size limit an error of that write alone. SIGXFSZ gets a handler that does
/// nothing, rather than `SIG_IGN`, which child commands would inherit.
pub fn heed_size_limit() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop).context("signals")
}

/// True if this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

/// Sets an action to take before the server is aborted, when it does not end in order within `ORDER_MAX` after a
/// panic.
pub fn at_last(act: impl FnOnce() + Send + 'static) {
    *LAST_RESORT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
}

/// Fails if a thread has panicked: for the exit code of a server that ended in order all the same.
pub fn check_panics() -> Result<()> {
    if PANICKED.load(SeqCst) {
        bail!("a thread of the server panicked, which ended the server");
    }
    Ok(())
}

/// Makes a panic in any thread end the process as SIGTERM does. A supervisor thread does that, because the panicking
/// thread may hold locks.
fn watch_panics() -> Result<()> {
    static ONCE: Once = Once::new();
    let supervisor = std::thread::Builder::new().name("supervisor".into()).spawn(|| {
        while !PANICKED.load(SeqCst) {
            std::thread::park();
        }
        // Delivered to the handler that `signals` has set up.
        let _ = kill_process(getpid(), Signal::TERM);
        std::thread::sleep(ORDER_MAX);
        say!("entresol: the server did not end within {} s of a panic; it aborts, as in a crash", ORDER_MAX.as_secs());
        if let Some(act) = LAST_RESORT.lock().unwrap_or_else(PoisonError::into_inner).take() {
            act();
        }
        std::process::abort();
    });
    let supervisor: Thread = supervisor.context("a thread for the supervisor")?.thread().clone();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED.store(true, SeqCst);
            supervisor.unpark();
            before(info);
        }));
    });
    Ok(())
}
