//! The contents of a store.

use crate::superblock::Superblock;
use std::collections::HashMap;

/// Kind of an entry of a table, or of a block of the journal: its statement about a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Page { dirty: bool },
    Gone,
    Cleaned,
    Lost,
}

impl Kind {
    /// The kind that this byte of an entry stands for.
    pub(crate) fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Page { dirty: false },
            2 => Kind::Page { dirty: true },
            3 => Kind::Gone,
            4 => Kind::Cleaned,
            5 => Kind::Lost,
            _ => return None,
        })
    }
}

/// The newest version of a page.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// Offset of the version's bytes in the file.
    pub byte: u64,
    /// True if the backing store does not have these bytes.
    pub dirty: bool,
    /// True if the only copy of the page was lost before: the version has no bytes.
    pub lost: bool,
    /// True if the bytes agree with their CRC, or were not read.
    pub sound: bool,
}

/// Contents of the store.
pub struct Survey {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// The newest version of each page, by its number.
    pub pages: HashMap<u64, Version>,
    /// Versions in live segments, including obsolete ones.
    pub versions: u64,
    /// Tables read between the first live log address and the end; in the slots layout, blocks of the journal.
    pub batches: u64,
    /// Tables after the last known sync.
    pub unsynced_batches: u64,
    /// Segments from the first live log address to the end; 0 in the slots layout.
    pub live_segments: u64,
    /// Obsolete versions with damaged bytes: no loss.
    pub obsolete_damaged: u64,
    /// Offsets in bytes of damaged tables that have an intact copy: no loss.
    pub tables_copied: Vec<u64>,
}

impl Survey {
    /// Number of pages whose newest version is of a kind.
    pub fn count(&self, which: impl Fn(&Version) -> bool) -> u64 {
        self.pages.values().filter(|version| which(version)).count() as u64
    }
}
