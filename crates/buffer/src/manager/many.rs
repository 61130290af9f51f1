//! Many pages at once: pinned together, or looked at one by one while the next ones are being read.

use super::io::{PageSource, QueuedPage};
use super::miss::Loading;
use super::{BufferError, BufferManager, PageIo, PinGuard};
use crate::table::{PageTable, TableKey};
use entresol_core::{Address, Op};
use std::io;

/// Hits looked at in a row while reads are under way. The limit bounds the wait of threads that need those pages.
const HITS_IN_A_ROW: usize = 64;

/// Result of the first look at one page of several.
enum Started {
    Pinned(u32),
    Loading(Loading),
    /// Another thread owns the page: it is waited for later.
    Busy,
}

impl<T: PageTable, I: PageIo> BufferManager<T, I> {
    /// Pins several pages, in the given order, as [`pin`](BufferManager::pin) pins one. Absent pages are read together,
    /// which keeps a deep queue of a device busy ([`PageIo::read_pages`]). The policy is asked for absent pages last.
    ///
    /// ```
    /// # use entresol_core::{Address, ObjectId};
    /// # use entresol_buffer::{BufferManager, BufferOptions, MemoryIo};
    /// # use entresol_policy::{Options, catalogue};
    /// # let policy = catalogue::info("lru")?;
    /// # let io = MemoryIo::new();
    /// # let manager = BufferManager::hashed(BufferOptions::new(100), policy, &Options::defaults(policy), io, None)?;
    /// let leaves: Vec<Address> = (0..32).map(|block| Address { object: ObjectId(0), block }).collect();
    /// let pages = manager.pin_many(&leaves)?;
    /// assert!(pages.iter().all(|page| page.len() == 4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](BufferManager::read), of any of the pages; then none is pinned.
    /// [`BufferError::Exhausted`] when there are fewer free frames than pages.
    pub fn pin_many(&self, pages: &[Address]) -> Result<Vec<PinGuard<'_, T, I>>, BufferError> {
        let keys = pages.iter().map(|&at| self.key(at)).collect::<Result<Vec<_>, _>>()?;
        let mut guards: Vec<Option<PinGuard<'_, T, I>>> = keys.iter().map(|_| None).collect();
        let (mut begun, mut positions) = (Vec::new(), Vec::new());
        let mut result = Ok(());
        // Present pages first, so that freeing frames for the others does not evict them. While pages are begun this
        // thread waits for no page of another thread: that thread might wait for one of these.
        for present in [true, false] {
            for (position, &key) in keys.iter().enumerate() {
                if guards[position].is_some() || result.is_err() || (present && self.lookup(key).is_none()) {
                    continue;
                }
                match self.pin_or_begin(key) {
                    Ok(Started::Pinned(frame)) => {
                        guards[position] = Some(PinGuard { manager: self, frame, passing: false });
                    }
                    Ok(Started::Loading(loading)) => {
                        begun.push(loading);
                        positions.push(position);
                    }
                    Ok(Started::Busy) => {}
                    Err(error) => result = Err(error),
                }
            }
        }
        for (position, loaded) in positions.into_iter().zip(self.end_reads(&begun)) {
            match loaded {
                Ok((frame, passing)) => guards[position] = Some(PinGuard { manager: self, frame, passing }),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result?;
        guards.into_iter().zip(pages).map(|(guard, &at)| guard.map_or_else(|| self.pin(at), Ok)).collect()
    }

    /// Looks at many pages in any order, each pinned meanwhile. Absent pages are read with `depth` reads under way, and
    /// another begins as soon as one has ended ([`PageIo::read_queue`]). Needs frames for at most `depth` pages, and
    /// goes on with fewer. A page that is named twice is looked at twice.
    ///
    /// `look` must not ask this manager for pages: it could wait for a thread that waits for a read under way here.
    ///
    /// ```
    /// # use entresol_core::{Address, ObjectId};
    /// # use entresol_buffer::{BufferManager, BufferOptions, MemoryIo};
    /// # use entresol_policy::{Options, catalogue};
    /// # let policy = catalogue::info("lru")?;
    /// # let io = MemoryIo::new();
    /// # let manager = BufferManager::hashed(BufferOptions::new(100), policy, &Options::defaults(policy), io, None)?;
    /// let mut zeroes = 0;
    /// let leaves = (0..5000).map(|block| Address { object: ObjectId(0), block });
    /// manager.read_many(leaves, 32, |_, page| zeroes += usize::from(page[0] == 0))?;
    /// assert_eq!(zeroes, 5000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](BufferManager::read), the first one; pages that were not begun by then are not looked at.
    pub fn read_many(
        &self,
        pages: impl IntoIterator<Item = Address>,
        depth: usize,
        look: impl FnMut(Address, &[u8]),
    ) -> Result<(), BufferError> {
        let mut reading = Reading {
            manager: self,
            pages: pages.into_iter().fuse(),
            look,
            begun: Vec::new(),
            free: Vec::new(),
            put_off: None,
            later: Vec::new(),
            result: Ok(()),
        };
        self.io.read_queue(depth, &mut reading);
        assert_eq!(reading.under_way(), 0, "the storage gives back every read that it was given");
        // No read is under way now, so pages that another thread owns can be waited for.
        for at in std::mem::take(&mut reading.later) {
            if reading.result.is_ok() {
                reading.result = self.pin(at).map(|page| (reading.look)(at, &page));
            }
        }
        std::mem::replace(&mut reading.result, Ok(()))
    }

    /// Pins a page if that needs no wait, or begins to load it.
    fn pin_or_begin(&self, key: TableKey) -> Result<Started, BufferError> {
        loop {
            let Some(number) = self.lookup(key) else {
                match self.begin_miss(key, Op::Read)? {
                    Some(loading) => return Ok(Started::Loading(loading)),
                    None => continue,
                }
            };
            let frame = &self.frames[number as usize];
            if !frame.word.try_pin() {
                return Ok(Started::Busy);
            }
            if frame.key() == key.0 {
                self.hit(number, frame.handle(), Op::Read);
                return Ok(Started::Pinned(number));
            }
            self.parking.wake(number, frame.word.unpin());
        }
    }
}

/// Pages being read, for one caller of [`BufferManager::read_many`].
struct Reading<'m, T: PageTable, I: PageIo, P, F> {
    manager: &'m BufferManager<T, I>,
    pages: P,
    look: F,
    /// By token.
    begun: Vec<Option<Loading>>,
    free: Vec<usize>,
    /// A page that found no frame, though one will come free.
    put_off: Option<Address>,
    /// Pages that another thread owned.
    later: Vec<Address>,
    result: Result<(), BufferError>,
}

impl<T: PageTable, I: PageIo, P, F> Reading<'_, T, I, P, F> {
    fn under_way(&self) -> usize {
        self.begun.len() - self.free.len()
    }

    fn keep(&mut self, loading: Loading) -> usize {
        let token = self.free.pop().unwrap_or_else(|| {
            self.begun.push(None);
            self.begun.len() - 1
        });
        self.begun[token] = Some(loading);
        token
    }

    fn take(&mut self, token: usize) -> Loading {
        self.free.push(token);
        self.begun[token].take().expect("what ends was begun")
    }
}

impl<'m, T: PageTable, I: PageIo, P, F> PageSource<'m> for Reading<'m, T, I, P, F>
where
    P: Iterator<Item = Address>,
    F: FnMut(Address, &[u8]),
{
    fn next(&mut self) -> Option<QueuedPage<'m>> {
        let mut hits = 0;
        while self.result.is_ok() && (hits < HITS_IN_A_ROW || self.under_way() == 0) {
            let at = self.put_off.take().or_else(|| self.pages.next())?;
            match self.manager.key(at).and_then(|key| self.manager.pin_or_begin(key)) {
                Ok(Started::Pinned(frame)) => {
                    let page = PinGuard { manager: self.manager, frame, passing: false };
                    (self.look)(at, &page);
                    hits += 1;
                }
                Ok(Started::Loading(loading)) => {
                    // SAFETY: the load was begun a line ago, and the memory is lent out until the read has ended.
                    let bytes = unsafe { self.manager.loading_bytes(&loading) };
                    return Some(QueuedPage { token: self.keep(loading), at, bytes });
                }
                Ok(Started::Busy) => self.later.push(at),
                Err(BufferError::Exhausted { .. }) if self.under_way() > 0 => {
                    self.put_off = Some(at);
                    return None;
                }
                Err(error) => self.result = Err(error),
            }
        }
        None
    }

    fn ended(&mut self, page: QueuedPage<'m>, result: io::Result<()>) {
        let QueuedPage { token, at, .. } = page;
        let loading = self.take(token);
        match self.manager.end_queued(&loading, at, result) {
            Ok(()) => {
                let page = PinGuard { manager: self.manager, frame: loading.number, passing: loading.passing };
                (self.look)(at, &page);
            }
            Err(error) => {
                if self.result.is_ok() {
                    self.result = Err(error);
                }
            }
        }
    }
}

/// After a panic of `look` or the storage, gives up the begun loads; threads that wait for those pages ask again.
impl<T: PageTable, I: PageIo, P, F> Drop for Reading<'_, T, I, P, F> {
    fn drop(&mut self) {
        for loading in self.begun.iter().flatten() {
            self.manager.give_up(loading);
        }
    }
}
