//! Errors of a cache store.

use super::geometry::Geometry;
use std::io;

/// Why a cache store cannot be formatted, opened or used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no superblock.
    #[error("not an Entresol cache: neither superblock is there (format it first)")]
    NotACache,
    /// The superblock is of another version of the layout.
    #[error(
        "a cache of layout version {found}; this program knows versions 2 and 3: use the program that made it, or drain the cache with it and format it again"
    )]
    Version {
        /// The version that was found.
        found: u32,
    },
    /// Both superblocks are damaged.
    #[error("both superblocks of the cache are damaged")]
    Superblocks,
    /// The sizes are not those of any valid store.
    #[error("no cache can have {geometry}: {why}")]
    Geometry {
        /// The rejected sizes.
        geometry: Geometry,
        /// The fault of the sizes.
        why: &'static str,
    },
    /// The device is smaller than the store on it.
    #[error("the cache needs {needed} bytes, the device has {found} (has it shrunk?)")]
    Shrunk {
        /// Bytes that the store takes.
        needed: u64,
        /// Bytes that the device has.
        found: u64,
    },
    /// The device is too small for the new store.
    #[error("a cache of this geometry needs {needed} bytes, the device has {found}")]
    TooSmall {
        /// Bytes that the store would take.
        needed: u64,
        /// Bytes that the device has.
        found: u64,
    },
    /// The store belongs to another backing store.
    #[error("this is the cache of another backing store ({}, not {})", hex(.found), hex(.expected))]
    OtherBacking {
        /// Identity in the superblock.
        found: [u8; 16],
        /// Identity of the backing store at hand.
        expected: [u8; 16],
    },
    /// The backing store has become smaller.
    #[error("the backing store has {found} pages, fewer than the {expected} that the cache was used with")]
    BackingSize {
        /// Pages now.
        found: u64,
        /// Pages when the cache was last opened.
        expected: u64,
    },
    /// The backing store has grown, and the cache holds the page in which the backing store ended.
    #[error(
        "the backing store has grown in the middle of a page that the cache has: open it once in a mode that may write, or drain it"
    )]
    GrownReadOnly,
    /// The device failed while the cache was in use; the contents may be out of date.
    #[error("this cache was retired when its device failed; its pages may be out of date: format it")]
    Retired,
    /// Durable contents of the store are damaged.
    #[error(
        "the store is damaged at block {block} (byte {byte} of the device): {why}; pages that were durable may be lost"
    )]
    Damaged {
        /// Log address; block number in the slots layout.
        block: u64,
        /// Offset of the damage on the device, in bytes.
        byte: u64,
        /// Description of the damage.
        why: &'static str,
    },
    /// The device failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An identity as UUIDs are written, without hyphens.
fn hex(identity: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*identity))
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}
