//! A directory served at a mount point: with a cache, without one, or at the speed of another device.

use super::cache_options::CacheOptions;
use super::control;
use super::ending;
use super::files::{self, FileOptions, check_complete};
use super::guard::Guard;
use super::hints::{Heard, HintSources};
use super::holder::Holder;
use super::log::{Level, Log};
use super::lost::{Opened, without_backing};
use super::notify;
use super::running::Running;
use super::served::Served;
use super::serving::{Keeping, look, resolved, serving};
use anyhow::{Context, Result, bail};
use entresol_device::profile;
use entresol_files::{DirectFiles, EmulatedFiles, FileLayer, Found};
use entresol_fuse::{Error, Keep, Kept, Mount, Options, Passing, Surviving, Unmounter};
use serde_json::json;
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A directory to be mounted.
pub struct MountOptions {
    /// Directory whose files are served.
    pub backing: PathBuf,
    /// Mount point, which may be the same directory.
    pub mountpoint: PathBuf,
    /// Layer over the files.
    pub layer: Layer,
    /// True if no other process writes to the directory: it was checked before.
    pub checked: bool,
    /// Options of the front-end.
    pub front: FrontOptions,
    /// True if root is served as well as the user of this process.
    pub allow_root: bool,
    /// Time between two signs of life to a holder.
    pub beat: Duration,
}

/// Layer between a mount and its files.
pub enum Layer {
    /// None.
    Direct,
    /// A cache.
    Cached(Box<DirectoryCache>),
    /// An emulated device for each file.
    Emulated {
        /// Name of a profile, or path of a TOML file.
        profile: String,
        /// Bytes of each device, unless the profile has a size.
        size: u64,
    },
}

/// A cache for the files of a directory.
#[derive(Clone)]
pub struct DirectoryCache {
    /// Path of the cache.
    pub path: PathBuf,
    /// Options of the cache.
    pub options: CacheOptions,
    /// Options of its files.
    pub files: FileOptions,
    /// Receivers of messages about queries.
    pub hints: HintSources,
}

/// Options of the front-end.
#[derive(Clone, Copy)]
pub struct FrontOptions {
    /// Threads for requests that have to wait; none: 16, and 128 over emulated devices.
    pub workers: Option<u16>,
    /// Use of the kernel's page cache above the mount; none: true, and false over emulated devices.
    pub page_cache: Option<bool>,
    /// True if the kernel itself may read and write files that bypass the cache.
    pub passthrough: bool,
}

/// Serves until the mount ends, alone or for a holder. `announce` reports once that the directory is mounted.
///
/// # Errors
/// If the mount did not begin, or did not end in good order.
pub fn serve(options: &MountOptions, holder: Option<&Arc<Holder>>, announce: &dyn Fn(&str), quiet: bool) -> Result<()> {
    if let Some(holder) = holder {
        // The arena is a file too, and may grow at the open.
        ending::heed_size_limit()?;
        holder.starting(options.beat)?;
    }
    let again = holder.filter(|holder| !holder.is_first());
    match &options.layer {
        // A server before that had no cache bypassed it, which stays as it is.
        Layer::Cached(cache) if again.is_none_or(|holder| holder.has_cache()) => {
            return serve_cached(options, cache, holder, announce, quiet);
        }
        _ if again.is_none() => check_complete(&options.backing)?,
        _ => {}
    }
    let Layer::Emulated { profile, size } = &options.layer else {
        return serve_directly(options, holder, announce, quiet);
    };
    let files = Arc::new(emulated(profile, *size)?);
    let serving = Serving::begin(options, files.clone(), None, quiet)?;
    said(serving.serve(options, &format!("emulated {profile}"), None, announce, quiet), "")?;
    if !quiet {
        say!("{}", files.accuracy());
    }
    Ok(())
}

/// Serves the files through their cache.
fn serve_cached(
    options: &MountOptions,
    cache: &DirectoryCache,
    holder: Option<&Arc<Holder>>,
    announce: &dyn Fn(&str),
    quiet: bool,
) -> Result<()> {
    let MountOptions { backing, mountpoint, .. } = options;
    let again = holder.filter(|holder| !holder.is_first());
    let guard = match holder.filter(|_| options.checked || again.is_some()) {
        Some(holder) => Guard::checked(holder.directory(backing)?).with_context(|| backing.display().to_string()),
        None => Guard::check(backing, cache.options.writers_ok, quiet),
    };
    let guard = guard.map_err(|error| without_backing(&cache.path, error))?;
    let (served, files, heard) = match open(cache, backing, mountpoint, holder.map(|holder| &**holder), quiet)? {
        Opened::Cached(opened) => opened,
        Opened::Bypassed(bypass) => {
            guard.watch_without(bypass.tell(&cache.path, cache.options.log, quiet));
            return serve_directly(options, holder, announce, quiet);
        }
    };
    let how = format!("cached by {} in {}", served.chosen().policy, cache.path.display());
    guard.watch(&served);
    let begun = Serving::begin(options, files, holder, quiet);
    begun.iter().filter(|_| again.is_none()).for_each(|serving| passing(&served, &serving.mount));
    if let Some(Surviving::Refused(error)) = begun.as_ref().ok().map(|serving| serving.mount.surviving()) {
        served.running.ends_with_us(error.to_string());
    }
    let seen = (served.log().clone(), Arc::clone(&served.running));
    let has_begun = begun.is_ok();
    // An audit log may lie in the mount, which is answered only now.
    let heard = match again.filter(|_| has_begun) {
        Some(holder) => hear_again(options, &cache.hints, holder, &served),
        None => heard,
    };
    let ended = begun.map(|serving| serving.serve(options, &how, Some(seen), announce, quiet));
    let ended = end(served, heard, ended, quiet);
    stopping(holder.filter(|_| has_begun), &ended);
    ended
}

/// Serves the files without a cache.
fn serve_directly(
    options: &MountOptions,
    holder: Option<&Arc<Holder>>,
    announce: &dyn Fn(&str),
    quiet: bool,
) -> Result<()> {
    let serving = Serving::begin(options, Arc::new(DirectFiles), holder, quiet)?;
    let ended = said(serving.serve(options, "no cache", None, announce, quiet), "");
    stopping(holder, &ended);
    ended
}

/// As [`end`], for a start that may have no cache, because its backing store was served alone.
pub(crate) fn end_any(cached: Option<(Served, Heard)>, ended: Result<Result<()>>, quiet: bool) -> Result<()> {
    match cached {
        Some((served, heard)) => end(served, heard, ended, quiet),
        None => said(ended?, ""),
    }
}

/// Ends a cache after its front-end. `ended` is the end of the front-end, or the error that kept it from starting.
fn end(served: Served, heard: Heard, ended: Result<Result<()>>, quiet: bool) -> Result<()> {
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
pub(crate) type Opening = (Served, Arc<dyn FileLayer>, Heard);

/// Opens the cache of a directory that will be mounted, and its control socket; reports what the open found.
pub(crate) fn open(
    cache: &DirectoryCache,
    directory: &Path,
    mountpoint: &Path,
    holder: Option<&Holder>,
    quiet: bool,
) -> Result<Opened<Opening>> {
    let DirectoryCache { path, options, files: over, hints } = cache;
    let again = holder.filter(|holder| !holder.is_first());
    let seen = resolved(mountpoint)?;
    let (held, files, names) = match files::open(path, directory, options, over, holder)? {
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
    let Found {
        files: known,
        gone,
        changed,
        changed_since,
        touched,
        conflicts,
        dropped_pages,
        removed_pages,
        beyond_pages,
    } = names;
    let dropped = match (at_open.said(), found_dirty) {
        (none, _) if none.is_empty() => String::new(),
        (dropped, dirty) => format!("; of {dirty} dirty pages found{dropped}"),
    };
    let since = match changed_since {
        0 => String::new(),
        _ => format!(", {changed_since} after the crash; what was cached of these is dropped"),
    };
    let message = format!("{known} files known, {gone} gone, {changed} changed without the cache{since}{dropped}");
    let figures = json!({
        "known": known, "gone": gone, "changed": changed, "changed_since": changed_since, "touched": touched, "conflicts": conflicts,
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
fn hear_again(options: &MountOptions, hints: &HintSources, holder: &Holder, served: &Served) -> Heard {
    let MountOptions { backing, mountpoint, .. } = options;
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
pub(crate) fn passing(served: &Served, mount: &Mount) {
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

impl FrontOptions {
    /// The options of a mount over `layer`. Its source names the cache, so that `stats` finds the cache by the mount
    /// point.
    pub(crate) fn over(self, layer: &Layer) -> Options {
        let is_emulated = matches!(layer, Layer::Emulated { .. });
        let workers = self.workers.unwrap_or(if is_emulated { 128 } else { 16 }).into();
        // Reads from the page cache would not take the emulated device's time.
        let page_cache = self.page_cache.unwrap_or(!is_emulated);
        let options = Options { workers, page_cache, passthrough: self.passthrough, ..Options::default() };
        let Layer::Cached(cache) = layer else { return options };
        match control::mount_source(&cache.path) {
            Some(source) => Options { source, ..options },
            None => options,
        }
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
        options: &MountOptions,
        files: Arc<dyn FileLayer>,
        holder: Option<&Arc<Holder>>,
        quiet: bool,
    ) -> Result<Self> {
        let signals = ending::signals()?;
        let again = holder.filter(|holder| !holder.is_first());
        let MountOptions { backing, mountpoint, layer, front, allow_root, .. } = options;
        // Checked before the mount covers the directory, and reported afterwards.
        let covered = !quiet && again.is_none() && covers(backing, mountpoint);
        let keep = holder.map(|holder| Arc::new(Keeping(Arc::clone(holder))) as Arc<dyn Keep>);
        let front = Options { allow_root: *allow_root, keep, ..front.over(layer) };
        let name = mountpoint.display();
        let mount = match again {
            Some(holder) => {
                let kept = holder.take_all("fuse.");
                if !kept.iter().any(|(name, _)| name == "fuse.device") {
                    // It was unmounted, or could not outlive its server: another one would find the same.
                    let _ = holder.server().stopping(false);
                    bail!("{name}: the mount ended with the server before");
                }
                Mount::take_over(Kept::from_iter(kept), files, front).with_context(|| name.to_string())?
            }
            None => Mount::start(backing, mountpoint, files, front)?,
        };
        if let Surviving::Refused(error) = mount.surviving() {
            say!("entresol: {name}: the mount ends with its server, in spite of --restart on: {error}");
        }
        if covered {
            let backing = backing.display();
            say!("entresol: {name}: is not empty; its contents are hidden while {backing} is mounted there");
        }
        if !mount.shared_mappings() && !quiet && again.is_none() {
            say!("this kernel is older than 6.6: files cannot be mapped and written, and SQLite's WAL will not work");
        }
        Ok(Self { mount, signals, holder: holder.cloned() })
    }

    /// Serves until the mount ends; `seen` is the cache, if there is one.
    fn serve(
        self,
        options: &MountOptions,
        how: &str,
        seen: Option<(Log, Arc<Running>)>,
        announce: &dyn Fn(&str),
        quiet: bool,
    ) -> Result<()> {
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
        let MountOptions { backing, mountpoint: name, .. } = options;
        let announce = || {
            announce(&format!("{} at {}, {how}\n", backing.display(), name.display()));
            notify::ready();
        };
        match &holder {
            Some(holder) => {
                let look = look(name, seen.as_ref().map(|(_, running)| Arc::clone(running)))?;
                let unmounter = mount.unmounter();
                let end = move || end_without_holder(&unmounter);
                serving(holder, seen.as_ref(), name, announce, look, end, quiet)?;
            }
            None => announce(),
        }
        mount.wait().with_context(|| name.display().to_string())
    }
}

/// Has the holder start no other server: the mount has ended, and all that it leaves behind is in order or reported.
fn stopping(holder: Option<&Arc<Holder>>, ended: &Result<()>) {
    // A holder that is gone starts none either.
    holder.iter().for_each(|holder| drop(holder.server().stopping(ended.is_ok())));
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
