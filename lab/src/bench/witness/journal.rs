//! The witness's journal: a file of records of five words, to which each request adds. Its order is that of the requests'
//! beginnings and answers.

use entresol_core::Random;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// Words of a record: event, inode, page, hash of its bytes, number of the request.
const WORDS: usize = 5;
const RECORD: usize = WORDS * 8;

/// A record.
pub(super) type Record = [u64; WORDS];

/// Hash of a page of which a request wrote a part, or that is not there.
pub(super) const UNKNOWN: u64 = 0;

/// Events of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    WriteBegins,
    WriteAnswered,
    SyncBegins,
    SyncAnswered,
    /// The end of what was noted of the file's pages, from this one on.
    Forgotten,
    /// A process began.
    ProcessBegins,
}

impl Event {
    const ALL: [Event; 6] = [
        Event::WriteBegins,
        Event::WriteAnswered,
        Event::SyncBegins,
        Event::SyncAnswered,
        Event::Forgotten,
        Event::ProcessBegins,
    ];

    /// The record of an event of a page.
    pub fn at(self, inode: u64, page: u64, hash: u64, number: u64) -> Record {
        [self as u64, inode, page, hash, number]
    }

    /// The record of an event of a file.
    pub fn of(self, inode: u64) -> Record {
        self.at(inode, 0, 0, 0)
    }
}

/// Hash of a page's bytes; never [`UNKNOWN`].
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let word = |eight: &[u8]| u64::from_le_bytes(eight.try_into().expect("eight bytes"));
    bytes.chunks_exact(8).fold(1, |sum, eight| Random::mix(sum ^ word(eight))).max(1)
}

/// Pages that a write touches, each with the hash of its bytes.
pub(super) fn pages(page_bytes: u64, offset: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let end = offset + bytes.len() as u64;
    let of = |page: u64| {
        let (from, to) = (page * page_bytes, (page + 1) * page_bytes);
        let whole = from >= offset && to <= end;
        (page, if whole { hash(&bytes[(from - offset) as usize..(to - offset) as usize]) } else { UNKNOWN })
    };
    (offset / page_bytes..end.div_ceil(page_bytes)).map(of).collect()
}

/// A write of a page.
#[derive(Clone, Copy, Debug)]
struct Version {
    hash: u64,
    number: u64,
    /// Position of the answer in the journal. None before it, and where a kill came before a sync had covered it.
    answered: Option<usize>,
}

/// Writes of a page, in the order of their beginnings.
#[derive(Debug, Default)]
pub(super) struct Versions {
    all: Vec<Version>,
    /// Index of the last one that a sync has covered.
    covered: Option<usize>,
}

impl Versions {
    /// Reason why the page may not have these bytes; none if it may.
    pub fn fault(&self, found: u64) -> Option<String> {
        let covered = self.covered?;
        let may_be = |version: &Version| [found, UNKNOWN].contains(&version.hash);
        if self.all[covered..].iter().any(may_be) {
            return None;
        }
        let earlier = self.all.iter().rposition(|version| version.hash == found);
        let is = earlier.map_or("is no version".to_owned(), |at| format!("is version {at}"));
        Some(format!("{is} of 0 to {}, and a sync covered version {covered}", self.all.len() - 1))
    }

    fn cover(&mut self, from: usize) {
        let last = self.all.iter().rposition(|version| version.answered.is_some_and(|answered| answered < from));
        self.covered = self.covered.max(last);
    }
}

/// Pages of a file in the journal.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<u64, Versions>);

impl Known {
    /// Pages of which a sync has covered a version, with all versions.
    pub fn covered(&self) -> impl Iterator<Item = (u64, &Versions)> {
        self.0.iter().map(|(&page, versions)| (page, versions)).filter(|(_, versions)| versions.covered.is_some())
    }

    /// Files in these records, and the next number. A sync covers what its own process wrote before it began.
    fn of(records: impl Iterator<Item = Record>) -> (HashMap<u64, Self>, u64) {
        let mut files: HashMap<u64, Known> = HashMap::new();
        let (mut syncs, mut numbers) = (HashMap::new(), 0);
        for (at, [event, inode, page, hash, number]) in records.enumerate() {
            numbers = numbers.max(number + 1);
            let Some(event) = Event::ALL.into_iter().find(|known| *known as u64 == event) else { continue };
            match event {
                Event::WriteBegins => {
                    let versions = files.entry(inode).or_default().0.entry(page).or_default();
                    versions.all.push(Version { hash, number, answered: None });
                }
                Event::WriteAnswered => {
                    let versions = files.entry(inode).or_default().0.entry(page).or_default();
                    let its = versions.all.iter_mut().rev().find(|version| version.number == number);
                    its.into_iter().for_each(|version| version.answered = Some(at));
                }
                Event::SyncBegins => drop(syncs.insert(number, at)),
                Event::SyncAnswered => {
                    if let (Some(from), Some(file)) = (syncs.remove(&number), files.get_mut(&inode)) {
                        file.0.values_mut().for_each(|versions| versions.cover(from));
                    }
                }
                Event::Forgotten => {
                    files.entry(inode).or_default().0.retain(|&known, _| known < page);
                }
                Event::ProcessBegins => {
                    syncs.clear();
                    let all = files.values_mut().flat_map(|file| file.0.values_mut()).flat_map(|page| &mut page.all);
                    all.for_each(|version| version.answered = None);
                }
            }
        }
        (files, numbers)
    }
}

/// The journal of a process.
pub(super) struct Journal {
    file: Mutex<File>,
    numbers: AtomicU64,
}

impl Journal {
    /// Goes on with the journal at `path`; returns what it has of each file, by inode.
    pub fn begin(path: &Path) -> io::Result<(Self, HashMap<u64, Known>)> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A kill may have come in the middle of a record.
        let whole = bytes.len() / RECORD * RECORD;
        file.set_len(whole as u64)?;
        let word =
            |record: &[u8], at: usize| u64::from_le_bytes(record[at * 8..][..8].try_into().expect("eight bytes"));
        let records = bytes[..whole].chunks_exact(RECORD).map(|record| std::array::from_fn(|at| word(record, at)));
        let (known, numbers) = Known::of(records);
        let journal = Journal { file: Mutex::new(file), numbers: AtomicU64::new(numbers) };
        journal.note(&[Event::ProcessBegins.of(0)]);
        Ok((journal, known))
    }

    /// The next number of a request.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, SeqCst)
    }

    /// Adds records. A kill keeps what was added.
    pub fn note(&self, records: &[Record]) {
        let bytes: Vec<u8> = records.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&bytes).expect("the disk of the benchmark's own files has space");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault of page 7 of file 1 with these bytes' hash.
    fn fault(records: &[Record], found: u64) -> Option<String> {
        let (files, _) = Known::of(records.iter().copied());
        files.get(&1).and_then(|file| file.0.get(&7)?.fault(found))
    }

    fn write(hash: u64, number: u64) -> [Record; 2] {
        [Event::WriteBegins, Event::WriteAnswered].map(|event| event.at(1, 7, hash, number))
    }

    fn sync(number: u64) -> [Record; 2] {
        [Event::SyncBegins, Event::SyncAnswered].map(|event| event.at(1, 0, 0, number))
    }

    #[test]
    fn a_page_may_not_be_older_than_a_sync_has_covered() {
        let records = [write(10, 0), write(11, 1), sync(2), write(12, 3)].concat();
        assert!(fault(&records, 10).is_some_and(|why| why.starts_with("is version 0 of 0 to 2")));
        assert!(fault(&records, 99).is_some_and(|why| why.starts_with("is no version")));
        assert!([11, 12].iter().all(|&hash| fault(&records, hash).is_none()));
        // What was under way when the sync began need not be covered.
        let [begins, answered] = write(11, 1);
        let [sync_begins, sync_answered] = sync(2);
        let late = [&write(10, 0)[..], &[begins, sync_begins, answered, sync_answered]].concat();
        assert!(fault(&late, 10).is_none() && fault(&late, 9).is_some());
        // A sync that failed, or was not answered, covers nothing.
        assert!(fault(&[&write(10, 0)[..], &[sync_begins]].concat(), 9).is_none());
    }

    #[test]
    fn a_sync_covers_what_its_own_process_wrote() {
        let begins = [Event::ProcessBegins.of(0)];
        let records = [&write(10, 0)[..], &sync(1), &write(11, 2), &begins, &sync(3)].concat();
        assert!(fault(&records, 10).is_none(), "the kill may have taken version 1");
        assert!(fault(&records, 9).is_some(), "version 0 was covered");
        let again = [&records[..], &write(12, 4), &sync(5)].concat();
        assert!(fault(&again, 10).is_some() && fault(&again, 12).is_none());
    }

    #[test]
    fn what_was_written_in_part_or_cut_is_not_known() {
        let part = [&write(10, 0)[..], &sync(1), &write(UNKNOWN, 2)].concat();
        assert!(fault(&part, 99).is_none());
        let cut = |from: u64| [&write(10, 0)[..], &sync(1), &[Event::Forgotten.at(1, from, 0, 0)]].concat();
        assert!(fault(&cut(7), 99).is_none() && fault(&cut(8), 99).is_some());
        assert_eq!(pages(4, 6, &[1; 8]).iter().map(|page| page.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(pages(8, 8, &[1; 12])[1], (2, UNKNOWN));
        assert_eq!(pages(8, 8, &[1; 12])[0], (1, hash(&[1; 8])));
    }
}
