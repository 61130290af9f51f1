//! The SQLite VFS `entresol`: the pages of a database go through a cache on a fast device. Its write-ahead log, journal
//! and shared memory go to the file system as without it.
//!
//! As a loadable extension, in the `sqlite3` shell:
//!
//! ```text
//! .load target/release/libentresol_sqlite
//! .open 'file:slow/data.db?vfs=entresol&cache_file=fast/data.cache&cache_size=1GiB'
//! ```
//!
//! In a program with SQLite linked in (by `rusqlite`, for instance):
//!
//! ```
//! use entresol_sqlite::{Api, Options, register};
//! let dir = tempfile::tempdir()?;
//! let cache = Some(dir.path().join("data.cache"));
//! register(Api::linked(), "cached", Options { cache, size_bytes: 4 << 20, ..Options::default() }, false)?;
//! let flags = rusqlite::OpenFlags::default();
//! let connection = rusqlite::Connection::open_with_flags_and_vfs(dir.path().join("data.db"), flags, "cached")?;
//! connection.execute_batch("PRAGMA journal_mode=wal; CREATE TABLE t(x); INSERT INTO t VALUES(7)")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! While they are open, the database file and its cache belong to one process. They belong to each other until the
//! cache is drained (`PRAGMA entresol_drain`). `docs/sqlite.md` has the parameters and the guarantees.

mod api;
mod backing;
mod error;
mod extension;
mod ffi;
mod file;
mod options;
mod pragma;
mod record;
mod registry;
mod shared;
mod vfs;

pub use api::Api;
pub use backing::GrowingFile;
pub use entresol_cache::Mode;
pub use error::Error;
pub use options::{Below, CAPACITY_BYTES, Options};
pub use vfs::register;
