//! A command that serves a cache under a holder: the command becomes the holder, which starts the command again as its
//! server.

use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_fuse::Keep;
use entresol_hold::{Program, Reason, Server, Settings};
use entresol_service::holder::Holder;
use entresol_service::log::{Level, Log};
use entresol_service::running::Running;
use entresol_service::values::{Limit, OnOff, seconds_or_none};
use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, open, statx};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::fs::{read_link, read_to_string};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// A new start after a failure
#[derive(Args, Clone)]
pub struct RestartArgs {
    /// Start the server again if it is killed, crashes or hangs. Programs that use the cache see a pause, and lose
    /// nothing that was answered [default: on with a cache, where the system can do that]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub restart: Option<OnOff>,
    /// Where servers are started again: time without a sign of life after which one counts as hung, and is killed and
    /// replaced; none: never
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds_or_none)]
    pub restart_after: Limit,
}

impl RestartArgs {
    /// True if the command is to be a holder. Where nothing was asked for, that is so with a cache, unless something is
    /// against it, which is then said.
    pub fn is_on(&self, front: Front, quiet: bool) -> bool {
        if let Some(asked) = self.restart {
            return asked == OnOff::On;
        }
        let against = match front {
            Front::Uncached => return false,
            Front::Mount => kernel_sends_again().and_then(|()| system_holds()),
            Front::Sockets => system_holds(),
        };
        if let Err(why) = &against
            && !quiet
        {
            say!("entresol: --restart off: {why:#}");
        }
        against.is_ok()
    }

    /// Becomes the holder of servers with this process's program and arguments, until their end for good. This process
    /// has no other threads.
    pub fn hold(&self) -> Result<ExitCode> {
        let program = Program::this().context("this program")?;
        let settings = Settings { watchdog: self.restart_after.0, ..Settings::default() };
        Ok(entresol_hold::run(program, settings))
    }

    /// Time between two signs of life: several fit into the silence that counts as a hang.
    pub fn beat(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        self.restart_after.0.map_or(LONGEST, |limit| (limit / 8).min(LONGEST))
    }
}

/// What a command serves, for the default of --restart.
#[derive(Clone, Copy)]
pub enum Front {
    /// Something without a cache.
    Uncached,
    /// A cache as a file system of the kernel's.
    Mount,
    /// A cache behind sockets.
    Sockets,
}

/// Fails for the reason why this system has no holders, if there is one.
fn system_holds() -> Result<()> {
    Program::this().and_then(|program| program.open()).context("this program")?;
    memfd_create("probe", MemfdFlags::CLOEXEC).context("memory that outlives a process")?;
    Ok(())
}

/// Fails if this kernel does not send a mount's requests again.
fn kernel_sends_again() -> Result<()> {
    let release = read_to_string("/proc/sys/kernel/osrelease").context("the release of this kernel")?;
    let release = release.trim();
    if !sends_again(release) {
        bail!("Linux {release} does not send requests again (6.9 does)");
    }
    Ok(())
}

/// True for the release of a Linux that sends the requests of a killed server again.
fn sends_again(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

/// Role of this process.
pub enum Role {
    /// It was the holder, which has ended with this code.
    Holder(ExitCode),
    /// It serves, alone or for a holder.
    Server(Option<Arc<Holder>>),
}

/// Takes the role of this process: a server if a holder started it, else the holder if `is_on` says so. This process
/// has no other threads.
///
/// # Errors
/// If the holder is gone, or this program cannot be found.
pub fn role(server: Option<Server>, arguments: &RestartArgs, is_on: impl FnOnce() -> bool) -> Result<Role> {
    Ok(match server {
        Some(server) => Role::Server(Some(Holder::new(server)?)),
        None if is_on() => Role::Holder(arguments.hold()?),
        None => Role::Server(None),
    })
}

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

/// A sign of life of a mount: the kernel asks the server for the attributes of the mount's root, which a thread that takes
/// requests answers without waiting for a device; then the cache is asked.
///
/// So a server that stands still, or whose threads wait for one another, gives none. An idle server does, and so does
/// one that waits for a slow device with some requests and answers others.
pub fn look(mountpoint: &Path, running: Option<Arc<Running>>) -> Result<impl FnMut() + Send + 'static> {
    let mountpoint = resolved(mountpoint)?;
    Ok(move || {
        // The mount may have ended: that is no hang.
        let _ = statx(CWD, &mountpoint, AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_send_requests_again_are_known_by_their_release() {
        for (release, expected) in [
            ("6.8.12-generic", false),
            ("6.9.0", true),
            ("6.18.3+deb14", true),
            ("6.9-rc1", true),
            ("7.0.0", true),
            ("5.15.0", false),
            ("", false),
        ] {
            assert_eq!(sends_again(release), expected, "{release}");
        }
    }
}
