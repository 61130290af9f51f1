//! A directory behind a cache from one command to another: the mount over it runs in the background.

use super::chosen::Kept;
use super::control::mounted_at;
use super::drain::drain;
use super::guard::Guard;
use super::hold::{ReadFile, metadata};
use super::words::{command_line, quoted_path};
use anyhow::{Context, Result, bail};
use entresol_cache::Mode;
use entresol_files::{Backing, HIDDEN, Standing, standing};
use entresol_fsck::{SurveyError, superblock};
use entresol_fuse::{clear_dead_mount, unmount_at};
use rustix::fs::statvfs;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Pause between two looks at a server that is ending.
const PAUSE: Duration = Duration::from_millis(20);
/// Time in which a server whose mount is gone should have ended.
const ENDING: Duration = Duration::from_secs(5);
const MIB: u64 = 1 << 20;
/// Smallest size that is chosen for a cache.
const SIZE_MIN: u64 = 64 * MIB;
/// Most processes that a refusal names.
const NAMED: usize = 4;

/// The path of a directory from the root. A mount whose process was killed has no other path than the one given.
fn absolute(directory: &Path) -> Result<PathBuf> {
    let found = directory.canonicalize().or_else(|error| match error.kind() {
        io::ErrorKind::NotConnected => std::path::absolute(directory),
        _ => Err(error),
    });
    found.with_context(|| directory.display().to_string())
}

/// A directory that can be attached to a cache.
pub struct Attachable {
    /// Directory in which programs find the files.
    pub directory: PathBuf,
    /// Directory in which the files are: the same, or one beside it to which they were moved.
    pub backing: PathBuf,
}

/// Directory to which the files of a directory are moved, so that no program works on them without their cache.
fn below(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".below");
    name.into()
}

/// Location of the files of a directory while it is not mounted.
///
/// # Errors
/// If the files were moved, and others have come to their directory since: whoever made those did not find the ones that
/// the cache belongs to.
fn backing(directory: &Path) -> Result<PathBuf> {
    let below = below(directory);
    let is_empty = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty && below.is_dir() {
        return Ok(below);
    }
    if !is_empty && below.join(HIDDEN).exists() {
        let (name, below) = (directory.display(), below.display());
        bail!(
            "{name}: has files of its own, and those that were attached are in {below}: move one of the two away first"
        );
    }
    Ok(directory.to_owned())
}

/// Checks that a directory can be attached to a cache, by this user, before a cache is made for it.
///
/// # Errors
/// If it is no directory, belongs to another user, is attached already, has files of its own beside those that were moved,
/// or is written to by a process, unless `writers_ok`.
pub fn check(directory: &Path, writers_ok: bool) -> Result<Attachable> {
    if !directory.exists() && below(directory).is_dir() {
        // Moved, and stopped before the next step.
        fs::create_dir(directory).with_context(|| directory.display().to_string())?;
    }
    let directory = absolute(directory)?;
    let name = directory.display();
    if mounted_at(&directory)?.is_some() {
        // After a kill only the mount is left.
        clear_dead_mount(&directory).with_context(|| name.to_string())?;
    }
    if let Some(cache) = mounted_at(&directory)? {
        let detach = format!("entresol detach {}", quoted_path(&directory));
        bail!("{name}: is attached to {} already; `{detach}` ends that", cache.display());
    }
    let found = metadata(&directory)?;
    if !found.is_dir() {
        bail!("{name}: is no directory");
    }
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own {
        let owner = found.uid();
        bail!(
            "{name}: belongs to user {owner}, and a mount is seen by its own user alone: run this as that user \
             (`sudo -u '#{owner}' {}`)",
            command_line()
        );
    }
    // The mount says whom it cannot see.
    let backing = backing(&directory)?;
    drop(Guard::check(&backing, writers_ok, true)?);
    Ok(Attachable { directory, backing })
}

impl Attachable {
    /// True if a cache of the directory was used in write-back last.
    pub fn was_in_write_back(&self) -> bool {
        let record = Backing::record_of(&self.backing).ok().flatten();
        record.is_some_and(|record| Kept::of(Some(&record)).mode == Some(Mode::WriteBack))
    }

    /// Moves the files beside their directory, which is empty then until it is mounted: a server that is started without the
    /// mount finds nothing, instead of files that lack their newest pages. True if they were not there before.
    ///
    /// # Errors
    /// If this user may not write beside the directory, or something is there.
    pub fn move_aside(&mut self) -> Result<bool> {
        let (directory, below) = (&self.directory, below(&self.directory));
        if self.backing == below {
            return Ok(false);
        }
        if below.exists() {
            bail!("{}: is there already, and the files are moved there in write-back", below.display());
        }
        let mode = metadata(directory)?.permissions();
        let why = || {
            format!(
                "{}: the files are moved here in write-back, so that no server runs without the cache",
                below.display()
            )
        };
        fs::rename(directory, &below).with_context(why)?;
        let made = fs::create_dir(directory).and_then(|()| fs::set_permissions(directory, mode));
        made.and_then(|()| sync_beside(directory)).with_context(|| directory.display().to_string())?;
        self.backing = below;
        Ok(true)
    }

    /// Moves the files back.
    ///
    /// # Errors
    /// If the directory is not empty, or the error of the system.
    pub fn move_back(self) -> Result<()> {
        let Attachable { directory, backing } = self;
        if backing == directory {
            return Ok(());
        }
        let moved = fs::remove_dir(&directory).and_then(|()| fs::rename(&backing, &directory));
        moved.and_then(|()| sync_beside(&directory)).with_context(|| {
            let (name, backing) = (directory.display(), backing.display());
            format!("{name}: the files are complete in {backing}, and were not moved back")
        })
    }
}

/// Makes the name of a directory durable.
fn sync_beside(directory: &Path) -> io::Result<()> {
    directory.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// The path of a cache: the one given, or in a directory a file with the name of the attached directory.
pub fn cache_path(directory: &Path, given: &Path) -> PathBuf {
    if !given.is_dir() {
        return given.to_owned();
    }
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(".cache");
    given.join(name)
}

/// True if a cache is there, even a damaged one; false for no file, and for a file or device that has something else or
/// nothing.
///
/// # Errors
/// Errors of the system.
pub fn has_cache(path: &Path) -> Result<bool> {
    if !path.exists() {
        return Ok(false);
    }
    match superblock(&ReadFile::open(path)?) {
        Err(SurveyError::NotACache) => Ok(false),
        Err(SurveyError::Io(error)) => Err(error).with_context(|| path.display().to_string()),
        Ok(_) | Err(_) => Ok(true),
    }
}

/// Size in bytes of a new cache for which none was given: that of the files, or nine tenths of the free space if that is less.
///
/// # Errors
/// Errors of the system.
pub fn size(backing: &Path, cache: &Path) -> Result<u64> {
    let beside = cache.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = statvfs(beside).with_context(|| beside.display().to_string())?;
    let free = found.f_bavail.saturating_mul(found.f_frsize) / 10 * 9;
    Ok((used(backing).max(SIZE_MIN).min(free) / MIB * MIB).max(MIB))
}

/// Bytes that the files of a directory take. What cannot be read is left out.
fn used(backing: &Path) -> u64 {
    let (mut folders, mut bytes) = (vec![backing.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() && entry.file_name() != HIDDEN {
                folders.push(entry.path());
            } else if found.is_file() {
                bytes += 512 * found.blocks();
            }
        }
    }
    bytes
}

/// File for what the mount says, where none was given: beside the cache.
///
/// # Errors
/// If the cache is a block device.
pub fn log(cache: &Path) -> Result<PathBuf> {
    if fs::metadata(cache).is_ok_and(|found| found.file_type().is_block_device()) {
        bail!("{}: is a block device: give --log FILE, for what the mount says", cache.display());
    }
    let mut name = cache.as_os_str().to_owned();
    name.push(".log");
    Ok(name.into())
}

/// A mount in the background.
pub struct Attached {
    /// The line with which it said that it can be used.
    pub line: String,
    /// Further lines that it said until then.
    pub said: String,
}

/// Mounts the files over the directory through their cache, in a process of its own that outlives this one, and waits until the
/// mount can be used. `more` are further arguments of `entresol mount`. What the process says goes to the file `log`.
///
/// # Errors
/// Why the mount did not begin.
pub fn start(attachable: &Attachable, cache: &Path, log: &Path, more: &[OsString]) -> Result<Attached> {
    let name = || log.display().to_string();
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(log).with_context(name)?;
    let before = file.seek(SeekFrom::End(0)).with_context(name)?;
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(program);
    command.arg("mount").args([&attachable.backing, &attachable.directory]).arg("--cache").arg(cache).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file.try_clone().with_context(name)?);
    // Signals of the terminal are for this process.
    let mut child = command.process_group(0).spawn().context("entresol mount")?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line);
    let said = |file: &mut File| -> io::Result<String> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(before))?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    if read.context("entresol mount")? == 0 {
        let status = child.wait().context("entresol mount")?;
        let said = said(&mut file).with_context(name)?;
        let why = said.lines().last().map(|line| line.trim_start_matches("entresol: ").to_owned());
        bail!("{}", why.unwrap_or_else(|| format!("entresol mount: {status}")));
    }
    Ok(Attached { line: line.trim_end().to_owned(), said: said(&mut file).with_context(name)? })
}

/// Takes a directory's cache off: unmounts it, waits until its server has ended, writes what only the cache has, and moves the
/// files back if they were moved. A directory that is not mounted any more has the last of that done. Returns the path of
/// the cache.
///
/// # Errors
/// If files are open in the mount, no cache is known, others are where the files were, or the directory is not complete
/// without its cache. Of a complete one it does not matter whether the cache can be opened.
pub fn detach(directory: &Path, quiet: bool) -> Result<PathBuf> {
    let directory = absolute(directory)?;
    let name = directory.display();
    let mounted = mounted_at(&directory)?;
    if mounted.is_some()
        && let Err(error) = unmount_at(&directory)
    {
        match users(&directory) {
            users if users.is_empty() => return Err(error).with_context(|| name.to_string()),
            users => bail!("{name}: is in use by {}: end that first", users.join(", ")),
        }
    }
    let backing = backing(&directory)?;
    let known = || Backing::cache_of(&backing).ok().flatten();
    let was_mounted = mounted.is_some();
    let cache = mounted.or_else(known).with_context(|| format!("{name}: no cache is attached to it"))?;
    // A server ends after its mount. Another one may serve the directory elsewhere.
    let since = Instant::now();
    while matches!(standing(&backing), Ok(Standing::InUse)) {
        if !was_mounted && since.elapsed() > ENDING {
            bail!("{name}: its cache is in use, and not by a mount over it: end that first");
        }
        std::thread::sleep(PAUSE);
    }
    match drain(&cache, &backing, None, false, false, quiet) {
        // As where the cache's device has failed: nothing that it has is missing.
        Err(error) if matches!(standing(&backing), Ok(Standing::Free)) => {
            say!("entresol: {error:#}\n{} is complete without the cache", backing.display());
        }
        drained => drained?,
    }
    Attachable { directory, backing }.move_back()?;
    Ok(cache)
}

/// Processes with a file or their own directory in the mount at a directory, as far as this user may see them. Its server has
/// the files below open, by the same names.
fn users(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(device) = metadata(directory).map(|found| found.dev()) else { return found };
    let is_there = |link: PathBuf| {
        let named = fs::read_link(&link).is_ok_and(|at| at.starts_with(directory));
        named && fs::metadata(link).is_ok_and(|found| found.dev() == device)
    };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|id| id.parse::<u32>().ok()) else { continue };
        let open = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten().map(|open| open.path());
        let mut links = open.chain([entry.path().join("cwd"), entry.path().join("root")]);
        if links.any(is_there) {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("process {id} ({})", command.trim_end()));
        }
    }
    if found.len() > NAMED {
        let more = found.split_off(NAMED).len();
        found.push(format!("{more} more"));
    }
    found
}
