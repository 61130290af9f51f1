//! A front-end that begins to serve for a holder, and its signs of life.

use super::holder::Holder;
use super::log::{Level, Log};
use super::onlooker::Onlooker;
use super::running::Running;
use anyhow::{Context, Result};
use entresol_fuse::Keep;
use entresol_hold::Reason;
use rustix::fs::{Mode, OFlags, open};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::fs::read_link;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The holder as a front-end uses it.
#[derive(Clone)]
pub struct Keeping(pub Arc<Holder>);

impl std::fmt::Debug for Keeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeping").finish_non_exhaustive()
    }
}

impl Keep for Keeping {
    fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.0.keep(name, fd)
    }

    fn forget(&self, name: &str) {
        // Without the holder there is nothing to forget.
        let _ = self.0.forget(name);
    }
}

/// Time for which nobody served before this process did; none if it is the first server.
fn pause(holder: &Holder) -> Option<Duration> {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    let since = Duration::from_nanos(holder.server().start().since_ns);
    (!holder.is_first()).then(|| now.saturating_sub(since))
}

/// Name under which a holder keeps that the front-end was announced.
const ANNOUNCED: &str = "announced";

/// Begins to serve for a holder. The front-end is announced once; a later server reports the pause before it. `look` is
/// a sign of life, and `end` ends this process in order if the holder is gone. `name` is that of the front-end.
pub fn serving(
    holder: &Holder,
    seen: Option<&(Log, Arc<Running>)>,
    name: &Path,
    announce: impl FnOnce(),
    look: impl FnMut() + Send + 'static,
    end: impl FnOnce() + Send + 'static,
    quiet: bool,
) -> Result<()> {
    let pause = pause(holder);
    holder.serving(look, end)?;
    holder.once(ANNOUNCED, announce);
    if let Some(pause) = pause {
        report(holder, pause, seen.map(|(log, _)| log), name, quiet);
        seen.iter().for_each(|(_, running)| running.paused(pause));
    }
    Ok(())
}

/// Reports that this server took the place of another one: as an event, or without a cache as a line.
fn report(holder: &Holder, pause: Duration, log: Option<&Log>, name: &Path, quiet: bool) {
    let start = holder.server().start();
    let ms = pause.as_millis();
    let (reason, level, message) = match start.reason {
        Reason::First => return,
        Reason::Crash => {
            ("crash", Level::Warning, format!("the server crashed or was killed; another one took over after {ms} ms"))
        }
        Reason::Hang => {
            ("hang", Level::Warning, format!("the server gave no sign of life; another one took over after {ms} ms"))
        }
        Reason::Upgrade => ("upgrade", Level::Info, format!("the server was upgraded, with a pause of {ms} ms")),
    };
    match log {
        Some(log) => {
            let (crashes, hangs, upgrades) = (start.crashes, start.hangs, start.upgrades);
            let more = json!({
                "reason": reason, "pause_ms": ms as u64, "crashes": crashes, "hangs": hangs, "upgrades": upgrades
            });
            log.event(level, "restart", &message, more);
        }
        None if level == Level::Info && quiet => {}
        None => say!("entresol: {}: {message}", name.display()),
    }
}

/// A sign of life of a mount: another process has the kernel ask the server for the attributes of the mount's root, which
/// a thread that takes requests answers without waiting for a device; then the cache is asked.
///
/// So a server that stands still, or whose threads wait for one another, gives none. An idle server does, and so does
/// one that waits for a slow device with some requests and answers others.
pub fn look(mountpoint: &Path, running: Option<Arc<Running>>) -> Result<impl FnMut() + Send + 'static> {
    let mut onlooker = Onlooker::new(resolved(mountpoint)?);
    Ok(move || {
        // Without such a process, for want of memory, the next look is tried.
        let _ = onlooker.look();
        running.iter().for_each(|running| running.prove_alive());
    })
}

/// The absolute path of a file or directory without links. The file system mounted there is not asked: it may be one
/// that this process is about to serve.
pub fn resolved(path: &Path) -> Result<PathBuf> {
    let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let found = found.with_context(|| path.display().to_string())?;
    read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).with_context(|| path.display().to_string())
}
