//! Memory of a server's requests: a share for each connection, and a rest that connections borrow from.
//!
//! A connection may always hold requests of one share, regardless of the others. A client that takes no replies keeps
//! its own share and its loans, and never another's share. A request larger than a share needs part of the rest. While
//! its connection has other requests in flight, it waits for those. Once alone, it queues for the rest, ahead of all
//! who borrow for more requests at once. It is answered ENOMEM after [`Limits::memory_patience`].

use crate::{Error, Limits, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes read ahead from the socket: a queue of small requests arrives in one call.
pub(super) const READ_AHEAD: usize = 64 << 10;

/// Bytes of replies kept back while more requests are at hand, to be sent together.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

/// Largest small request, in bytes: a larger one takes longer than waking a worker.
pub(super) const SMALL_BYTES_MAX: u32 = 64 << 10;

/// The smallest share, in bytes: clients that ignore the offered limit ask for as much as this.
pub(super) const SHARE_MIN: usize = 1 << 20;

/// Buffers that the idle workers of one connection may keep together, in bytes.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// Memory for requests, of all connections together.
pub(super) struct Budget {
    /// Bytes of requests that each connection may always hold.
    pub share: usize,
    /// Bytes of a buffer that a thread may keep between requests.
    pub spare: usize,
    /// Bytes that may be borrowed beyond the shares.
    rest_total: usize,
    rest: Mutex<Rest>,
    /// Signalled when memory comes back.
    returned: Condvar,
    /// Connections that wait for memory.
    waiting: AtomicUsize,
    held: AtomicUsize,
    held_max: AtomicUsize,
}

struct Rest {
    free: usize,
    /// Queue of requests that are alone on their connection and larger than its share; the front is served first.
    line: VecDeque<u64>,
    tickets: u64,
}

/// Memory that a connection's next request lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// This many bytes of the rest, perhaps 0. `alone` is true if nothing else of this connection is in flight.
    Rest { bytes: usize, alone: bool },
    /// Requests of this connection must be answered first.
    Answers,
}

impl Budget {
    /// Divides the memory that [`Limits`] give.
    ///
    /// # Errors
    /// [`Error::Memory`] when a connection's part is too small for its buffers and a share of [`SHARE_MIN`].
    pub fn new(limits: &Limits) -> Result<Self> {
        let connections = limits.connections_max.max(1);
        let part = limits.memory_max / connections;
        let workers = limits.workers_max.max(1);
        let spares = SPARE_BYTES_MAX.min(part / 8);
        let buffers = READ_AHEAD + KEPT_BYTES_MAX + SMALL_BYTES_MAX as usize + spares;
        let largest = part.saturating_sub(buffers).min(limits.request_bytes_max as usize);
        if largest < SHARE_MIN.min(limits.request_bytes_max as usize) {
            // An eighth of the part is for spare buffers, and seven for everything else.
            let fixed = buffers - spares + SHARE_MIN;
            return Err(Error::Memory { connections, needed: connections * (fixed * 8).div_ceil(7) });
        }
        // A power of two, because clients split their requests that way.
        let share = if largest < SHARE_MIN { largest } else { 1 << largest.ilog2() };
        let rest_total = limits.memory_max - connections * (buffers + share);
        Ok(Self {
            share,
            spare: spares / workers,
            rest_total,
            rest: Mutex::new(Rest { free: rest_total, line: VecDeque::new(), tickets: 0 }),
            returned: Condvar::new(),
            waiting: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            held_max: AtomicUsize::new(0),
        })
    }

    /// Borrows bytes of the rest, unless a request is queued for them.
    pub fn borrow(&self, bytes: usize) -> bool {
        let mut rest = self.rest();
        let lent = rest.line.is_empty() && bytes <= rest.free;
        if lent {
            rest.free -= bytes;
        }
        lent
    }

    /// Waits for the memory that a request lacks; `need` is called again when memory comes back. Returns the bytes
    /// borrowed. `None` if the request was alone and waited longer than `patience`, or needs more than the whole rest.
    pub fn wait(&self, need: impl Fn() -> Need, patience: Duration) -> Option<usize> {
        let mut rest = self.rest();
        // Before the first call of `need`: a thread that gives memory back after it sees that this one waits.
        self.waiting.fetch_add(1, SeqCst);
        let (mut ticket, mut alone_since) = (None, None);
        let borrowed = loop {
            let left = match need() {
                Need::Rest { bytes: 0, .. } => break Some(0),
                Need::Rest { bytes, alone: true } => {
                    let ticket = *ticket.get_or_insert_with(|| rest.enter());
                    if rest.line.front() == Some(&ticket) && bytes <= rest.free {
                        rest.free -= bytes;
                        break Some(bytes);
                    }
                    let waited = alone_since.get_or_insert_with(Instant::now).elapsed();
                    if bytes > self.rest_total || waited >= patience {
                        break None;
                    }
                    patience - waited
                }
                Need::Rest { bytes, alone: false } if rest.line.is_empty() && bytes <= rest.free => {
                    rest.free -= bytes;
                    break Some(bytes);
                }
                Need::Rest { .. } | Need::Answers => Duration::MAX,
            };
            rest = match left {
                Duration::MAX => self.returned.wait(rest).unwrap_or_else(PoisonError::into_inner),
                left => self.returned.wait_timeout(rest, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        };
        self.waiting.fetch_sub(1, SeqCst);
        if let Some(ticket) = ticket {
            rest.line.retain(|&other| other != ticket);
            self.returned.notify_all();
        }
        borrowed
    }

    /// Takes back borrowed bytes, and wakes the waiting threads: even 0 bytes may free part of a connection's share.
    pub fn give_back(&self, bytes: usize) {
        if bytes > 0 || self.waiting.load(SeqCst) > 0 {
            self.rest().free += bytes;
            self.returned.notify_all();
        }
    }

    /// Counts the bytes of an admitted request.
    pub fn count(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Relaxed) + bytes;
        self.held_max.fetch_max(held, Relaxed);
    }

    /// Counts the end of a request.
    pub fn discount(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
    }

    /// Bytes of requests in flight, now and at the most so far.
    pub fn held(&self) -> (usize, usize) {
        (self.held.load(Relaxed), self.held_max.load(Relaxed))
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rest {
    fn enter(&mut self) -> u64 {
        self.tickets += 1;
        self.line.push_back(self.tickets);
        self.tickets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn limits(memory_max: usize, connections_max: usize) -> Limits {
        Limits { memory_max, connections_max, ..Limits::default() }
    }

    #[test]
    fn shares_buffers_and_rest_are_no_more_than_the_memory() {
        for memory in [25 << 20, 64 << 20, 256 << 20, 1 << 30, (4 << 30) + 12345] {
            for connections in [1, 2, 15, 16, 100, 1024] {
                let limits = limits(memory, connections);
                let needed = match Budget::new(&limits) {
                    Err(Error::Memory { needed, .. }) => needed,
                    Err(other) => panic!("{other}"),
                    Ok(budget) => {
                        let buffers = READ_AHEAD + KEPT_BYTES_MAX + SMALL_BYTES_MAX as usize;
                        let fixed = connections * (buffers + budget.spare * limits.workers_max + budget.share);
                        assert!(fixed + budget.rest_total <= memory, "{memory} bytes, {connections} connections");
                        assert!((SHARE_MIN..=limits.request_bytes_max as usize).contains(&budget.share));
                        continue;
                    }
                };
                assert!(needed > memory, "{memory} bytes were refused, {needed} needed");
                let enough = Limits { memory_max: needed, ..limits };
                assert!(Budget::new(&enough).is_ok(), "{needed} bytes for {connections} connections");
            }
        }
    }

    #[test]
    fn a_request_alone_stands_in_line_before_those_who_borrow_for_more() {
        let budget = Arc::new(Budget::new(&limits(256 << 20, 16)).expect("memory"));
        let all = budget.rest_total;
        assert!(budget.borrow(all) && !budget.borrow(1));
        let waiting = budget.clone();
        let alone = move || waiting.wait(|| Need::Rest { bytes: 1000, alone: true }, Duration::from_secs(600));
        let alone = std::thread::spawn(alone);
        while budget.rest().line.is_empty() {
            std::thread::yield_now();
        }
        budget.give_back(999);
        assert!(!budget.borrow(1), "it is for who stands in line");
        budget.give_back(1);
        assert_eq!(alone.join().expect("no panic"), Some(1000));
        budget.give_back(1000);
        assert!(budget.borrow(1000) && !budget.borrow(1));
        let none = budget.wait(|| Need::Rest { bytes: 1, alone: true }, Duration::from_millis(1));
        assert_eq!(none, None, "nothing came back");
        assert!(budget.rest().line.is_empty(), "who leaves does not stand in line any more");
        let far_too_large = budget.wait(|| Need::Rest { bytes: all + 1, alone: true }, Duration::MAX);
        assert_eq!(far_too_large, None, "it is never waited for");
    }
}
