//! The native format, `.etr`: a loaded trace laid out so that it can be mapped and driven at once. docs/trace-format.md
//! draws it to the byte.
//!
//! Little endian. A header of 64 bytes, a table of sections of 32 bytes each, then the sections, each on a multiple of 64
//! bytes with zeros between, each with its own checksum (xxh3, 64 bits, seed 0).

mod read;
mod spool;
mod write;

pub use read::{from_bytes, open};
pub use spool::Spool;
pub use write::write;

use crate::trace::{Event, Object};

/// The first eight bytes. As in PNG: a byte that is no ASCII, and line ends that a text transfer would change.
pub const MAGIC: [u8; 8] = [0x89, b'E', b'T', b'R', b'\r', b'\n', 0x1A, b'\n'];
/// The version that this code writes, and the only one it reads.
pub const VERSION: u32 = 1;

const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 32;
const ALIGNMENT: usize = 64;

/// True when a file that begins with these bytes claims to be in the native format.
pub fn is_native(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// Kind of contents of a section; the number is its code in the file. Sections come in ascending order of their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// u32 per request.
    Pages = 1,
    /// u8 per request.
    Ops = 2,
    /// u64 per request, optional.
    Times = 3,
    /// u32 per request, optional.
    NextUse = 4,
    /// u32 per page.
    PageObject = 5,
    /// u64 per page.
    PageBlock = 6,
    /// JSON text.
    Metadata = 7,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Pages, Kind::Ops, Kind::Times, Kind::NextUse, Kind::PageObject, Kind::PageBlock, Kind::Metadata];

    fn name(self) -> &'static str {
        match self {
            Kind::Pages => "pages",
            Kind::Ops => "ops",
            Kind::Times => "times",
            Kind::NextUse => "next use",
            Kind::PageObject => "page objects",
            Kind::PageBlock => "page blocks",
            Kind::Metadata => "metadata",
        }
    }

    /// Bytes of an entry.
    fn element_bytes(self) -> u32 {
        match self {
            Kind::Ops | Kind::Metadata => 1,
            Kind::Pages | Kind::NextUse | Kind::PageObject => 4,
            Kind::Times | Kind::PageBlock => 8,
        }
    }
}

/// The metadata section.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    objects: Vec<Object>,
    events: Vec<Event>,
    provenance: String,
}
