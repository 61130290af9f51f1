//! Writing dirty pages to storage while they stay in their frames: flushes, and cleaning in the background.

use super::{BufferError, BufferManager, PageIo};
use crate::frame::{FrameState, Need};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::table::PageTable;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Wake-up of the cleaner, and the position of its search.
#[derive(Default)]
pub(super) struct Cleaning {
    /// Position, modulo the frames, at which the search for pages to clean continues.
    hand: AtomicUsize,
    /// 1 while a cleaner waits for the bell.
    idle: AtomicUsize,
    bell: Mutex<Bell>,
    rung: Condvar,
}

#[derive(Default)]
struct Bell {
    ringing: bool,
    stop: bool,
}

impl<T: PageTable, I: PageIo> BufferManager<T, I> {
    /// Writes every page that is dirty now and syncs the storage. Changes by guards dropped before this call are
    /// durable when it returns. A flush also reports errors of evictions that had no caller. It fails, too, if the sync
    /// of another flush failed meanwhile: that sync may have covered pages of this one.
    ///
    /// A thread that holds a [`WriteGuard`](super::WriteGuard) must not call `flush`: it would wait for itself.
    ///
    /// # Errors
    /// The first page that could not be written, or the sync.
    pub fn flush(&self) -> Result<(), BufferError> {
        let failed_before = self.syncs_failed.load(Ordering::SeqCst);
        let mut result = match self.unreported.lock().expect("nobody panics with the lock").take() {
            Some(error) => Err(error),
            None => Ok(()),
        };
        for number in 0..self.frames.len() as u32 {
            let cleaned = self.settle(number);
            result = result.and(cleaned);
        }
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        // One sync at a time: a system may report a failure once, and drop the pages that were to be made durable.
        let alone = self.syncing.lock().expect("nobody panics with the lock");
        let mut synced = self.io.sync();
        if synced.is_err() {
            self.syncs_failed.fetch_add(1, Ordering::SeqCst);
        } else if self.syncs_failed.load(Ordering::SeqCst) != failed_before {
            synced = Err(io::Error::other("the sync of another flush failed at the same time"));
        }
        drop(alone);
        result.and(synced.map_err(|source| self.failed(BufferError::Sync(source))))
    }

    /// Waits until no thread changes, writes or evicts the page of a frame, then writes the page if it is dirty.
    fn settle(&self, number: u32) -> Result<(), BufferError> {
        let word = &self.frames[number as usize].word;
        loop {
            let now = word.snapshot();
            match now.state() {
                FrameState::Free => return Ok(()),
                FrameState::Clean if !now.exclusive() => return Ok(()),
                FrameState::Dirty if !now.exclusive() => {
                    if self.write_back(number)? {
                        return Ok(());
                    }
                }
                // A dirty page that was here before this load has been written before it left.
                FrameState::Loading => return Ok(()),
                _ => self.parking.wait(number, word, Need::Settled),
            }
        }
    }

    /// Writes up to `pages` dirty pages that were not referenced since the last round. Returns how many were written.
    ///
    /// # Errors
    /// The first page that could not be written; it stays dirty.
    pub fn clean(&self, pages: usize) -> Result<usize, BufferError> {
        let mut cleaned = 0;
        // The first round takes the marks, the second cleans their pages.
        for _ in 0..2 * self.frames.len() {
            if cleaned == pages || self.counts.dirty.load(Ordering::Relaxed) == 0 {
                break;
            }
            let number = self.cleaning.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len();
            let word = &self.frames[number].word;
            if word.snapshot().state() == FrameState::Dirty && !word.take_referenced() {
                cleaned += usize::from(self.write_back(number as u32)?);
            }
        }
        Ok(cleaned)
    }

    /// Writes a dirty page that no thread is changing. False if the page is not dirty or is owned.
    pub(super) fn write_back(&self, number: u32) -> Result<bool, BufferError> {
        let word = &self.frames[number as usize].word;
        if !word.try_begin_write_back() {
            return Ok(false);
        }
        let written = self.write(number);
        if written.is_ok() {
            self.uncount_dirty();
        }
        self.parking.wake(number, word.end_write_back(written.is_ok()));
        written.map(|()| true)
    }

    /// Flushes the log up to the page's record, then writes the bytes of a frame in state write-back or evicting.
    pub(super) fn write(&self, number: u32) -> Result<(), BufferError> {
        let frame = &self.frames[number as usize];
        let (at, lsn) = (frame.key().address(), frame.lsn());
        if let Some(wal) = self.wal.as_deref().filter(|wal| wal.flushed_lsn() < lsn) {
            self.counts.wal_flushes.fetch_add(1, Ordering::Relaxed);
            wal.flush_until(lsn).map_err(|source| self.failed(BufferError::Wal { at, lsn, source }))?;
        }
        // SAFETY: the frame is mapped; in these states no thread can own it to change it.
        let bytes = unsafe { std::slice::from_raw_parts(self.pool.frame(number), self.pool.page_bytes()) };
        self.io.write_page(at, bytes).map_err(|source| self.failed(BufferError::Write { at, source }))?;
        self.counts.page_writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Counts an error.
    pub(super) fn failed(&self, error: BufferError) -> BufferError {
        self.counts.errors.fetch_add(1, Ordering::Relaxed);
        error
    }

    /// Keeps an error that has no caller for the next flush. The first one is kept: it is the cause.
    pub(super) fn keep_error(&self, result: Result<(), BufferError>) {
        if let Err(error) = result {
            self.unreported.lock().expect("nobody panics with the lock").get_or_insert(error);
        }
    }

    pub(super) fn count_dirty(&self) {
        let dirty = self.counts.dirty.fetch_add(1, Ordering::SeqCst) + 1;
        // Either this thread sees the cleaner idle, or the cleaner sees this page before it waits.
        if self.cleaning.idle.load(Ordering::SeqCst) == 1 && dirty > self.dirty_limit() {
            self.ring_bell(|bell| bell.ringing = true);
        }
    }

    pub(super) fn uncount_dirty(&self) {
        self.counts.dirty.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of dirty pages above which cleaning begins.
    fn dirty_limit(&self) -> usize {
        (self.options.pages as f64 * self.options.dirty_high) as usize
    }

    #[cold]
    fn ring_bell(&self, how: impl FnOnce(&mut Bell)) {
        how(&mut self.cleaning.bell.lock().expect("nobody panics with the lock"));
        self.cleaning.rung.notify_all();
    }
}

/// A thread that cleans in the background while there are too many dirty pages. Dropping the value ends the thread.
pub struct Cleaner {
    stop: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl Cleaner {
    /// Starts cleaning. One cleaner per manager is enough.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start<T, I>(manager: &Arc<BufferManager<T, I>>) -> std::io::Result<Self>
    where
        T: PageTable + 'static,
        I: PageIo + 'static,
    {
        let (cleaned, stopped) = (manager.clone(), manager.clone());
        cleaned.ring_bell(|bell| bell.stop = false);
        let thread = std::thread::Builder::new().name("cleaner".to_owned()).spawn(move || run(&cleaned))?;
        Ok(Cleaner { stop: Box::new(move || stopped.ring_bell(|bell| bell.stop = true)), thread: Some(thread) })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        (self.stop)();
        if let Some(thread) = self.thread.take() {
            // A panic of the cleaner has been printed; it holds no lock that others need.
            let _ = thread.join();
        }
    }
}

fn run<T: PageTable, I: PageIo>(manager: &BufferManager<T, I>) {
    const AT_A_TIME: usize = 32;
    // Pages that became dirty while no cleaner was idle rang no bell; this includes pages from before the start.
    let mut look = true;
    loop {
        let mut bell = manager.cleaning.bell.lock().expect("nobody panics with the lock");
        while !bell.ringing && !bell.stop {
            manager.cleaning.idle.store(1, Ordering::SeqCst);
            if std::mem::take(&mut look) && manager.counts.dirty.load(Ordering::SeqCst) > manager.dirty_limit() {
                break;
            }
            bell = manager.cleaning.rung.wait(bell).expect("nobody panics with the lock");
        }
        manager.cleaning.idle.store(0, Ordering::Relaxed);
        if bell.stop {
            return;
        }
        bell.ringing = false;
        drop(bell);
        look = true;
        while manager.counts.dirty.load(Ordering::Relaxed) > manager.dirty_limit() * 3 / 4 {
            match manager.clean(AT_A_TIME) {
                // Every dirty page is in use: the next page that becomes dirty rings again.
                Ok(0) => {
                    look = false;
                    break;
                }
                Ok(_) => {}
                Err(error) => {
                    manager.keep_error(Err(error));
                    break;
                }
            }
            if manager.cleaning.bell.lock().expect("nobody panics with the lock").stop {
                return;
            }
        }
    }
}
