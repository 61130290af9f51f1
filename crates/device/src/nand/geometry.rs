//! Geometry of a drive: the dies, blocks in a die and pages in a block where a 4-KiB page can be.
//!
//! The unit of mapping is 4 KiB. A physical page of 8 or 16 KiB on one or more planes holds several units; they are
//! programmed together (see [`NandParameters::units_per_program`](super::NandParameters::units_per_program)), but each
//! is mapped, read and cleaned by itself.

/// Bytes of one unit of mapping.
pub const UNIT_BYTES: u64 = 4096;

/// Counts of dies, blocks and pages. A physical page's number is `block * pages_per_block + page`, a block's is
/// `die * blocks_per_die + index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical pages that the host sees.
    pub logical_pages: u32,
    /// Dies, each with its own log and its own cleaning.
    pub dies: u32,
    /// Erase blocks of one die.
    pub blocks_per_die: u32,
    /// Units of 4 KiB in a block, a power of two.
    pub pages_per_block: u32,
}

impl Geometry {
    /// Blocks that a die has beyond those of `rho`: those that it keeps free, and half of each of the two it writes
    /// to. With them a device scaled down to a few dozen blocks a die has the write amplification of the whole one.
    pub const fn spare_blocks(gc_start_blocks: u32) -> u32 {
        gc_start_blocks
    }

    /// A device of `logical_pages` with `rho` times as many physical pages, to the nearest block of each die, besides
    /// the spare blocks of [`Geometry::spare_blocks`].
    pub fn new(logical_pages: u32, rho: f64, dies: u32, pages_per_block: u32, gc_start_blocks: u32) -> Self {
        let per_die = f64::from(logical_pages) / f64::from(dies);
        let most = f64::from(pages_per_block);
        let blocks = (per_die * rho / most).round().max((per_die / most).ceil()) as u32;
        Geometry { logical_pages, dies, blocks_per_die: blocks + Self::spare_blocks(gc_start_blocks), pages_per_block }
    }

    /// Blocks of all dies.
    pub const fn blocks(&self) -> u32 {
        self.dies * self.blocks_per_die
    }

    /// Physical pages of all dies.
    pub const fn pages(&self) -> u64 {
        self.blocks() as u64 * self.pages_per_block as u64
    }

    /// The block of a physical page.
    pub const fn block_of(&self, physical: u32) -> u32 {
        physical >> self.pages_per_block.trailing_zeros()
    }
}
