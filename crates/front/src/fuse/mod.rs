//! The newcomer's door: a directory mounted again through FUSE, so that an unmodified database reads and writes its files
//! through a [`FileLayer`](entresol_files::FileLayer).
//!
//! Names, permissions and directories are the backing directory's own; the bytes of regular files go through the layer,
//! one [`FileData`](entresol_files::FileData) for each open file however many handles it has. The kernel's page cache stands above, as
//! above any file system, unless [`Options::page_cache`] is off: then files are opened for direct I/O, may still be mapped, and
//! the layer sees every read. There is no write-back cache in the kernel, so a write that returned is in the layer. Files with
//! which the layer does nothing are read and written by the kernel itself where it grants that ([`Options::passthrough`]). POSIX
//! and flock locks stay the kernel's.

mod attributes;
mod buffers;
mod handles;
mod listing;
mod mount;
mod nodes;
mod passthrough;
mod pool;
mod reply;
mod server;

pub use mount::{Mount, Options, Unmounter};
pub use passthrough::Passing;
