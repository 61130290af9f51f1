//! A file system in memory for crash tests of files. A crash leaves a state that a file system with a metadata
//! journal may leave. Deterministic: no thread, no clock.
//!
//! Every change of metadata is a record of the journal; a crash keeps a prefix of the records. A sync of a file
//! or directory commits the records up to the last that it depends on. Bytes lie in blocks of 512; a crash keeps
//! any version of a block since the last sync. In ordered mode the bytes of new blocks are durable before the
//! record that gives them to a file. In writeback mode such a block may be zeros.

mod handles;
mod state;

pub use handles::{Found, SimDirectory, SimFile, SimFileSystem};
pub use state::Call;
