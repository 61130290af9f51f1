//! The kernel's requests, each answered by the backing directory or by a file's layer.

use crate::attributes::{TRUST, attributes, errno, system, timespec};
use crate::buffers::Buffers;
use crate::handles::{Handle, Handles};
use crate::listing::{Listing, Offsets};
use crate::mutant::{Mutant, is};
use crate::nodes::{Node, Nodes, is_hidden};
use crate::passthrough::{Passthrough, Way};
use crate::pool::Pool;
use crate::reply::{answer, finish, finish_call};
use crate::table::{Asked, Entry, Image};
use crate::unmounter::Ended;
use entresol_files::{AtOnce, FileData, Sought};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, Gid, Mode, OFlags, Timestamps, Uid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// The largest read and write that the kernel may send.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel may have under way without a waiting caller: asynchronous direct I/O.
const BACKGROUND_MAX: u16 = 256;

/// A mounted directory, as the kernel sees it.
pub(super) struct FuseServer {
    /// Lock on the backing directory, held while it is served.
    _lock: OwnedFd,
    nodes: Arc<Nodes>,
    files: Handles,
    directories: Mutex<HashMap<u64, Arc<Listing>>>,
    pool: Pool,
    buffers: Buffers,
    kernel: Kernel,
    /// True while a thread that takes requests is in a sync.
    syncing: AtomicBool,
}

/// Features that the kernel provides, and the record of its end.
pub(super) struct Kernel {
    /// True if the kernel's page cache is above the mount.
    pub page_cache: bool,
    /// True if the kernel maps files opened for direct I/O; known when the mount begins.
    pub shared_mappings: Arc<AtomicBool>,
    pub passthrough: Arc<Passthrough>,
    /// Noted when the kernel sends no more requests.
    pub ended: Arc<Ended>,
    /// Version and features that the kernel offers; known when the mount begins.
    pub offered: Arc<OnceLock<Offered>>,
}

/// Version of the protocol that the kernel offers, and its features.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offered {
    pub version: (u32, u32),
    pub features: InitFlags,
}

impl FuseServer {
    pub fn new(lock: OwnedFd, nodes: Nodes, pool: Pool, kernel: Kernel) -> Self {
        let (directories, syncing) = (Mutex::default(), AtomicBool::new(false));
        let files = Handles::new(nodes.table().cloned());
        let buffers = Buffers::new(REQUEST_BYTES_MAX as usize);
        let nodes = Arc::new(nodes);
        Self { _lock: lock, nodes, files, directories, pool, buffers, kernel, syncing }
    }

    /// Opens again what was open in a former server. A file that cannot be opened any more is EBADF to its users.
    pub fn restore(&mut self, image: &Image) {
        let passthrough = &self.kernel.passthrough;
        // The highest id of a node is the last.
        let ids: HashMap<u64, u32> = image.backings.iter().copied().collect();
        let mut in_use = HashSet::new();
        self.files.go_on_from(image.next_handle);
        if is(Mutant::HandlesForgotten) {
            return;
        }
        for (&number, open) in &image.handles {
            let Ok(node) = self.nodes.get(open.node) else { continue };
            if open.directory {
                if let Ok(listing) = self.listing(node) {
                    let directories = self.directories.get_mut().unwrap_or_else(PoisonError::into_inner);
                    directories.insert(number, Arc::new(listing));
                    self.files.restore(number, open, None);
                }
                continue;
            }
            let id = ids.get(&open.node).copied().filter(|_| !is(Mutant::BackingsForgotten));
            in_use.extend(id);
            let share = passthrough.restored(&node.ways, id);
            let mut data = node.data(writes(open.flags));
            if id.is_some() && !data.as_ref().is_ok_and(|data| data.below().is_some()) {
                // The kernel goes on with the backing file.
                drop(data);
                node.ways.go_past_layer();
                data = node.data(writes(open.flags));
            }
            match data {
                Ok(data) => self.files.restore(number, open, Some(Handle::new(node, data, share))),
                Err(_) => self.files.lose(number, share),
            }
        }
        let unused = image.backings.iter().filter(|(_, id)| !in_use.contains(id) && !is(Mutant::UnusedLeft));
        unused.for_each(|&(node, id)| passthrough.unregister(node, id));
    }

    /// Opens a directory.
    fn listing(&self, node: Arc<Node>) -> rustix::io::Result<Listing> {
        let offsets = if self.nodes.table().is_some() { Offsets::Backing } else { Offsets::Position };
        Listing::new(node, self.nodes.root_below(), offsets)
    }

    /// Returns the reply flags that tell the kernel how to treat a file opened with `flags`.
    fn treated(&self, flags: i32, way: Way) -> FopenFlags {
        let direct = OFlags::from_bits_truncate(flags as u32).contains(OFlags::DIRECT);
        // A kernel that does not keep both kinds of handle of a file coherent handles O_DIRECT in its own way.
        let apart = direct && self.kernel.shared_mappings.load(Relaxed);
        way.flags(self.kernel.page_cache && !apart, direct)
    }

    fn node(&self, number: INodeNo) -> io::Result<Arc<Node>> {
        Ok(self.nodes.get(number.0)?)
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<Handle>, Errno> {
        self.files.get(handle)
    }

    fn directory(&self, handle: FileHandle) -> Option<Arc<Listing>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned()
    }

    /// The directory in which a name is made, unless the name is the cache's own.
    fn maker(&self, parent: INodeNo, name: &OsStr) -> io::Result<Arc<Node>> {
        let parent = self.node(parent)?;
        if is_hidden(&parent, name) { Err(rustix::io::Errno::PERM.into()) } else { Ok(parent) }
    }

    /// Makes a name and answers with its node.
    fn enter(
        &self,
        asked: Asked,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
        make: impl FnOnce(&Node) -> rustix::io::Result<()>,
    ) {
        let parent = match self.maker(parent, name) {
            Ok(parent) => parent,
            Err(error) => return reply.error(errno(&error)),
        };
        let entry = self.nodes.making(asked, &parent, name);
        let made = entry.run(|| Ok(make(&parent)?));
        answer(reply, made.and_then(|_| self.nodes.look_up(asked, &parent, name)));
        drop(entry);
    }

    fn create_file(
        &self,
        (asked, entry): (Asked, &Entry),
        parent: &Node,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> io::Result<(Arc<Node>, Arc<dyn FileData>)> {
        let exclusive = OFlags::from_bits_truncate(flags as u32) & OFlags::EXCL;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | exclusive;
        let open = || Ok(rustix::fs::openat(&*parent.place()?, name, flags, Mode::from_raw_mode(mode))?);
        let file = entry.run(open)?;
        let (node, _) = self.nodes.look_up(asked, parent, name)?;
        // Without a file, it was created before the request came again.
        match file.map_or_else(|| node.data(true), |file| node.adopt(file)) {
            Ok(data) => Ok((node, data)),
            Err(error) => {
                self.nodes.forget(node.number, 1);
                Err(error)
            }
        }
    }

    /// Has a worker run an action on an open file and answer.
    fn later(
        &self,
        handle: FileHandle,
        reply: ReplyEmpty,
        act: impl FnOnce(&dyn FileData) -> io::Result<()> + Send + 'static,
    ) {
        match self.file(handle) {
            Ok(file) => self.pool.run(move || finish(reply, act(&*file.data))),
            Err(error) => reply.error(error),
        }
    }

    /// Applies the changes of `setattr` except the size. With `owner`, runs `chown` even without a user or group.
    fn change(
        node: &Node,
        mode: Option<u32>,
        ids: (Option<u32>, Option<u32>),
        owner: bool,
        times: Option<Timestamps>,
    ) -> io::Result<()> {
        node.settle()?;
        let owner = (owner || ids != (None, None)).then_some(ids);
        node.changing(|| Self::change_attributes(node, mode, owner, times))
    }

    fn change_attributes(
        node: &Node,
        mode: Option<u32>,
        owner: Option<(Option<u32>, Option<u32>)>,
        times: Option<Timestamps>,
    ) -> io::Result<()> {
        if let Some(mode) = mode {
            node.set_mode(Mode::from_raw_mode(mode))?;
        }
        if let Some((user, group)) = owner {
            rustix::fs::chownat(
                &*node.place()?,
                "",
                user.map(Uid::from_raw),
                group.map(Gid::from_raw),
                AtFlags::EMPTY_PATH,
            )?;
        }
        if let Some(times) = times {
            node.set_times(&times)?;
        }
        Ok(())
    }
}

impl Filesystem for FuseServer {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let version = config.kernel_abi();
        let offered = Offered { version: (version.0, version.1), features: config.capabilities() };
        // Once per mount.
        let _first = self.kernel.offered.set(offered);
        let _ = config.add_capabilities(InitFlags::FUSE_HAS_RESEND);
        // The mount does without features that the kernel lacks; the caller sees the state of the mappings.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let mappings = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        self.kernel.shared_mappings.store(mappings, Relaxed);
        self.kernel.passthrough.ask(config);
        // Otherwise each write to a file not opened for direct I/O, passed through or not, first asks for the extended
        // attribute that it may have to remove. `write` then handles bytes that only the layer has.
        let _ = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        // All changes pass through the kernel, so no change is news to its page cache.
        let _ = config.add_capabilities(InitFlags::FUSE_EXPLICIT_INVAL_DATA);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        self.kernel.ended.note();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer(reply, self.node(parent).and_then(|parent| self.nodes.look_up(request.into(), &parent, name)));
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.nodes.forget(number.0, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(number).and_then(|node| node.stat()) {
            Ok(stat) => reply.attr(&TRUST, &attributes(&stat, number.0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = match self.node(number) {
            Ok(node) => node,
            Err(error) => return reply.error(errno(&error)),
        };
        let handle = handle.and_then(|handle| self.file(handle).ok());
        let times = (accessed.is_some() || modified.is_some())
            .then(|| Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) });
        // A `setattr` that names nothing is a `chown` without ids, which removes set-user-ID and the like.
        let owner = mode.is_none() && size.is_none() && times.is_none();
        let act = move || {
            if let Some(size) = size {
                match handle {
                    Some(handle) => handle.data.truncate(size)?,
                    None => node.data(true)?.truncate(size)?,
                }
            }
            Self::change(&node, mode, (user, group), owner, times)?;
            node.stat()
        };
        let number = number.0;
        self.pool.run(move || match act() {
            Ok(stat) => reply.attr(&TRUST, &attributes(&stat, number)),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.node(number).and_then(|node| Ok(rustix::fs::readlinkat(&*node.place()?, "", Vec::new())?)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (kind, mode) = (rustix::fs::FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        self.enter(request.into(), parent, name, reply, |parent| {
            rustix::fs::mknodat(&*parent.place()?, name, kind, mode, device.into())
        });
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.enter(request.into(), parent, name, reply, |parent| {
            rustix::fs::mkdirat(&*parent.place()?, name, Mode::from_raw_mode(mode & 0o7777))
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.enter(request.into(), parent, name, reply, |parent| {
            rustix::fs::symlinkat(target, &*parent.place()?, name)
        });
    }

    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = match self.node(number) {
            Ok(node) => node,
            Err(error) => return reply.error(errno(&error)),
        };
        self.enter(request.into(), parent, name, reply, |parent| {
            let parent = parent.place()?;
            let link = |path: &str| rustix::fs::linkat(rustix::fs::CWD, path, &*parent, name, AtFlags::SYMLINK_FOLLOW);
            node.changing(|| node.by_path(link))
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.nodes.get(parent.0) {
            Ok(parent) => {
                let (asked, nodes, name) = (request.into(), self.nodes.clone(), name.to_owned());
                self.pool.run(move || {
                    let entry = nodes.removing(asked, &parent, &name);
                    finish(reply, entry.run(|| nodes.remove(&parent, &name)).map(drop));
                    drop(entry);
                });
            }
            Err(error) => finish_call(reply, Err(error)),
        }
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.nodes.get(parent.0) {
            Ok(parent) => {
                let entry = self.nodes.removing(request.into(), &parent, name);
                finish(reply, entry.run(|| Ok(parent.remove(name, AtFlags::REMOVEDIR)?)).map(drop));
                drop(entry);
            }
            Err(error) => finish_call(reply, Err(error)),
        }
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let places = self.nodes.get(parent.0).and_then(|from| {
            let to = self.nodes.get(new_parent.0)?;
            if is_hidden(&from, name) || is_hidden(&to, new_name) {
                return Err(rustix::io::Errno::PERM);
            }
            Ok((from, to))
        });
        match places {
            Ok((from, to)) => {
                let (nodes, name, new_name) = (self.nodes.clone(), name.to_owned(), new_name.to_owned());
                let asked = request.into();
                self.pool.run(move || {
                    let (from, to) = ((&*from, &*name), (&*to, &*new_name));
                    let entry = nodes.renaming(asked, from, to, flags);
                    finish(reply, entry.run(|| nodes.rename(from, to, flags)).map(drop));
                    drop(entry);
                });
            }
            Err(error) => finish_call(reply, Err(error)),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writable = writes(flags.0 as u32);
        let opened = self.node(number).and_then(|node| {
            let data = node.data(writable)?;
            Ok((data.look()?, data, node))
        });
        match opened {
            Ok((stale, data, node)) => {
                let asked = Asked::from(request);
                let share = self.kernel.passthrough.share(&node.ways, &*data);
                let way = share.way;
                let mut treated = self.treated(flags.0, way);
                // The kernel drops its cached bytes of the file. A former server may have known that it must.
                let keeps = treated.contains(FopenFlags::FOPEN_KEEP_CACHE) && !stale && !asked.again;
                treated.set(FopenFlags::FOPEN_KEEP_CACHE, keeps);
                let handle = self.files.keep(asked, flags.0, node, data, share);
                match way {
                    Way::Passed(id) => {
                        // SAFETY: the handle's share has the id open on this mount. It is not closed through this.
                        let backing = unsafe { reply.wrap_backing(id) };
                        reply.opened_passthrough(handle, treated, &backing);
                        let _open = backing.into_raw();
                    }
                    Way::Asked { .. } => reply.opened(handle, treated),
                }
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let asked = Asked::from(request);
        let parent = match self.maker(parent, name) {
            Ok(parent) => parent,
            Err(error) => return reply.error(errno(&error)),
        };
        let entry = self.nodes.making(asked, &parent, name);
        let created = self.create_file((asked, &entry), &parent, name, mode, flags);
        let created = created.and_then(|(node, data)| Ok((node.stat()?, node, data)));
        match created {
            Ok((stat, node, data)) => {
                let attributes = attributes(&stat, node.number);
                let share = self.kernel.passthrough.share(&node.ways, &*data);
                let way = share.way;
                let treated = self.treated(flags, way);
                let handle = self.files.keep(asked, flags, node, data, share);
                let one = Generation(0);
                match way {
                    Way::Passed(id) => {
                        // SAFETY: as in `open`.
                        let file = unsafe { reply.wrap_backing(id) };
                        reply.created_passthrough(&TRUST, &attributes, one, handle, treated, &file);
                        let _open = file.into_raw();
                    }
                    Way::Asked { .. } => reply.created(&TRUST, &attributes, one, handle, treated),
                }
            }
            Err(error) => reply.error(errno(&error)),
        }
        drop(entry);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let size = size as usize;
        let mut buffer = self.buffers.take(size);
        match file.data.read_now(offset, &mut buffer[..size]) {
            Ok(AtOnce::First(done)) => {
                let buffers = self.buffers.clone();
                self.pool.run(move || {
                    match file.data.read(offset + done as u64, &mut buffer[done..size]) {
                        Ok(count) => reply.data(&buffer[..done + count]),
                        Err(error) => reply.error(errno(&error)),
                    }
                    buffers.give(buffer);
                });
                return;
            }
            Ok(AtOnce::All(count)) => reply.data(&buffer[..count]),
            Err(error) => reply.error(errno(&error)),
        }
        self.buffers.give(buffer);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
            && let Err(error) = file.node.disown()
        {
            return reply.error(system(error));
        }
        if file.data.below().is_none()
            && let Err(error) = file.node.lose_capabilities()
        {
            return reply.error(system(error));
        }
        // The kernel's limit is far below 4 GiB.
        let count = bytes.len() as u32;
        let flags = OFlags::from_bits_truncate(flags.0 as u32);
        let durable = flags.intersects(OFlags::DSYNC | OFlags::SYNC);
        let written = match file.data.write_now(offset, bytes) {
            Ok(written) => written,
            Err(error) => return reply.error(errno(&error)),
        };
        if written == bytes.len() && !durable {
            return reply.written(count);
        }
        let rest = bytes[written..].to_vec();
        self.pool.run(move || {
            let mut result = file.data.write(offset + written as u64, &rest);
            if durable {
                result = result.and_then(|()| file.data.sync(!flags.contains(OFlags::SYNC)));
            }
            match result {
                Ok(()) => reply.written(count),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing has nothing to do: a write is answered when it is in the layer. The kernel asks only once.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let closed = self.files.take(handle);
        // Closing the last handle may take long.
        self.pool.run(move || {
            drop(closed);
            reply.ok();
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        // For a log on a fast device, waking a worker takes longer than the sync. One thread may sync here; others go on.
        let here = |file: &Handle| file.data.below().is_some() && !self.syncing.swap(true, Acquire);
        match self.file(handle) {
            Ok(file) if here(&file) => {
                let synced = file.data.sync(data_only);
                self.syncing.store(false, Release);
                finish(reply, synced);
            }
            Ok(file) => self.pool.run(move || finish(reply, file.data.sync(data_only))),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let how = FallocateFlags::from_bits_retain(mode as u32);
        self.later(handle, reply, move |data| data.allocate(how, offset, length));
    }

    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let sought = match whence {
            SEEK_DATA => Sought::Data,
            SEEK_HOLE => Sought::Hole,
            // The kernel handles the other kinds.
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.file(handle) {
            Ok(file) => self.pool.run(move || match file.data.seek(sought, offset) {
                Ok(found) => reply.offset(found as i64),
                Err(error) => reply.error(errno(&error)),
            }),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel then reads and writes, which the layer sees.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let asked = Asked::from(request);
        if let Some(handle) = self.files.opened_by(asked) {
            return reply.opened(FileHandle(handle), FopenFlags::empty());
        }
        let opened = self.node(number).and_then(|node| Ok((self.listing(node.clone())?, node)));
        match opened {
            Ok((listing, node)) => {
                let (handle, listing) = (self.files.number(), Arc::new(listing));
                self.files.enter(handle, asked, &node, flags.0, true);
                self.directories.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, listing);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(listing) = self.directory(handle) else { return reply.error(Errno::EBADF) };
        let added =
            listing.entries_from(offset, |(number, kind, name), next| reply.add(INodeNo(*number), next, *kind, name));
        if let Err(error) = added {
            return reply.error(system(error));
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.files.leave(handle);
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        match self.directory(handle) {
            Some(listing) => self.pool.run(move || finish_call(reply, listing.sync(data_only))),
            None => reply.error(Errno::EBADF),
        }
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let found = self.nodes.get(number.0).and_then(|node| rustix::fs::fstatvfs(&*node.place()?));
        match found {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                found.f_bsize as u32,
                found.f_namemax as u32,
                found.f_frsize as u32,
            ),
            Err(error) => reply.error(system(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::XattrFlags::from_bits_retain(flags as u32);
        let node = match self.nodes.get(number.0) {
            Ok(node) => node,
            Err(error) => return reply.error(system(error)),
        };
        // Without the flag to make it, the same may be set again.
        let entry = match flags.contains(rustix::fs::XattrFlags::CREATE) {
            true => self.nodes.attributing(request.into(), &node, name, true),
            false => Entry::NONE,
        };
        finish(reply, entry.run(|| Ok(node.set_attribute(name, value, flags)?)).map(drop));
        drop(entry);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut value = vec![0; size as usize];
        let get = |path: &str| match size {
            0 => rustix::fs::getxattr_query(path, name),
            _ => rustix::fs::getxattr(path, name, &mut value[..]),
        };
        let length = self.nodes.get(number.0).and_then(|node| node.by_path(get));
        give(reply, length, size, &value);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.nodes.get(number.0).and_then(|node| node.by_path(attribute_names));
        // The server may see more names than the caller.
        let names = names.map(|names| if request.uid() == 0 { names } else { without_trusted(&names) });
        match names {
            Ok(names) if size > 0 && names.len() > size as usize => {
                give(reply, Err(rustix::io::Errno::RANGE), size, &[])
            }
            Ok(names) => give(reply, Ok(names.len()), size, &names),
            Err(error) => give(reply, Err(error), size, &[]),
        }
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let node = match self.nodes.get(number.0) {
            Ok(node) => node,
            Err(error) => return reply.error(system(error)),
        };
        let entry = self.nodes.attributing(request.into(), &node, name, false);
        let remove = || Ok(node.changing(|| node.by_path(|path| rustix::fs::removexattr(path, name)))?);
        finish(reply, entry.run(remove).map(drop));
        drop(entry);
    }
}

/// True if a file opened with these flags may be written.
fn writes(flags: u32) -> bool {
    OFlags::from_bits_truncate(flags).intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Names of extended attributes, each followed by a zero byte.
fn attribute_names(path: &str) -> rustix::io::Result<Vec<u8>> {
    let mut space = 1024;
    loop {
        let mut names = vec![0; space];
        match rustix::fs::listxattr(path, &mut names[..]) {
            Ok(length) => {
                names.truncate(length);
                return Ok(names);
            }
            // The system lists at most 64 KiB.
            Err(rustix::io::Errno::RANGE) if space <= 1 << 16 => space *= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Names without those that file systems show only to the system's administrator.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    let each = names.split_inclusive(|&byte| byte == 0);
    each.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect()
}

/// Answers with the length of extended attributes if the caller gave no buffer, else with their bytes.
fn give(reply: ReplyXattr, length: rustix::io::Result<usize>, space: u32, bytes: &[u8]) {
    match length {
        Ok(length) if space == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&bytes[..length]),
        Err(error) => reply.error(system(error)),
    }
}
