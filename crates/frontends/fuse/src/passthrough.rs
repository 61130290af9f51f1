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
//!
//! The kernel's numbers of backing files belong to the mount, and outlive this process as the mount does
//! (`docs/fuse-take-over.md`, rule 7). They rise (`idr_alloc_cyclic` in `fs/fuse/backing.c`), and one that is closed
//! already is ENOENT.

use crate::mutant::{Mutant, is, step};
use crate::table::Table;
use entresol_files::FileData;
use fuser::{BackingId, FopenFlags, InitFlags, KernelConfig};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// The kernel sends requests here.
    Asked {
        /// True if the page cache may hold bytes from before the kernel wrote the file by itself: `posix_fadvise` and
        /// `readahead` fill it even for files that are passed through.
        stale: bool,
    },
    /// The kernel reads and writes the backing file of this number by itself.
    Passed(u32),
}

/// A node's way to its bytes.
pub(super) struct Ways {
    number: u64,
    state: Mutex<State>,
}

struct State {
    /// Handles that share the way.
    handles: usize,
    /// The way of the open handles.
    way: Way,
    /// True if the last way was by the kernel itself.
    passed: bool,
    /// True if a former server chose the way, and the layer here would not.
    past_layer: bool,
}

impl Ways {
    pub fn new(number: u64) -> Self {
        let state = State { handles: 0, way: Way::Asked { stale: false }, passed: false, past_layer: false };
        Self { number, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores the knowledge of a former server: true if the kernel has read and written the file by itself.
    pub fn were_passed(&self, passed: bool) {
        self.state().passed = passed && !is(Mutant::StaleForgotten);
    }

    /// True if the bytes are those of the backing file, whatever the layer, until the last handle is closed.
    pub fn are_past_layer(&self) -> bool {
        self.state().past_layer
    }

    pub fn go_past_layer(&self) {
        self.state().past_layer = !is(Mutant::LayerAsked);
    }
}

/// A handle's share in the way of its node. The way ends with the last one.
pub(super) struct Share {
    pub way: Way,
    ways: Arc<Ways>,
    passthrough: Arc<Passthrough>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.ways.state();
        state.handles -= 1;
        if state.handles == 0 {
            state.past_layer = false;
            if let Way::Passed(id) = state.way {
                self.passthrough.unregister(self.ways.number, id);
            }
        }
    }
}

/// Conditions of passthrough on a mount: wanted by the options, supported by the kernel, granted on a trial.
#[derive(Debug)]
pub(super) struct Passthrough {
    wanted: bool,
    /// True if the kernel can pass files through. [`Passthrough::attempt`] then tests this process and the backing file
    /// system.
    able: AtomicBool,
    granted: AtomicBool,
    /// The kernel's device, from before the first request on.
    device: OnceLock<OwnedFd>,
    table: Option<Arc<Table>>,
    /// Held from a registration to its entry: at most the last id is not entered.
    registering: Mutex<()>,
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
    pub fn new(wanted: bool, table: Option<Arc<Table>>) -> Self {
        let (able, granted) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { wanted, able, granted, device: OnceLock::new(), table, registering: Mutex::default() }
    }

    /// Sets the kernel's device.
    pub fn connect(&self, device: impl AsFd) -> io::Result<()> {
        // Once per mount.
        let _first = self.device.set(rustix::io::fcntl_dupfd_cloexec(device, 0)?);
        Ok(())
    }

    /// Requests passthrough from the kernel when the mount begins.
    pub fn ask(&self, config: &mut KernelConfig) {
        if self.wanted && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            // One level: another file system may still be stacked on this one.
            self.able.store(config.set_max_stack_depth(1).is_ok(), Relaxed);
        }
    }

    /// Tries passthrough with a nameless file in the backing directory, so that a refusal is not repeated at each
    /// `open`. The directory was opened before the mount, which may cover it and is not served yet. All ids that former
    /// servers entered, if there were any, are below `next`.
    pub fn attempt(&self, backing: impl AsFd, next: Option<u32>) -> Passing {
        let tried = (self.able.load(Relaxed) || next > Some(0)).then(|| self.try_with(backing, next.unwrap_or(0)));
        match tried {
            _ if !self.wanted => Passing::Unwanted,
            None => Passing::Refused(io::Error::other("the kernel cannot (Linux 6.9 can)")),
            Some(Ok(())) => {
                self.granted.store(true, Relaxed);
                Passing::Granted
            }
            // The mount would be stacked on one more file system than the kernel allows.
            Some(Err(error)) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Passing::Refused(
                io::Error::other("they lie on a file system that stands on another one itself, as an overlay does"),
            ),
            Some(Err(error)) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) && next == Some(0) => {
                let why = "the mount began without, or CAP_SYS_ADMIN is missing";
                Passing::Refused(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            Some(Err(error)) => Passing::Refused(error),
        }
    }

    /// Registers a nameless file, and closes its id with those before that no server could enter before it was killed.
    fn try_with(&self, backing: impl AsFd, next: u32) -> io::Result<()> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(backing, ".", flags, Mode::RUSR | Mode::WUSR)?;
        let last = BackingId::create_raw(self.device()?, file)?;
        step();
        let first = if is(Mutant::NotEnteredLeft) { last } else { next.max(1) };
        for id in first..=last {
            let _unused = self.close(id);
            step();
        }
        self.table.iter().for_each(|table| table.next_backing(last.saturating_add(1)));
        Ok(())
    }

    fn device(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.device.get().ok_or(Errno::NOTCONN)?.as_fd())
    }

    /// Registers the backing file of a node with the kernel, and enters its id.
    fn register(&self, node: u64, file: BorrowedFd<'_>) -> io::Result<u32> {
        let _in_order = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let id = BackingId::create_raw(self.device()?, file)?;
        step();
        if !is(Mutant::NotEntered) {
            self.table.iter().for_each(|table| table.registered(node, id));
        }
        Ok(id)
    }

    /// Closes an id of a node's backing file, which no handle has any more, and enters that. If this process may not
    /// close it, a later one may.
    pub fn unregister(&self, node: u64, id: u32) {
        if is(Mutant::NotClosed) {
            return;
        }
        if self.close(id).is_ok() {
            step();
            self.table.iter().for_each(|table| table.unregistered(node, id));
        }
    }

    fn close(&self, id: u32) -> io::Result<()> {
        /// `FUSE_DEV_IOC_BACKING_CLOSE` of the kernel's `linux/fuse.h`.
        const CLOSE: rustix::ioctl::Opcode = opcode::write::<u32>(229, 2);
        // SAFETY: the kernel reads one `u32`.
        match unsafe { ioctl(self.device()?, Setter::<CLOSE, u32>::new(id)) } {
            // A former server closed it, and was killed before it entered that.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A share in the way to a file being opened: that of the node's other handles, or a new one.
    pub fn share(self: &Arc<Self>, ways: &Arc<Ways>, data: &dyn FileData) -> Share {
        let mut state = ways.state();
        if state.handles == 0 {
            let below = if self.granted.load(Relaxed) { data.below() } else { None };
            // A file opened read-only here may be opened again for writing, and then be other bytes to the layer.
            let below =
                below.filter(|file| rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR)));
            state.way = match below.and_then(|file| self.register(ways.number, file).ok()) {
                Some(id) => Way::Passed(id),
                None => {
                    self.table.iter().for_each(|table| table.asked(ways.number));
                    Way::Asked { stale: state.passed }
                }
            };
            state.passed = matches!(state.way, Way::Passed(_));
        }
        self.taken(ways, &mut state)
    }

    /// A share of a handle that a former server opened, with the id of its backing file if the kernel reads and writes
    /// that by itself.
    pub fn restored(self: &Arc<Self>, ways: &Arc<Ways>, id: Option<u32>) -> Share {
        let mut state = ways.state();
        // The kernel dropped stale bytes when it opened the file.
        state.way = id.map_or(Way::Asked { stale: false }, Way::Passed);
        state.passed = id.is_some();
        self.taken(ways, &mut state)
    }

    fn taken(self: &Arc<Self>, ways: &Arc<Ways>, state: &mut State) -> Share {
        state.handles += 1;
        Share { way: state.way, ways: ways.clone(), passthrough: self.clone() }
    }
}
