//! Bytes of a page in memory: of this process alone, or in an arena where they are the newest version.

use entresol_store::arena::{Arena, Slot};
use std::ops::Deref;
use std::sync::Arc;

/// A copy of a page, shared by those who need it.
#[derive(Clone)]
pub(crate) enum PageCopy {
    /// Bytes that something else has too, should the process be killed.
    Private(Arc<[u8]>),
    /// Bytes that outlive the process.
    Kept(Arc<Slot>),
}

impl PageCopy {
    /// The newest version of a page, which nothing but memory has. In the arena, if there is one.
    pub fn newest(arena: Option<&Arc<Arena>>, page: u64, bytes: &[u8]) -> Self {
        arena.map_or_else(|| bytes.into(), |arena| PageCopy::Kept(arena.page(page, bytes)))
    }
}

impl From<&[u8]> for PageCopy {
    fn from(bytes: &[u8]) -> Self {
        PageCopy::Private(bytes.into())
    }
}

impl Deref for PageCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            PageCopy::Private(bytes) => bytes,
            PageCopy::Kept(slot) => slot.bytes(),
        }
    }
}
