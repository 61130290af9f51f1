//! Files that the kernel reads, writes and maps by itself (FUSE passthrough, Linux 6.9): where a layer has nothing to do with a file's
//! bytes, this process need not be woken for them.
//!
//! The kernel is told of the backing file once (`FUSE_DEV_IOC_BACKING_OPEN`, which takes CAP_SYS_ADMIN of the whole system and a
//! file system that is not stacked on others), and in the answer to each `open` that it shall use it. It then opens it anew, with
//! the flags of who opens. Everything else still comes here: names, attributes, sizes that are set, `fallocate`, `lseek` for
//! holes, `fsync`.
//!
//! As `fs/fuse/iomode.c` has it, all handles of a file that are open at a time must go the same way, with the same backing file;
//! `open` fails with EIO otherwise. Hence a [`Way`] is chosen by the first handle and shared by all that come before the
//! last is closed. The kernel leaves it before it tells of a handle's end, so none can be chosen anew too early.

use super::nodes::Node;
use entresol_files::FileData;
use fuser::{BackingId, FopenFlags, InitFlags, KernelConfig};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, Weak};

/// State of passthrough on a mount: whether the kernel reads and writes by itself the files whose bytes a layer does
/// not change ([`FileData::below`]).
#[derive(Debug)]
pub enum Passing {
    /// Off: the options did not ask for it.
    Unwanted,
    /// On: the kernel reads and writes those files by itself.
    Granted,
    /// Off although the options asked for it, for this reason.
    Refused(io::Error),
}

/// Way by which the kernel gets at the bytes of an open file.
pub(super) enum Way {
    /// The kernel sends requests here.
    Asked {
        /// Its page cache may have of the file what was there before the kernel wrote it by itself: `posix_fadvise` and `readahead`
        /// fill that even of files that are passed through.
        stale: bool,
    },
    /// The kernel reads and writes the backing file by itself.
    Passed(BackingId),
}

/// Memory of a node of the ways to its bytes: the one in use, and whether the last was by the kernel itself.
#[derive(Default)]
pub(super) struct Ways {
    now: Weak<Way>,
    /// The last was by the kernel itself.
    passed: bool,
}

/// Conditions for passing files through on a mount: wanted by the options, supported by the kernel, granted on a trial.
#[derive(Debug)]
pub(super) struct Passthrough {
    wanted: bool,
    /// The kernel can. What it makes of this process and of the backing file system is known after [`Passthrough::attempt`].
    able: AtomicBool,
    granted: AtomicBool,
}

/// The kernel keeps no bytes of a file, and writes that do not lengthen it may run together.
const PAST: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// The kernel's page cache keeps what it likes of a file's bytes, also when the file is closed, and reads ahead. Writes come
/// here at once all the same.
const KEPT: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;

impl Way {
    /// Reply flags for the kernel at `open`: whether its page cache shall stand above, and keep the pages that it has.
    pub fn flags(&self, page_cache: bool, direct: bool) -> FopenFlags {
        match self {
            // By itself it would ask for the alignment that the device needs; who asks here need not know that.
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

    /// Asks the kernel for it when the mount begins.
    pub fn ask(&self, config: &mut KernelConfig) {
        if self.wanted && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            // One level: another file system may still be stacked on this one.
            self.able.store(config.set_max_stack_depth(1).is_ok(), Relaxed);
        }
    }

    /// Tries it with a file of no name in the backing directory, so that what is refused now is not asked for at each `open`. The
    /// directory was opened before the mount, which may be over it and which nobody serves yet.
    pub fn attempt(&self, connection: impl AsFd, backing: impl AsFd) -> Passing {
        if !self.wanted {
            return Passing::Unwanted;
        }
        if !self.able.load(Relaxed) {
            return Passing::Refused(io::Error::other("the kernel cannot (Linux 6.9 can)"));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(backing, ".", flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
        // It is kept: the kernel has no other use for its number than to tell it from others.
        match file.and_then(|file| BackingId::create_raw(connection, file)) {
            Ok(_) => {
                self.granted.store(true, Relaxed);
                Passing::Granted
            }
            // It would stand on one more file system than the kernel allows.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Passing::Refused(
                io::Error::other("they lie on a file system that stands on another one itself, as an overlay does"),
            ),
            Err(error) => Passing::Refused(error),
        }
    }

    /// The way to a file that is being opened: that of its other handles, or a new one. `register` tells the kernel of a file.
    pub fn way(
        &self,
        node: &Node,
        data: &dyn FileData,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> Arc<Way> {
        let mut ways = node.ways.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(way) = ways.now.upgrade() {
            return way;
        }
        let below = if self.granted.load(Relaxed) { data.below() } else { None };
        // One that may only be read here may be opened once more to be written, and be other bytes to the layer then.
        let below = below.filter(|file| rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR)));
        let way = Arc::new(match below.and_then(|file| register(file).ok()) {
            Some(backing) => Way::Passed(backing),
            None => Way::Asked { stale: ways.passed },
        });
        *ways = Ways { now: Arc::downgrade(&way), passed: matches!(*way, Way::Passed(_)) };
        way
    }
}
