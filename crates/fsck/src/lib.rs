//! A decoder of the cache store that changes nothing.
//!
//! The decoder follows `docs/cache-format.md` and shares no code with the engine that writes the store. A mistake in one
//! of them therefore shows in the other.

mod bytes;
mod commit;
mod contents;
mod error;
mod log;
mod slots;
mod superblock;

pub use bytes::Bytes;
pub use contents::{Survey, Version};
pub use error::SurveyError;
pub use superblock::{Generation, Generations, Geometry, Layout, State, Superblock, claims, superblock};

/// Contents of a store, from all its tables; with `verify` its pages are read too.
///
/// # Errors
/// If the file is no store, is damaged beyond its copies, or cannot be read.
pub fn survey(file: &impl Bytes, verify: bool) -> Result<Survey, SurveyError> {
    let superblock = superblock(file)?;
    match superblock.geometry.layout {
        Layout::Log => log::survey(file, superblock, verify),
        Layout::Slots | Layout::Segments => slots::survey(file, superblock, verify),
    }
}
