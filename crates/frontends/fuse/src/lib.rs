//! The FUSE front-end: a directory mounted again, so that an unmodified database reads and writes its files through a
//! [`FileLayer`](entresol_files::FileLayer).
//!
//! Names, permissions and directories are the backing directory's own. The bytes of regular files go through the layer:
//! one [`FileData`](entresol_files::FileData) per open file, for all its handles. The kernel's page cache is above the
//! mount, as above any file system, unless [`Options::page_cache`] is off. Files are then opened for direct I/O and may
//! still be mapped, and the layer sees every read. The kernel keeps no write-back cache, so a write that returned is in
//! the layer. Files whose bytes the layer does not change are read and written by the kernel itself, where it grants
//! that ([`Options::passthrough`]). POSIX and flock locks stay the kernel's.
//!
//! With a holder ([`Options::keep`]) the mount outlives the process: [`Mount::take_over`] in the next one goes on with
//! it, and programs see a pause.

mod attributes;
mod buffers;
mod error;
mod handles;
mod keep;
mod listing;
mod mount;
mod mutant;
mod nodes;
mod passthrough;
mod pool;
mod reply;
mod request_memory;
mod server;
mod settle;
mod table;
mod take_over;
mod unmounter;

pub use error::{Error, Result};
pub use keep::{Keep, Kept, Surviving};
pub use mount::{Mount, Options};
#[cfg(feature = "mutants")]
pub use mutant::{kill_after, leave_out, steps_taken};
pub use passthrough::Passing;
pub use unmounter::{Unmounter, clear_dead_mount, unmount_at};
