//! A command that alone sees a directory through a cache.

use super::ending;
use super::guard::Guard;
use super::holder::Holder;
use super::lost::{Opened, without_backing};
use super::mount::{self, DirectoryCache, FrontOptions, Layer, MountOptions};
use super::serving::resolved;
use super::words::quoted_path;
use anyhow::{Context, Result, anyhow, bail};
use entresol_files::{DirectFiles, FileLayer};
use entresol_fuse::Mount;
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A command to be run over a cache.
pub struct RunOptions {
    /// Directory that the command sees through the cache.
    pub backing: PathBuf,
    /// The cache.
    pub cache: DirectoryCache,
    /// Options of the front-end.
    pub front: FrontOptions,
    /// Time between two signs of life to a holder.
    pub beat: Duration,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Settings of this process that the mount changes; the command gets the original values.
struct Before {
    mask: rustix::fs::Mode,
    files: Rlimit,
}

/// The environment variable of the process that is to be the holder of a mount for a command.
const HOLDER: &str = "ENTRESOL_RUN_HOLDER";

/// True if this process was started by [`run_beside`] to be the holder of the mount.
pub fn is_holder() -> bool {
    std::env::var_os(HOLDER).is_some()
}

/// Serves the mount of the directory over itself, as [`mount::serve`] does, for a command that another process runs.
///
/// # Errors
/// As [`mount::serve`].
pub fn serve(options: RunOptions, holder: Option<&Arc<Holder>>, announce: &dyn Fn(&str), quiet: bool) -> Result<()> {
    let RunOptions { backing, cache, front, beat, .. } = options;
    let directory = resolved(&backing)?;
    let (backing, mountpoint) = (directory.clone(), directory);
    let (layer, checked, allow_root) = (Layer::Cached(Box::new(cache)), true, false);
    let options = MountOptions { backing, mountpoint, layer, checked, front, allow_root, beat };
    mount::serve(&options, holder, announce, quiet)
}

/// Runs the command beside a holder and its server, which are processes of their own, with this process's program and
/// arguments. Returns the command's status, or that of the holder if it failed.
///
/// # Errors
/// If the command was not run to its end over the cache.
pub fn run_beside(options: &RunOptions, quiet: bool) -> Result<ExitStatus> {
    // Before this process enters its own namespace, in which other users' processes cannot be looked at.
    drop(
        Guard::check(&options.backing, options.cache.options.writers_ok, quiet)
            .map_err(|error| without_backing(&options.cache.path, error))?,
    );
    own_namespace(&options.backing, &options.cache.path)?;
    let here = std::env::current_dir().context("the current directory")?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]).context("signals")?;
    let mut holder = start_holder()?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).context("the holder")?;
    if line.is_empty() {
        // Its server has said why.
        return holder.wait().context("the holder");
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("subreaper")?;
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]).current_dir(here);
    let ended = match spawn(&mut command, None) {
        Ok(child) => Ok(wait(&child, Some(&holder), &mut signals)?),
        Err(error) => Err(error),
    };
    let early = ended.as_ref().ok().and_then(|ended| ended.holder);
    let closed = match early {
        Some(closed) => closed,
        None => {
            // It may end at the same moment.
            let _ = rustix::process::kill_process(Pid::from_child(&holder), Signal::TERM);
            holder.wait().context("the holder")?
        }
    };
    if early.is_some() || closed.signal().is_some() {
        bail!("the holder ended ({closed}); the command was killed if it still ran");
    }
    let status = ended.with_context(|| options.command[0].display().to_string())?.command;
    Ok(status.filter(|_| closed.success()).unwrap_or(closed))
}

/// Starts this program again as the holder of the mount. It says a line on its standard output when the mount is there.
fn start_holder() -> Result<Child> {
    let mut words = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_default()).args(words).env(HOLDER, "1");
    // The service manager knows this process and the command. The terminal's keys are for the command.
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let prepare = || {
        keep_capabilities()?;
        // It ends in order if this process is killed.
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
    };
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(prepare) }.spawn().context("the holder")
}

/// Keeps the capabilities of an ordinary user's namespace over the start of another program, which would lose them. A
/// mount needs them.
fn keep_capabilities() -> std::io::Result<()> {
    if rustix::process::getuid().is_root() {
        return Ok(());
    }
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable = sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    for (_, capability) in sets.permitted.iter_names() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Runs the command over a mount that this process serves; returns the command's status.
///
/// # Errors
/// If the command was not run to its end over the cache.
pub fn run_over(options: RunOptions, quiet: bool) -> Result<ExitStatus> {
    let RunOptions { backing, cache, front, command: words, .. } = options;
    // Before this process enters its own namespace, in which other users' processes cannot be looked at.
    let guard =
        Guard::check(&backing, cache.options.writers_ok, quiet).map_err(|error| without_backing(&cache.path, error))?;
    own_namespace(&backing, &cache.path)?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]).context("signals")?;
    ending::watch()?;
    let directory = backing.canonicalize().with_context(|| backing.display().to_string())?;
    let here = std::env::current_dir().context("the current directory")?;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let (served, files): (_, Arc<dyn FileLayer>) = match mount::open(&cache, &directory, &directory, None, quiet)? {
        Opened::Cached((served, files, heard)) => {
            guard.watch(&served);
            (Some((served, heard)), files)
        }
        Opened::Bypassed(bypass) => {
            guard.watch_without(bypass.tell(&cache.path, cache.options.log, quiet));
            (None, Arc::new(DirectFiles))
        }
    };
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    let before = Before { mask, files: limit };
    let mounted = match Mount::start(&directory, &directory, files, front.over(&Layer::Cached(Box::new(cache)))) {
        Ok(mounted) => mounted,
        Err(error) => {
            let error = mount::end_any(served, Err(error.into()), quiet).err();
            return Err(error.unwrap_or_else(|| anyhow!("it was not mounted")));
        }
    };
    served.iter().for_each(|(served, _)| mount::passing(served, &mounted));
    let mut command = Command::new(&words[0]);
    // The path is resolved again, because it now leads into the mount.
    command.args(&words[1..]).current_dir(here);
    let ended = run_to_end(&mut command, Some(before), &mut signals);
    mount::end_any(served, Ok(end(mounted)), quiet)?;
    ended.with_context(|| words[0].display().to_string())
}

/// Runs a command, and returns its status when it and all processes that it has left behind have ended. Signals are passed
/// on; the command is killed if this process ends before it.
///
/// # Errors
/// When the command cannot be started, or not be waited for.
pub fn run_command(command: &mut Command, signals: &mut Signals) -> Result<ExitStatus> {
    run_to_end(command, None, signals)
}

fn run_to_end(command: &mut Command, before: Option<Before>, signals: &mut Signals) -> Result<ExitStatus> {
    // Processes that the command leaves behind become children of this process, so that their end is known.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("subreaper")?;
    let child = spawn(command, before)?;
    wait(&child, None, signals)?.command.context("the command")
}

/// Creates a mount namespace for this process, which must not have threads yet. A refusal names the command for the
/// directory and the cache that does without one.
fn own_namespace(backing: &Path, cache: &Path) -> Result<()> {
    let unshare = |flags| {
        // SAFETY: descriptors stay shared; other effects concern other threads only, and there are none.
        unsafe { rustix::thread::unshare_unsafe(flags) }
    };
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let alone = if user.is_root() { unshare(UnshareFlags::NEWNS) } else { Err(Errno::PERM) };
    if alone.is_err() {
        let refused = |error: std::io::Error| {
            let (backing, cache) = (quoted_path(backing), quoted_path(cache));
            anyhow!(
                "user namespaces are not allowed here ({error}); root needs none, nor does `entresol mount {backing} \
                 MOUNTPOINT --cache {cache}`"
            )
        };
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).map_err(|error| refused(error.into()))?;
        let (user, group) = (user.as_raw(), group.as_raw());
        let maps = [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{user} {user} 1")),
            ("gid_map", format!("{group} {group} 1")),
        ];
        for (name, text) in maps {
            std::fs::write(format!("/proc/self/{name}"), text).map_err(refused)?;
        }
    }
    // Mounts made here must not appear outside.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).context("a namespace of its own")
}

fn spawn(command: &mut Command, before: Option<Before>) -> std::io::Result<Child> {
    let prepare = move || {
        if let Some(Before { mask, files }) = before {
            rustix::process::umask(mask);
            rustix::process::setrlimit(Resource::Nofile, files)?;
        }
        // The command would only do harm without its files: their loss is like a crash of the machine to it.
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
    };
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(prepare) }.spawn()
}

/// Children that have ended.
#[derive(Default)]
struct Ended {
    command: Option<ExitStatus>,
    holder: Option<ExitStatus>,
}

/// Waits until the command and everything that it left behind have ended, and passes signals on to it.
fn wait(child: &Child, holder: Option<&Child>, signals: &mut Signals) -> Result<Ended> {
    let handle = signals.handle();
    let ended = Arc::new(AtomicBool::new(false));
    let pid = Pid::from_child(child);
    let over = ended.clone();
    // The terminal itself sends these signals to the command.
    let terminal = std::io::stdin().is_terminal();
    let status = std::thread::scope(|scope| {
        scope.spawn(move || {
            for signal in signals.forever() {
                let by_terminal = terminal && matches!(signal, SIGINT | SIGQUIT);
                let known = Signal::from_named_raw(signal).filter(|_| !by_terminal && !over.load(Relaxed));
                // The command may have ended already.
                let _ = known.map(|signal| rustix::process::kill_process(pid, signal));
            }
        });
        let status = ended_with_all(pid, holder.map(Pid::from_child), &ended);
        handle.close();
        status
    });
    status.context("the command")
}

/// Reaps every child as it ends, and returns the command's status. A long-running server may leave many children
/// behind, each of which occupies its process ID until it is reaped. `over` is set when the command ends. If the holder
/// ends first, the command is killed as when this process ends.
fn ended_with_all(command: Pid, holder: Option<Pid>, over: &AtomicBool) -> std::io::Result<Ended> {
    let mut ended = Ended::default();
    loop {
        if ended.command.is_some() && holder.is_some_and(|holder| ended.holder.is_some() || is_only_child(holder)) {
            return Ok(ended);
        }
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((process, how))) if process == command => {
                ended.command = Some(ExitStatus::from_raw(how.as_raw()));
                over.store(true, Relaxed);
            }
            Ok(Some((process, how))) if Some(process) == holder => {
                ended.holder = Some(ExitStatus::from_raw(how.as_raw()));
                if ended.command.is_none() {
                    // It is not reaped yet, so that its number is no other process's.
                    let _ = rustix::process::kill_process(command, Signal::KILL);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) if ended.command.is_some() => return Ok(ended),
            Err(error) => return Err(error.into()),
        }
    }
}

/// True if this process has no other child, not even one that waits to be reaped.
fn is_only_child(child: Pid) -> bool {
    let own = std::process::id();
    let parent = |process: &Path| -> Option<u32> {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        // The name may hold blanks and parentheses: fields are counted from its end, the parent being the second.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let number = |process: &Path| process.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    let others = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others =
        others.filter(|process| number(process).is_some_and(|number: i32| number != child.as_raw_nonzero().get()));
    !others.any(|process| parent(&process) == Some(own))
}

/// Unmounts. Only processes that entered the namespace from outside can have files open now.
fn end(mounted: Mount) -> Result<()> {
    let unmounter = mounted.unmounter();
    let mut said = false;
    while let Err(error) = unmounter.unmount() {
        if !error.to_string().contains("busy") {
            bail!(error);
        }
        if !said {
            say!("entresol: {error}; waiting until nothing in it is open");
            said = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(mounted.wait()?)
}
