//! Messages about queries, which a mounted cache receives.

use anyhow::{Context, Result, ensure};
use entresol_files::{Advised, CachedFiles, FileId};
use entresol_hints::{AuditFollower, HintCounts, HintSocket, Hints, Served};
use entresol_names::Names;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ways in which databases report their queries to a cache.
#[derive(Clone, Debug, Default)]
pub struct HintSources {
    /// Unix datagram socket for messages about queries, which docs/hints.md describes.
    pub socket: Option<PathBuf>,
    /// Log of MariaDB's audit plugin. The server's data directory must be among the files.
    pub audit_log: Option<PathBuf>,
}

/// Receivers of messages about queries, as far as they were asked for; they stop when this is dropped.
pub struct Heard {
    hints: Option<Arc<Hints>>,
    socket: Option<HintSocket>,
    audit: Option<AuditFollower>,
    /// Keeps the backing directory open: files are found through its descriptor, whatever is mounted over the
    /// directory.
    _backing: Option<File>,
}

/// Passes calls on to files that others own too.
struct Shared(Arc<CachedFiles>);

impl Advised for Shared {
    fn query_begins(&self, query: u32, files: &[FileId]) -> usize {
        self.0.query_begins(query, files)
    }

    fn query_ends(&self, query: u32) {
        self.0.query_ends(query);
    }
}

impl HintSources {
    /// Starts the receivers. `mountpoint` is absolute and without links. Must be called before the files are mounted, or
    /// with a path of the backing directory that leads below the mount.
    pub fn open(&self, files: &Arc<CachedFiles>, mountpoint: &Path, backing: &Path) -> Result<Heard> {
        if self.socket.is_none() && self.audit_log.is_none() {
            return Ok(Heard::none());
        }
        let mountpoint = mountpoint.to_owned();
        let within = self.audit_log.as_ref().map(|_| data_directory(backing)).transpose()?;
        let backing = File::open(backing).with_context(|| backing.display().to_string())?;
        let by_number = PathBuf::from(format!("/proc/self/fd/{}", backing.as_raw_fd()));
        let log = |line: &str| say!("entresol: {line}");
        let served = Served::new(mountpoint, by_number);
        let hints = Arc::new(Hints::new(served, Box::new(Shared(files.clone())), Box::new(log)));
        let socket = self.socket.as_ref().map(|path| HintSocket::open(path, hints.clone())).transpose()?;
        let follow = |(path, within): (&PathBuf, String)| {
            AuditFollower::start(path, within, hints.clone()).with_context(|| path.display().to_string())
        };
        let audit = self.audit_log.as_ref().zip(within).map(follow).transpose()?;
        Ok(Heard { hints: Some(hints), socket, audit, _backing: Some(backing) })
    }
}

/// Path of MariaDB's data directory, relative to the backing directory.
///
/// # Errors
/// If there is not exactly one.
fn data_directory(backing: &Path) -> Result<String> {
    let names = Names::find(backing)?;
    let found: Vec<&str> = names.troubles().filter(|(_, server, _)| *server == "InnoDB").map(|place| place.0).collect();
    ensure!(
        found.len() == 1,
        "{}: {} data directories of MariaDB here or in two directories below; an audit log is about one",
        backing.display(),
        found.len()
    );
    Ok(found[0].to_owned())
}

impl Heard {
    /// No receivers.
    pub fn none() -> Self {
        Heard { hints: None, socket: None, audit: None, _backing: None }
    }

    /// Receiver of the messages about queries, if the cache has one.
    pub fn hints(&self) -> Option<Arc<Hints>> {
        self.hints.clone()
    }

    /// Stops the receivers and prints the counts of messages.
    pub fn end(self, quiet: bool) {
        // Dropping the receivers first handles the messages that were sent before.
        drop((self.socket, self.audit));
        let Some(hints) = self.hints.as_ref().filter(|_| !quiet) else { return };
        let HintCounts { begins, files_known, files_unknown, malformed, elsewhere, truncated, .. } = hints.counts();
        let wrong = malformed + elsewhere + truncated;
        say!(
            "{begins} queries began; of their files {files_known} were known and {files_unknown} not; {wrong} messages \
             could not be used, or not in full"
        );
    }
}
