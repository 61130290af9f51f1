//! Slots of an arena: single pages that no batch has, and notes that a page was changed below.

use super::piece::{AT_KIND, HEAD_WORDS, MARKERS, PAGES, PieceMap};
use super::{Arena, Missing, Sizes, moment};
use crate::mutant::{self, Mutant};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Words of a slot: its state, its page, its number.
pub(in crate::arena) const WORDS: usize = 3;

/// State of a slot that does not count.
pub(in crate::arena) const NOTHING: u64 = 0;

/// Meaning of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// The newest version of a page.
    Page,
    /// A page was changed below: what the store has of it does not count.
    Void,
    /// Bytes that are about to overwrite a block of a batch. The page's number is that of the piece and the block.
    Again,
}

impl SlotKind {
    pub(in crate::arena) fn word(self) -> u64 {
        match self {
            SlotKind::Page => 1,
            SlotKind::Void => 2,
            SlotKind::Again => 3,
        }
    }

    pub(in crate::arena) fn of(word: u64) -> Option<Self> {
        [SlotKind::Page, SlotKind::Void, SlotKind::Again].into_iter().find(|kind| kind.word() == word)
    }

    fn is_marker(self) -> bool {
        self == SlotKind::Void
    }
}

/// Position of a slot.
#[derive(Clone)]
pub(in crate::arena) struct Spot {
    map: Arc<PieceMap>,
    /// First word of the slot.
    word: usize,
    /// First byte of its block.
    byte: usize,
}

/// Slots that are not in use.
#[derive(Default)]
pub(in crate::arena) struct Slots {
    pages: Vec<Spot>,
    markers: Vec<Spot>,
}

impl Slots {
    fn of(&mut self, kind: SlotKind) -> &mut Vec<Spot> {
        if kind.is_marker() { &mut self.markers } else { &mut self.pages }
    }

    pub fn take(&mut self, kind: SlotKind) -> Option<Spot> {
        self.of(kind).pop()
    }

    pub fn put(&mut self, kind: SlotKind, spot: Spot) {
        self.of(kind).push(spot);
    }

    /// Adds the slots of a piece, and takes one.
    pub fn add(&mut self, kind: SlotKind, map: Arc<PieceMap>, sizes: &Sizes) -> Spot {
        let spots = spots(kind.is_marker(), &map, sizes);
        for spot in &spots {
            spot.map.word(spot.word).store(NOTHING, Relaxed);
        }
        map.word(AT_KIND).store(if kind.is_marker() { MARKERS } else { PAGES }, Release);
        moment();
        let all = self.of(kind);
        all.extend(spots);
        all.pop().expect("a piece has slots")
    }
}

/// Slots of a piece.
pub(in crate::arena) fn spots(markers: bool, map: &Arc<PieceMap>, sizes: &Sizes) -> Vec<Spot> {
    let spot = |word, byte| Spot { map: Arc::clone(map), word, byte };
    if markers {
        let first = sizes.head_bytes() / 8;
        (0..sizes.markers()).map(|at| spot(first + WORDS * at, 0)).collect()
    } else {
        let first = HEAD_WORDS + sizes.filled_words();
        (0..sizes.blocks).map(|at| spot(first + WORDS * at, sizes.head_bytes() + at * sizes.page_bytes)).collect()
    }
}

impl Spot {
    /// State, page and number of the slot.
    pub fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|at| self.map.word(self.word + at).load(Relaxed))
    }

    /// Bytes of the slot's block.
    ///
    /// # Safety
    /// As [`PieceMap::bytes`].
    pub unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the caller answers for it.
        unsafe { self.map.bytes(self.byte, len) }
    }

    /// Notes that the slot no longer counts.
    pub fn clear(&self) {
        self.map.word(self.word).store(NOTHING, Release);
    }
}

/// A page in memory that outlives the process, unless the file could not grow. Dropping it gives the memory back.
pub struct Slot {
    arena: Arc<Arena>,
    memory: Memory,
    kind: SlotKind,
    page: u64,
    len: usize,
}

enum Memory {
    Shared(Spot),
    /// Of this process alone.
    Private(Box<[u8]>, #[expect(dead_code, reason = "counts as long as it lives")] Missing),
}

impl Slot {
    pub(super) fn fill(
        arena: Arc<Arena>,
        spot: Option<Spot>,
        kind: SlotKind,
        page: u64,
        number: u64,
        bytes: &[u8],
    ) -> Self {
        let memory = match spot {
            Some(spot) => Memory::Shared(spot),
            None => Memory::Private(bytes.into(), Missing::begin(&arena)),
        };
        let early = mutant::is(Mutant::ArenaStateEarly);
        let slot = Slot { arena, memory, kind, page, len: bytes.len() };
        let Memory::Shared(spot) = &slot.memory else { return slot };
        if early {
            slot.count(spot, number);
        }
        if !bytes.is_empty() {
            // SAFETY: nobody else has the slot.
            unsafe { spot.map.copy_in(spot.byte, bytes) };
            moment();
        }
        if !early {
            slot.count(spot, number);
        }
        slot
    }

    fn count(&self, spot: &Spot, number: u64) {
        let word = |at: usize| spot.map.word(spot.word + at);
        word(1).store(self.page, Relaxed);
        word(2).store(number, Relaxed);
        word(0).store(self.kind.word(), Release);
        moment();
    }

    /// True if the page is in memory of this process alone.
    pub fn is_private(&self) -> bool {
        matches!(self.memory, Memory::Private(..))
    }

    /// Bytes of the page.
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: the slot was filled when it was made, and is not written before it is dropped.
            Memory::Shared(spot) => unsafe { spot.bytes(self.len) },
            Memory::Private(bytes, _) => bytes,
        }
    }

    /// Notes that the version no longer counts: a newer one does, or the device or the file below has it.
    pub fn settle(&self) {
        if let Memory::Shared(spot) = &self.memory {
            moment();
            spot.clear();
            moment();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.settle();
        let spot = if let Memory::Shared(spot) = &self.memory { Some(spot.clone()) } else { None };
        self.arena.give_back_slot(spot, self.kind, self.page);
    }
}
