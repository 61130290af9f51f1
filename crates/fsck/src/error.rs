//! The error of the decoder.

use std::io;

/// Reason why the store could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// Neither superblock is there.
    #[error("not an Entresol cache: neither superblock is there")]
    NotACache,
    /// The version of the superblock is another.
    #[error("a cache of layout version {0}; this program knows versions 2 and 3")]
    Version(u32),
    /// Both superblocks are damaged.
    #[error("both superblocks are damaged")]
    Superblocks,
    /// The file was truncated.
    #[error("the cache needs {needed} bytes, the file has {found}")]
    Short {
        /// Bytes of the whole store.
        needed: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// A structure that was durable is damaged, or contradicts another.
    #[error("byte {byte}: {why}")]
    Damaged {
        /// Offset of the structure in the file.
        byte: u64,
        /// The fault.
        why: &'static str,
    },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}
