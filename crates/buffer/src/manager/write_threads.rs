//! A queue of writes, made of threads, for storage that has none.

use super::io::{PageIo, PageSource, WriteQueue};
use entresol_core::{Address, ObjectId};
use entresol_disk::AlignedBytes;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Storage with threads that write to it, so that a [`TieredBuffer`](super::TieredBuffer) over it can write behind its
/// requesters' backs. At most one page per thread is written at a time.
///
/// ```
/// use entresol_device::emulated::{Mapped, Slowdown};
/// use entresol_buffer::{MemoryIo, TieredBuffer, TieredOptions, WriteThreads};
/// use entresol_policy::{Options, catalogue};
///
/// let policy = catalogue::info("multi-tier")?;
/// let nvm = Mapped::anonymous(1000 * 4096, Slowdown { read: 4.0, write: 4.0 })?;
/// let io = WriteThreads::start(MemoryIo::new(), 4)?;
/// let buffer = TieredBuffer::new(TieredOptions::new(100), policy, &Options::defaults(policy), nvm, io, None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WriteThreads<I> {
    io: Arc<I>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    tasks: Mutex<Tasks>,
    /// Signalled when a write is queued, or at the stop.
    given: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<(u64, Address, Arc<AlignedBytes>)>,
    /// Writes that a thread has taken and not ended.
    taken: usize,
    ended: VecDeque<(u64, io::Result<()>)>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().expect("nobody panics with the lock")
    }

    fn work(&self, io: &impl PageIo) {
        let mut tasks = self.lock();
        loop {
            let Some((tag, at, bytes)) = tasks.waiting.pop_front() else {
                if tasks.stop {
                    return;
                }
                tasks = self.given.wait(tasks).expect("nobody panics with the lock");
                continue;
            };
            tasks.taken += 1;
            drop(tasks);
            // A caller may wait for this write, so it must end even if the storage panics.
            let written = catch_unwind(AssertUnwindSafe(|| io.write_page(at, &bytes)));
            drop(bytes);
            tasks = self.lock();
            tasks.taken -= 1;
            tasks.ended.push_back((tag, written.unwrap_or_else(|_| Err(io::Error::other("the storage panicked")))));
            self.ended.notify_all();
        }
    }
}

impl<I: PageIo + 'static> WriteThreads<I> {
    /// Starts `threads` threads, at least one. Dropping the value ends them after their queued writes.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(io: I, threads: usize) -> io::Result<Self> {
        let mut started = WriteThreads { io: Arc::new(io), shared: Arc::new(Shared::default()), threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let (io, shared) = (started.io.clone(), started.shared.clone());
            let thread = std::thread::Builder::new().name("write-behind".to_owned());
            started.threads.push(thread.spawn(move || shared.work(&*io))?);
        }
        Ok(started)
    }
}

impl<I> WriteThreads<I> {
    /// The storage.
    pub fn io(&self) -> &I {
        &self.io
    }
}

impl<I> Drop for WriteThreads<I> {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.given.notify_all();
        for thread in self.threads.drain(..) {
            // The thread cannot panic: a panic of the storage is caught.
            let _ = thread.join();
        }
    }
}

impl<I: PageIo> WriteQueue for WriteThreads<I> {
    fn start(&self, tag: u64, at: Address, bytes: &Arc<AlignedBytes>) -> io::Result<()> {
        self.shared.lock().waiting.push_back((tag, at, bytes.clone()));
        self.shared.given.notify_one();
        Ok(())
    }

    fn ended(&self, wait: bool) -> Option<(u64, io::Result<()>)> {
        let mut tasks = self.shared.lock();
        while wait && tasks.ended.is_empty() && tasks.waiting.len() + tasks.taken > 0 {
            tasks = self.shared.ended.wait(tasks).expect("nobody panics with the lock");
        }
        tasks.ended.pop_front()
    }
}

impl<I: PageIo> PageIo for WriteThreads<I> {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.io.read_page(at, into)
    }

    fn read_pages(&self, pages: &mut [(Address, &mut [u8])]) -> io::Result<()> {
        self.io.read_pages(pages)
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn PageSource<'a>) {
        self.io.read_queue(depth, source);
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.io.write_page(at, bytes)
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        Some(self)
    }

    fn sync(&self) -> io::Result<()> {
        self.io.sync()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.io.object_pages(object)
    }
}
