//! Doubt after a server was killed: what it had answered may be lost. The first sync of every file, or of every
//! connection to a block, then fails once, so that a database recovers from its own log.

use super::holder::{ARENA, Holder, STATES};
use super::opening::Opening;
use anyhow::{Context, Result};
use entresol_cache::{Block, CacheError};
use entresol_files::{AtOnce, FileData, FileId, FileLayer, Sought};
use entresol_store::Geometry;
use entresol_store::arena::{Arena, ArenaError};
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Name under which a holder keeps it.
const NAME: &str = "cache.doubt";

/// Name under which a holder keeps that a server has had an arena.
const HAD_ARENA: &str = "cache.had-arena";

/// Time after which a new connection is no longer taken for one of a client that was connected to the killed server.
const RECONNECTS_MAX: Duration = Duration::from_secs(3600);

/// Margin between the clock and the times that a file system gives to new files.
const CLOCK_SLACK: Duration = Duration::from_secs(1);

/// Doubt whether all is there that a killed server had answered.
pub struct Doubt {
    noted: Mutex<Noted>,
    /// Has what is noted outlive this process.
    keep: Box<dyn Fn(&Noted) + Send + Sync>,
    /// Files whose sync has failed once, and was not repeated yet.
    failed: Mutex<BTreeSet<(u64, u64)>>,
    syncs_failed: AtomicU64,
}

/// The part of it that outlives this server.
#[derive(Clone, Serialize, Deserialize)]
struct Noted {
    why: String,
    since: SystemTime,
    /// Device and inode of each file whose sync has failed, and was repeated.
    files: BTreeSet<(u64, u64)>,
    /// True once a flush of a block has failed, and was repeated.
    is_reported: bool,
}

impl Noted {
    fn begin(why: &str) -> Self {
        Noted { why: why.to_owned(), since: SystemTime::now(), files: BTreeSet::new(), is_reported: false }
    }
}

/// Figures of a doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoubtFigures {
    /// The reason, in words.
    pub why: String,
    /// Syncs that this server has had fail for it.
    pub syncs_failed: u64,
}

impl Doubt {
    /// The doubt that this server or a former one has noted with its holder.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn left(holder: Option<&Holder>) -> Result<Option<Arc<Self>>> {
        let Some(holder) = holder.cloned() else { return Ok(None) };
        let noted = holder.value(NAME)?;
        // Without the note a sync fails once more after the next kill.
        let keep = move |noted: &Noted| drop(holder.keep_value(NAME, noted));
        Ok(noted.map(|noted| Doubt::new(noted, keep)))
    }

    fn new(noted: Noted, keep: impl Fn(&Noted) + Send + Sync + 'static) -> Arc<Self> {
        let (noted, keep, failed) = (Mutex::new(noted), Box::new(keep), Mutex::default());
        Arc::new(Doubt { noted, keep, failed, syncs_failed: AtomicU64::new(0) })
    }

    /// Begins a doubt, in place of an earlier one. It outlives this process once this returns.
    fn begin(holder: &Holder, why: &str) -> io::Result<()> {
        holder.keep_value(NAME, &Noted::begin(why))
    }

    fn noted<T>(&self, of: impl FnOnce(&mut Noted) -> T) -> T {
        of(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The reason, in words.
    pub(crate) fn why(&self) -> String {
        self.noted(|noted| noted.why.clone())
    }

    pub(crate) fn figures(&self) -> DoubtFigures {
        DoubtFigures { why: self.why(), syncs_failed: self.syncs_failed.load(Relaxed) }
    }

    fn error(&self) -> io::Error {
        self.syncs_failed.fetch_add(1, Relaxed);
        io::Error::from(rustix::io::Errno::IO)
    }

    /// Fails if it is the first sync of a file. That the file's sync has failed is noted at the next one: this process
    /// may be killed before its caller gets the error.
    fn first_of(&self, id: FileId) -> io::Result<()> {
        let file = (id.device, id.inode);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.remove(&file) {
            self.note(|noted| {
                noted.files.insert(file);
            });
        } else if self.noted(|noted| !noted.files.contains(&file)) {
            failed.insert(file);
            return Err(self.error());
        }
        Ok(())
    }

    /// Changes what outlives this process.
    fn note(&self, change: impl FnOnce(&mut Noted)) {
        self.noted(|noted| {
            change(noted);
            (self.keep)(noted);
        });
    }

    /// True if the file has been made since: nothing of it can be lost.
    fn is_newer(&self, file: &File) -> bool {
        let made = file.metadata().and_then(|found| found.created());
        made.is_ok_and(|made| made > self.noted(|noted| noted.since) + CLOCK_SLACK)
    }

    /// True if nobody has been told yet.
    pub(crate) fn is_unreported(&self) -> bool {
        self.noted(|noted| !noted.is_reported)
    }

    /// Notes that all users have been told.
    pub(crate) fn reported(&self) {
        self.note(|noted| noted.is_reported = true);
    }

    /// True if a client that connects now may have been a client of the killed server.
    fn concerns_new_clients(&self) -> bool {
        let (since, is_reported) = self.noted(|noted| (noted.since, noted.is_reported));
        // A clock that was put back tells nothing.
        !is_reported || !since.elapsed().is_ok_and(|since| since >= RECONNECTS_MAX)
    }
}

/// The arena that a former server left, or a new one for a store of this geometry, which is kept from now on.
pub(crate) fn arena(holder: &Holder, geometry: &Geometry) -> Result<Arc<Arena>> {
    if let Some(file) = holder.left(ARENA)? {
        let arena = Arena::open(File::from(file)).map_err(CacheError::from)?;
        if arena.was_incomplete() && !arena.is_new() {
            Doubt::begin(holder, "memory for answered writes was not to be had")?;
        }
        return Ok(arena);
    }
    // A second attempt of the first server to open a cache finds the arena of the first attempt, which served nobody.
    if !holder.is_first() && holder.value(HAD_ARENA)? == Some(true) {
        Doubt::begin(holder, "the memory that the former server left is gone")?;
    }
    let made = Arena::anonymous(geometry.page_bytes as usize, geometry.batch_blocks());
    let arena = made.map_err(CacheError::from)?;
    holder.keep(ARENA, arena.file())?;
    holder.keep_value(HAD_ARENA, &true)?;
    Ok(arena)
}

/// Name under which a holder keeps a descriptor of the backing store, open since before the first server used that.
const WITNESS: &str = "cache.backing";

/// Settles a failed sync of a killed server, or one of which nobody knows how it ended, by a sync of the backing store.
///
/// A failed sync of a file tells each of its descriptors once, and leaves its pages as if they were written: a later
/// sync by a new descriptor may find nothing. So the sync goes by a descriptor that is older than the first write, and
/// that nothing else is done with: it tells of every page that the kernel could not write since. A failed flush of a
/// device is told to nobody else, but loses nothing: the next one that succeeds covers all that the device had
/// answered.
pub(crate) fn settle_syncs(holder: &Holder, backing: &Path, arena: &Arena) -> Result<()> {
    match holder.left(WITNESS)? {
        Some(witness) => arena.settle_syncs(|| File::from(witness).sync_all()),
        // One that is opened later may not be told.
        None if arena.is_new() => {
            holder.keep(WITNESS, File::open(backing).with_context(|| backing.display().to_string())?)?;
        }
        None => {}
    }
    Ok(())
}

/// As [`settle_syncs`], by a sync of the directory's file system: the directory is held since before the first write.
pub(crate) fn settle_syncs_of_files(holder: &Holder, directory: &Path, arena: &Arena) -> Result<()> {
    let held = holder.directory(directory)?;
    arena.settle_syncs(|| Ok(rustix::fs::syncfs(held)?));
    Ok(())
}

/// Opens a cache. If the memory that the former server left cannot be used, it is opened with new memory, in doubt.
pub(crate) fn past_unusable<T>(holder: Option<&Holder>, open: impl Fn() -> Result<T>) -> Result<T> {
    let opened = open();
    let unusable = opened.as_ref().err().and_then(|error| {
        error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(CacheError::Arena(ArenaError::Unusable(why))) => Some(*why),
            _ => None,
        })
    });
    match (unusable, holder) {
        (Some(why), Some(holder)) => {
            Doubt::begin(holder, &format!("the memory that the former server left cannot be used: {why}"))?;
            forget_arena(holder)?;
            open()
        }
        _ => opened,
    }
}

/// Begins a doubt if the cache is bypassed, and a former server left memory of it.
pub(crate) fn bypassed(holder: Option<&Holder>) -> Result<()> {
    if let Some(holder) = holder
        && holder.left(ARENA)?.is_some()
    {
        Doubt::begin(holder, "the cache is bypassed")?;
        forget_arena(holder)?;
    }
    Ok(())
}

fn forget_arena(holder: &Holder) -> io::Result<()> {
    // The states of files belong to the arena.
    [HAD_ARENA, STATES, ARENA].iter().try_for_each(|name| holder.forget(name))
}

/// A block, with the doubt that there is about it.
pub fn block(block: Arc<dyn Block>, doubt: Option<Arc<Doubt>>) -> Arc<dyn Block> {
    match doubt {
        Some(doubt) => Arc::new(DoubtedBlock { block, doubt, flushes: AtomicU64::new(2) }),
        None => block,
    }
}

/// Files, with the doubt that there is about them. It is not about files that bypass the cache, if there is one.
pub fn files(layer: Arc<dyn FileLayer>, doubt: Option<Arc<Doubt>>, is_cached: bool) -> Arc<dyn FileLayer> {
    let Some(doubt) = doubt else { return layer };
    Opening::over(layer, move |layer, id, file, writable| {
        let is_newer = doubt.is_newer(&file);
        let data = layer.open(id, file, writable)?;
        if is_newer || (is_cached && data.below().is_some()) {
            return Ok(data);
        }
        Ok(Arc::new(DoubtedFile { data, id, doubt: Arc::clone(&doubt) }))
    })
}

/// A block whose first flush by each client fails.
struct DoubtedBlock {
    block: Arc<dyn Block>,
    doubt: Arc<Doubt>,
    /// Flushes of the client. The first one fails, the second notes that. A user who is no client begins at the third.
    flushes: AtomicU64,
}

impl Block for DoubtedBlock {
    fn size_bytes(&self) -> u64 {
        self.block.size_bytes()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.block.read(offset, bytes)
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        self.block.read_now(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.block.write(offset, bytes, fua)
    }

    fn flush(&self) -> io::Result<()> {
        let flushed = self.block.flush();
        match self.flushes.fetch_add(1, Relaxed) {
            0 => return Err(self.doubt.error()),
            1 => self.doubt.reported(),
            _ => {}
        }
        flushed
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.block.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.block.write_zeroes(offset, bytes)
    }

    fn for_client(&self) -> Option<Arc<dyn Block>> {
        let flushes = AtomicU64::new(if self.doubt.concerns_new_clients() { 0 } else { 2 });
        Some(Arc::new(DoubtedBlock { block: Arc::clone(&self.block), doubt: Arc::clone(&self.doubt), flushes }))
    }
}

struct DoubtedFile {
    data: Arc<dyn FileData>,
    id: FileId,
    doubt: Arc<Doubt>,
}

impl FileData for DoubtedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.data.size_bytes()
    }

    fn settle(&self) -> io::Result<()> {
        self.data.settle()
    }

    fn look(&self) -> io::Result<bool> {
        self.data.look()
    }

    fn below(&self) -> Option<BorrowedFd<'_>> {
        self.data.below()
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        self.data.read_now(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.data.read(offset, bytes)
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.data.write_now(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.data.write(offset, bytes)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        let synced = self.data.sync(data_only);
        self.doubt.first_of(self.id).and(synced)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.data.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.data.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.data.seek(sought, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_cache::FileBlock;
    use entresol_files::DirectFiles;
    use std::fs;

    /// A doubt that began some time ago, and what it has kept last.
    fn doubt(noted: Noted) -> (Arc<Doubt>, Arc<Mutex<Option<Noted>>>) {
        let kept = Arc::<Mutex<Option<Noted>>>::default();
        let into = Arc::clone(&kept);
        (Doubt::new(noted, move |noted| *into.lock().expect("no panic") = Some(noted.clone())), kept)
    }

    fn begun(ago: Duration) -> Noted {
        Noted { since: SystemTime::now() - ago, ..Noted::begin("a test") }
    }

    fn open(layer: &dyn FileLayer, path: &Path) -> Arc<dyn FileData> {
        let file = File::options().read(true).write(true).open(path).expect("a file");
        let found = rustix::fs::fstat(&file).expect("a file");
        let id = FileId { device: found.st_dev, inode: found.st_ino };
        layer.open(id, file, true).expect("it can be opened")
    }

    fn is_eio(synced: io::Result<()>) -> bool {
        let error = synced.err().map(|error| error.raw_os_error());
        assert!(error.is_none() || error == Some(Some(rustix::io::Errno::IO.raw_os_error())), "{error:?}");
        error.is_some()
    }

    #[test]
    fn the_first_sync_of_each_file_fails_through_whichever_descriptor_and_no_other() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [one, two, new] = ["one", "two", "new"].map(|name| scratch.path().join(name));
        [&one, &two].iter().for_each(|path| fs::write(path, "x").expect("a file"));
        // File systems may give a new file the time of their last tick.
        std::thread::sleep(Duration::from_millis(20));
        let (doubt, kept) = doubt(Noted { since: SystemTime::now() - CLOCK_SLACK, ..Noted::begin("a test") });
        std::thread::sleep(Duration::from_millis(20));
        let layer = files(Arc::new(DirectFiles), Some(Arc::clone(&doubt)), false);
        let [first, second] = [&one, &one].map(|path| open(&*layer, path));
        assert!(!is_eio(first.write(0, b"y")));
        assert!(is_eio(second.sync(true)) && !is_eio(first.sync(true)) && !is_eio(open(&*layer, &one).sync(false)));
        fs::write(&new, "x").expect("a file");
        assert!(!is_eio(open(&*layer, &new).sync(false)), "a file that was made since");
        let data = open(&*layer, &two);
        // A later server goes on where this one ends.
        let kept = kept.lock().expect("no panic").clone().expect("the first sync is kept");
        let later = files(Arc::new(DirectFiles), Some(Doubt::new(kept, |_| ())), false);
        assert!(!is_eio(open(&*later, &one).sync(false)) && is_eio(open(&*later, &two).sync(false)));
        assert!(is_eio(data.sync(false)), "this one does not know");
        assert_eq!(doubt.figures(), DoubtFigures { why: "a test".to_owned(), syncs_failed: 2 });
        // Files that bypass a cache are the file system's own.
        let layer = files(Arc::new(DirectFiles), Some(Doubt::new(begun(Duration::ZERO), |_| ())), true);
        assert!(!is_eio(open(&*layer, &one).sync(false)));
    }

    #[test]
    fn the_first_flush_of_each_client_fails_until_clients_are_new_ones() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(4096).expect("a size");
        let of = |doubt| {
            let file = FileBlock::open(file.path(), false).expect("a file");
            block(Arc::new(file), Some(doubt))
        };
        let client = |block: &Arc<dyn Block>| block.for_client().expect("clients differ");
        let served = of(Doubt::new(begun(Duration::ZERO), |_| ()));
        assert!(!is_eio(served.flush()), "the end of the server is no client");
        for _ in 0..2 {
            let one = client(&served);
            assert!(!is_eio(one.write(0, b"x", true)));
            assert!(is_eio(one.flush()) && !is_eio(one.flush()));
        }
        drop(served);
        let (doubt, kept) = doubt(begun(2 * RECONNECTS_MAX));
        let served = of(doubt);
        // Nobody was told in all that time.
        let clients = [client(&served), client(&served)];
        assert!(clients.iter().all(|client| is_eio(client.flush())));
        assert!(is_eio(client(&served).flush()), "nobody may have got the answer");
        assert!(!is_eio(clients[0].flush()));
        assert!(!is_eio(client(&served).flush()), "it was never connected to the killed server");
        drop((served, clients));
        let kept = kept.lock().expect("no panic").clone().expect("the first flush is kept");
        assert!(!is_eio(client(&of(Doubt::new(kept, |_| ()))).flush()));
    }
}
