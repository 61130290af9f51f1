//! The guard of a backing store: a cache is not put in front of files that another process is writing.
//!
//! A server that runs on the backing directory writes to it without the cache, which neither sees nor can order these
//! writes. The guard looks for such writers before a cache is opened, and then each minute for ten minutes.

use super::lease;
use super::log::{Level, Log};
use super::served::Served;
use super::unseen;
use super::writers::Writers;
use anyhow::{Context, Result, bail};
use entresol_files::HIDDEN;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use serde_json::json;
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Number of checks after the start, and the time between two.
const CHECKS: usize = 10;
const EVERY: Duration = Duration::from_secs(60);
/// Time given to a writer to go away: `losetup`, `udev` and others open a device for a moment.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks for such a writer.
const PAUSE: Duration = Duration::from_millis(50);
/// Seconds by which a start time may seem later than it was: /proc gives the time of boot in whole seconds.
const CLOCK_SLACK: u64 = 2;

/// A backing store as it was before anything was mounted over it.
pub struct Guard {
    held: File,
    found: Metadata,
    writers: Writers,
}

/// Findings of one look for writers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    /// Writers, each in words.
    writers: Vec<String>,
    /// Processes whose files this user may not see, and which could write to the backing store.
    hidden: Vec<u32>,
    /// True if there are processes whose files this user may not see, whether they could write there or not.
    blind: bool,
}

impl Guard {
    /// Looks at a directory, a file or a block device; refuses it while another process writes to it. A writer that is
    /// gone within a second is ignored.
    ///
    /// # Errors
    /// If a writer is found, unless `writers_ok`; if the backing store cannot be read.
    pub fn check(path: &Path, writers_ok: bool, quiet: bool) -> Result<Self> {
        let mut first = None;
        Self::check_while(path, writers_ok, quiet, || {
            std::thread::sleep(PAUSE);
            first.get_or_insert_with(Instant::now).elapsed() < PATIENCE
        })
    }

    /// The guard of a directory, file or block device that was checked before, by another process.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn checked(held: File) -> io::Result<Self> {
        let found = held.metadata()?;
        Ok(Guard { held, found, writers: Writers::default() })
    }

    /// As [`check`](Self::check); `wait` waits a moment and returns whether to look again for writers that were found.
    fn check_while(path: &Path, writers_ok: bool, quiet: bool, mut wait: impl FnMut() -> bool) -> Result<Self> {
        let held = File::open(path).with_context(|| path.display().to_string())?;
        let found = held.metadata().with_context(|| path.display().to_string())?;
        let guard = Guard { held, found, writers: Writers::default() };
        // Another process holds the backing store, perhaps a server of ours. The open will fail with a message that
        // says so.
        if guard.is_locked() {
            return Ok(guard);
        }
        let mut look = guard.look_before_open(writers_ok);
        if writers_ok {
            return Ok(guard);
        }
        while !look.writers.is_empty() && wait() {
            look = guard.look_before_open(false);
        }
        if let Some(first) = look.writers.first() {
            let name = path.display();
            let more = match look.writers.len() {
                1 => String::new(),
                number => format!(" (and {} more)", number - 1),
            };
            bail!(
                "{name}: {first}{more}; a cache over files that are written without it loses data: stop that process first, \
                 or give --writers-ok if it cannot write there"
            );
        }
        if let Some(why) = guard.doubt(&look).filter(|_| !quiet) {
            let name = path.display();
            say!(
                "entresol: {name}: another user's process may write there unseen: {why}; be sure that no server runs \
                 on it"
            );
        }
        Ok(guard)
    }

    /// A look before this process opens files itself. Unless `writers_ok`, leases reveal writers whose files may not be
    /// seen.
    fn look_before_open(&self, writers_ok: bool) -> Look {
        let mut look = self.look();
        if !writers_ok && look.writers.is_empty() && (look.blind || unseen::hidden().is_some()) {
            look.writers = self.leased();
        }
        look
    }

    /// Why a look may have missed a writer.
    fn doubt(&self, look: &Look) -> Option<String> {
        if let Some(why) = unseen::blindness(&self.found) {
            return Some(why.to_owned());
        }
        let hidden = unseen::list(&look.hidden, named);
        (!hidden.is_empty()).then(|| format!("these processes may not be inspected: {hidden}"))
    }

    /// Files that a hidden process has open for writing, as far as leases tell.
    fn leased(&self) -> Vec<String> {
        const WHO: &str = "a process that may not be inspected has";
        if self.found.is_dir() {
            let written = lease::written_below(&self.root(), &self.found);
            return written.into_iter().map(|name| format!("{WHO} {name} open for writing")).collect();
        }
        let is_written = self.found.is_file() && lease::is_written(&self.held) == Some(true);
        is_written.then(|| format!("{WHO} it open for writing")).into_iter().collect()
    }

    /// True if another process holds the lock that the open is about to take.
    fn is_locked(&self) -> bool {
        let shared = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
        let locked = if self.found.is_dir() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let hidden = rustix::fs::openat(&self.held, HIDDEN, flags, Mode::empty()).map(File::from);
            hidden.map(|hidden| shared(&hidden))
        } else {
            let locked = shared(&self.held);
            // The open must find the lock free.
            let _unlocked = rustix::fs::flock(&self.held, FlockOperation::Unlock);
            Ok(locked)
        };
        matches!(locked, Ok(Err(rustix::io::Errno::WOULDBLOCK)))
    }

    /// Looks again each minute for ten minutes; a writer becomes an event, and is reported by `stats`. Without a thread
    /// no further look takes place.
    pub fn watch(self, served: &Served) {
        served.running.written_by(self.writers.clone());
        self.watch_without(served.log().clone());
    }

    /// As [`watch`](Self::watch), without a cache in use.
    pub fn watch_without(self, log: Log) {
        let look = move || self.look_again(CHECKS, EVERY, |look| warn(&log, &look));
        let _ = std::thread::Builder::new().name("guard".into()).spawn(look);
    }

    fn look_again(&self, checks: usize, every: Duration, tell: impl Fn(Look)) {
        for _ in 0..checks {
            std::thread::sleep(every);
            let look = self.look();
            if !look.writers.is_empty() {
                tell(look);
            }
        }
    }

    fn look(&self) -> Look {
        let mut look = Look::default();
        if self.found.is_dir() {
            look.writers.extend(self.postmasters());
            look.writers.extend(self.innodb());
        }
        self.open_for_writing(&mut look);
        self.writers.note(&look.writers);
        look
    }

    /// The directory itself, even if something is mounted over it by now.
    fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/.", self.held.as_raw_fd()))
    }

    /// Running PostgreSQL servers of this directory and of the clusters one level down.
    fn postmasters(&self) -> Vec<String> {
        let root = self.root();
        let below = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
        let clusters = below.filter(|path| path.join("PG_VERSION").is_file());
        std::iter::once(root.clone()).chain(clusters).filter_map(|place| self.postmaster(&place)).collect()
    }

    fn postmaster(&self, cluster: &Path) -> Option<String> {
        let file = cluster.join("postmaster.pid");
        let text = fs::read_to_string(&file).ok()?;
        let process: u32 = text.lines().next()?.trim().parse().ok().filter(|&number| number != std::process::id())?;
        let written = fs::metadata(&file).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        // A process that started later than the file was written has reused the number.
        if started(process)? > written + CLOCK_SLACK {
            return None;
        }
        let here = fs::metadata(cluster).ok()?;
        match FoundFile::at(Path::new(&format!("/proc/{process}/cwd"))) {
            Ok(found) if (found.device, found.inode) != (here.dev(), here.ino()) => return None,
            // That process runs on a mount whose server is gone, not in this directory.
            Err(Errno::NOTCONN) => return None,
            _ => {}
        }
        Some(format!("its postmaster.pid names process {process}, which is running{}", named(process)))
    }

    /// InnoDB's and Aria's files that a running server has locked.
    fn innodb(&self) -> Vec<String> {
        let is_one = |name: &str| {
            let begins = ["ib_logfile", "undo_"].iter().any(|begin| name.starts_with(begin));
            begins || ["ibdata1", "aria_log_control"].contains(&name)
        };
        let mut writers = Vec::new();
        for entry in fs::read_dir(self.root()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_one(&name) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let Ok(file) = File::open(entry.path()) else { continue };
            if let Ok(Some(holder)) = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)) {
                let holder = holder.pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
                writers.push(format!("{name} is locked by {holder}, as a running MariaDB or MySQL does"));
            }
        }
        writers
    }

    /// Finds processes that have a file of the backing store open for writing. Through a mount of ours a file has
    /// another device number.
    fn open_for_writing(&self, look: &mut Look) {
        let mut candidates: HashMap<u64, u32> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if process == std::process::id() {
                continue;
            }
            match fs::read_dir(entry.path().join("fd")) {
                Ok(open) => open.flatten().for_each(|open| {
                    if let Some(inode) = self.written_by(process, &open.path()) {
                        candidates.insert(inode, process);
                    }
                }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    look.blind = true;
                    look.hidden.extend(unseen::could_write(process, &self.found).then_some(process));
                }
                // The process has ended.
                Err(_) => {}
            }
        }
        if !self.found.is_dir() {
            let said = candidates
                .values()
                .map(|&process| format!("process {process} has it open for writing{}", named(process)));
            look.writers.extend(said);
        } else if !candidates.is_empty() {
            self.walk(&candidates, look);
        }
    }

    /// The inode that a descriptor may write, if it can belong to this backing store.
    fn written_by(&self, process: u32, descriptor: &Path) -> Option<u64> {
        let found = FoundFile::at(descriptor).ok()?;
        let ours = if self.found.is_dir() {
            found.is_file() && found.device == self.found.dev()
        } else if found.is_file() {
            (found.device, found.inode) == (self.found.dev(), self.found.ino())
        } else {
            // A device may have several nodes, but has one number.
            found.number != 0 && found.mode == self.found.mode() && found.number == self.found.rdev()
        };
        if !ours {
            return None;
        }
        let number = descriptor.file_name()?.to_str()?;
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        // The access mode: 1 is write-only, 2 is read and write.
        matches!(flags & 3, 1 | 2).then_some(found.inode)
    }

    /// Adds to `look` the writers whose inodes have a name in the directory or below it.
    ///
    /// Files are compared by inode, so that the names inside a container do not matter.
    fn walk(&self, candidates: &HashMap<u64, u32>, look: &mut Look) {
        let root = self.root();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let Ok(found) = entry.metadata() else { continue };
                if found.dev() != self.found.dev() {
                    continue;
                }
                let path = entry.path();
                if found.is_dir() {
                    directories.push(path);
                } else if let Some(&process) = candidates.get(&found.ino()).filter(|_| found.is_file()) {
                    let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
                    look.writers.push(format!("process {process} has {name} open for writing{}", named(process)));
                }
            }
        }
    }
}

/// A file that a process holds. Its file system is not asked: it may be one that waits for this process, or that waits for
/// ever for another.
struct FoundFile {
    device: u64,
    inode: u64,
    mode: u32,
    /// Number of a device that the file is.
    number: u64,
}

impl FoundFile {
    fn at(link: &Path) -> rustix::io::Result<Self> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(CWD, link, flags, StatxFlags::BASIC_STATS)?;
        Ok(FoundFile {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            mode: found.stx_mode.into(),
            number: makedev(found.stx_rdev_major, found.stx_rdev_minor),
        })
    }

    fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }
}

fn warn(log: &Log, look: &Look) {
    let message =
        format!("written without the cache, which loses data: {}; stop that process", look.writers.join("; "));
    log.event(Level::Warning, "writers", &message, json!({ "writers": look.writers }));
}

/// Start time of a process in seconds since 1970; none if it has ended.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold blanks and parentheses: fields are counted from its end, the state being the third.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks / rustix::param::clock_ticks_per_second())
}

/// The name of a process in parentheses, if it can be read.
fn named(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.map_or_else(|_| String::new(), |name| format!(" ({})", name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process in `directory` that runs until it is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn new(directory: &Path, output: Stdio) -> Self {
            let mut command = Command::new("sleep");
            Sleeper(command.arg("600").current_dir(directory).stdout(output).spawn().expect("sleep"))
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn refused(path: &Path) -> Option<String> {
        Guard::check(path, false, true).err().map(|error| error.to_string())
    }

    #[test]
    fn a_process_that_has_a_file_open_for_writing_is_found() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (backing, below) = (scratch.path().join("b"), scratch.path().join("b/deep"));
        fs::create_dir_all(&below).expect("directories");
        let output = File::create(below.join("file")).expect("a file");
        let writer = Sleeper::new(scratch.path(), output.into());
        let said = refused(&backing).expect("a refusal");
        let expected = format!("process {} has deep/file open for writing (sleep)", writer.0.id());
        assert!(said.contains(&expected) && said.contains("--writers-ok"), "{said}");
        assert!(refused(&below.join("file")).is_some_and(|said| said.contains("has it open for writing")));
        let guard = Guard::check(&backing, true, true).expect("it is known better");
        let seen = std::sync::Mutex::new(0);
        guard.look_again(2, Duration::from_millis(1), |_| *seen.lock().expect("a count") += 1);
        assert_eq!(seen.into_inner().expect("a count"), 2, "seen again at each later look");
        drop(writer);
        let output = File::open(below.join("file")).expect("a file");
        let _reader = Sleeper::new(scratch.path(), output.into());
        assert_eq!(refused(&backing), None, "who only reads is no writer");
    }

    #[test]
    fn a_process_that_has_a_file_open_for_a_moment_is_no_writer() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("file");
        let mut writer = Some(Sleeper::new(scratch.path(), File::create(&file).expect("a file").into()));
        let mut looks = 0;
        let mut check = |leaves: usize| {
            looks = 0;
            let guard = Guard::check_while(&file, false, true, || {
                looks += 1;
                if looks == leaves {
                    writer.take();
                }
                looks < 3
            });
            guard.map(|guard| guard.writers.seen()).map_err(|error| error.to_string())
        };
        assert!(check(4).is_err_and(|said| said.contains("has it open for writing (sleep)")), "it stays");
        assert_eq!(check(2), Ok(Vec::new()), "it leaves before the last look");
        assert_eq!(looks, 2);
    }

    #[test]
    fn a_postmaster_is_believed_if_it_is_the_one_that_wrote_the_file() {
        let scratch = tempfile::tempdir().expect("a directory");
        let cluster = scratch.path().join("main");
        fs::create_dir(&cluster).expect("a directory");
        fs::write(cluster.join("PG_VERSION"), "15\n").expect("a file");
        let server = Sleeper::new(&cluster, Stdio::null());
        let elsewhere = Sleeper::new(scratch.path(), Stdio::null());
        let put = |process: u32| fs::write(cluster.join("postmaster.pid"), format!("{process}\n/x\n")).expect("a file");
        put(server.0.id());
        for place in [&cluster, scratch.path()] {
            let said = refused(place).expect("a refusal");
            assert!(said.contains(&format!("names process {}", server.0.id())), "{said}");
        }
        let age = |seconds| {
            let time = std::time::SystemTime::now() - Duration::from_secs(seconds);
            let file = File::options().write(true).open(cluster.join("postmaster.pid")).expect("a file");
            file.set_modified(time).expect("a time");
        };
        age(3600);
        assert_eq!(refused(&cluster), None, "the number is another process's by now");
        put(elsewhere.0.id());
        assert_eq!(refused(&cluster), None, "it works in another directory");
        put(server.0.id());
        drop(server);
        assert_eq!(refused(&cluster), None, "it has ended");
    }
}
