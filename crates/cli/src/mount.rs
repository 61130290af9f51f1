//! `entresol mount`: mounts a directory at another place, optionally with a cache or at the speed of another device.

use crate::ending;
use crate::holder::{RestartArgs, Role, role};
use crate::notify;
use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use entresol_device::profile;
use entresol_files::{DirectFiles, EmulatedFiles, FileLayer, Found};
use entresol_fuse::{Error, Mount, Options, Passing, Unmounter};
use entresol_hold::Server;
use entresol_service::cache_args::CacheArgs;
use entresol_service::control;
use entresol_service::files::DirectArgs;
use entresol_service::guard::Guard;
use entresol_service::hints::{Heard, HintArgs};
use entresol_service::holder::Holder;
use entresol_service::log::Level;
use entresol_service::lost::{Opened, without_backing};
use entresol_service::served::Served;
use entresol_service::values::{OnOff, bytes};
use serde_json::json;
use signal_hook::iterator::Signals;
use std::io;
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
    match role(server, &arguments.restart)? {
        Role::Holder(code) => Ok(code),
        Role::Server(holder) => serve(arguments, holder.as_deref(), quiet).map(|()| ExitCode::SUCCESS),
    }
}

fn serve(arguments: &MountArgs, holder: Option<&Holder>, quiet: bool) -> Result<()> {
    if let Some(cache) = &arguments.cache {
        let MountArgs { backing, mountpoint, cached, direct, hints, .. } = arguments;
        let guard = Guard::check(backing, cached.writers_ok, quiet).map_err(|error| without_backing(cache, error))?;
        let (served, files, heard) = match open(cache, backing, mountpoint, cached, direct, hints, holder, quiet)? {
            Opened::Cached(opened) => opened,
            Opened::Bypassed(bypass) => {
                guard.watch_without(bypass.tell(cache, cached.log, quiet));
                let serving = Serving::begin(arguments, Arc::new(DirectFiles), 16, quiet)?;
                return said(serving.serve(arguments, "no cache"), "");
            }
        };
        let how = format!("cached by {} in {}", served.chosen().policy, cache.display());
        guard.watch(&served);
        let begun = Serving::begin(arguments, files, 16, quiet);
        begun.iter().for_each(|serving| passing(&served, &serving.mount));
        return end(served, heard, begun.map(|serving| serving.serve(arguments, &how)), quiet);
    }
    entresol_service::files::check_complete(&arguments.backing)?;
    let Some(name) = &arguments.emulate else {
        let serving = Serving::begin(arguments, Arc::new(DirectFiles), 16, quiet)?;
        return said(serving.serve(arguments, "no cache"), "");
    };
    let files = Arc::new(emulated(name, arguments.size)?);
    let serving = Serving::begin(arguments, files.clone(), 128, quiet)?;
    said(serving.serve(arguments, &format!("emulated {name}")), "")?;
    if !quiet {
        say!("{}", files.accuracy());
    }
    Ok(())
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
    let seen = mountpoint.canonicalize().with_context(|| mountpoint.display().to_string())?;
    let (held, files, names) = match entresol_service::files::open(cache, directory, arguments, direct, holder)? {
        Opened::Cached(opened) => opened,
        Opened::Bypassed(bypass) => return Ok(Opened::Bypassed(bypass)),
    };
    // Before the cache is announced, so that an error of the hint socket is reported first.
    let heard = match hints.open(&files, mountpoint, directory) {
        Ok(heard) => heard,
        Err(error) => return Err(held.close().err().unwrap_or(error)),
    };
    let (found_dirty, at_open) = (held.found.dirty, held.found.dropped);
    let served = held.serve(quiet);
    served.running.seen_at(&seen, heard.hints());
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
    served.log().event(Level::Info, "files", &message, figures);
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
}

impl Serving {
    fn begin(arguments: &MountArgs, files: Arc<dyn FileLayer>, workers: u16, quiet: bool) -> Result<Self> {
        let signals = ending::signals()?;
        // Checked before the mount covers the directory, and reported afterwards.
        let covered = !quiet && covers(&arguments.backing, &arguments.mountpoint);
        // Reads from the page cache would not take the emulated device's time.
        let page_cache =
            arguments.page_cache.unwrap_or(if arguments.emulate.is_some() { OnOff::Off } else { OnOff::On });
        let workers = arguments.workers.unwrap_or(workers);
        let options = options(workers, page_cache, arguments.passthrough, arguments.cache.as_deref());
        let options = Options { allow_root: arguments.allow_root, ..options };
        let mount = Mount::start(&arguments.backing, &arguments.mountpoint, files, options)?;
        if covered {
            let (mountpoint, backing) = (arguments.mountpoint.display(), arguments.backing.display());
            say!("entresol: {mountpoint}: is not empty; its contents are hidden while {backing} is mounted there");
        }
        if !mount.shared_mappings() && !quiet {
            say!("this kernel is older than 6.6: files cannot be mapped and written, and SQLite's WAL will not work");
        }
        Ok(Self { mount, signals })
    }

    fn serve(self, arguments: &MountArgs, how: &str) -> Result<()> {
        let Serving { mount, mut signals } = self;
        let unmounter = mount.unmounter();
        let last = mount.unmounter();
        ending::at_last(move || drop(last.detach()));
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if signals.forever().next().is_some() {
                patiently_unmount(&unmounter);
                notify::stopping();
            }
        })?;
        output::announce(&format!("{} at {}, {how}\n", arguments.backing.display(), arguments.mountpoint.display()));
        notify::ready();
        mount.wait().with_context(|| arguments.mountpoint.display().to_string())
    }
}
