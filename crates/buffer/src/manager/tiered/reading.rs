//! Reads from storage before the policy is asked, without the buffer's lock: requesters that miss wait side by side,
//! and hits go on meanwhile.
//!
//! A request's reads from storage are known beforehand. It needs its own page, if no tier, no write under way and no
//! failed write has the newest version. The first request for a page reads it. Later requests for it wait, including
//! those that write it whole. So no request changes a page while it is read. The page is in no tier and not changed, so
//! nothing writes it to storage either. Then the policy decides, and its fetch finds the page in memory.

use super::executor::TieredExecutor;
use super::{State, TieredBuffer};
use crate::frame::Key;
use crate::manager::{BufferError, PageIo};
use crate::sync::MutexGuard;
use entresol_core::{Address, Op, Page};
use entresol_device::emulated::Clock as DeviceClock;
use entresol_disk::AlignedBytes;
use std::collections::HashMap;
use std::io;

/// A page that is being read, or was read and not used.
enum Coming {
    /// The read is under way.
    UnderWay,
    /// The read has ended, with the page or an error, and no request has used the result yet.
    Here(io::Result<AlignedBytes>),
}

/// Pages that are being read, and memory for more.
#[derive(Default)]
pub(super) struct Ahead {
    pages: HashMap<Key, Coming>,
    spare: Vec<AlignedBytes>,
    /// Requesters that wait for one of the pages.
    waiting: usize,
}

/// Work before a request can be decided on.
enum Before {
    /// Nothing. Holds the page's handle, if it has one.
    Nothing(Option<Page>),
    Read,
    Wait,
}

/// Work before a request is made ([`TieredBuffer::prepare`]).
pub enum Prepared<'a, I: PageIo, C: DeviceClock> {
    /// Nothing: the request waits for no read.
    Ready,
    /// The page must be read from storage.
    Read(PageRead<'a, I, C>),
    /// Another caller reads the page: ask again when that read has ended.
    UnderWay,
}

/// A page that the caller reads from storage for a request. Other requests for the page wait until the page
/// [has arrived](PageRead::arrived) or the value is dropped.
#[must_use]
pub struct PageRead<'a, I: PageIo, C: DeviceClock> {
    buffer: &'a TieredBuffer<I, C>,
    key: Key,
}

impl<I: PageIo, C: DeviceClock> TieredExecutor<I, C> {
    fn before(&mut self, key: Key, op: Op) -> Before {
        let handle = self.directory.find(key);
        match self.ahead.pages.get(&key) {
            Some(Coming::UnderWay) => return Before::Wait,
            Some(Coming::Here(_)) => return Before::Nothing(handle),
            None => {}
        }
        let reads = op != Op::Write && handle.is_none_or(|page| self.is_only_below(page));
        if reads { Before::Read } else { Before::Nothing(handle) }
    }

    /// True if only storage has the newest version of a page.
    fn is_only_below(&mut self, page: Page) -> bool {
        if self.newest_copy(page).is_some() {
            return false;
        }
        let newest = self.known[page.index()].newest;
        if self.behind.has(page, newest) {
            // A write that has ended counts as storage.
            self.end_writes();
        }
        !self.behind.has(page, newest) && !self.evicted_dirty.contains_key(&page)
    }

    /// Takes the result of a page's read, once. On `Ok` the bytes are in `whole`.
    pub fn take_read(&mut self, key: Key) -> Option<io::Result<()>> {
        if !matches!(self.ahead.pages.get(&key), Some(Coming::Here(_))) {
            return None;
        }
        let Some(Coming::Here(read)) = self.ahead.pages.remove(&key) else { unreachable!("as was just seen") };
        Some(read.map(|mut bytes| {
            std::mem::swap(&mut self.whole, &mut bytes);
            self.ahead.spare.push(bytes);
        }))
    }

    /// Discards the page's read at the end of its request, which may have changed the page.
    pub fn forget_read(&mut self, key: Key) {
        if self.ahead.pages.is_empty() {
            return;
        }
        match self.ahead.pages.remove(&key) {
            Some(Coming::Here(Ok(bytes))) => self.ahead.spare.push(bytes),
            Some(Coming::Here(Err(_))) | None => {}
            Some(Coming::UnderWay) => unreachable!("a request for a page that is being read"),
        }
    }

    /// Memory for a page to be read.
    fn spare(&mut self) -> AlignedBytes {
        self.ahead.spare.pop().unwrap_or_else(|| AlignedBytes::zeroed(self.memory.page_bytes()))
    }
}

impl<I: PageIo, C: DeviceClock> PageRead<'_, I, C> {
    /// The page.
    pub fn at(&self) -> Address {
        self.key.address()
    }

    /// Ends the read with the storage's result. The next request for the page uses it.
    ///
    /// # Panics
    /// If the number of bytes is not a page's; the read is then given up.
    pub fn arrived(self, read: io::Result<&[u8]>) {
        if let Ok(bytes) = read {
            // Before the lock is taken, which a panic would leave unusable.
            assert_eq!(bytes.len(), self.buffer.page_bytes, "bytes of a page that has arrived");
        }
        let state = &mut *self.buffer.lock();
        let read = read.map(|bytes| {
            let mut page = state.executor.spare();
            page.copy_from_slice(bytes);
            page
        });
        self.end(state, read);
    }

    fn end(self, state: &mut State<I, C>, read: io::Result<AlignedBytes>) {
        let ahead = &mut state.executor.ahead;
        ahead.pages.insert(self.key, Coming::Here(read));
        self.buffer.tell(ahead);
        std::mem::forget(self);
    }
}

impl<I: PageIo, C: DeviceClock> Drop for PageRead<'_, I, C> {
    /// Gives the read up, also after a panic of the storage. One of the waiting requests then reads the page.
    fn drop(&mut self) {
        if let Ok(mut state) = self.buffer.state.lock() {
            let ahead = &mut state.executor.ahead;
            ahead.pages.remove(&self.key);
            self.buffer.tell(ahead);
        }
    }
}

impl<I: PageIo, C: DeviceClock> TieredBuffer<I, C> {
    /// Work before a request, for a host that does not wait: once it is done, the request waits for no read. A request
    /// for a page being read waits. So a thread that holds a [`PageRead`] must end it before it makes the request.
    ///
    /// Requests of others may undo a preparation; then the request itself reads.
    ///
    /// ```
    /// # use entresol_core::{Address, ObjectId, Op};
    /// # use entresol_device::emulated::{Mapped, Slowdown};
    /// # use entresol_buffer::{MemoryIo, Prepared, TieredBuffer, TieredOptions};
    /// # use entresol_policy::{Options, catalogue};
    /// # let policy = catalogue::info("multi-tier")?;
    /// # let nvm = Mapped::anonymous(100 * 4096, Slowdown { read: 4.0, write: 4.0 })?;
    /// # let (options, io) = (TieredOptions::new(10), MemoryIo::new());
    /// # let buffer = TieredBuffer::new(options, policy, &Options::defaults(policy), nvm, io, None)?;
    /// let at = Address { object: ObjectId(0), block: 7 };
    /// if let Prepared::Read(read) = buffer.prepare(at, Op::Read)? {
    /// // Begin the read here, do other work, and when it has ended:
    ///     read.arrived(Ok(&[5; 4096]));
    /// }
    /// let mut byte = [0];
    /// buffer.read(at, 0, &mut byte)?;
    /// assert_eq!((byte, buffer.stats().page_reads), ([5], 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`] for a page that no table could hold.
    pub fn prepare(&self, at: Address, op: Op) -> Result<Prepared<'_, I, C>, BufferError> {
        let key = Key::pack(at).ok_or(BufferError::OutOfRange(at))?;
        let state = &mut *self.lock();
        Ok(match state.executor.before(key, op) {
            Before::Nothing(_) => Prepared::Ready,
            Before::Read => Prepared::Read(self.begin(state, key)),
            Before::Wait => Prepared::UnderWay,
        })
    }

    /// Reads the page of a request if necessary, or waits for the read under way. Returns the page's handle, if any.
    pub(super) fn make_ready<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<I, C>>,
        key: Key,
        op: Op,
    ) -> (MutexGuard<'a, State<I, C>>, Option<Page>) {
        loop {
            match state.executor.before(key, op) {
                Before::Nothing(handle) => return (state, handle),
                Before::Read => {
                    let (read, mut page) = (self.begin(&mut state, key), state.executor.spare());
                    drop(state);
                    let result = self.io.read_page(read.at(), &mut page);
                    state = self.lock();
                    read.end(&mut state, result.map(|()| page));
                }
                Before::Wait => {
                    state.executor.ahead.waiting += 1;
                    state = self.arrived.wait(state).expect("no policy panicked");
                    state.executor.ahead.waiting -= 1;
                }
            }
        }
    }

    fn begin(&self, state: &mut State<I, C>, key: Key) -> PageRead<'_, I, C> {
        state.executor.stats.page_reads += 1;
        state.executor.ahead.pages.insert(key, Coming::UnderWay);
        PageRead { buffer: self, key }
    }

    fn tell(&self, ahead: &Ahead) {
        if ahead.waiting > 0 {
            self.arrived.notify_all();
        }
    }
}
