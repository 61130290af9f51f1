//! `entresol mount`: a directory again at another place, perhaps with its files as slow as another device.

use crate::ending;
use crate::live;
use crate::live::control;
use crate::live::files::DirectArgs;
use crate::live::guard::Guard;
use crate::live::hints::{Heard, HintArgs};
use crate::live::log::Level;
use crate::live::lost::{Opened, without_backing};
use crate::live::open_cache::Served;
use crate::live::serve::CacheArgs;
use crate::notify;
use crate::output;
use crate::values::{OnOff, bytes};
use anyhow::{Context, Result};
use clap::Args;
use entresol_device::profile;
use entresol_files::{DirectFiles, EmulatedFiles, FileLayer, Found};
use entresol_front::Error;
use entresol_front::fuse::{Mount, Options, Passing, Unmounter};
use serde_json::json;
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mount a directory at another place through FUSE, with a cache or without
///
/// With --cache, which `entresol format --backing DIR` has made, the bytes of its files go through that; docs/OPERATING.md
/// tells what is durable when.
///
/// Prints a line once it is mounted, for the user who runs this (and root, --allow-root), and serves until it is unmounted (fusermount3 -u),
/// interrupted or terminated; then it ends as soon as no file is open.
#[derive(Args)]
pub struct MountArgs {
    /// The directory whose files are served; no other program should change it meanwhile
    pub backing: PathBuf,
    /// Mount point: a directory, perhaps the same
    pub mountpoint: PathBuf,
    /// Threads that carry out what has to wait [default: 16, and 128 with --emulate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Have the kernel's page cache above the mount: it answers what it holds and reads ahead, as above any
    /// file system, and the cache sees the rest. Files opened with O_DIRECT go past it [default: on, and off
    /// with --emulate]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub page_cache: Option<OnOff>,
    /// Have the kernel read and write files past the cache by itself, and all files where there is no cache.
    /// Takes Linux 6.9 and CAP_SYS_ADMIN; else this process does it, as it does for files that --emulate
    /// slows down
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub passthrough: OnOff,
    /// Serve root as well as the user who runs this, as Debian's pg_ctlcluster needs it. What root makes there belongs to that
    /// user. Takes CAP_SYS_ADMIN, or user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub allow_root: bool,
    /// The cache that the bytes of the files go through
    #[arg(long, value_name = "FILE", conflicts_with = "emulate")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub cached: CacheArgs,
    #[command(flatten)]
    pub direct: DirectArgs,
    #[command(flatten)]
    pub hints: HintArgs,
    /// Files as slow as this device: a profile of the house (an unknown one lists them) or a TOML file. Each is a device of
    /// its own from when it is first opened; reads, writes and syncs take its time, whatever concerns names the host's
    #[arg(long, value_name = "PROFILE")]
    pub emulate: Option<String>,
    /// Size of each file's device in bytes, where it has none of its own; no file may be larger
    #[arg(long, value_name = "SIZE", requires = "emulate", default_value = "1GiB", value_parser = bytes)]
    pub size: u64,
}

/// Runs the command.
pub fn run(arguments: &MountArgs, quiet: bool) -> Result<()> {
    if let Some(cache) = &arguments.cache {
        let MountArgs { backing, mountpoint, cached, direct, hints, .. } = arguments;
        let guard = Guard::check(backing, cached.writers_ok, quiet).map_err(|error| without_backing(cache, error))?;
        let (served, files, heard) = match open(cache, backing, mountpoint, cached, direct, hints, quiet)? {
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
    live::files::check_complete(&arguments.backing)?;
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

/// As [`end`], where there may be no cache: its backing store was served without it.
pub fn end_any(cached: Option<(Served, Heard)>, ended: Result<Result<()>>, quiet: bool) -> Result<()> {
    match cached {
        Some((served, heard)) => end(served, heard, ended, quiet),
        None => said(ended?, ""),
    }
}

/// Ends a cache after its door: `ended` is how that did, if it was opened at all.
pub fn end(served: Served, heard: Heard, ended: Result<Result<()>>, quiet: bool) -> Result<()> {
    heard.end(quiet);
    match ended {
        Ok(Ok(())) => served.end("").and_then(|()| ending::check_panics()),
        // What could not be mounted leaves the cache as it was found: closed.
        Err(refused) => served.end("").and(Err(refused)),
        // Nothing more can come of what was broken off.
        Ok(Err(failed)) if matches!(failed.downcast_ref(), Some(Error::BrokenOff(_))) => {
            served.end("").and(Err(failed))
        }
        // Requests may come as long as this process is there.
        Ok(Err(failed)) => served.leave().and_then(|()| said(Err(failed), "; everything is flushed")),
    }
}

/// A copy of the mount that only the end of this process ends is no failure of its.
fn said(ended: Result<()>, more: &str) -> Result<()> {
    let Err(error) = ended else { return ending::check_panics() };
    if !matches!(error.downcast_ref(), Some(Error::Elsewhere { .. })) {
        return Err(error);
    }
    say!("entresol: {error:#}{more}; it ends with this process");
    Ok(())
}

/// A cache in use, the files over it, and who hears of queries.
pub type Opening = (Served, Arc<dyn FileLayer>, Heard);

/// Opens the cache of a directory, which will be mounted there, and serves it to other commands; what it found is said.
pub fn open(
    cache: &Path,
    directory: &Path,
    mountpoint: &Path,
    arguments: &CacheArgs,
    direct: &DirectArgs,
    hints: &HintArgs,
    quiet: bool,
) -> Result<Opened<Opening>> {
    let seen = mountpoint.canonicalize().with_context(|| mountpoint.display().to_string())?;
    let (held, files, names) = match live::files::open(cache, directory, arguments, direct)? {
        Opened::Cached(opened) => opened,
        Opened::Bypassed(bypass) => return Ok(Opened::Bypassed(bypass)),
    };
    // Before others are told that it is there: what is wrong with the socket is said first.
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
            format!("of {touched} files attributes alone were changed without the cache; their bytes are the same");
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

/// Files that are devices of this profile.
fn emulated(name: &str, size: u64) -> Result<EmulatedFiles> {
    // As for the other door: a disk starts at the same angle.
    const SEED: u64 = 42;
    let profile = profile::load(name)?;
    // What is wrong with the profile is said now, not at the first `open`.
    profile.build(size, SEED)?;
    Ok(EmulatedFiles::new(move || {
        profile.build(size, SEED).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }))
}

/// Does a mount hide what its mount point holds? That which it shows it does not hide.
fn covers(backing: &Path, mountpoint: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let holds = std::fs::read_dir(mountpoint).is_ok_and(|mut entries| entries.next().is_some());
    holds && number(backing) != number(mountpoint)
}

/// Time for which a mount may stay in use after it was to end, before that is said. A file that its process
/// has closed may still be open in a process forked meanwhile, until that process runs its own program.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// Unmounts as soon as nothing is open, be it hours later: a service manager asks once.
fn patiently_unmount(unmounter: &Unmounter) {
    let began = Instant::now();
    let mut said = false;
    while let Err(error) = unmounter.unmount() {
        if !said && began.elapsed() >= SAID_AFTER {
            let other = ["is mounted over it", "is mounted in it"].iter().any(|why| error.to_string().ends_with(why));
            let end = if other { "that is unmounted" } else { "what is open is closed" };
            say!("entresol: {error}; it ends as soon as {end}");
            said = true;
        }
        std::thread::sleep(if said { Duration::from_millis(500) } else { Duration::from_millis(50) });
    }
}

/// Says who reads and writes what goes past a cache, where the kernel was to.
pub fn passing(served: &Served, mount: &Mount) {
    let (message, by) = match mount.passing() {
        Passing::Unwanted => return,
        Passing::Granted => ("the kernel reads and writes files past the cache by itself".to_owned(), "kernel"),
        Passing::Refused(why) => {
            let what = "files past the cache (by default logs and temporary files)";
            (
                format!(
                    "{what} go through this process, not the kernel alone, which costs time and nothing else: {why}"
                ),
                "mount",
            )
        }
    };
    served.log().event(Level::Info, "passthrough", &message, json!({ "by": by }));
}

/// Returns the options of a mount. Its source is its cache, so that `stats` finds the cache by the mount
/// point.
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
        // Looked at before it is covered, said when it is.
        let covered = !quiet && covers(&arguments.backing, &arguments.mountpoint);
        // What memory answers takes no device's time.
        let page_cache =
            arguments.page_cache.unwrap_or(if arguments.emulate.is_some() { OnOff::Off } else { OnOff::On });
        let workers = arguments.workers.unwrap_or(workers);
        let options = options(workers, page_cache, arguments.passthrough, arguments.cache.as_deref());
        let options = Options { allow_root: arguments.allow_root, ..options };
        let mount = Mount::start(&arguments.backing, &arguments.mountpoint, files, options)?;
        if covered {
            let (mountpoint, backing) = (arguments.mountpoint.display(), arguments.backing.display());
            say!("entresol: {mountpoint}: is not empty; what it holds is hidden while {backing} is mounted there");
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
