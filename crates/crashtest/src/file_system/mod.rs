//! A file system in memory of which a crash keeps what one that journals its metadata may keep: the stage of the files' crash
//! tests. Deterministic: no thread, no clock.
//!
//! Every change of metadata is a record of the journal; a crash keeps a prefix of the records. A sync of a file or directory
//! commits the records up to the last that it depends on. Bytes lie in blocks of 512: of each a crash keeps any version since
//! the last sync. In ordered mode bytes of new blocks are down before the record that gives a file these blocks; in writeback
//! mode such a block may be zeros.

mod handles;
mod state;

pub use handles::{Found, SimDirectory, SimFile, SimFileSystem};
pub use state::Call;
