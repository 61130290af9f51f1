//! A holder, and servers that are killed: the parts of a take-over, each in a process of its own.
//!
//! This process is the holder. The server and its clients are this test program again, told by the environment what to
//! do ([`part`]).

use entresol_files::{AtOnce, DirectFiles, FileData, FileId, FileLayer, OpenDirectory, Sought};
use entresol_fuse::{Keep, Kept, Mount, Options, Passing, Surviving};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::thread::CapabilitySet;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Environment of a process that is a part of a test.
const PART: &str = "ENTRESOL_FUSE_PART";
const DIRECTORY: &str = "ENTRESOL_FUSE_DIRECTORY";
const MUTANT: &str = "ENTRESOL_FUSE_MUTANT";
const KILL_AFTER: &str = "ENTRESOL_FUSE_KILL_AFTER";
const SEED: &str = "ENTRESOL_FUSE_SEED";
const NO_PAGE_CACHE: &str = "ENTRESOL_FUSE_NO_PAGE_CACHE";
const NO_PASSTHROUGH: &str = "ENTRESOL_FUSE_NO_PASSTHROUGH";
const NO_RIGHTS: &str = "ENTRESOL_FUSE_NO_RIGHTS";
const INVERTED: &str = "ENTRESOL_FUSE_INVERTED";

/// A layer whose bytes are the complements of the backing file's, so that a file that is read both through it and past
/// it is found.
struct Inverted;

/// An open file of [`Inverted`].
struct InvertedFile(Arc<dyn FileData>);

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

impl FileLayer for Inverted {
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        Ok(Arc::new(InvertedFile(DirectFiles.open(id, file, writable)?)))
    }

    fn leaving(&self, _: FileId, _: OpenDirectory<'_>) -> io::Result<()> {
        Ok(())
    }

    fn stays(&self, _: FileId) {}

    fn replacing(&self, _: FileId) -> io::Result<()> {
        Ok(())
    }

    fn removed(&self, _: FileId) {}
}

impl FileData for InvertedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }

    fn read_now(&self, _: u64, _: &mut [u8]) -> io::Result<AtOnce> {
        Ok(AtOnce::First(0))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(offset, bytes)?;
        invert(&mut bytes[..count]);
        Ok(count)
    }

    fn write_now(&self, _: u64, _: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        invert(&mut bytes);
        self.0.write(offset, &bytes)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.0.sync(data_only)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.0.seek(sought, offset)
    }
}

fn send(socket: impl AsFd, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.into_iter().collect();
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Result of a look at a socket.
enum Received {
    Message(String, Option<OwnedFd>),
    /// Nothing came for a while.
    Nothing,
    /// The other end is closed.
    End,
}

fn receive(socket: impl AsFd) -> Received {
    let (mut space, mut text) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [0; 256]);
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    let bytes = match got {
        Err(Errno::AGAIN) => return Received::Nothing,
        // The other end may have closed with messages unread.
        Ok(got) if got.bytes > 0 => got.bytes,
        Ok(_) | Err(_) => return Received::End,
    };
    let mut fds = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    Received::Message(String::from_utf8_lossy(&text[..bytes]).into_owned(), fds.next())
}

/// The way to the holder, from a server: standard input.
#[derive(Debug)]
struct ToHolder;

impl Keep for ToHolder {
    fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        send(io::stdin(), &format!("+{name}"), Some(fd))
    }

    fn forget(&self, name: &str) {
        send(io::stdin(), &format!("-{name}"), None).unwrap();
    }
}

/// Runs the part of a test that this process is to be: the server here, a client by its name. Does nothing in the test
/// itself.
pub fn part(client: impl Fn(&str, &Path, u64)) {
    let Ok(part) = std::env::var(PART) else { return };
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let number = |name| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    if part == "server" {
        serve(&directory, number(KILL_AFTER));
    } else {
        client(&part, &directory, number(SEED).unwrap());
    }
    std::process::exit(0);
}

fn serve(directory: &Path, kill_after: Option<u64>) {
    if let Ok(mutant) = std::env::var(MUTANT) {
        assert!(entresol_fuse::leave_out(&mutant), "{mutant}");
    }
    let mut kept = Vec::new();
    loop {
        match receive(io::stdin()) {
            Received::Message(name, Some(fd)) => kept.push((name, fd)),
            Received::Message(_, None) => break,
            Received::Nothing | Received::End => return,
        }
    }
    if let Some(steps) = kill_after {
        entresol_fuse::kill_after(steps);
    }
    let unless = |name| std::env::var_os(name).is_none();
    if !unless(NO_RIGHTS) {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        sets.permitted.remove(CapabilitySet::SYS_ADMIN);
        rustix::thread::set_capabilities(None, sets).unwrap();
    }
    let (page_cache, passthrough) = (unless(NO_PAGE_CACHE), unless(NO_PASSTHROUGH));
    let options = || Options { keep: Some(Arc::new(ToHolder)), page_cache, passthrough, ..Options::default() };
    let layer: Arc<dyn FileLayer> = if unless(INVERTED) { Arc::new(DirectFiles) } else { Arc::new(Inverted) };
    let mount = if kept.is_empty() {
        Mount::start(&directory.join("backing"), &directory.join("mount"), layer, options())
    } else {
        Mount::take_over(Kept::from_iter(kept), layer, options())
    };
    let mount = match mount {
        Ok(mount) => mount,
        Err(error) => {
            send(io::stdin(), &format!("!{error}"), None).unwrap();
            return;
        }
    };
    let state = match mount.surviving() {
        Surviving::Kept if matches!(mount.passing(), Passing::Granted) => "=passing".to_owned(),
        Surviving::Kept => "=".to_owned(),
        other => format!("!{other:?}"),
    };
    send(io::stdin(), &state, None).unwrap();
    // Asked to end.
    let unmounter = mount.unmounter();
    std::thread::spawn(move || {
        if let Received::Message(..) = receive(io::stdin()) {
            unmounter.unmount().unwrap();
        }
    });
    mount.wait().unwrap();
}

/// A part in a process of its own, which ends with this value.
pub struct Part(Child);

impl Part {
    fn new(part: &str, directory: &Path, stdin: Stdio, environment: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["part", "--exact", "--nocapture", "--test-threads=1"]).env(PART, part).env(DIRECTORY, directory);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if environment.iter().any(|(name, _)| *name == MUTANT) {
            // Its failure is expected.
            command.stderr(Stdio::null());
        }
        Part(command.stdin(stdin).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Waits for the end; true if it was in good order.
    fn succeeded(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Not waited for: a client ends only when its mount does, if that has no server.
        let _ended = self.0.kill();
    }
}

/// Result of a while with the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Tended {
    Quiet,
    Begun,
    Ended,
}

/// The holder, and the server of the mount. The descriptors are dropped with it, which ends the mount.
pub struct Holder {
    pub directory: tempfile::TempDir,
    kept: HashMap<String, OwnedFd>,
    server: Option<(Part, OwnedFd)>,
    mutant: Option<String>,
    /// False if the servers see every read.
    pub page_cache: bool,
    /// False if the servers do not want passthrough.
    pub passthrough: bool,
    /// True for servers without the capability to register backing files.
    pub without_rights: bool,
    /// True for servers whose layer is [`Inverted`], which passes no file.
    pub inverted: bool,
    /// True if the kernel granted passthrough to the last server.
    pub passing: bool,
    /// Reason why a server did not begin.
    pub refused: Option<String>,
}

impl Holder {
    /// A backing directory and a mount point. `None`, with a note, where no mount is possible.
    pub fn new(mutant: Option<&str>) -> Option<Self> {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            entresol_skip::skipped!("/dev/fuse", "/dev/fuse: {error}");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        for name in ["backing", "mount", "plain"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mutant = mutant.map(str::to_owned);
        Some(Self {
            directory,
            kept: HashMap::new(),
            server: None,
            mutant,
            page_cache: true,
            passthrough: true,
            without_rights: false,
            inverted: false,
            passing: false,
            refused: None,
        })
    }

    pub fn kept(&self) -> Vec<&str> {
        self.kept.keys().map(String::as_str).collect()
    }

    /// Starts a server, which ends after so many steps. False if it was killed before it began, or refused.
    pub fn start(&mut self, kill_after: Option<u64>) -> bool {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        set_socket_timeout(&ours, Timeout::Recv, Some(Duration::from_millis(1))).unwrap();
        let mut environment = Vec::new();
        kill_after.iter().for_each(|steps| environment.push((KILL_AFTER, steps.to_string())));
        self.mutant.iter().for_each(|mutant| environment.push((MUTANT, mutant.clone())));
        let set = [
            (NO_PAGE_CACHE, !self.page_cache),
            (NO_PASSTHROUGH, !self.passthrough),
            (NO_RIGHTS, self.without_rights),
            (INVERTED, self.inverted),
        ];
        environment.extend(set.into_iter().filter(|set| set.1).map(|(name, _)| (name, String::new())));
        let server = Part::new("server", self.directory.path(), Stdio::from(theirs), &environment);
        for (name, fd) in &self.kept {
            send(&ours, name, Some(fd.as_fd())).unwrap();
        }
        send(&ours, ".", None).unwrap();
        self.server = Some((server, ours));
        self.listen()
    }

    /// Takes what the server hands over until it has begun (true) or ends.
    fn listen(&mut self) -> bool {
        loop {
            match self.tend() {
                Tended::Quiet => {}
                Tended::Begun => return true,
                Tended::Ended => return false,
            }
        }
    }

    /// Takes what the server hands over within a short while.
    pub fn tend(&mut self) -> Tended {
        let Some((_, socket)) = &self.server else { return Tended::Ended };
        let (text, fd) = match receive(socket) {
            Received::Message(text, fd) => (text, fd),
            Received::Nothing => return Tended::Quiet,
            Received::End => return Tended::Ended,
        };
        let (what, name) = text.split_at(1);
        match (what, fd) {
            ("+", Some(fd)) => drop(self.kept.insert(name.to_owned(), fd)),
            ("-", None) => drop(self.kept.remove(name)),
            ("=", None) => {
                self.passing = name == "passing";
                return Tended::Begun;
            }
            ("!", None) => self.refused = Some(name.to_owned()),
            other => panic!("{other:?}"),
        }
        Tended::Quiet
    }

    /// Kills the server, and takes what it handed over before.
    pub fn kill(&mut self) {
        if let Some((server, _)) = &mut self.server {
            let _ended = server.0.kill();
            let _ended = server.0.wait();
        }
        while self.tend() != Tended::Ended {}
        self.server = None;
    }

    /// Unmounts, and waits for the server's end.
    pub fn unmount(&mut self) {
        send(&self.server.as_ref().unwrap().1, "unmount", None).unwrap();
        while self.tend() != Tended::Ended {}
        self.server = None;
    }

    /// Waits until the kernel waits for no answer: files that were closed are closed for the server too.
    pub fn settle(&mut self) {
        let mount = rustix::fs::stat(self.directory.path().join("mount")).unwrap().st_dev;
        let control = self.directory.path().join("control");
        std::fs::create_dir(&control).unwrap();
        rustix::mount::mount("none", &control, "fusectl", rustix::mount::MountFlags::empty(), None).unwrap();
        let waiting = control.join(rustix::fs::minor(mount).to_string()).join("waiting");
        while std::fs::read_to_string(&waiting).unwrap().trim() != "0" {
            assert_ne!(self.tend(), Tended::Ended);
        }
        // A process that another thread starts has our files open until it runs its program.
        rustix::mount::unmount(&control, rustix::mount::UnmountFlags::DETACH).unwrap();
        std::fs::remove_dir(&control).unwrap();
    }

    /// Number of backing ids that are open in the kernel. It closes them.
    pub fn backing_ids(&mut self) -> usize {
        /// `FUSE_DEV_IOC_BACKING_CLOSE`.
        const CLOSE: Opcode = opcode::write::<u32>(229, 2);
        self.settle();
        // A thread that has just answered a request has its handle a moment longer. What leaks stays.
        std::thread::sleep(Duration::from_millis(400));
        let device = &self.kept["fuse.device"];
        let own = tempfile::tempfile_in(self.directory.path()).unwrap();
        let last = fuser::BackingId::create_raw(device, own).unwrap();
        // SAFETY: the kernel reads one `u32`.
        let close = |id: &u32| unsafe { ioctl(device, Setter::<CLOSE, u32>::new(*id)) };
        assert_eq!(close(&last), Ok(()));
        assert_eq!(close(&last), Err(Errno::NOENT), "an id that is closed may be closed again");
        (1..last).filter(|id| close(id).is_ok()).count()
    }

    /// Starts a client, which ends when the returned value's input is closed.
    pub fn client(&self, name: &str, seed: u64) -> Client {
        let mut environment = vec![(SEED, seed.to_string())];
        self.mutant.iter().for_each(|mutant| environment.push((MUTANT, mutant.clone())));
        Client(Part::new(name, self.directory.path(), Stdio::piped(), &environment))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
        // The last descriptors of the device: the kernel ends the connection, and clients get errors.
        self.kept.clear();
        let _over = rustix::mount::unmount(self.directory.path().join("mount"), rustix::mount::UnmountFlags::DETACH);
    }
}

/// A client of the mount.
pub struct Client(Part);

impl Client {
    /// True if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.0.try_wait().unwrap().is_some()
    }

    /// Asks it to end.
    pub fn stop(&mut self) {
        drop(self.0.0.stdin.take());
    }

    /// Waits for its end; true if it saw nothing wrong.
    pub fn succeeded(&mut self) -> bool {
        self.0.succeeded()
    }
}

/// Waits, in a client, until it is asked to end.
pub fn until_asked_to_end() {
    let _all = io::stdin().read_to_end(&mut Vec::new());
}
