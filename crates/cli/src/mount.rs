//! `entresol mount`: mounts a directory at another place, optionally with a cache or at the speed of another device.

use crate::ending;
use crate::holder::{Front, Keeping, RestartArgs, Role, look, resolved, role, serving};
use crate::notify;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_device::profile;
use entresol_files::{DirectFiles, EmulatedFiles, FileLayer, Found};
use entresol_fuse::{Error, Keep, Kept, Mount, Options, Passing, Surviving, Unmounter};
use entresol_hold::Server;
use entresol_service::cache_args::CacheArgs;
use entresol_service::control;
use entresol_service::files::DirectArgs;
use entresol_service::guard::Guard;
use entresol_service::hints::{Heard, HintArgs};
use entresol_service::holder::Holder;
use entresol_service::log::{Level, Log};
use entresol_service::lost::{Opened, without_backing};
use entresol_service::running::Running;
use entresol_service::served::Served;
use entresol_service::values::{OnOff, bytes};
use serde_json::json;
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mount a directory at another place through FUSE, with a cache or without
///
/// With --cache, which `entresol format --backing DIR` has made, the contents of files go through the cache;
/// docs/OPERATING.md describes when writes are durable.
///
/// Prints a line once the directory is mounted, for the user who runs this (and root with --allow-root). Serves until
/// it is unmounted (fusermount3 -u), interrupted or terminated, and then ends as soon as no file is open.
#[derive(Args)]
pub struct MountArgs {
    /// The directory whose files are served; no other program should change it meanwhile
    pub backing: PathBuf,
    /// Mount point: a directory, which may be the same
    pub mountpoint: PathBuf,
    /// Threads for requests that have to wait [default: 16, and 128 with --emulate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Use the kernel's page cache above the mount, as for any file system. The page cache answers reads of pages that
    /// it holds and reads ahead; the cache sees the rest. Files opened with O_DIRECT bypass the page cache [default:
    /// on, and off with --emulate]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub page_cache: Option<OnOff>,
    /// Let the kernel itself read and write files that bypass the cache, and all files if there is no cache. Needs
    /// Linux 6.9 and CAP_SYS_ADMIN. Otherwise this process reads and writes them, as with --emulate
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub passthrough: OnOff,
    /// Serve root as well as the user who runs this, as Debian's pg_ctlcluster needs. Files that root creates belong to
    /// that user. Needs CAP_SYS_ADMIN, or user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub allow_root: bool,
    /// The cache for the contents of the files
    #[arg(long, value_name = "FILE", conflicts_with = "emulate")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub cached: CacheArgs,
    #[command(flatten)]
    pub direct: DirectArgs,
    #[command(flatten)]
    pub hints: HintArgs,
    #[command(flatten)]
    pub restart: RestartArgs,
    /// Make files as slow as this device: a built-in profile (an unknown name lists them) or a TOML file. Each file is
    /// a device of its own from its first open on. Reads, writes and syncs take the device's time; operations on names
    /// take the host's
    #[arg(long, value_name = "PROFILE")]
    pub emulate: Option<String>,
    /// Size of each file's device in bytes, unless the profile has one; no file may be larger
    #[arg(long, value_name = "SIZE", requires = "emulate", default_value = "1GiB", value_parser = bytes)]
    pub size: u64,
}

/// Runs the command; `server` is this process's end of a holder.
pub fn run(arguments: &MountArgs, server: Option<Server>, quiet: bool) -> Result<ExitCode> {
    if arguments.emulate.is_some() && arguments.restart.restart == Some(OnOff::On) {
        bail!("--restart on: an emulated device is in the memory of one process, and would begin anew with the next");
    }
    let front = if arguments.cache.is_some() { Front::Mount } else { Front::Uncached };
    match role(server, &arguments.restart, || arguments.restart.is_on(front, quiet))? {
        Role::Holder(code) => Ok(code),
        Role::Server(holder) => serve(arguments, holder.as_ref(), false, quiet).map(|()| ExitCode::SUCCESS),
    }
}

/// Serves as the arguments say, alone or for a holder. `checked` says that no other process writes to the directory.
pub fn serve(arguments: &MountArgs, holder: Option<&Arc<Holder>>, checked: bool, quiet: bool) -> Result<()> {
    if let Some(holder) = holder {
        // The arena is a file too, and may grow at the open.
        ending::heed_size_limit()?;
        holder.starting(arguments.restart.beat())?;
    }
    let again = holder.filter(|holder| !holder.is_first());
    // A server before that had no cache bypassed it, which stays as it is.
    if let Some(cache) = arguments.cache.as_ref().filter(|_| again.is_none_or(|holder| holder.has_cache())) {
        let MountArgs { backing, mountpoint, cached, direct, hints, .. } = arguments;
        let guard = match holder.filter(|_| checked || again.is_some()) {
            Some(holder) => Guard::checked(holder.directory(backing)?).with_context(|| backing.display().to_string()),
            None => Guard::check(backing, cached.writers_ok, quiet),
        };
        let guard = guard.map_err(|error| without_backing(cache, error))?;
        let opened = open(cache, backing, mountpoint, cached, direct, hints, holder.map(|holder| &**holder), quiet)?;
        let (served, files, heard) = match opened {
            Opened::Cached(opened) => opened,
            Opened::Bypassed(bypass) => {
                guard.watch_without(bypass.tell(cache, cached.log, quiet));
                return serve_directly(arguments, holder, quiet);
            }
        };
        let how = format!("cached by {} in {}", served.chosen().policy, cache.display());
        guard.watch(&served);
        let begun = Serving::begin(arguments, files, 16, holder, quiet);
        begun.iter().filter(|_| again.is_none()).for_each(|serving| passing(&served, &serving.mount));
        let seen = (served.log().clone(), Arc::clone(&served.running));
        let has_begun = begun.is_ok();
        // An audit log may lie in the mount, which is answered only now.
        let heard = match again.filter(|_| has_begun) {
            Some(holder) => hear_again(arguments, holder, &served),
            None => heard,
        };
        let ended = begun.map(|serving| serving.serve(arguments, &how, Some(seen), quiet));
        let ended = end(served, heard, ended, quiet);
        stopping(holder.filter(|_| has_begun));
        return ended;
    }
    if again.is_none() {
        entresol_service::files::check_complete(&arguments.backing)?;
    }
    let Some(name) = &arguments.emulate else {
        return serve_directly(arguments, holder, quiet);
    };
    let files = Arc::new(emulated(name, arguments.size)?);
    let serving = Serving::begin(arguments, files.clone(), 128, None, quiet)?;
    said(serving.serve(arguments, &format!("emulated {name}"), None, quiet), "")?;
    if !quiet {
        say!("{}", files.accuracy());
    }
    Ok(())
}

/// Serves the files without a cache.
fn serve_directly(arguments: &MountArgs, holder: Option<&Arc<Holder>>, quiet: bool) -> Result<()> {
    let serving = Serving::begin(arguments, Arc::new(DirectFiles), 16, holder, quiet)?;
    let ended = said(serving.serve(arguments, "no cache", None, quiet), "");
    stopping(holder);
    ended
}

/// As [`end`], for a start that may have no cache, because its backing store was served alone.
pub fn end_any(cached: Option<(Served, Heard)>, ended: Result<Result<()>>, quiet: bool) -> Result<()> {
    match cached {
        Some((served, heard)) => end(served, heard, ended, quiet),
        None => said(ended?, ""),
    }
}

/// Ends a cache after its front-end. `ended` is the end of the front-end, or the error that kept it from starting.
pub fn end(served: Served, heard: Heard, ended: Result<Result<()>>, quiet: bool) -> Result<()> {
    heard.end(quiet);
    match ended {
        Ok(Ok(())) => served.end("").and_then(|()| ending::check_panics()),
        // A failed mount leaves the cache as it was found: closed.
        Err(refused) => served.end("").and(Err(refused)),
        // After an abort no further requests can come.
        Ok(Err(failed)) if matches!(failed.downcast_ref(), Some(Error::BrokenOff(_))) => {
            served.end("").and(Err(failed))
        }
        // Requests may come until this process ends.
        Ok(Err(failed)) => served.leave().and_then(|()| said(Err(failed), "; everything is flushed")),
    }
}

/// Reports the end of a mount. A copy of the mount that only ends with this process is not a failure.
fn said(ended: Result<()>, more: &str) -> Result<()> {
    let Err(error) = ended else { return ending::check_panics() };
    if !matches!(error.downcast_ref(), Some(Error::Elsewhere { .. })) {
        return Err(error);
    }
    say!("entresol: {error:#}{more}; the copy ends with this process");
    Ok(())
}

/// A cache in use, the files over it, and the receivers of messages about queries.
pub type Opening = (Served, Arc<dyn FileLayer>, Heard);

#[allow(clippy::too_many_arguments)]
/// Opens the cache of a directory that will be mounted, and its control socket; reports what the open found.
pub fn open(
    cache: &Path,
    directory: &Path,
    mountpoint: &Path,
    arguments: &CacheArgs,
    direct: &DirectArgs,
    hints: &HintArgs,
    holder: Option<&Holder>,
    quiet: bool,
) -> Result<Opened<Opening>> {
    let again = holder.filter(|holder| !holder.is_first());
    let seen = resolved(mountpoint)?;
    let (held, files, names) = match entresol_service::files::open(cache, directory, arguments, direct, holder)? {
        Opened::Cached(opened) => opened,
        Opened::Bypassed(bypass) => return Ok(Opened::Bypassed(bypass)),
    };
    // Before the cache is announced, so that an error of the hint socket is reported first.
    let heard = match again.map_or_else(|| hints.open(&files, &seen, directory), |_| Ok(Heard::none())) {
        Ok(heard) => heard,
        Err(error) => return Err(held.close().err().unwrap_or(error)),
    };
    let (found_dirty, at_open) = (held.found.dirty, held.found.dropped);
    let served = if again.is_some() { held.serve_on(quiet) } else { held.serve(quiet) };
    if again.is_none() {
        served.running.seen_at(&seen, heard.hints());
    }
    let Found { files: known, gone, changed, touched, conflicts, dropped_pages, removed_pages, beyond_pages } = names;
    let dropped = match (at_open.said(), found_dirty) {
        (none, _) if none.is_empty() => String::new(),
        (dropped, dirty) => format!("; of {dirty} dirty pages found{dropped}"),
    };
    let message = format!("{known} files known, {gone} gone, {changed} changed without the cache{dropped}");
    let figures = json!({
        "known": known, "gone": gone, "changed": changed, "touched": touched, "conflicts": conflicts,
        "dropped_pages": dropped_pages, "removed_pages": removed_pages, "beyond_pages": beyond_pages
    });
    if again.is_none() {
        served.log().event(Level::Info, "files", &message, figures);
    }
    if touched > 0 {
        let message =
            format!("attributes alone of {touched} files were changed without the cache; their bytes are the same");
        served.log().event(
            Level::Warning,
            "changed-below",
            &message,
            json!({ "found": "attributes", "files": touched }),
        );
    }
    if conflicts > 0 {
        let said = served.conflicts()?;
        served.log().event(Level::Warning, "changed-below", &said, json!({ "found": "conflict", "files": conflicts }));
    }
    let files = served.running.files(files);
    Ok(Opened::Cached((served, files, heard)))
}

/// Receives messages about queries for a mount that was taken over. Without receivers the mount is served all the same.
fn hear_again(arguments: &MountArgs, holder: &Holder, served: &Served) -> Heard {
    let MountArgs { backing, mountpoint, hints, .. } = arguments;
    let hear = || {
        let (seen, files) = (resolved(mountpoint)?, served.cached_files().context("no files")?);
        let held = holder.directory(backing)?;
        let below = format!("/proc/self/fd/{}/.", held.as_raw_fd());
        Ok((hints.open(files, &seen, Path::new(&below))?, seen))
    };
    match hear() {
        Ok((heard, seen)) => {
            served.running.seen_at(&seen, heard.hints());
            heard
        }
        Err(error) => {
            let error: anyhow::Error = error;
            say!("entresol: {error:#}; messages about queries are not received any more");
            Heard::none()
        }
    }
}

/// Emulated files: each is a device of this profile.
fn emulated(name: &str, size: u64) -> Result<EmulatedFiles> {
    // As for `serve nbd`: a disk starts at the same angle.
    const SEED: u64 = 42;
    let profile = profile::load(name)?;
    // Errors in the profile are reported now, not at the first `open`.
    profile.build(size, SEED)?;
    Ok(EmulatedFiles::new(move || {
        profile.build(size, SEED).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }))
}

/// True if a mount hides contents of its mount point. A directory mounted over itself hides nothing.
fn covers(backing: &Path, mountpoint: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let holds = std::fs::read_dir(mountpoint).is_ok_and(|mut entries| entries.next().is_some());
    holds && number(backing) != number(mountpoint)
}

/// Time for which a mount may stay in use after it was to end, before that is reported. A file that its process has
/// closed may still be open in a process forked meanwhile, until that process executes its own program.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// Unmounts as soon as nothing is open, however long that takes: a service manager asks only once.
fn patiently_unmount(unmounter: &Unmounter) {
    let began = Instant::now();
    let mut said = false;
    while let Err(error) = unmounter.unmount() {
        if !said && began.elapsed() >= SAID_AFTER {
            let other = ["is mounted over it", "is mounted in it"].iter().any(|why| error.to_string().ends_with(why));
            let end = if other { "the other is unmounted" } else { "nothing in it is open" };
            say!("entresol: {error}; the mount ends as soon as {end}");
            said = true;
        }
        std::thread::sleep(if said { Duration::from_millis(500) } else { Duration::from_millis(50) });
    }
}

/// Reports whether the kernel or this process reads and writes the files that bypass the cache.
pub fn passing(served: &Served, mount: &Mount) {
    let (message, by) = match mount.passing() {
        Passing::Unwanted => return,
        Passing::Granted => ("the kernel reads and writes files past the cache by itself".to_owned(), "kernel"),
        Passing::Refused(why) => {
            let what = "files past the cache (by default logs and temporary files)";
            (format!("{what} go through this process, not the kernel alone; this costs only time: {why}"), "mount")
        }
    };
    served.log().event(Level::Info, "passthrough", &message, json!({ "by": by }));
}

/// The options of a mount. Its source names the cache, so that `stats` finds the cache by the mount point.
pub fn options(workers: u16, page_cache: OnOff, passthrough: OnOff, cache: Option<&Path>) -> Options {
    let (page_cache, passthrough) = (page_cache == OnOff::On, passthrough == OnOff::On);
    let options = Options { workers: workers.into(), page_cache, passthrough, ..Options::default() };
    match cache.and_then(control::mount_source) {
        Some(source) => Options { source, ..options },
        None => options,
    }
}

/// A mount that signals end in order.
struct Serving {
    mount: Mount,
    signals: Signals,
    holder: Option<Arc<Holder>>,
}

impl Serving {
    fn begin(
        arguments: &MountArgs,
        files: Arc<dyn FileLayer>,
        workers: u16,
        holder: Option<&Arc<Holder>>,
        quiet: bool,
    ) -> Result<Self> {
        let signals = ending::signals()?;
        let again = holder.filter(|holder| !holder.is_first());
        // Checked before the mount covers the directory, and reported afterwards.
        let covered = !quiet && again.is_none() && covers(&arguments.backing, &arguments.mountpoint);
        // Reads from the page cache would not take the emulated device's time.
        let page_cache =
            arguments.page_cache.unwrap_or(if arguments.emulate.is_some() { OnOff::Off } else { OnOff::On });
        let workers = arguments.workers.unwrap_or(workers);
        let options = options(workers, page_cache, arguments.passthrough, arguments.cache.as_deref());
        let keep = holder.map(|holder| Arc::new(Keeping(Arc::clone(holder))) as Arc<dyn Keep>);
        let options = Options { allow_root: arguments.allow_root, keep, ..options };
        let mountpoint = arguments.mountpoint.display();
        let mount = match again {
            Some(holder) => {
                let kept = holder.take_all("fuse.");
                if !kept.iter().any(|(name, _)| name == "fuse.device") {
                    // It was unmounted, or could not outlive its server: another one would find the same.
                    let _ = holder.server().stopping();
                    bail!("{mountpoint}: the mount ended with the server before");
                }
                Mount::take_over(Kept::from_iter(kept), files, options).with_context(|| mountpoint.to_string())?
            }
            None => Mount::start(&arguments.backing, &arguments.mountpoint, files, options)?,
        };
        if let Surviving::Refused(error) = mount.surviving() {
            say!("entresol: {mountpoint}: the mount ends with its server, in spite of --restart on: {error}");
        }
        if covered {
            let (mountpoint, backing) = (arguments.mountpoint.display(), arguments.backing.display());
            say!("entresol: {mountpoint}: is not empty; its contents are hidden while {backing} is mounted there");
        }
        if !mount.shared_mappings() && !quiet && again.is_none() {
            say!("this kernel is older than 6.6: files cannot be mapped and written, and SQLite's WAL will not work");
        }
        Ok(Self { mount, signals, holder: holder.cloned() })
    }

    /// Serves until the mount ends; `seen` is the cache, if there is one.
    fn serve(self, arguments: &MountArgs, how: &str, seen: Option<(Log, Arc<Running>)>, quiet: bool) -> Result<()> {
        let Serving { mount, mut signals, holder } = self;
        let unmounter = mount.unmounter();
        let last = mount.unmounter();
        ending::at_last(move || drop(last.detach()));
        let is_alone = holder.is_none();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if signals.forever().next().is_some() {
                patiently_unmount(&unmounter);
                // With a holder, another server closes the cache if this one is killed while it does.
                if is_alone {
                    notify::stopping();
                }
            }
        })?;
        match &holder {
            Some(holder) => {
                let name = &arguments.mountpoint;
                let look = look(name, seen.as_ref().map(|(_, running)| Arc::clone(running)))?;
                let (announce, unmounter) = (|| announce(arguments, how), mount.unmounter());
                let end = move || end_without_holder(&unmounter);
                serving(holder, seen.as_ref(), name, announce, look, end, quiet)?;
            }
            None => announce(arguments, how),
        }
        mount.wait().with_context(|| arguments.mountpoint.display().to_string())
    }
}

fn announce(arguments: &MountArgs, how: &str) {
    output::announce(&format!("{} at {}, {how}\n", arguments.backing.display(), arguments.mountpoint.display()));
    notify::ready();
}

/// Has the holder start no other server: the mount has ended, and all that it leaves behind is in order or reported.
fn stopping(holder: Option<&Arc<Holder>>) {
    // A holder that is gone starts none either.
    holder.iter().for_each(|holder| drop(holder.server().stopping()));
}

/// Time for files to be closed after the holder is gone.
const WITHOUT_HOLDER: Duration = Duration::from_secs(1);

/// Ends the mount although files may be open: whoever killed the holder wants the end, or starts the command again, and
/// that waits for this process.
fn end_without_holder(unmounter: &Unmounter) {
    let began = Instant::now();
    while let Err(error) = unmounter.unmount() {
        if began.elapsed() >= WITHOUT_HOLDER {
            say!("entresol: {error}; the mount ends all the same, and the cache is closed");
            // What cannot be detached ends with this process.
            return drop(unmounter.detach());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
