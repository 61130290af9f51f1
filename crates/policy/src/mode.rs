//! Handling of writes, as in the block cache's modes of the same names.

/// Handling of writes by the cache, the lowest layer. Layers above it write back.
///
/// The policy decides alike in every mode, and may take pages for dirty that are not. The driver carries its decisions
/// out and counts them: a write-back of a page that the backing store has already is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Writes stay in the cache until the policy writes them back.
    #[default]
    WriteBack,
    /// Writes go to the backing store at once, and to the cache if the policy holds or admits the page. No page is
    /// dirty.
    WriteThrough,
    /// Writes go to the backing store at once, and to the cache if it holds the page. The policy does not see a write
    /// of a page that it does not hold. No page is dirty.
    WriteAround,
}

impl Mode {
    /// True if the backing store has each write at once.
    #[inline(always)]
    pub fn is_clean(self) -> bool {
        self != Mode::WriteBack
    }
}
