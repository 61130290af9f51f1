//! A device made of a calendar: completions wait until their time.

use crate::device::{Calendar, Device};
use crate::due::Due;
use crate::io::{Completion, DeviceError, Io, Nanos, Wear};

/// A [`Device`] made of a [`Calendar`].
#[derive(Clone, Debug)]
pub struct Queued<C> {
    calendar: C,
    due: Due<Completion>,
}

impl<C: Calendar> Queued<C> {
    /// A device around a calendar.
    pub fn new(calendar: C) -> Self {
        Queued { calendar, due: Due::default() }
    }

    /// The model itself.
    pub fn calendar(&self) -> &C {
        &self.calendar
    }

    #[inline]
    fn serve(&mut self, now: Nanos, io: Io) -> Result<Completion, DeviceError> {
        let capacity = self.calendar.capacity_bytes();
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity });
        }
        let completion = self.calendar.serve(now, io);
        debug_assert_eq!(completion.finished, completion.submitted + completion.latency.total());
        Ok(completion)
    }
}

impl<C: Calendar> Device for Queued<C> {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        let completion = self.serve(now, io)?;
        self.due.push(completion.finished, completion);
        Ok(())
    }

    fn foresee(&mut self, now: Nanos, io: Io) -> Option<Result<Completion, DeviceError>> {
        Some(self.serve(now, io))
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.next()
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        while let Some((_, completion)) = self.due.pop(until, u64::MAX) {
            done.push(completion);
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
