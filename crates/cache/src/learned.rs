//! Learned state: the knowledge of a cache's policy, as bytes that outlive the process. Where they are lost, the policy learns
//! anew.
//!
//! Little endian:
//!
//! | byte | size | |
//! |---|---|---|
//! | 0 | 8 | `89 45 54 4C 45 41 52 4E` |
//! | 8 | 1 | version, 1 |
//! | 9 | 1 | bytes of the policy's name |
//! | 10 | 2 | zeros |
//! | 12 | 4 | bytes of the policy's tables |
//! | 16 | 16 | UUID of the cache |
//! | 32 | | name of the policy, its tables, then 10 bytes a page, ascending: 6 for its number, 4 for its history |
//! | after them | 4 | CRC-32C of all before |

use super::BlockCache;
use super::search::LOOKED_AT;
use entresol_store::page_crc;
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"\x89ETLEARN";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 32;
const CRC_BYTES: usize = 4;
const ENTRY_BYTES: usize = 10;
/// Most pages whose histories are kept: 160 MiB of them, 64 GiB of pages of 4 KiB.
const PAGES_MAX: usize = 1 << 24;

/// Longest state in bytes.
pub const LEARNED_BYTES_MAX: usize = ENTRY_BYTES * PAGES_MAX + (1 << 20);

/// Beginning of a cache's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learning {
    /// The policy has learned nothing before, or nothing that fits.
    #[default]
    Anew,
    /// The policy goes on with what was learned before.
    GoesOn,
    /// The learned state is damaged, and the policy begins anew.
    Damaged,
}

/// Reason why the bytes of a state cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LearnedError {
    /// The bytes contradict themselves.
    #[error("it is damaged")]
    Damaged,
    /// The bytes are of another version.
    #[error("it is of version {0}, and this program knows version 1")]
    Version(u8),
}

/// Histories by page, packed and ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Histories(Vec<u8>);

impl Histories {
    /// The first of several histories of a page counts.
    fn of(mut found: Vec<(u64, u32)>) -> Self {
        found.sort_by_key(|&(page, _)| page);
        found.dedup_by_key(|&mut (page, _)| page);
        found.truncate(PAGES_MAX);
        let mut bytes = Vec::with_capacity(ENTRY_BYTES * found.len());
        for (page, history) in found {
            bytes.extend(&page.to_le_bytes()[..6]);
            bytes.extend(history.to_le_bytes());
        }
        Histories(bytes)
    }

    fn entry(&self, at: usize) -> (u64, u32) {
        let [a, b, c, d, e, f, history @ ..]: [u8; ENTRY_BYTES] =
            self.0[at * ENTRY_BYTES..(at + 1) * ENTRY_BYTES].try_into().expect("ten bytes");
        (u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), u32::from_le_bytes(history))
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        (0..self.0.len() / ENTRY_BYTES).map(|at| self.entry(at))
    }

    fn get(&self, page: u64) -> Option<u32> {
        let (mut from, mut end) = (0, self.0.len() / ENTRY_BYTES);
        while from < end {
            let middle = from.midpoint(end);
            let (found, history) = self.entry(middle);
            match found.cmp(&page) {
                std::cmp::Ordering::Equal => return Some(history),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        None
    }
}

/// Learned state of a cache: knowledge of classes of pages, and of each page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedState {
    cache: [u8; 16],
    policy: String,
    tables: Vec<u8>,
    histories: Arc<Histories>,
}

impl LearnedState {
    /// The state as bytes, at most [`LEARNED_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let LearnedState { cache, policy, tables, histories } = self;
        let parts = [policy.as_bytes(), tables, &histories.0];
        let mut bytes = Vec::with_capacity(HEAD_BYTES + parts.iter().map(|part| part.len()).sum::<usize>() + CRC_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, policy.len() as u8, 0, 0]);
        bytes.extend((tables.len() as u32).to_le_bytes());
        bytes.extend(cache);
        parts.iter().for_each(|part| bytes.extend(*part));
        bytes.extend(page_crc(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a state. Any bytes are decoded or refused; nothing is allocated before all lengths are found to fit.
    ///
    /// # Errors
    /// When the bytes are damaged or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, LearnedError> {
        let damaged = LearnedError::Damaged;
        let (whole, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(damaged)?;
        let (head, rest) = whole.split_first_chunk::<HEAD_BYTES>().ok_or(damaged)?;
        if bytes.len() > LEARNED_BYTES_MAX || head[..8] != MAGIC || *crc != page_crc(whole).to_le_bytes() {
            return Err(damaged);
        }
        if head[8] != VERSION {
            return Err(LearnedError::Version(head[8]));
        }
        let tables_bytes = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        let (policy, rest) = rest.split_at_checked(head[9].into()).ok_or(damaged)?;
        let (tables, entries) = rest.split_at_checked(tables_bytes as usize).ok_or(damaged)?;
        let policy = std::str::from_utf8(policy).map_err(|_| damaged)?;
        let number =
            |entry: &[u8]| u64::from_le_bytes([entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], 0, 0]);
        let pages = entries.chunks_exact(ENTRY_BYTES);
        if head[10..12] != [0; 2] || !pages.remainder().is_empty() || !pages.map(number).is_sorted_by(|a, b| a < b) {
            return Err(damaged);
        }
        Ok(LearnedState {
            cache: head[16..].try_into().expect("sixteen bytes"),
            policy: policy.to_owned(),
            tables: tables.to_vec(),
            histories: Arc::new(Histories(entries.to_vec())),
        })
    }

    /// UUID of the cache.
    pub fn cache(&self) -> [u8; 16] {
        self.cache
    }

    /// Name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Knowledge of classes of pages, as the policy has encoded it.
    pub fn tables(&self) -> &[u8] {
        &self.tables
    }

    /// Pages with their histories, ascending.
    pub fn histories(&self) -> impl Iterator<Item = (u64, u32)> {
        self.histories.iter()
    }

    /// History of a page, if it is known.
    pub(super) fn history(&self, page: u64) -> Option<u32> {
        self.histories.get(page)
    }
}

/// Tables of a policy, the UUID of its cache, and the state whose histories it has not been shown all pages of.
pub(super) struct Tables {
    pub cache: [u8; 16],
    pub policy: &'static str,
    pub tables: Vec<u8>,
    pub unseen: Option<Arc<LearnedState>>,
}

impl BlockCache {
    /// Learned state so far, for [`Opening::learn`](super::Opening::learn) at the next open. Requests go on
    /// meanwhile. None if the policy learns nothing that lasts, or the cache device has failed.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn learned(&self) -> io::Result<Option<Vec<u8>>> {
        let tables = self.locks.guard()?.core().learned();
        let Some(Tables { cache, policy, tables, unseen }) = tables else { return Ok(None) };
        let (mut found, mut from) = (Vec::new(), 0);
        while found.len() < PAGES_MAX {
            let part = self.locks.guard()?.core().histories(policy, from..from + LOOKED_AT as usize);
            let Some(part) = part else { break };
            found.extend(part);
            from += LOOKED_AT as usize;
        }
        // A page that has been shown since has a newer history, which comes first.
        found.extend(unseen.iter().flat_map(|state| state.histories()));
        let (policy, histories) = (policy.to_owned(), Arc::new(Histories::of(found)));
        Ok(Some(LearnedState { cache, policy, tables, histories }.encode()))
    }

    /// Beginning of the policy at the open.
    pub fn learning(&self) -> Learning {
        self.learning
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn example() -> LearnedState {
        let found = vec![(7, 1), (3, 2), ((1 << 48) - 1, 3), (7, 4)];
        let histories = Arc::new(Histories::of(found));
        LearnedState { cache: [5; 16], policy: "reuse".to_owned(), tables: vec![1, 2, 3], histories }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = example();
        assert_eq!(LearnedState::decode(&state.encode()).as_ref(), Ok(&state));
        let histories: Vec<_> = state.histories().collect();
        assert_eq!(histories, [(3, 2), (7, 1), ((1 << 48) - 1, 3)], "ascending, the first history of a page");
        assert_eq!([3, 4, 7].map(|page| state.history(page)), [Some(2), None, Some(1)]);
    }

    #[test]
    fn a_state_that_was_changed_or_cut_off_is_damaged() {
        let bytes = example().encode();
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(LearnedState::decode(&torn), Err(LearnedError::Damaged), "byte {at}");
            assert_eq!(LearnedState::decode(&bytes[..at]), Err(LearnedError::Damaged), "cut at {at}");
        }
    }

    /// Changed bytes whose checksum agrees are decoded or refused, and what is decoded is encoded to the same bytes.
    #[test]
    fn any_bytes_with_a_right_checksum_are_decoded_or_refused() {
        let seed = 11;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let sound = example().encode();
        let (mut decoded, mut refused, mut later) = (0, 0, 0);
        for _ in 0..20_000 {
            let mut bytes = sound[..sound.len() - CRC_BYTES].to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes.extend(random.next_u64().to_le_bytes()),
                    2 => bytes[at] ^= 1 << random.below(8),
                    _ => bytes[at] = [0, 0xff, random.next_u64() as u8][random.below(3) as usize],
                }
            }
            bytes.extend(page_crc(&bytes).to_le_bytes());
            match LearnedState::decode(&bytes) {
                Ok(state) => {
                    assert_eq!(state.encode(), bytes);
                    decoded += 1;
                }
                Err(LearnedError::Damaged) => refused += 1,
                Err(LearnedError::Version(version)) => {
                    assert_ne!(version, VERSION);
                    later += 1;
                }
            }
        }
        println!("{decoded} decoded, {refused} refused, {later} of other versions");
        assert!(decoded > 100 && refused > 100 && later > 100);
    }
}
