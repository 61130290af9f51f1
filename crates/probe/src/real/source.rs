//! Source of a stream's I/Os: offsets, reads or writes, and the intended times of an open loop.

use crate::target::{Pace, Pattern, Stream, Until};
use entresol_core::Random;
use entresol_device::Nanos;

/// One I/O of a stream, before it is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Next {
    /// First byte on the target.
    pub(super) offset: u64,
    /// True if the I/O is a write.
    pub(super) write: bool,
    /// True if a flush must make earlier writes durable before the I/O counts as done.
    pub(super) flush: bool,
    /// Due time from the start of the run; none for a closed loop, which sends at once.
    pub(super) due: Option<Nanos>,
}

/// The I/Os of a stream in the order in which they are sent. The same seed gives the same I/Os.
#[derive(Debug)]
pub(super) struct Source {
    stream: Stream,
    slots: u64,
    random: Random,
    sent: u64,
    writes: u64,
}

impl Source {
    /// The I/Os of a stream on a target of this size and granularity.
    ///
    /// # Errors
    /// When the stream leaves the target or cannot be carried out: the fault, in a line.
    pub(super) fn new(stream: &Stream, capacity: u64, granule: u32, seed: u64) -> Result<Self, String> {
        let Stream { bytes, align, range, .. } = stream;
        let whole = |value: u32| value > 0 && value.is_multiple_of(granule);
        if !whole(*bytes) || !whole(*align) || !range.start.is_multiple_of(u64::from(granule)) {
            let start = range.start;
            return Err(format!("I/Os of {bytes} B every {align} B from {start} are not multiples of {granule} B"));
        }
        if range.end > capacity || range.start.saturating_add(u64::from(*bytes)) > range.end {
            let (start, end) = (range.start, range.end);
            return Err(format!("I/Os of {bytes} B from {start} to {end} do not fit {capacity} B"));
        }
        if !(0.0..=1.0).contains(&stream.write_share) {
            return Err(format!("a share of writes of {}, expected 0 to 1", stream.write_share));
        }
        match stream.pace {
            Pace::Closed { depth: 0 } => return Err("a queue depth of 0".to_owned()),
            Pace::Open { per_second } if !(per_second > 0.0 && per_second.is_finite()) => {
                return Err(format!("{per_second} I/Os a second, expected a number above 0"));
            }
            _ => {}
        }
        if stream.flush_every == Some(0) {
            return Err("a flush after every 0 writes".to_owned());
        }
        let space = range.end - range.start - u64::from(*bytes);
        if let Pattern::List(offsets) = &stream.pattern {
            let fits = |offset: &u64| *offset <= space && offset.is_multiple_of(u64::from(granule));
            match offsets.iter().find(|offset| !fits(offset)) {
                Some(offset) => return Err(format!("offset {offset} of a list is not within the range or aligned")),
                None if offsets.is_empty() => return Err("a list without offsets".to_owned()),
                None => {}
            }
        }
        let slots = space / u64::from(*align) + 1;
        Ok(Source { stream: stream.clone(), slots, random: Random::new(seed), sent: 0, writes: 0 })
    }

    /// The next I/O, or none when the stream has come to its end by `now`. The due time of an open loop's I/O may be
    /// later.
    pub(super) fn next(&mut self, now: Nanos) -> Option<Next> {
        let due = match self.stream.pace {
            Pace::Closed { .. } => None,
            Pace::Open { per_second } => Some((self.sent as f64 * 1e9 / per_second) as Nanos),
        };
        match self.stream.until {
            Until::Count(count) if self.sent >= count => return None,
            // Every stream sends at least one I/O, so that it has a latency even where its thread hardly ever runs.
            Until::Elapsed(limit) if self.sent > 0 && due.unwrap_or(now) >= limit => return None,
            _ => {}
        }
        let align = u64::from(self.stream.align);
        let relative = match &self.stream.pattern {
            Pattern::Sequential => self.sent % self.slots * align,
            Pattern::Random => self.random.below(self.slots) * align,
            Pattern::Same => 0,
            Pattern::List(offsets) => offsets[(self.sent % offsets.len() as u64) as usize],
        };
        let write = match self.stream.write_share {
            0.0 => false,
            1.0 => true,
            share => self.random.chance(share),
        };
        self.sent += 1;
        self.writes += u64::from(write);
        let flush = write && self.stream.flush_every.is_some_and(|every| self.writes.is_multiple_of(u64::from(every)));
        Some(Next { offset: self.stream.range.start + relative, write, flush, due })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream {
            write_share: 0.0,
            bytes: 4096,
            align: 4096,
            range: 8192..8192 + 3 * 4096,
            pattern: Pattern::Sequential,
            pace: Pace::Closed { depth: 1 },
            until: Until::Count(5),
            flush_every: None,
            keep_raw: false,
        }
    }

    fn all(stream: &Stream) -> Vec<Next> {
        let mut source = Source::new(stream, 1 << 20, 512, 7).expect("a sound stream");
        std::iter::from_fn(|| source.next(0)).take(1000).collect()
    }

    #[test]
    fn a_sequence_goes_round_and_ends_with_its_count() {
        let offsets: Vec<u64> = all(&stream()).iter().map(|next| next.offset).collect();
        assert_eq!(offsets, [8192, 12_288, 16_384, 8192, 12_288]);
    }

    #[test]
    fn random_offsets_stay_in_range_on_their_grid_and_reach_both_ends() {
        let random = Stream { pattern: Pattern::Random, align: 512, until: Until::Count(1000), ..stream() };
        let offsets: Vec<u64> = all(&random).iter().map(|next| next.offset).collect();
        assert!(offsets.iter().all(|o| o % 512 == 0 && *o >= 8192 && o + 4096 <= 8192 + 3 * 4096));
        assert!(offsets.contains(&8192) && offsets.contains(&(8192 + 2 * 4096)), "seed 7");
        assert_eq!(all(&random), all(&random));
    }

    #[test]
    fn a_list_is_relative_to_the_range() {
        let list = Stream { pattern: Pattern::List(vec![512, 0]), until: Until::Count(3), ..stream() };
        let offsets: Vec<u64> = all(&list).iter().map(|next| next.offset).collect();
        assert_eq!(offsets, [8704, 8192, 8704]);
    }

    #[test]
    fn an_open_loop_is_due_at_equal_distances_and_ends_with_its_time() {
        let pace = Pace::Open { per_second: 1000.0 };
        let open = Stream { pace, until: Until::Elapsed(3_500_000), ..stream() };
        let due: Vec<_> = all(&open).iter().map(|next| next.due).collect();
        assert_eq!(due, [Some(0), Some(1_000_000), Some(2_000_000), Some(3_000_000)]);
    }

    #[test]
    fn every_nth_write_is_flushed_and_the_share_of_writes_is_kept() {
        let writes = Stream { write_share: 1.0, flush_every: Some(2), until: Until::Count(4), ..stream() };
        assert_eq!(all(&writes).iter().map(|next| next.flush).collect::<Vec<_>>(), [false, true, false, true]);
        let mixed = Stream { write_share: 0.3, until: Until::Count(1000), ..stream() };
        let writes = all(&mixed).iter().filter(|next| next.write).count();
        assert!((250..350).contains(&writes), "{writes} of 1000 with seed 7");
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        let cases = [
            (Stream { bytes: 1000, ..stream() }, "multiples of 512 B"),
            (Stream { align: 0, ..stream() }, "multiples of 512 B"),
            (Stream { range: 0..1 << 21, ..stream() }, "do not fit"),
            (Stream { range: 0..512, ..stream() }, "do not fit"),
            (Stream { write_share: 1.5, ..stream() }, "1.5"),
            (Stream { pace: Pace::Closed { depth: 0 }, ..stream() }, "depth of 0"),
            (Stream { pace: Pace::Open { per_second: 0.0 }, ..stream() }, "above 0"),
            (Stream { flush_every: Some(0), ..stream() }, "every 0 writes"),
            (Stream { pattern: Pattern::List(vec![]), ..stream() }, "without offsets"),
            (Stream { pattern: Pattern::List(vec![8704]), ..stream() }, "offset 8704"),
        ];
        for (stream, part) in cases {
            let error = Source::new(&stream, 1 << 20, 512, 7).expect_err(part);
            assert!(error.contains(part), "'{error}' lacks '{part}'");
        }
    }
}
