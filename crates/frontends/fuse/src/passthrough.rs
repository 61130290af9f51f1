//! Files that the kernel reads, writes and maps by itself (FUSE passthrough, Linux 6.9): where a layer does not change
//! a file's bytes, this process need not be woken for them.
//!
//! The kernel gets the backing file once (`FUSE_DEV_IOC_BACKING_OPEN`). That call needs CAP_SYS_ADMIN in the initial
//! namespace, and a file system that is not stacked on another. The answer to each `open` then names the backing file,
//! which the kernel opens again with the opener's flags. All else still comes here: names, attributes, changes of size,
//! `fallocate`, `lseek` for holes, `fsync`.
//!
//! By `fs/fuse/iomode.c`, all handles of a file that are open at a time must go the same way, with the same backing
//! file; otherwise `open` fails with EIO. So the first handle chooses a [`Way`], and all handles share it until the
//! last is closed. The kernel leaves the way before it reports a handle's end, so no new way can be chosen too early.

use entresol_files::FileData;
use fuser::{BackingId, FopenFlags, InitFlags, KernelConfig};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// State of passthrough on a mount: the kernel's own reading and writing of files whose bytes a layer does not change
/// ([`FileData::below`]).
#[derive(Debug)]
pub enum Passing {
    /// Off: the options did not ask for it.
    Unwanted,
    /// On: the kernel reads and writes those files by itself.
    Granted,
    /// Off although the options asked for it, for this reason.
    Refused(io::Error),
}

/// The kernel's way to the bytes of an open file.
pub(super) enum Way {
    /// The kernel sends requests here.
    Asked {
        /// True if the page cache may hold bytes from before the kernel wrote the file by itself: `posix_fadvise` and
        /// `readahead` fill it even for files that are passed through.
        stale: bool,
    },
    /// The kernel reads and writes the backing file by itself.
    Passed(BackingId),
}

/// A node's ways to its bytes: the one in use, and the kind of the last one.
#[derive(Default)]
pub(super) struct Ways {
    now: Weak<Way>,
    /// True if the last was by the kernel itself.
    passed: bool,
}

/// Conditions of passthrough on a mount: wanted by the options, supported by the kernel, granted on a trial.
#[derive(Debug)]
pub(super) struct Passthrough {
    wanted: bool,
    /// True if the kernel can pass files through. [`Passthrough::attempt`] then tests this process and the backing file
    /// system.
    able: AtomicBool,
    granted: AtomicBool,
}

/// The kernel keeps no bytes of a file, and writes that do not lengthen it may run together.
const PAST: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// The kernel's page cache keeps a file's bytes as it likes, also when the file is closed, and reads ahead. Writes
/// still come here at once.
const KEPT: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;

impl Way {
    /// Reply flags for the kernel at `open`: they turn the page cache on or off, and let it keep its pages or not.
    pub fn flags(&self, page_cache: bool, direct: bool) -> FopenFlags {
        match self {
            // The kernel itself would demand the device's alignment, which a caller here need not know.
            Way::Passed(_) if direct => PAST,
            Way::Passed(_) => FopenFlags::empty(),
            Way::Asked { .. } if !page_cache => PAST,
            Way::Asked { stale: true } => FopenFlags::empty(),
            Way::Asked { stale: false } => KEPT,
        }
    }
}

impl Passthrough {
    pub fn new(wanted: bool) -> Self {
        Self { wanted, able: AtomicBool::new(false), granted: AtomicBool::new(false) }
    }

    /// Requests passthrough from the kernel when the mount begins.
    pub fn ask(&self, config: &mut KernelConfig) {
        if self.wanted && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            // One level: another file system may still be stacked on this one.
            self.able.store(config.set_max_stack_depth(1).is_ok(), Relaxed);
        }
    }

    /// Tries passthrough with a nameless file in the backing directory, so that a refusal is not repeated at each
    /// `open`. The directory was opened before the mount, which may cover it and is not served yet.
    pub fn attempt(&self, connection: impl AsFd, backing: impl AsFd) -> Passing {
        if !self.wanted {
            return Passing::Unwanted;
        }
        if !self.able.load(Relaxed) {
            return Passing::Refused(io::Error::other("the kernel cannot (Linux 6.9 can)"));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(backing, ".", flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
        // The id is kept: the kernel uses its number only to tell it from others.
        match file.and_then(|file| BackingId::create_raw(connection, file)) {
            Ok(_) => {
                self.granted.store(true, Relaxed);
                Passing::Granted
            }
            // The mount would be stacked on one more file system than the kernel allows.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Passing::Refused(
                io::Error::other("they lie on a file system that stands on another one itself, as an overlay does"),
            ),
            Err(error) => Passing::Refused(error),
        }
    }

    /// The way to a file being opened, whose node has these `ways`: that of its other handles, or a new one. `register`
    /// passes a file to the kernel.
    pub fn way(
        &self,
        ways: &Mutex<Ways>,
        data: &dyn FileData,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> Arc<Way> {
        let mut ways = ways.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(way) = ways.now.upgrade() {
            return way;
        }
        let below = if self.granted.load(Relaxed) { data.below() } else { None };
        // A file opened read-only here may be opened again for writing, and then be other bytes to the layer.
        let below = below.filter(|file| rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR)));
        let way = Arc::new(match below.and_then(|file| register(file).ok()) {
            Some(backing) => Way::Passed(backing),
            None => Way::Asked { stale: ways.passed },
        });
        *ways = Ways { now: Arc::downgrade(&way), passed: matches!(*way, Way::Passed(_)) };
        way
    }
}
