//! A device made of a calendar: completions wait until their time.

use crate::device::{Calendar, Device};
use crate::io::{Completion, DeviceError, Io, Nanos, Wear};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Completions ordered by time, then by order of submission.
#[derive(Clone, Copy, Debug)]
struct Due {
    number: u64,
    completion: Completion,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Due {
    fn key(&self) -> (Nanos, u64) {
        (self.completion.finished, self.number)
    }
}

/// A [`Device`] made of a [`Calendar`].
///
/// Most completions come in the order of submission and wait in a queue; only those that overtake go through a heap.
#[derive(Clone, Debug)]
pub struct Queued<C> {
    calendar: C,
    /// In order of time.
    in_order: VecDeque<Due>,
    /// Submitted later than the last of `in_order` and done before it.
    overtaking: BinaryHeap<Reverse<Due>>,
    submitted: u64,
}

impl<C: Calendar> Queued<C> {
    /// A device around a calendar.
    pub fn new(calendar: C) -> Self {
        Queued { calendar, in_order: VecDeque::new(), overtaking: BinaryHeap::new(), submitted: 0 }
    }

    /// The model itself.
    pub fn calendar(&self) -> &C {
        &self.calendar
    }

    /// What is due first, if it is one that overtook others.
    #[inline]
    fn overtakes(&self) -> bool {
        let Some(Reverse(overtaking)) = self.overtaking.peek() else { return false };
        self.in_order.front().is_none_or(|due| overtaking < due)
    }
}

impl<C: Calendar> Device for Queued<C> {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        let capacity = self.calendar.capacity_bytes();
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity });
        }
        let completion = self.calendar.serve(now, io);
        debug_assert_eq!(completion.finished, completion.submitted + completion.latency.total());
        let due = Due { number: self.submitted, completion };
        if self.in_order.back().is_none_or(|last| last.completion.finished <= completion.finished) {
            self.in_order.push_back(due);
        } else {
            self.overtaking.push(Reverse(due));
        }
        self.submitted += 1;
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        if self.overtakes() {
            return self.overtaking.peek().map(|due| due.0.completion.finished);
        }
        self.in_order.front().map(|due| due.completion.finished)
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        while self.next_event().is_some_and(|at| at <= until) {
            let due = if self.overtakes() {
                self.overtaking.pop().map(|Reverse(due)| due)
            } else {
                self.in_order.pop_front()
            };
            done.push(due.expect("an event was seen").completion);
        }
    }

    fn capacity_bytes(&self) -> u64 {
        self.calendar.capacity_bytes()
    }

    fn wear(&self) -> Wear {
        self.calendar.wear()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Latency;

    /// A device that takes as many nanoseconds as an I/O has bytes, one I/O at a time.
    #[derive(Default)]
    struct Line {
        free_at: Nanos,
        wear: Wear,
    }

    impl Calendar for Line {
        fn serve(&mut self, now: Nanos, io: Io) -> Completion {
            let start = now.max(self.free_at);
            self.free_at = start + u64::from(io.bytes);
            let latency = Latency { queue: start - now, transfer: u64::from(io.bytes), ..Latency::default() };
            Completion { tag: io.tag, submitted: now, finished: self.free_at, latency }
        }

        fn capacity_bytes(&self) -> u64 {
            1000
        }

        fn wear(&self) -> Wear {
            self.wear
        }
    }

    #[test]
    fn completions_come_in_order_of_time() {
        let mut device = Queued::new(Line::default());
        for (tag, bytes) in [(1, 30), (2, 10), (3, 5)] {
            device.submit(0, Io { tag, ..Io::read(0, bytes) }).expect("within the device");
        }
        let mut done = Vec::new();
        assert_eq!(device.next_event(), Some(30));
        device.advance(39, &mut done);
        assert_eq!(done.iter().map(|c| c.tag).collect::<Vec<_>>(), [1]);
        device.advance(45, &mut done);
        assert_eq!(done.iter().map(|c| (c.tag, c.finished)).collect::<Vec<_>>(), [(1, 30), (2, 40), (3, 45)]);
        assert_eq!(done[2].latency, Latency { queue: 40, transfer: 5, ..Latency::default() });
        assert_eq!(device.next_event(), None);
    }

    #[test]
    fn an_io_beyond_the_end_is_refused() {
        let mut device = Queued::new(Line::default());
        assert!(device.submit(0, Io::read(999, 2)).is_err());
        assert!(device.submit(0, Io::read(u64::MAX, 2)).is_err());
        assert_eq!(device.next_event(), None);
    }
}
