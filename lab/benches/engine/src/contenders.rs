//! The contenders: ways to read words of pages, through our buffer manager and through other libraries.

use crate::vmcache::VmCache;
use entresol_buffer::table::{HashTable, PageTable};
use entresol_buffer::{BufferManager, BufferOptions, PageIo};
use entresol_core::{Address, ObjectId, Random};
use entresol_policy::{Options, catalogue};
use quick_cache::sync::Cache;
use std::hint::black_box;
use std::io;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

/// Sums one word of each page of a list of pages and words.
type Run = Box<dyn Fn(&[(u32, u32)], Mode) -> u64>;

/// A way to read words of pages.
pub struct Contender {
    pub name: &'static str,
    pub run: Run,
}

/// Dependence of a read on the one before, which decides whether the processor may overlap them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The next page is known before this one is read: as many reads overlap as the processor allows.
    Independent,
    /// The next page is known only from this one, as in the descent of an index.
    Chained,
}

impl Contender {
    fn new(name: &'static str, read: impl Fn(u32, u32) -> u64 + 'static) -> Self {
        let run = move |reads: &[(u32, u32)], mode| match mode {
            Mode::Independent => sum::<false>(reads, &read),
            Mode::Chained => sum::<true>(reads, &read),
        };
        Contender { name, run: Box::new(run) }
    }
}

#[inline(always)]
fn sum<const CHAINED: bool>(reads: &[(u32, u32)], read: impl Fn(u32, u32) -> u64) -> u64 {
    // The compiler does not know this is zero, so each page depends on the word read before.
    let zero = if CHAINED { black_box(0) } else { 0 };
    let (mut sum, mut value) = (0u64, 0u64);
    for &(page, word) in reads {
        value = read(page ^ (value & zero) as u32, word);
        sum = sum.wrapping_add(value);
    }
    sum
}

/// Value of every word of a page.
pub fn content(page: u32) -> u64 {
    Random::mix(u64::from(page))
}

/// Storage that computes pages. With `thin`, only the first word of a page, so that a miss costs the manager's own
/// time.
pub struct MadeUp {
    thin: bool,
}

impl PageIo for MadeUp {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        let word = content(at.block as u32).to_le_bytes();
        let end = if self.thin { 8 } else { into.len() };
        into[..end].chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
        Ok(())
    }

    fn write_page(&self, _at: Address, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, _object: ObjectId) -> u64 {
        0
    }
}

fn at(page: u32) -> Address {
    Address { object: ObjectId(0), block: u64::from(page) }
}

fn word_of(page: &[u8], word: u32) -> u64 {
    u64::from_le_bytes(page[word as usize * 8..][..8].try_into().expect("eight bytes"))
}

fn optimistic<T: PageTable + 'static>(name: &'static str, manager: BufferManager<T, MadeUp>) -> Contender {
    Contender::new(name, move |page, word| {
        manager.read(at(page), |view| view.u64_at(word as usize * 8)).expect("a page")
    })
}

fn pinned<T: PageTable + 'static>(name: &'static str, manager: BufferManager<T, MadeUp>) -> Contender {
    Contender::new(name, move |page, word| word_of(&manager.pin(at(page)).expect("a page"), word))
}

/// A manager that holds all pages.
fn warm<T: PageTable>(manager: BufferManager<T, MadeUp>, pages: usize) -> BufferManager<T, MadeUp> {
    (0..pages as u32).for_each(|page| drop(manager.pin(at(page)).expect("a page")));
    if let Some(why) = manager.without_huge_pages() {
        eprintln!("entresol-bench-engine: {why}");
    }
    manager
}

fn quick_cache(pages: usize) -> Result<Contender, String> {
    // Capacity is twice the pages: its shards fill unevenly, and an evicted page would be no hit.
    let cache: Cache<u64, Arc<[u8]>> = Cache::new(2 * pages);
    for page in 0..pages as u64 {
        cache.insert(page, content(page as u32).to_le_bytes().repeat(PAGE_BYTES / 8).into());
    }
    if !(0..pages as u64).all(|page| cache.get(&page).is_some()) {
        return Err(format!("quick_cache did not keep {pages} pages"));
    }
    Ok(Contender::new("quick_cache", move |page, word| {
        word_of(&cache.get(&u64::from(page)).expect("a page that was inserted"), word)
    }))
}

/// All contenders, with as many pages resident.
pub fn all(pages: usize) -> Result<Vec<Contender>, String> {
    let floor = |huge| {
        VmCache::new(pages, PAGE_BYTES, huge, |page| content(page as u32)).map_err(|error| format!("vmcache: {error}"))
    };
    let (small, locked, huge) = (floor(false)?, floor(false)?, floor(true)?);
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let dense = |policy: &str| {
        let info = catalogue::info(policy).map_err(|e| fail(&e))?;
        BufferManager::dense(
            BufferOptions::new(pages),
            pages,
            info,
            &Options::defaults(info),
            MadeUp { thin: false },
            None,
        )
        .map_err(|e| fail(&e))
        .map(|manager| warm(manager, pages))
    };
    let hashed = |policy: &str| {
        let info = catalogue::info(policy).map_err(|e| fail(&e))?;
        BufferManager::hashed(BufferOptions::new(pages), info, &Options::defaults(info), MadeUp { thin: false }, None)
            .map_err(|e| fail(&e))
            .map(|manager| warm(manager, pages))
    };
    Ok(vec![
        Contender::new("vmcache, optimistic", move |page, word| small.read(page as usize, word as usize)),
        Contender::new("vmcache on huge pages, optimistic", move |page, word| huge.read(page as usize, word as usize)),
        Contender::new("vmcache, shared lock", move |page, word| locked.read_locked(page as usize, word as usize)),
        optimistic("array, optimistic (lru)", dense("lru")?),
        optimistic("array, optimistic (clock)", dense("clock")?),
        optimistic("hash, optimistic (lru)", hashed("lru")?),
        pinned("array, pinned (lru)", dense("lru")?),
        pinned("hash, pinned (lru)", hashed("lru")?),
        quick_cache(pages)?,
    ])
}

/// Pages that the contenders for misses are asked for; the pool has a sixteenth of them, so nearly every read misses.
pub const MISS_PAGES: usize = 1 << 16;

/// A manager with a hash table under LRU, full; with `thin` its storage computes the first word of a page alone.
pub fn manager_of(pages: usize, shards: usize, thin: bool) -> Result<BufferManager<HashTable, MadeUp>, String> {
    let lru = catalogue::info("lru").map_err(|error| error.to_string())?;
    let options = BufferOptions { shards, ..BufferOptions::new(pages) };
    BufferManager::hashed(options, lru, &Options::defaults(lru), MadeUp { thin }, None)
        .map_err(|error| error.to_string())
        .map(|manager| warm(manager, pages))
}

/// The manager on misses with clean victims, over storage that takes no time.
pub fn misses() -> Result<Vec<Contender>, String> {
    let build = |name: &'static str, policy: &str| -> Result<Contender, String> {
        let info = catalogue::info(policy).map_err(|error| error.to_string())?;
        let options = BufferOptions::new(MISS_PAGES / 16);
        let manager = BufferManager::hashed(options, info, &Options::defaults(info), MadeUp { thin: true }, None)
            .map_err(|error| error.to_string())?;
        // Only the first word is read, because the storage computes no more.
        Ok(Contender::new(name, move |page, _| manager.read(at(page), |view| view.u64_at(0)).expect("a page")))
    };
    Ok(vec![build("lru", "lru")?, build("clock", "clock")?, build("arc", "arc")?, build("s3-fifo", "s3-fifo")?])
}
