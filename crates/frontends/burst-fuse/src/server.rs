//! The kernel's requests. Each thread of the session answers one at a time, and may wait for nodes and the PFS meanwhile.

use crate::errno::Failure;
use crate::exit::{FileId, has_descriptor, is_failing};
use crate::nodes::{Node, Nodes, Path, ROOT, checkpoint, lock, named};
use crate::open::{Handle, OpenFiles, Writing};
use entresol_burst::CheckpointId;
use entresol_burst_live::client::{FileError, Files};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::process::{getgid, getuid};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest write that the kernel sends.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Time for which the kernel may trust names and attributes: other mounts change them.
const TRUST: Duration = Duration::ZERO;
/// Files have no page cache above the mount: two versions of a file would share it.
const TREATED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;
/// Name of the link to the newest complete checkpoint.
const NEWEST: &str = "newest";

type Answer<T> = Result<T, Failure>;

/// State that the server and the owner of the mount share.
pub(super) struct State {
    pub files: Arc<Files>,
    pub open: OpenFiles,
    /// True if nothing further may be opened.
    pub retiring: AtomicBool,
    /// Root of the mount; empty until it is there.
    pub mount: OnceLock<FileId>,
}

/// An entry of a directory, with its kind.
type Entry = (FileType, OsString);

/// A mounted directory of checkpoints, as the kernel sees it.
pub(super) struct Server {
    state: Arc<State>,
    nodes: Nodes,
    listings: Mutex<HashMap<u64, Vec<Entry>>>,
    next_listing: AtomicU64,
    started: SystemTime,
}

impl Server {
    pub fn new(state: Arc<State>) -> Server {
        let (listings, next_listing) = (Mutex::default(), AtomicU64::new(1));
        Server { state, nodes: Nodes::new(), listings, next_listing, started: SystemTime::now() }
    }

    fn node(&self, number: INodeNo) -> Answer<Node> {
        self.nodes.get(number.0).ok_or(Errno::ESTALE.into())
    }

    /// The path of a file in a directory.
    fn path(&self, parent: INodeNo, name: &OsStr) -> Answer<Path> {
        match self.node(parent)? {
            Node::Checkpoint(checkpoint) => Ok((checkpoint, name.to_owned())),
            // Files are in the directories of checkpoints alone.
            _ => Err(Errno::EPERM.into()),
        }
    }

    fn check_open(&self) -> Answer<()> {
        match self.state.retiring.load(Ordering::SeqCst) {
            true => Err(Errno::ESHUTDOWN.into()),
            false => Ok(()),
        }
    }

    fn attributes(&self, number: u64, kind: FileType, size: u64, modified: SystemTime) -> FileAttr {
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm: if kind == FileType::RegularFile { 0o644 } else { 0o755 },
            nlink: 1,
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            rdev: 0,
            blksize: REQUEST_BYTES_MAX,
            flags: 0,
        }
    }

    /// Attributes of a node that exists.
    fn stat(&self, number: u64, node: &Node) -> Answer<FileAttr> {
        let (kind, size, modified) = match node {
            Node::Root => (FileType::Directory, 0, self.started),
            Node::Checkpoint(checkpoint) => match self.state.files.has(*checkpoint)? {
                true => (FileType::Directory, 0, self.started),
                false => return Err(Errno::ENOENT.into()),
            },
            Node::Newest => (FileType::Symlink, self.newest()?.len() as u64, self.started),
            Node::File(path) => match self.state.open.writing(path) {
                Some(writing) => (FileType::RegularFile, writing.length(), SystemTime::now()),
                None => {
                    let committed = self.state.files.committed(path.0, &path.1)?;
                    (FileType::RegularFile, committed.bytes, UNIX_EPOCH + Duration::from_nanos(committed.at_ns))
                }
            },
        };
        Ok(self.attributes(number, kind, size, modified))
    }

    /// Name of the newest complete checkpoint.
    fn newest(&self) -> Answer<String> {
        let newest = self.state.files.newest_complete()?;
        newest.map(|checkpoint| checkpoint.0.to_string()).ok_or(Errno::ENOENT.into())
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Answer<Node> {
        match self.node(parent)? {
            Node::Root if name == NEWEST => Ok(Node::Newest),
            Node::Root => checkpoint(name).map(Node::Checkpoint).ok_or(Errno::ENOENT.into()),
            Node::Checkpoint(checkpoint) => Ok(Node::File((checkpoint, name.to_owned()))),
            Node::Newest | Node::File(_) => Err(Errno::ENOTDIR.into()),
        }
    }

    /// The kernel's entry of a node that exists.
    fn enter(&self, node: &Node) -> Answer<FileAttr> {
        // The attributes first: a name that does not exist takes no number.
        let attributes = self.stat(0, node)?;
        Ok(FileAttr { ino: INodeNo(self.nodes.enter(node)), ..attributes })
    }

    fn make(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        self.check_open()?;
        if self.node(parent)? != Node::Root {
            // A checkpoint has files and no directories.
            return Err(Errno::EPERM.into());
        }
        let checkpoint = checkpoint(name).ok_or(Failure::from(Errno::EINVAL))?;
        if self.state.files.has(checkpoint)? {
            return Err(Errno::EEXIST.into());
        }
        self.state.files.make(checkpoint)?;
        self.enter(&Node::Checkpoint(checkpoint))
    }

    fn open_file(&self, number: INodeNo, flags: OpenFlags, thread: u32) -> Answer<u64> {
        self.check_open()?;
        let Node::File(path) = self.node(number)? else { return Err(Errno::EISDIR.into()) };
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return Ok(self.state.open.write(&path, truncates(flags.0), thread)?);
        }
        if self.state.open.writing(&path).is_some_and(|writing| !writing.is_waiting()) {
            return Err(Errno::EBUSY.into());
        }
        Ok(self.state.open.read(&path)?)
    }

    fn create_file(&self, parent: INodeNo, name: &OsStr, flags: i32, thread: u32) -> Answer<(FileAttr, u64)> {
        self.check_open()?;
        let path = self.path(parent, name)?;
        let handle = self.state.open.write(&path, truncates(flags), thread)?;
        let entered = self.enter(&Node::File(path));
        if entered.is_err() {
            self.state.open.take_back(handle);
        }
        Ok((entered?, handle))
    }

    fn read_file(&self, handle: FileHandle, offset: u64, bytes: u32) -> Answer<Vec<u8>> {
        match self.state.open.get(handle.0) {
            Some(Handle::Reader(reader)) => Ok(lock(&reader).read(offset, bytes.into())?),
            // Bytes that are stored, and not committed, are not read back.
            Some(Handle::Writer(..)) => Err(Errno::EOPNOTSUPP.into()),
            None => Err(Errno::EBADF.into()),
        }
    }

    /// Acts on a file that is open for writing.
    fn writing(&self, handle: FileHandle, act: impl FnOnce(&Writing) -> Result<(), FileError>) -> Answer<()> {
        match self.state.open.get(handle.0) {
            Some(Handle::Writer(writing)) => Ok(act(&writing)?),
            Some(Handle::Reader(_)) => Ok(()),
            None => Err(Errno::EBADF.into()),
        }
    }

    fn set_length(&self, node: &Node, bytes: u64) -> Answer<()> {
        let Node::File(path) = node else { return Err(Errno::EISDIR.into()) };
        let Some(writing) = self.state.open.writing(path) else { return Err(FileError::Committed.into()) };
        Ok(writing.set_length(bytes)?)
    }

    /// Gives a file with a temporary name another one in its checkpoint. The new name is durable, and committed if the file is
    /// whole, before the kernel has the answer.
    fn rename_file(&self, from: Answer<Path>, to: Answer<Path>, flags: RenameFlags) -> Answer<()> {
        let (from, to) = (from?, to?);
        let is_known = flags.difference(RenameFlags::RENAME_NOREPLACE).is_empty();
        if !is_known {
            return Err(Errno::EINVAL.into());
        }
        if from.0 != to.0 {
            // Pieces belong to a checkpoint. Programs such as `mv` copy then.
            return Err(Errno::EXDEV.into());
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        match self.state.open.rename(&from, &to, replace) {
            Err(FileError::Committed) => return Err(Errno::EEXIST.into()),
            renamed => renamed?,
        }
        self.nodes.rename(&Node::File(from), &Node::File(to));
        Ok(())
    }

    fn entries(&self, number: INodeNo) -> Answer<Vec<Entry>> {
        let dots = [".", ".."].map(|name| (FileType::Directory, OsString::from(name)));
        let entries: Vec<Entry> = match self.node(number)? {
            Node::Root => {
                let all = self.state.files.checkpoints()?;
                all.into_iter().map(|it| (FileType::Directory, it.0.to_string().into())).collect()
            }
            Node::Checkpoint(checkpoint) => self.files(checkpoint)?,
            Node::Newest | Node::File(_) => return Err(Errno::ENOTDIR.into()),
        };
        Ok(dots.into_iter().chain(entries).collect())
    }

    /// The committed files of a checkpoint, and those that this mount writes.
    fn files(&self, checkpoint: CheckpointId) -> Answer<Vec<Entry>> {
        let mut names = self.state.files.list(checkpoint)?;
        let written = self.state.open.unfinished().into_iter().filter(|(of, _)| *of == checkpoint);
        names.extend(written.map(|(_, name)| name));
        names.sort_unstable();
        names.dedup();
        Ok(names.into_iter().map(|name| (FileType::RegularFile, name)).collect())
    }

    /// Name of a handle's file, for messages.
    fn named(&self, handle: FileHandle) -> String {
        match self.state.open.get(handle.0) {
            Some(Handle::Writer(writing)) => named(&writing.path()),
            _ => "a file".to_owned(),
        }
    }
}

fn truncates(flags: i32) -> bool {
    OFlags::from_bits_retain(flags as u32).contains(OFlags::TRUNC)
}

/// Error number of a failure, whose reason is said where the number does not say it.
fn told(of: impl FnOnce() -> String, failure: Failure) -> Errno {
    if let Some(why) = failure.why {
        eprintln!("{}: {why}", of());
    }
    failure.errno
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let needed = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        needed.map_err(|_| io::Error::other("the kernel does not pass O_TRUNC on to file systems"))?;
        // The mount does without.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        Ok(())
    }

    /// Names the files that nobody can commit any more.
    fn destroy(&mut self) {
        for path in self.state.open.unfinished() {
            eprintln!("{}: not committed", named(&path));
        }
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.child(parent, name).and_then(|node| self.enter(&node)) {
            Ok(attributes) => reply.entry(&TRUST, &attributes, Generation(0)),
            Err(failure) => reply.error(told(|| name.display().to_string(), failure)),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, uses: u64) {
        self.nodes.forget(number.0, uses);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(number).and_then(|node| self.stat(number.0, &node)) {
            Ok(attributes) => reply.attr(&TRUST, &attributes),
            Err(failure) => reply.error(told(|| "stat".to_owned(), failure)),
        }
    }

    /// Sets the length of a file that is being written. Modes, owners and times are not kept.
    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = self.node(number).and_then(|node| {
            size.map_or(Ok(()), |bytes| self.set_length(&node, bytes))?;
            self.stat(number.0, &node)
        });
        match set {
            Ok(attributes) => reply.attr(&TRUST, &attributes),
            Err(failure) => reply.error(told(|| "truncate".to_owned(), failure)),
        }
    }

    fn readlink(&self, _: &Request, _: INodeNo, reply: ReplyData) {
        match self.newest() {
            Ok(name) => reply.data(name.as_bytes()),
            Err(failure) => reply.error(told(|| NEWEST.to_owned(), failure)),
        }
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        match self.make(parent, name) {
            Ok(attributes) => reply.entry(&TRUST, &attributes, Generation(0)),
            Err(failure) => reply.error(told(|| name.display().to_string(), failure)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.path(parent, name).and_then(|path| Ok(self.state.open.remove(&path)?)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(told(|| name.display().to_string(), failure)),
        }
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        match self.rename_file(self.path(parent, name), self.path(new_parent, new_name), flags) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(told(|| format!("{} to {}", name.display(), new_name.display()), failure)),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(number, flags, request.pid()) {
            Ok(handle) => reply.opened(FileHandle(handle), TREATED),
            Err(failure) => reply.error(told(|| "open".to_owned(), failure)),
        }
    }

    fn create(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, flags: i32, reply: ReplyCreate) {
        match self.create_file(parent, name, flags, request.pid()) {
            Ok((attributes, handle)) => {
                reply.created(&TRUST, &attributes, Generation(0), FileHandle(handle), TREATED);
            }
            Err(failure) => reply.error(told(|| name.display().to_string(), failure)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(handle, offset, bytes) {
            Ok(read) => reply.data(&read),
            Err(failure) => reply.error(told(|| "read".to_owned(), failure)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.writing(handle, |writing| writing.write(handle.0, offset, bytes)) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(failure) => reply.error(told(|| self.named(handle), failure)),
        }
    }

    fn flush(&self, request: &Request, number: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if is_failing(request.pid()) {
            // The kernel closes the files of a process that has failed. They are not whole, and not committed.
            let _noted = self.writing(handle, |writing| {
                writing.fail(handle.0, request.pid());
                Ok(())
            });
            return reply.ok();
        }
        let end = format!("/{}", self.named(handle));
        let mount = self.state.mount.get().copied();
        let has_another = |process| mount.is_some_and(|mount| has_descriptor(process, mount.of(number.0), &end));
        match self.writing(handle, |writing| writing.close(handle.0, request.pid(), has_another)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(told(|| self.named(handle), failure)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.writing(handle, |writing| writing.sync(handle.0)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(told(|| self.named(handle), failure)),
        }
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
        if let Some(path) = self.state.open.release(handle.0) {
            eprintln!("{}: not committed", named(&path));
        }
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.entries(number) {
            Ok(entries) => {
                let handle = self.next_listing.fetch_add(1, Ordering::Relaxed);
                lock(&self.listings).insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(failure) => reply.error(told(|| "list".to_owned(), failure)),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listings = lock(&self.listings);
        let Some(entries) = listings.get(&handle.0) else { return reply.error(Errno::EBADF) };
        // The kernel looks names up before it uses a number.
        for (at, (kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(INodeNo(ROOT), at, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.listings).remove(&handle.0);
        reply.ok();
    }

    /// Free space of the PFS, which takes what no buffer takes.
    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::statvfs(self.state.files.root()) {
            Ok(it) => reply.statfs(
                it.f_blocks,
                it.f_bfree,
                it.f_bavail,
                it.f_files,
                it.f_ffree,
                it.f_bsize as u32,
                it.f_namemax as u32,
                it.f_frsize as u32,
            ),
            Err(error) => reply.error(Errno::from_i32(error.raw_os_error())),
        }
    }
}
