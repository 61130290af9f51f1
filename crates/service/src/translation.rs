//! Types of the decoder as those of the engine, which share no code.

use entresol_fsck::{Layout, Superblock};
use entresol_store as store;

/// Geometry of the store that a superblock describes.
pub(crate) fn geometry(superblock: &Superblock) -> store::Geometry {
    let entresol_fsck::Geometry { page_bytes, segment_pages, segments, layout } = superblock.geometry;
    let layout = match layout {
        Layout::Log => store::Layout::Log,
        Layout::Slots => store::Layout::Slots,
        Layout::Segments => store::Layout::Segments,
    };
    store::Geometry { page_bytes, segment_pages, segments, layout }
}

/// Generations of the cache that a superblock describes.
pub(crate) fn generations(superblock: &Superblock) -> store::Generations {
    let generation = |found: entresol_fsck::Generation| {
        let entresol_fsck::Generation { number, nonce } = found;
        store::Generation { number, nonce }
    };
    let entresol_fsck::Generations { settled, pending } = superblock.generations;
    store::Generations { settled: generation(settled), pending: pending.map(generation) }
}
