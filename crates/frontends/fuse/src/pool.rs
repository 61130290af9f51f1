//! Threads for work that may wait: a session thread that waits would hold up all other requests.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads and a queue of fixed length before them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    space: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closing: bool,
}

/// Jobs in the queue at which a further caller waits.
const JOBS_MAX: usize = 1024;

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let waited = self.work.wait_while(self.queue(), |queue| queue.jobs.is_empty() && !queue.closing);
            let Some(job) = waited.unwrap_or_else(PoisonError::into_inner).jobs.pop_front() else { return };
            self.space.notify_one();
            // A job that panics drops its reply, which reports an I/O error to the kernel. The thread goes on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    }
}

impl Pool {
    pub fn new(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), work: Condvar::new(), space: Condvar::new() });
        let mut pool = Self { shared, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let shared = pool.shared.clone();
            pool.threads.push(std::thread::Builder::new().name("fuse worker".into()).spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Queues a job for a thread; waits while the queue is full.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let waited = self.shared.space.wait_while(self.shared.queue(), |queue| queue.jobs.len() >= JOBS_MAX);
        waited.unwrap_or_else(PoisonError::into_inner).jobs.push_back(Box::new(job));
        self.shared.work.notify_one();
    }
}

impl Drop for Pool {
    /// Runs the queued jobs, then ends.
    fn drop(&mut self) {
        self.shared.queue().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A job's panic does not reach the thread.
            let _ = thread.join();
        }
    }
}
