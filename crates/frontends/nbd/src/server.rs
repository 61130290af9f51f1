//! Sockets and threads: access, the limit of connections, and the end of the server.

use crate::budget::{Budget, READ_AHEAD};
use crate::negotiation::{self, Timed};
use crate::stream::Stream;
use crate::{Error, Export, Limits, Peers, Result, handshake, percent, session};
use entresol_cache::PathError;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that the path of a Unix socket may have. A server could use a longer path, but its clients could not.
const SOCKET_PATH_MAX: usize = 107;

/// Clients that the system lets wait until they are accepted, so that those that come while no server runs are not
/// refused.
const BACKLOG: i32 = 128;

/// A socket that waits for clients.
#[derive(Debug)]
pub enum Listener {
    /// A socket in the file system, which only the owner may open; it is removed at the end.
    Unix(UnixListener, PathBuf),
    /// A port that only this machine can reach.
    Loopback(TcpListener),
}

impl Listener {
    /// Makes a Unix socket that only its owner (and root) may open. A socket without a server is replaced.
    ///
    /// # Errors
    /// [`PathError::InUse`] when a server answers there, [`PathError::NotASocket`] when another kind of file is there,
    /// [`Error::SocketPath`] for a path that is too long.
    pub fn unix(path: &Path) -> Result<Self> {
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(Error::SocketPath { path: path.into(), max: SOCKET_PATH_MAX });
        }
        let fail = |error| Error::from(PathError::system(path, error));
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(PathError::NotASocket(path.into()).into()),
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(fail)?;
                }
                _ => return Err(PathError::InUse(path.into()).into()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        let bound = || -> rustix::io::Result<UnixListener> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                rustix::net::SocketFlags::CLOEXEC,
                None,
            )?;
            // Before `bind`, so that other users can connect at no moment.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket.into())
        };
        Ok(Self::Unix(bound().map_err(|error| fail(error.into()))?, path.into()))
    }

    /// Takes a TCP port of a loopback address; port 0 takes any free one.
    ///
    /// # Errors
    /// [`Error::NotLoopback`] for any other address.
    pub fn loopback(address: SocketAddr) -> Result<Self> {
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).map_err(|error| PathError::system(address.to_string(), error))?;
        Ok(Self::Loopback(listener))
    }

    /// The listener whose socket a former server left: at this path, or on a TCP port if there is none.
    pub fn left(socket: OwnedFd, path: Option<&Path>) -> Self {
        match path {
            Some(path) => Self::Unix(socket.into(), path.into()),
            None => Self::Loopback(socket.into()),
        }
    }

    /// Address that clients connect to, as the URI that libnbd's and QEMU's tools take.
    ///
    /// # Errors
    /// Errors of the system when the port is looked up.
    pub fn uri(&self) -> Result<String> {
        Ok(match self {
            Self::Unix(_, path) => format!("nbd+unix:///?socket={}", percent::encoded(path.as_os_str().as_bytes())),
            Self::Loopback(listener) => format!("nbd://{}", listener.local_addr()?),
        })
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Loopback(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Makes a waiting `accept` return.
    fn wake(&self) {
        // A shutdown, because a connection may fail: the socket's file may have been removed. No later `accept`
        // succeeds.
        let _ = match self {
            Self::Unix(listener, _) => rustix::net::shutdown(listener, rustix::net::Shutdown::Both),
            Self::Loopback(listener) => rustix::net::shutdown(listener, rustix::net::Shutdown::Both),
        };
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Loopback(listener) => listener.as_fd(),
        }
    }
}

/// Counts of a server's connections and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused: too many, or by a user who may not connect.
    pub connections_refused: u64,
    /// Connections that ended in an error: a killed client, a broken protocol.
    pub connections_failed: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Requests answered by connections that ended in order.
    pub requests: u64,
    /// Bytes that requests in flight hold now.
    pub held_bytes: usize,
    /// Bytes that requests in flight held at the most so far.
    pub held_bytes_max: usize,
}

/// A server at work; [`stop`](Server::stop) ends it.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Called with each error that ends a connection.
type Notice = dyn Fn(&Error) + Send + Sync;

struct Shared {
    listener: Listener,
    export: Export,
    limits: Limits,
    budget: Budget,
    notice: Box<Notice>,
    /// Clients that are being sent the reason why they are not served.
    refusals: AtomicUsize,
    /// The refusal that was reported last, if no client has been served since.
    said: Mutex<Option<String>>,
    stopping: AtomicBool,
    connections: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    requests: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
}

struct Open {
    stream: Stream,
    thread: JoinHandle<()>,
}

impl Server {
    /// Serves `export` on `listener` in threads of its own. `notice` gets every refusal and error that ends a
    /// connection.
    ///
    /// # Errors
    /// [`Error::Memory`] when the limits leave too little for each connection, [`Error::Connection`] when the system
    /// cannot start a thread.
    pub fn start(
        listener: Listener,
        export: Export,
        limits: Limits,
        notice: impl Fn(&Error) + Send + Sync + 'static,
    ) -> Result<Self> {
        let budget = Budget::new(&limits)?;
        let shared = Arc::new(Shared {
            listener,
            export,
            limits,
            budget,
            notice: Box::new(notice),
            refusals: AtomicUsize::new(0),
            said: Mutex::default(),
            stopping: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let for_thread = shared.clone();
        let acceptor = std::thread::Builder::new().name("nbd accept".into()).spawn(move || accept(&for_thread))?;
        Ok(Self { shared, acceptor: Some(acceptor) })
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Accepts no more clients, closes every connection after its requests in flight, and flushes.
    ///
    /// # Errors
    /// Errors of the flush.
    pub fn stop(mut self) -> io::Result<Counts> {
        self.end();
        self.shared.export.block.flush()?;
        Ok(self.shared.counts())
    }

    fn end(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.stopping.store(true, SeqCst);
        self.shared.listener.wake();
        // A panic of the thread was printed on standard error.
        let _ = acceptor.join();
        let open: Vec<Open> = self.shared.open().drain().map(|(_, open)| open).collect();
        for connection in &open {
            connection.stream.hang_up(Shutdown::Read);
        }
        let patience = Instant::now() + STOP_PATIENCE;
        while open.iter().any(|connection| !connection.thread.is_finished()) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A client that takes no replies is not waited for: another client may wait for the memory that it holds.
        open.iter().for_each(|connection| connection.stream.hang_up(Shutdown::Both));
        for connection in open {
            let _ = connection.thread.join();
        }
        if let Listener::Unix(_, path) = &self.shared.listener {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Time that a stopping server waits for clients to take their last replies.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> MutexGuard<'_, Option<String>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.load(Relaxed),
            connections_refused: self.refused.load(Relaxed),
            connections_failed: self.failed.load(Relaxed),
            connections_open: self.open().values().filter(|open| !open.thread.is_finished()).count() as u64,
            requests: self.requests.load(Relaxed),
            held_bytes: self.budget.held().0,
            held_bytes_max: self.budget.held().1,
        }
    }

    /// The reason why a client is not served, if there is one.
    fn objection(&self, stream: &Stream, connections: usize) -> Option<String> {
        if self.limits.peers == Peers::OwnerAndRoot
            && let Some(why) = stream.foreign()
        {
            return Some(why);
        }
        let full = connections >= self.limits.connections_max;
        full.then(|| format!("{connections} connections are open, as many as the server takes"))
    }
}

/// Refused clients that are sent the reason at the same time. Further ones are closed without it.
const REFUSALS_MAX: usize = 4;

fn accept(shared: &Arc<Shared>) {
    loop {
        let accepted = shared.listener.accept();
        if shared.stopping.load(SeqCst) {
            return;
        }
        match accepted.and_then(|stream| admit(shared, stream)) {
            Ok(()) => {}
            Err(error) => {
                // Out of file descriptors or threads: other clients must leave first.
                (shared.notice)(&error.into());
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Starts a thread for a client, unless there is an objection.
fn admit(shared: &Arc<Shared>, stream: Stream) -> io::Result<()> {
    let mut open = shared.open();
    open.retain(|_, open| !open.thread.is_finished());
    if let Some(why) = shared.objection(&stream, open.len()) {
        drop(open);
        return refuse(shared, stream, why);
    }
    *shared.said() = None;
    let number = shared.connections.fetch_add(1, Relaxed);
    let kept = stream.again()?;
    let for_thread = shared.clone();
    let thread =
        std::thread::Builder::new().name("nbd reader".into()).spawn(move || connection(&for_thread, &stream))?;
    open.insert(number, Open { stream: kept, thread });
    Ok(())
}

/// Sends a client the reason why it is not served, in a thread that ends soon.
fn refuse(shared: &Arc<Shared>, stream: Stream, why: String) -> io::Result<()> {
    shared.refused.fetch_add(1, Relaxed);
    // The same refusal is reported once, however often clients try again.
    if shared.said().replace(why.clone()).as_ref() != Some(&why) {
        (shared.notice)(&Error::Refused(why.clone()));
    }
    if shared.refusals.fetch_add(1, SeqCst) >= REFUSALS_MAX {
        shared.refusals.fetch_sub(1, SeqCst);
        return Ok(());
    }
    let for_thread = shared.clone();
    let told = std::thread::Builder::new().name("nbd refusal".into()).spawn(move || {
        // A client that does not read the reason is gone either way.
        let _ = negotiation::refuse(&stream, &why);
        for_thread.refusals.fetch_sub(1, SeqCst);
    });
    if told.is_err() {
        shared.refusals.fetch_sub(1, SeqCst);
    }
    told.map(drop)
}

/// Shuts the socket down when the connection's thread ends or panics. Without this the client would see no end, because
/// the list of open connections holds the socket too.
struct HangUp<'a>(&'a Stream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        self.0.hang_up(Shutdown::Both);
    }
}

fn connection(shared: &Shared, stream: &Stream) {
    let _hang_up = HangUp(stream);
    let served = match stream {
        Stream::Unix(unix) => serve(shared, stream, unix, unix),
        Stream::Tcp(tcp) => serve(shared, stream, tcp, tcp),
    };
    match served {
        Ok(requests) => {
            shared.requests.fetch_add(requests, Relaxed);
        }
        Err(error) => {
            shared.failed.fetch_add(1, Relaxed);
            (shared.notice)(&error);
        }
    }
}

fn serve<R: io::Read, W: io::Write + Send>(shared: &Shared, stream: &Stream, reader: R, mut writer: W) -> Result<u64> {
    let Shared { limits, budget, .. } = shared;
    let own = shared.export.block.for_client().map(|block| Export { block, ..shared.export.clone() });
    let export = own.as_ref().unwrap_or(&shared.export);
    let until = Cell::new(Some(Instant::now() + limits.negotiation_max));
    let mut reader = BufReader::with_capacity(READ_AHEAD, Timed::new(reader, stream, &until));
    // A request of the offered size always finds memory.
    let offered = Limits { request_bytes_max: budget.share as u32, ..*limits };
    let negotiated = handshake::negotiate(&mut reader, &mut writer, export, &offered);
    let negotiated = negotiated.map_err(|error| negotiation::too_slow(error, limits.negotiation_max))?;
    let Some(agreed) = negotiated else { return Ok(0) };
    until.set(None);
    stream.silence(None)?;
    session::run(reader, writer, export, limits, budget, agreed, &|| stream.hang_up(Shutdown::Both))
}
