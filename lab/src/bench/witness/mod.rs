//! Witness of what a database writes and syncs, for runs whose processes are killed.
//!
//! It stands between the mount and the files, and notes each write and each sync in a journal that outlives a kill. The
//! next process compares the pages of each file that is opened with the journal: a page must be at least as new as the
//! last write of it that a sync has covered. So a loss is found that the database does not miss, and a fault of the
//! database is told from one of the cache.

mod innodb;
mod journal;
mod volatile;

use anyhow::{Context, Result};
use entresol_files::places::Places;
use entresol_files::{AtOnce, FileData, FileId, FileLayer, OpenDirectory, Pattern, Sought};
use innodb::{Early, REDO, is_tablespace};
use journal::{Event, Journal, Known};
use rustix::fs::FallocateFlags;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use volatile::{Unsynced, Volatile};

/// Names in the directory of a run: the journal, and what was found.
const JOURNAL: &str = "witness";
const FOUND: &str = "witness.found";

/// Findings of a witness since the variant began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Pages that were compared, after all kills.
    pub compared: u64,
    /// Pages that were older than they may be.
    pub lost: Vec<String>,
    /// Checkpoints of InnoDB.
    pub checkpoints: usize,
    /// Checkpoints among them by which the database counted on pages that no sync had covered.
    pub early: Vec<String>,
    /// Checkpoints among them by which it may have counted on such pages.
    pub doubtful: Vec<String>,
}

/// Kinds of finding, by the word that its line begins with.
const COMPARED: &str = "compared ";
const LOST: &str = "lost ";
const CHECKPOINT: &str = "checkpoint ";
const EARLY: &str = "early ";
const DOUBTFUL: &str = "doubtful ";

impl Findings {
    /// Findings in the directory of a run; empty without a witness.
    pub fn read(run: &Path) -> Self {
        let text = fs::read_to_string(run.join(FOUND)).unwrap_or_default();
        let of = |kind: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(kind).map(str::to_owned)).collect()
        };
        let compared = of(COMPARED).iter().filter_map(|pages| pages.parse::<u64>().ok()).sum();
        Findings {
            compared,
            lost: of(LOST),
            checkpoints: of(CHECKPOINT).len(),
            early: of(EARLY),
            doubtful: of(DOUBTFUL),
        }
    }

    /// Line for the report.
    pub fn line(&self) -> String {
        let Findings { compared, lost, checkpoints, early, doubtful } = self;
        let [lost, early, doubtful] = [lost, early, doubtful].map(Vec::len);
        format!(
            "witness: {compared} pages compared after kills, {lost} older than a sync allows; {checkpoints} checkpoints of \
             InnoDB, {early} too early, {doubtful} perhaps"
        )
    }

    /// Faults of a run: losses, and beside other faults the database's own reason for them.
    pub fn explain(self, faults: &mut Vec<String>) {
        faults.extend(self.lost);
        if !faults.is_empty() {
            faults.extend(self.early.into_iter().chain(self.doubtful));
        }
    }
}

/// Removes what a witness of the run before has left.
pub fn clear(run: &Path) -> Result<()> {
    for name in [JOURNAL, FOUND] {
        match fs::remove_file(run.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context(name),
            _ => {}
        }
    }
    Ok(())
}

/// The files of a layer under a witness.
pub struct Witness {
    layer: Arc<dyn FileLayer>,
    not_kept: Vec<Pattern>,
    notes: Arc<Notes>,
    /// Files that former processes wrote, by inode, until they are opened.
    known: Mutex<HashMap<u64, Known>>,
    /// Time of a write and of a sync of a tablespace, where tablespaces have a volatile write cache.
    takes: Option<Duration>,
    /// Their writes, by inode.
    unsynced: Mutex<HashMap<u64, Arc<Unsynced>>>,
}

/// Notes of the running process.
struct Notes {
    page_bytes: u64,
    journal: Journal,
    innodb: innodb::State,
    found: PathBuf,
    /// True if everything is to stand still at a checkpoint that is too early, so that a kill meets just that.
    halts: bool,
    halted: AtomicBool,
}

impl Notes {
    /// Forgets the pages of a file from one on.
    fn forget(&self, inode: u64, from: u64) {
        self.journal.note(&[Event::Forgotten.at(inode, from, 0, 0)]);
        self.innodb.forget(inode, from);
    }

    /// Notes the checkpoints that a write to the redo log has made. Returns true if one of them is too early, or may be.
    fn checkpoints(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let mut early = false;
        for lsn in innodb::checkpoints(offset, bytes) {
            self.find(CHECKPOINT, &lsn.to_string())?;
            let Some(fault) = self.innodb.fault(lsn) else { continue };
            early = true;
            match fault {
                Early::Certainly(why) => self.find(EARLY, &why)?,
                Early::Perhaps(why) => self.find(DOUBTFUL, &why)?,
            }
        }
        Ok(early)
    }

    /// Waits for the end of the process, once all is to stand still.
    fn wait_if_halted(&self) {
        while self.halted.load(SeqCst) {
            std::thread::park();
        }
    }

    fn find(&self, kind: &str, what: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.found)?;
        file.write_all(format!("{kind}{what}\n").as_bytes())
    }
}

impl Witness {
    /// Begins the journal of a process in the directory `run`. Files that match `not_kept` have no witness.
    ///
    /// With `takes` tablespaces of InnoDB have a volatile write cache, and a write and a sync take that long; at the first
    /// checkpoint that counts on pages which no sync has covered, everything stands still until the process is killed.
    pub fn begin(
        layer: Arc<dyn FileLayer>,
        run: &Path,
        page_bytes: u32,
        not_kept: Vec<Pattern>,
        takes: Option<Duration>,
    ) -> Result<Self> {
        let (journal, known) = Journal::begin(&run.join(JOURNAL)).context("the witness's journal")?;
        let (innodb, found) = (innodb::State::default(), run.join(FOUND));
        let (halts, halted) = (takes.is_some(), AtomicBool::new(false));
        let notes = Arc::new(Notes { page_bytes: page_bytes.into(), journal, innodb, found, halts, halted });
        Ok(Witness { layer, not_kept, notes, known: Mutex::new(known), takes, unsynced: Mutex::default() })
    }

    /// The file with a volatile write cache, if it is to have one.
    fn in_cache(&self, name: &str, inode: u64, data: Arc<dyn FileData>) -> Arc<dyn FileData> {
        let Some(takes) = self.takes.filter(|_| is_tablespace(name)) else { return data };
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let unsynced = unsynced.entry(inode).or_default().clone();
        Arc::new(Volatile { data, unsynced, takes })
    }

    /// Compares the pages of a file with what former processes noted.
    fn compare(&self, name: &str, inode: u64, data: &dyn FileData) -> io::Result<()> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&inode);
        let (mut bytes, mut compared) = (vec![0; self.notes.page_bytes as usize], 0);
        for (page, versions) in known.iter().flat_map(Known::covered) {
            let count = data.read(page * self.notes.page_bytes, &mut bytes)?;
            let found = if count == bytes.len() { journal::hash(&bytes) } else { journal::UNKNOWN };
            compared += 1;
            if let Some(why) = versions.fault(found) {
                self.notes.find(LOST, &format!("{name}, page {page}: {why}"))?;
            }
        }
        if compared > 0 { self.notes.find(COMPARED, &compared.to_string()) } else { Ok(()) }
    }
}

impl FileLayer for Witness {
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let data = self.layer.open(id, file, writable)?;
        let (inode, notes) = (id.inode, self.notes.clone());
        if name == REDO {
            return Ok(Arc::new(Observed { data, inode, name, kind: Kind::Redo, notes }));
        }
        if self.not_kept.iter().any(|pattern| pattern.matches(&name)) {
            return Ok(data);
        }
        self.compare(&name, inode, &*data)?;
        let data = self.in_cache(&name, inode, data);
        Ok(Arc::new(Observed { data, inode, name, kind: Kind::Pages, notes }))
    }

    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()> {
        self.layer.leaving(id, directory)
    }

    fn stays(&self, id: FileId) {
        self.layer.stays(id);
    }

    fn replacing(&self, id: FileId) -> io::Result<()> {
        self.layer.replacing(id)
    }

    fn changing(&self, id: FileId) -> Option<Box<dyn Send>> {
        self.layer.changing(id)
    }

    fn when_stale(&self, tell: Box<dyn Fn(u64) + Send + Sync>) {
        self.layer.when_stale(tell);
    }

    fn removed(&self, id: FileId) {
        self.notes.forget(id.inode, 0);
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.inode);
        self.layer.removed(id);
    }

    fn changing_rights(&self, id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.layer.changing_rights(id, act)
    }

    fn while_still(&self, id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.layer.while_still(id, act)
    }

    fn places(&self) -> Option<Arc<Places>> {
        self.layer.places()
    }
}

/// Kinds of file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Pages, whose writes and syncs are noted.
    Pages,
    /// InnoDB's redo log, whose checkpoints are noted.
    Redo,
}

/// A file under the witness.
struct Observed {
    data: Arc<dyn FileData>,
    inode: u64,
    name: String,
    kind: Kind,
    notes: Arc<Notes>,
}

impl Observed {
    fn write_redo(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let early = self.notes.checkpoints(offset, bytes)?;
        self.data.write(offset, bytes)?;
        if early && self.notes.halts {
            self.data.sync(true)?;
            self.notes.halted.store(true, SeqCst);
            self.notes.wait_if_halted();
        }
        Ok(())
    }

    fn write_pages(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (notes, number) = (&*self.notes, self.notes.journal.number());
        let pages = journal::pages(notes.page_bytes, offset, bytes);
        let all = |event: Event| -> Vec<_> {
            pages.iter().map(|&(page, hash)| event.at(self.inode, page, hash, number)).collect()
        };
        notes.journal.note(&all(Event::WriteBegins));
        self.data.write(offset, bytes)?;
        // A sync that begins after this number covers the write, whenever the journal has its answer.
        let answered = notes.journal.number();
        notes.journal.note(&all(Event::WriteAnswered));
        notes.innodb.written(&self.name, self.inode, (notes.page_bytes, offset), bytes, answered);
        Ok(())
    }
}

impl FileData for Observed {
    fn size_bytes(&self) -> io::Result<u64> {
        self.data.size_bytes()
    }

    fn settle(&self) -> io::Result<()> {
        self.data.settle()
    }

    fn look(&self) -> io::Result<bool> {
        self.data.look()
    }

    /// None: each request must pass here.
    fn below(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        self.data.read_now(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.data.read(offset, bytes)
    }

    /// Nothing, so that each write is one call.
    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.notes.wait_if_halted();
        match self.kind {
            Kind::Redo => self.write_redo(offset, bytes),
            Kind::Pages => self.write_pages(offset, bytes),
        }
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.notes.wait_if_halted();
        if self.kind == Kind::Redo {
            return self.data.sync(data_only);
        }
        let number = self.notes.journal.number();
        self.notes.journal.note(&[Event::SyncBegins.at(self.inode, 0, 0, number)]);
        self.data.sync(data_only)?;
        self.notes.journal.note(&[Event::SyncAnswered.at(self.inode, 0, 0, number)]);
        self.notes.innodb.synced(self.inode, number);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        if self.kind == Kind::Pages {
            self.notes.forget(self.inode, bytes / self.notes.page_bytes);
        }
        self.data.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        if self.kind == Kind::Pages && how != FallocateFlags::empty() && how != FallocateFlags::KEEP_SIZE {
            self.notes.forget(self.inode, 0);
        }
        self.data.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.data.seek(sought, offset)
    }
}
