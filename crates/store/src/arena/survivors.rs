//! Pages that a former process left in an arena.

use super::piece::{AT_KIND, AT_NUMBER, AT_OPS, BATCH, FREE, HEAD_WORDS, MARKERS, Op, PAGES, PieceMap};
use super::slot::{NOTHING, SlotKind, Spot, spots};
use super::{ALIGNMENT, AT_REPEATED, Arena, ArenaError, Sizes, moment};
use crate::mutant::{self, Mutant};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The newest state of each page that neither the device nor the file below may have.
pub struct Survivors {
    arena: Arc<Arena>,
    found: HashMap<u64, Found>,
    /// Pieces with batches, in the order of these.
    batches: Vec<Arc<PieceMap>>,
    /// Slots that count, in their order.
    slots: Vec<Spot>,
    /// Pieces with slots.
    of_slots: Vec<Arc<PieceMap>>,
    free: Vec<Arc<PieceMap>>,
}

enum Found {
    /// The page is in a block of a batch.
    Block(Arc<PieceMap>, usize),
    /// The page is in a slot.
    Slot(Spot),
    /// The store's copy of the page does not count.
    Void,
}

impl Found {
    /// Bytes of the page.
    fn bytes(&self, sizes: &Sizes) -> Option<&[u8]> {
        match self {
            Found::Block(piece, block) => {
                let at = sizes.head_bytes() + block * sizes.page_bytes;
                // SAFETY: the process that wrote here is gone, and the piece is not used again before `release`.
                Some(unsafe { piece.bytes(at, sizes.page_bytes) })
            }
            // SAFETY: as above.
            Found::Slot(spot) => Some(unsafe { spot.bytes(sizes.page_bytes) }),
            Found::Void => None,
        }
    }
}

impl Arena {
    /// Number of the first batch or slot of a process that was repeating what an earlier one had left; 0 if none was.
    fn repeated_from(&self) -> u64 {
        self.header.word(AT_REPEATED).load(Acquire)
    }

    /// Notes that survivors are about to be repeated. Until their [release](Survivors::release) they alone count: an
    /// older version of a page that is yet to be repeated may be copied or given up meanwhile, by maintenance.
    pub fn begin_repeating(&self) {
        if self.repeated_from() == 0 && !mutant::is(Mutant::ArenaRepeatCounts) {
            let next = self.inner().next;
            self.header.word(AT_REPEATED).store(next, Release);
            moment();
        }
    }

    /// Pages that a former process left. Nothing is used of the arena before.
    ///
    /// # Errors
    /// [`ArenaError::Unusable`] if the contents contradict one another, else the error of the operating system.
    pub fn survivors(self: &Arc<Self>) -> Result<Survivors, ArenaError> {
        let (sizes, count) = (self.sizes, self.inner().pieces);
        let (mut batches, mut slots, mut again) = (Vec::new(), Vec::new(), HashMap::new());
        let repeated_from = self.repeated_from();
        // Such a process served nothing. What it noted was of these pages, or of older versions.
        let is_void = |number: u64| repeated_from != 0 && number >= repeated_from;
        let (mut of_slots, mut free, mut newest) = (Vec::new(), Vec::new(), repeated_from.saturating_sub(1));
        for piece in PieceMap::several(&self.file, ALIGNMENT as u64, sizes.piece_bytes(), count)? {
            let piece = Arc::new(piece);
            match piece.word(AT_KIND).load(Acquire) {
                FREE => free.push(piece),
                BATCH if is_void(piece.word(AT_NUMBER).load(Relaxed)) => {
                    piece.word(AT_KIND).store(FREE, Release);
                    free.push(piece);
                }
                BATCH => batches.push((piece.word(AT_NUMBER).load(Relaxed), piece)),
                kind @ (PAGES | MARKERS) => {
                    for spot in spots(kind == MARKERS, &piece, &sizes) {
                        let [state, page, number] = spot.words();
                        if state == NOTHING {
                            // Nothing of it means anything.
                            continue;
                        }
                        if is_void(number) {
                            spot.clear();
                            continue;
                        }
                        newest = newest.max(number);
                        match SlotKind::of(state) {
                            Some(SlotKind::Again) => drop(again.insert(page, spot)),
                            Some(kind) => slots.push((number, kind, page, spot)),
                            None => return Err(ArenaError::Unusable("a slot has a state that cannot be")),
                        }
                    }
                    of_slots.push(piece);
                }
                _ => return Err(ArenaError::Unusable("a piece has a use that cannot be")),
            }
        }
        batches.sort_unstable_by_key(|(number, _)| *number);
        slots.sort_unstable_by_key(|(number, ..)| *number);
        newest = batches.last().map_or(newest, |(number, _)| newest.max(*number));
        let mut found = HashMap::new();
        for (_, piece) in &batches {
            let ops = piece.word(AT_OPS).load(Acquire);
            if ops > sizes.ops() as u64 {
                return Err(ArenaError::Unusable("a batch has more entries than there is room for"));
            }
            for at in 0..ops as usize {
                let first = HEAD_WORDS + sizes.filled_words() + 2 * at;
                let words = [first, first + 1].map(|word| piece.word(word).load(Relaxed));
                match Op::of(words, &sizes) {
                    Some(Op::Gone { page }) => drop(found.insert(page, Found::Void)),
                    Some(Op::Dirty { page, block }) => {
                        let target = piece.index(sizes.piece_bytes()) << 32 | block as u64;
                        let filled = piece.word(HEAD_WORDS + block / 64).load(Acquire) >> (block % 64) & 1 == 1;
                        if let Some(spot) = again.get(&target) {
                            // The block may have been overwritten in part.
                            found.insert(page, Found::Slot(Spot::clone(spot)));
                        } else if filled || mutant::is(Mutant::UnfilledRepeated) {
                            found.insert(page, Found::Block(Arc::clone(piece), block));
                        }
                        // A block that was never filled belongs to a write that was not answered.
                    }
                    None => return Err(ArenaError::Unusable("a batch names a block that it does not have")),
                }
            }
        }
        // A slot that counts is newer than what batches have of its page.
        for (_, kind, page, spot) in &slots {
            found.insert(*page, if *kind == SlotKind::Void { Found::Void } else { Found::Slot(spot.clone()) });
        }
        let mut inner = self.inner();
        inner.next = inner.next.max(newest.saturating_add(1));
        drop(inner);
        let batches = batches.into_iter().map(|(_, piece)| piece).collect();
        let slots = slots.into_iter().map(|(.., spot)| spot).collect();
        Ok(Survivors { arena: Arc::clone(self), found, batches, slots, of_slots, free })
    }
}

impl Survivors {
    /// Pages whose copies in the store do not count, ascending. They come first: none of these copies may be written
    /// below meanwhile.
    pub fn voids(&self) -> Vec<u64> {
        let voids = self.found.iter().filter(|(_, found)| matches!(found, Found::Void));
        let mut voids: Vec<u64> = voids.map(|(&page, _)| page).collect();
        voids.sort_unstable();
        voids
    }

    /// Pages that are to be written again, ascending, with their bytes.
    pub fn pages(&self) -> Vec<(u64, &[u8])> {
        let sizes = self.arena.sizes();
        let found = self.found.iter().filter_map(|(&page, found)| Some((page, found.bytes(&sizes)?)));
        let mut pages: Vec<(u64, &[u8])> = found.collect();
        pages.sort_unstable_by_key(|&(page, _)| page);
        pages
    }

    /// Notes that all of this has been repeated, and gives its memory back. A kill meanwhile leaves the newer part.
    pub fn release(self) {
        let Survivors { arena, found, batches, slots, of_slots, mut free } = self;
        drop(found);
        arena.header.word(AT_REPEATED).store(0, Release);
        moment();
        for piece in &batches {
            piece.word(AT_KIND).store(FREE, Release);
            moment();
        }
        for spot in slots {
            spot.clear();
            moment();
        }
        for piece in &of_slots {
            piece.word(AT_KIND).store(FREE, Release);
            moment();
        }
        free.extend(batches.into_iter().chain(of_slots));
        arena.inner().free.extend(free);
    }
}
