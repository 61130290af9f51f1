//! Detection of long sequential streams, which a cache may let bypass it.
//!
//! A scan longer than a cache leaves nothing there that is requested again in time, and a disk is good at scans. bcache
//! therefore bypasses a stream from its `sequential_cutoff` on, whatever else it caches. Any policy here can do the
//! same. Its driver asks [`Streams`] about each request first, and the policy never sees a request that bypasses. The
//! simulator and the engine ask in the same order, so they bypass the same requests.

use entresol_core::Address;

/// Streams followed at a time. bcache follows 128, each ending at its latest request.
const FOLLOWED: usize = 64;

/// Bits of the block number in a [`place`], which keep the blocks of two objects apart.
const BLOCK_BITS: u32 = 40;

/// Position of an unused stream: half of the number space away from the first and the last place.
const NOWHERE: u64 = 1 << 63;

/// Tracks the streams that requests belong to; at most 64 at a time.
///
/// A stream is a run of requests for the pages of one object in ascending order, with other requests in between. It may
/// skip up to cutoff/16 pages, 63 at most (a database skips pages that it holds). Requests may arrive up to cutoff/4
/// pages late, 64 at most (threads take requests in turn). Two streams are joined when the end of one comes as near to
/// the start of the other. A stream that begins ahead of a long one, by at most the cutoff, bypasses from its first
/// page on. The long stream is likely to reach it: the processes of a parallel scan take turns, and one may be late. A
/// new stream replaces the oldest one that has not grown since the hand last passed it.
///
/// ```
/// use entresol_core::{Address, ObjectId};
/// use entresol_policy::Streams;
/// let mut streams = Streams::new(3);
/// let long: Vec<bool> = (0..5).map(|block| streams.passes(Address { object: ObjectId(0), block })).collect();
/// assert_eq!(long, [false, false, false, true, true]);
/// ```
#[derive(Clone, Debug)]
pub struct Streams {
    cutoff_pages: u64,
    /// Pages that may be missing in a row, and how many pages late a request may come.
    gap: u64,
    late: u64,
    /// Place of each stream's first page, and the place after its last.
    starts: [u64; FOLLOWED],
    nexts: [u64; FOLLOWED],
    /// Distinct pages requested of each stream.
    asked: [u64; FOLLOWED],
    /// Pages requested among the last 64 places of each stream, one bit each; the lowest bit is the last page.
    recent: [u64; FOLLOWED],
    /// Streams that began ahead of a long one, one bit each.
    early: u64,
    /// Streams that have grown since the hand passed them, one bit each.
    grown: u64,
    hand: usize,
    /// The stream that grew last, tried first: a scan hits nothing else.
    latest: usize,
}

/// Object and block as one number, in which neighbouring blocks are neighbours. Objects of more than 2^40 blocks
/// overlap the next one; the only harm is that two streams may be taken for one.
fn place(at: Address) -> u64 {
    (u64::from(at.object.0) << BLOCK_BITS).wrapping_add(at.block)
}

/// The first stream whose place is one of `count` places from `from` on. The loop has no early exit so that it
/// vectorises.
fn find(places: &[u64; FOLLOWED], from: u64, count: u64) -> Option<usize> {
    let is_there = |place: u64| u64::from(place.wrapping_sub(from) < count);
    let found = places.iter().enumerate().fold(0u64, |found, (at, &place)| found | is_there(place) << at);
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// Bits shifted up by `places`; 0 when all are shifted out.
fn moved(bits: u64, places: u64) -> u64 {
    if places < 64 { bits << places } else { 0 }
}

impl Streams {
    /// Tracks streams with a cutoff in pages; the requests of a stream after that many bypass.
    pub fn new(cutoff_pages: u64) -> Self {
        let (gap, late) = ((cutoff_pages / 16).min(63), (cutoff_pages / 4).clamp(1, 64));
        let (starts, asked) = ([NOWHERE; FOLLOWED], [0; FOLLOWED]);
        let (nexts, recent, early, grown, hand, latest) = (starts, asked, 0, 0, 0, 0);
        Streams { cutoff_pages, gap, late, starts, nexts, asked, recent, early, grown, hand, latest }
    }

    /// Records a request; true if it bypasses: its stream had at least the cutoff's pages before, or began ahead of a
    /// long one.
    pub fn passes(&mut self, at: Address) -> bool {
        let place = place(at);
        let known = if self.nexts[self.latest] == place { Some(self.latest) } else { self.near(place) };
        match known {
            Some(stream) => self.grow(stream, place),
            None => self.begin(place),
        }
    }

    /// Pages of a stream before it bypasses.
    pub fn cutoff_pages(&self) -> u64 {
        self.cutoff_pages
    }

    /// A stream that ends near a place.
    fn near(&self, place: u64) -> Option<usize> {
        find(&self.nexts, place.wrapping_sub(self.gap), self.gap + self.late + 1)
    }

    /// Extends a stream by a page near its end; true if the stream was long before.
    fn grow(&mut self, stream: usize, place: u64) -> bool {
        let long = self.asked[stream] >= self.cutoff_pages || self.early & 1 << stream != 0;
        let ahead = place.wrapping_sub(self.nexts[stream]);
        if ahead <= self.gap {
            self.advance(stream, ahead + 1, 1);
            self.asked[stream] += 1;
            self.join(stream);
        } else {
            // A late page, or one requested again, as by requests that meet within a page.
            let bit = 1 << self.nexts[stream].wrapping_sub(place + 1);
            self.asked[stream] += u64::from(self.recent[stream] & bit == 0);
            self.recent[stream] |= bit;
        }
        self.grown |= 1 << stream;
        self.latest = stream;
        long
    }

    /// Moves the end of a stream `places` further; `asked` has a bit for each of the new places that was requested.
    fn advance(&mut self, stream: usize, places: u64, asked: u64) {
        self.nexts[stream] = self.nexts[stream].wrapping_add(places);
        self.recent[stream] = moved(self.recent[stream], places) | asked;
    }

    /// Merges streams that begin near this one's end into it.
    fn join(&mut self, stream: usize) {
        loop {
            let (start, next) = (self.starts[stream], self.nexts[stream]);
            // The bound keeps this stream's own start out of the search.
            let behind = self.late.min(next.wrapping_sub(start) - 1);
            let Some(other) = find(&self.starts, next.wrapping_sub(behind), behind + self.gap + 1) else { break };
            let (further, recent) = (self.nexts[other].wrapping_sub(next), self.recent[other]);
            match further <= u64::MAX / 2 {
                true => self.advance(stream, further, recent),
                false => self.recent[stream] |= moved(recent, further.wrapping_neg()),
            }
            self.asked[stream] += self.asked[other];
            (self.starts[other], self.nexts[other], self.asked[other]) = (NOWHERE, NOWHERE, 0);
        }
    }

    /// Begins a stream; true if it is likely to be part of a long one.
    fn begin(&mut self, place: u64) -> bool {
        let is_ahead = |&next: &u64| place.wrapping_sub(next) <= self.cutoff_pages;
        let mut near = (0..FOLLOWED).filter(|&stream| is_ahead(&self.nexts[stream]));
        let early = near.any(|stream| self.asked[stream] >= self.cutoff_pages);
        // A full round clears every bit, so the loop ends.
        while self.grown & 1 << self.hand != 0 {
            self.grown &= !(1 << self.hand);
            self.hand = (self.hand + 1) % FOLLOWED;
        }
        let new = self.hand;
        (self.starts[new], self.nexts[new]) = (place, place.wrapping_add(1));
        (self.asked[new], self.recent[new]) = (1, 1);
        self.early = self.early & !(1 << new) | u64::from(early) << new;
        self.hand = (new + 1) % FOLLOWED;
        self.join(new);
        early || self.cutoff_pages == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::{ObjectId, Random};

    fn at(object: u32, block: u64) -> Address {
        Address { object: ObjectId(object), block }
    }

    fn passed(streams: &mut Streams, object: u32, blocks: impl IntoIterator<Item = u64>) -> u64 {
        blocks.into_iter().map(|block| u64::from(streams.passes(at(object, block)))).sum()
    }

    #[test]
    fn a_stream_passes_from_its_cutoff_on() {
        let mut streams = Streams::new(100);
        assert_eq!(passed(&mut streams, 0, 0..100), 0);
        assert_eq!(passed(&mut streams, 0, 100..150), 50);
        assert_eq!(passed(&mut streams, 0, 251..351), 0, "a gap of more than a cutoff ends it");
        assert_eq!(passed(&mut streams, 0, 400..410), 10, "a gap that is likely to be filled does not");
        assert_eq!(passed(&mut streams, 0, 460..470), 0, "once after as much that is one stream");
        assert_eq!(passed(&mut streams, 3, (0..1000).rev()), 0, "descending is none");
        assert_eq!(passed(&mut streams, 4, (0..1000).map(|block| 2 * block)), 900, "every other page");
        assert_eq!(passed(&mut streams, 1, (0..1000).map(|block| 8 * block)), 0, "one in eight");
        let mut random = Random::new(3);
        assert_eq!(passed(&mut streams, 2, (0..10_000).map(|_| random.below(60))), 0, "a hot place is no stream");
    }

    #[test]
    fn streams_keep_apart() {
        let mut streams = Streams::new(10);
        let both = (0..40).map(|i| passed(&mut streams, 0, [i]) + passed(&mut streams, 1, [i])).sum::<u64>();
        assert_eq!(both, 2 * 30);
        // The end of one object is not the beginning of the next.
        assert_eq!(passed(&mut streams, 5, 0..10), 0);
        assert_eq!(passed(&mut streams, 6, 0..10), 0);
    }

    #[test]
    fn parts_out_of_order_are_one_stream() {
        let mut streams = Streams::new(100);
        // Each pair of 16-page parts comes in the wrong order.
        let parts = (0..20u64).map(|part| part ^ 1).flat_map(|part| 16 * part..16 * (part + 1));
        // After six parts a stream begins ahead of one that is not long yet; four pages of the next part make it long.
        assert_eq!(passed(&mut streams, 0, parts), 320 - 96 - 16 - 4);
        // Requests of another object, behind the stream or too far ahead, belong to no long stream.
        assert_eq!(passed(&mut streams, 1, 330..340), 0);
        assert_eq!(passed(&mut streams, 0, 200..210), 0);
        assert_eq!(passed(&mut streams, 0, 421..430), 0);
    }

    #[test]
    fn pages_in_any_order_near_their_place_are_one_stream() {
        let seed = 0x5ea1;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        let mut streams = Streams::new(100);
        // Any page may be up to twenty places late, as from threads that take requests in turn.
        let mut pages: Vec<u64> = (0..10_000).collect();
        pages.sort_by_cached_key(|page| page + random.below(21));
        let first = passed(&mut streams, 0, pages.drain(..200));
        assert!((80..=100).contains(&first), "{first} of the first 200");
        let rest = pages.len() as u64;
        assert_eq!(passed(&mut streams, 0, pages), rest);
    }

    #[test]
    fn requests_that_meet_within_a_page_are_one_stream() {
        let mut streams = Streams::new(10);
        // The last page of every four is requested again with the next four.
        let passed_of = (0..40u64).map(|i| passed(&mut streams, 0, [i - i / 4])).sum::<u64>();
        assert_eq!(passed_of, 40 - 10 - 2, "two of the first ten are asked for twice");
        let mut streams = Streams::new(0);
        assert_eq!(passed(&mut streams, 0, [7, 7, 7]), 3);
        let mut streams = Streams::new(2);
        assert_eq!(passed(&mut streams, 0, [7, 7, 7, 7]), 0, "one page is no stream");
    }

    #[test]
    fn streams_that_grow_stay_while_others_come_and_go() {
        let seed = 0x57ee;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        let mut streams = Streams::new(8);
        let mut passed_of = [0; 4];
        for round in 0..500 {
            for (stream, passed) in passed_of.iter_mut().enumerate() {
                *passed += u64::from(streams.passes(at(stream as u32, round)));
                // Fewer requests than followed streams come between two of its requests.
                for _ in 0..10 {
                    assert!(!streams.passes(at(100, 2 * random.below(1 << 30))));
                }
            }
        }
        assert_eq!(passed_of, [492; 4]);
    }

    #[test]
    fn a_cutoff_of_nothing_lets_all_pass() {
        assert_eq!(passed(&mut Streams::new(0), 0, [5, 9, 1, 2]), 4);
    }
}
