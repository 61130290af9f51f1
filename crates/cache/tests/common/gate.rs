//! A gate that holds up transfers.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Gate at which transfers wait while it is shut.
#[derive(Default)]
pub struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicU64,
}

impl Gate {
    pub fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        drop(self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
        self.waiting.fetch_sub(1, SeqCst);
    }

    pub fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    /// Number of waiting transfers.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(SeqCst)
    }

    pub fn wait_for(&self, count: u64) {
        for _ in 0..10_000 {
            if self.waiting() == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{} transfers wait, not {count}", self.waiting());
    }
}
