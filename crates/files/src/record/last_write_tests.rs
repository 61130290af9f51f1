//! Marks of a simulated file whose file system keeps the order of its changes, with kills, losses of power and writes of others.

use super::*;
use entresol_core::Random;
use std::collections::BTreeSet;

const SECOND_NS: i64 = 1_000_000_000;

#[test]
fn a_mark_is_read_as_it_was_written_and_a_damaged_one_is_none() {
    let marks = [
        Mark::InUse(-1),
        Mark::Closed(Seen::File { bytes: u64::MAX, modified: i64::MIN }),
        Mark::Closed(Seen::Device { sectors: 1, appearance: u64::MAX }),
    ];
    for mark in marks {
        let bytes = mark.encode(7);
        assert_eq!(Mark::decode(&bytes), Some((mark, 7)));
        for at in 0..bytes.len() {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(Mark::decode(&torn), None, "byte {at}");
            assert_eq!(Mark::decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}

#[test]
fn a_write_after_the_grace_or_of_a_closed_file_is_foreign() {
    let seen = |bytes, modified| Seen::File { bytes, modified };
    assert!(!Mark::InUse(5).is_foreign(seen(1, 5 + GRACE_NS)));
    assert!(Mark::InUse(5).is_foreign(seen(1, 6 + GRACE_NS)));
    assert!(!Mark::InUse(i64::MAX).is_foreign(seen(1, i64::MAX)));
    let closed = Mark::Closed(seen(4096, 77));
    assert!(!closed.is_foreign(seen(4096, 77)));
    // A file that was restored with an older time is another one too.
    assert!(closed.is_foreign(seen(4096, 76)) && closed.is_foreign(seen(8192, 77)));
    let device = |sectors, appearance| Seen::Device { sectors, appearance };
    assert!(Mark::Closed(device(8, 1)).is_foreign(device(16, 1)));
    // Nothing is known of a device that was away, nor of one that was in use.
    assert!(!Mark::Closed(device(8, 1)).is_foreign(device(16, 2)) && !Mark::InUse(0).is_foreign(device(16, 2)));
}

/// A change of the file or of what is beside it, in the order in which the journal keeps them.
#[derive(Debug)]
enum Change {
    Mark(Option<(Mark, u64)>),
    Record(u64),
    /// A write by the cache, or else by somebody else, with its number.
    Write {
        seen: Seen,
        foreign: Option<u64>,
    },
}

#[derive(Default)]
struct Simulated {
    now_ns: i64,
    changes: Vec<Change>,
    /// Changes that are durable.
    durable: usize,
}

/// A place whose mark and file are simulated.
struct Place {
    state: Mutex<Simulated>,
}

impl Place {
    fn state(&self) -> MutexGuard<'_, Simulated> {
        self.state.lock().expect("one thread")
    }

    fn last<T>(&self, of: impl Fn(&Change) -> Option<T>) -> Option<T> {
        self.state().changes.iter().rev().find_map(of)
    }

    fn number(&self) -> u64 {
        self.last(|change| if let Change::Record(number) = change { Some(*number) } else { None }).expect("a record")
    }

    fn record(&self) -> Record {
        let generation = Generation { number: self.number(), nonce: 0 };
        Record { generation, ..Record::first([1; 16], None, None) }
    }

    fn note(&self, change: Change) {
        self.state().changes.push(change);
    }

    /// The record is durable when its write returns, and with it all before.
    fn raise(&self) -> u64 {
        let number = self.number() + 1;
        self.note(Change::Record(number));
        let mut state = self.state();
        state.durable = state.changes.len();
        number
    }

    fn pass(&self, ns: i64) {
        self.state().now_ns += ns;
    }

    fn write(&self, foreign: Option<u64>) {
        let seen = Seen::File { bytes: 4096, modified: self.state().now_ns };
        self.note(Change::Write { seen, foreign });
    }

    /// Keeps what is durable and, at random, some of what came after it.
    fn lose_power(&self, random: &mut Random) {
        let mut state = self.state();
        let rest = (state.changes.len() - state.durable) as u64;
        let kept = state.durable + random.below(rest + 1) as usize;
        state.changes.truncate(kept);
    }

    /// Writes of others that the file has.
    fn foreign(&self) -> BTreeSet<u64> {
        let of = |change: &Change| if let Change::Write { foreign, .. } = change { *foreign } else { None };
        self.state().changes.iter().filter_map(of).collect()
    }
}

impl RecordPlace for Place {
    fn read(&self) -> io::Result<Option<Record>> {
        Ok(Some(self.record()))
    }

    fn write(&self, _record: &Record) -> io::Result<()> {
        unreachable!("the test raises generations")
    }

    fn clear(&self) -> io::Result<()> {
        unreachable!("nobody forms a cache")
    }

    fn volume(&self) -> io::Result<Option<[u8; 16]>> {
        Ok(None)
    }

    fn mark(&self) -> Option<&dyn MarkPlace> {
        Some(self)
    }

    fn name(&self) -> String {
        "a simulated file".to_owned()
    }
}

impl MarkPlace for Place {
    fn seen(&self) -> io::Result<Seen> {
        let of = |change: &Change| if let Change::Write { seen, .. } = change { Some(*seen) } else { None };
        Ok(self.last(of).unwrap_or(Seen::File { bytes: 4096, modified: 0 }))
    }

    fn mark_bytes(&self) -> io::Result<Option<Vec<u8>>> {
        let mark = self.last(|change| if let Change::Mark(mark) = change { Some(*mark) } else { None });
        Ok(mark.flatten().map(|(mark, generation)| mark.encode(generation).to_vec()))
    }

    fn set_mark(&self, mark: &[u8; MARK_BYTES]) -> io::Result<()> {
        self.note(Change::Mark(Mark::decode(mark)));
        Ok(())
    }

    fn remove_mark(&self) -> io::Result<()> {
        self.note(Change::Mark(None));
        Ok(())
    }

    fn sync_mark(&self) -> io::Result<()> {
        let mut state = self.state();
        state.durable = state.changes.len();
        Ok(())
    }

    fn marked_at(&self) -> io::Result<i64> {
        Ok(self.state().now_ns)
    }
}

/// One file through starts, writes, closes, kills and losses of power. Every start is told of all writes of others that no start
/// before has ended with, and of none that never was.
fn schedule(seed: u64) {
    let mut random = Random::new(seed);
    let place = Arc::new(Place { state: Mutex::default() });
    place.note(Change::Record(1));
    place.note(Change::Mark(Some((Mark::Closed(place.seen().expect("a simulated file")), 1))));
    place.sync_mark().expect("a simulated file");
    let (mut known, mut next) = (BTreeSet::new(), 0);
    'starts: for _ in 0..12 {
        let (by, from) = (Arc::clone(&place), Arc::clone(&place));
        let clock = Box::new(move || from.state().now_ns as u64 / 1_000_000);
        let last_write = LastWrite::by_clock(by as _, clock);
        let told = last_write.is_foreign(Some(&place.record())).expect("a simulated file");
        let unknown: BTreeSet<u64> = place.foreign().difference(&known).copied().collect();
        assert_eq!(told, !unknown.is_empty(), "seed {seed}: {unknown:?} in {:?}", place.state().changes);
        // A start is cut short at any of its steps.
        let steps = if random.below(4) == 0 { random.below(3) } else { 3 };
        if steps > 0 {
            let generation = Generation { number: place.number() + 1, nonce: 0 };
            last_write.begin(Some(generation));
        }
        if steps > 1 {
            place.raise();
        }
        if steps > 2 {
            last_write.begun();
            known.extend(unknown);
            for _ in 0..random.below(12) {
                place.pass(random.below(3 * SECOND_NS as u64) as i64);
                if random.below(5) == 0 {
                    let number = place.raise();
                    if random.below(8) == 0 {
                        // A crash between the two.
                        continue 'starts;
                    }
                    last_write.renew(Some(Generation { number, nonce: 0 }));
                }
                last_write.precede();
                // A device that is slow, but not slower than the grace.
                place.pass(random.below(2 * SECOND_NS as u64) as i64);
                place.write(None);
            }
            if random.below(3) == 0 {
                let number = place.raise();
                last_write.renew(Some(Generation { number, nonce: 0 }));
                last_write.close();
                if random.below(4) == 0 {
                    place.pass(1);
                    last_write.precede();
                    place.write(None);
                }
            }
        }
        if random.below(2) == 0 {
            place.lose_power(&mut random);
        }
        if random.below(2) == 0 {
            place.pass(GRACE_NS + 1 + random.below(100) as i64);
            place.write(Some(next));
            next += 1;
            if random.below(4) == 0 {
                place.lose_power(&mut random);
            }
        }
        known.retain(|number| place.foreign().contains(number));
    }
}

#[test]
fn writes_of_others_are_told_from_ours_whatever_a_crash_cuts_short() {
    for seed in 0..20_000 {
        schedule(seed);
    }
}
