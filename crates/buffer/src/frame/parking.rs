//! Buckets where threads sleep until the word of a frame changes.

use super::word::{FrameWord, Need, Wake};
use crate::sync::{Condvar, Mutex, pause};

/// Frames share buckets. With a few dozen threads a bucket is rarely used twice, and a needless wake-up costs only a
/// look at the word.
const BUCKETS: usize = 64;
/// Looks at the word before sleeping: about as long as a short write of another thread takes.
const LOOKS: usize = if cfg!(shuttle) { 1 } else { 128 };

pub(crate) struct Parking {
    buckets: Vec<(Mutex<()>, Condvar)>,
}

impl Parking {
    pub fn new() -> Self {
        Parking { buckets: (0..BUCKETS).map(|_| (Mutex::new(()), Condvar::new())).collect() }
    }

    /// Waits until the word changed in a way that may have met the need. The caller tries again.
    pub fn wait(&self, frame: u32, word: &FrameWord, need: Need) {
        for _ in 0..LOOKS {
            if !word.snapshot().blocks(need) {
                return;
            }
            pause();
        }
        let (lock, changed) = self.bucket(frame);
        let guard = lock.lock().expect("nobody panics in a bucket");
        // The waker takes the lock after it changed the word. So it comes either before the announcement, which then
        // finds nothing to wait for, or after the wait has begun.
        if word.announce_wait(need) {
            drop(changed.wait(guard).expect("nobody panics in a bucket"));
        }
    }

    /// Wakes the threads that wait for this frame, if a transition found any.
    #[inline(always)]
    pub fn wake(&self, frame: u32, wake: Wake) {
        if wake.0 {
            self.wake_all(frame);
        }
    }

    #[cold]
    fn wake_all(&self, frame: u32) {
        let (lock, changed) = self.bucket(frame);
        drop(lock.lock().expect("nobody panics in a bucket"));
        changed.notify_all();
    }

    fn bucket(&self, frame: u32) -> &(Mutex<()>, Condvar) {
        &self.buckets[frame as usize % BUCKETS]
    }
}
