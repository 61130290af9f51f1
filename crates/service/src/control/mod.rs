//! The control socket: how commands reach the process that has a cache open.
//!
//! Every front-end that serves a cache opens one by `Control::start`. `stats` and `set` find it through `ask`, by
//! the cache's name or by a directory where the cache is mounted.
//!
//! It is a Unix socket that only its owner may open, beside the cache file. If the cache is a device, or its folder
//! cannot be written, it is in a folder of what runs: in `$RUNTIME_DIRECTORY`, which systemd gives a service, or else in
//! `$XDG_RUNTIME_DIR`. Who asks looks there and in the folders `/run/entresol-*` of services.

mod protocol;
mod recorder;

pub use recorder::Listener as RecordListener;

pub(crate) use protocol::{Answer, Question};
pub(crate) use recorder::{Places, Recorder};

use anyhow::{Context, Result, bail};
use entresol_files::Keep;
use entresol_files::mounts::mounts;
use entresol_nbd::Listener;
use entresol_nbd::percent;
use protocol::{ANSWER_MAX, QUESTION_MAX};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The answer to a question that comes too late.
const CLOSING: &str = "the cache is being closed";
/// Time between two looks at the progress of settings.
const LOOKED_AT_PROGRESS: Duration = Duration::from_secs(1);
/// Connections at a time; one more is closed at once.
const CONNECTIONS_MAX: usize = 8;
/// A connection that is silent for so long is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time in which a process that is being killed takes connections, and answers none.
const ENDING: Duration = Duration::from_secs(1);
/// Waits at the end for clients that still record: at most this many, of [`REST_WAIT`] each, 1 s in all.
const REST_WAITS: usize = 100;
const REST_WAIT: Duration = Duration::from_millis(10);
/// Longest wait for a client before the socket's file is checked: 1 s.
const LOOKED_AFTER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Longest path in bytes that fits into a socket's address.
const PATH_MAX: usize = 107;
/// Longest name that fits into an address behind `/proc/self/fd/` and the number of any descriptor.
const NAME_MAX: usize = PATH_MAX - "/proc/self/fd/4294967295/".len();

/// A served cache, as the control socket uses it.
pub(crate) trait Controlled: Send + Sync {
    /// Counts and state.
    fn stats(&self) -> Result<serde_json::Value>;

    /// Applies settings; returns a line for the outcome of each.
    fn set(&self, settings: &[(String, String)]) -> Result<Vec<String>>;

    /// Number that rises while settings that take long are applied, unless a device hangs.
    fn progress(&self) -> u64;

    /// Ends the conflict of a file; returns the outcome in a line.
    fn resolve(&self, path: &str, keep: Keep) -> Result<String>;

    /// Upgrades the server to the program on disk; `report` gets the outcome as a line of text. Without a report it is
    /// checked only that there is somebody to do it.
    fn upgrade(&self, report: Option<BorrowedFd>) -> Result<()>;

    /// Starts a recording of the requests from now on.
    fn record(&self) -> Result<Recorder>;
}

/// Folders in which systemd keeps those of services, as `RuntimeDirectory=` names them.
const RUNTIME: &str = "/run";

/// Beginning of the names of those of the units of this package.
const OF_SERVICE: &str = "entresol-";

/// Folders of what runs that the environment names.
fn own_folders() -> Vec<PathBuf> {
    let named = |variable| std::env::var_os(variable).unwrap_or_default();
    named_folders(&named("RUNTIME_DIRECTORY"), named("XDG_RUNTIME_DIR"))
}

/// Folders of a service, then that of the user.
fn named_folders(service: &OsStr, user: OsString) -> Vec<PathBuf> {
    let named = std::env::split_paths(service).chain([PathBuf::from(user)]);
    named.filter(|folder| folder.is_absolute()).collect()
}

/// Folders of services of this package.
fn service_folders(runtime: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(runtime).into_iter().flatten().flatten();
    let of_service = |name: OsString| name.as_bytes().starts_with(OF_SERVICE.as_bytes());
    let mut folders: Vec<PathBuf> =
        entries.filter(|entry| of_service(entry.file_name())).map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// Returns the paths at which the control socket of a cache may be, in the order in which they are tried: beside the
/// cache, and in each of `folders`.
fn places(cache: &Path, folders: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let cache = std::fs::canonicalize(cache).with_context(|| cache.display().to_string())?;
    let found = super::hold::metadata(&cache)?;
    // A file is identified by its inode, whatever its name, and a device by its number.
    let device = found.file_type().is_block_device();
    let (of, number) = if device { (0, found.rdev()) } else { (found.dev(), found.ino()) };
    let short = format!("entresol-{of:x}-{number:x}.control");
    let mut places = Vec::new();
    if !device {
        let beside = crate::words::beside(&cache, "control");
        // A socket's path has less room for the name than a file's.
        let fits = beside.file_name().is_some_and(|name| name.len() <= NAME_MAX);
        places.push(if fits { beside } else { cache.with_file_name(&short) });
    }
    places.extend(folders.into_iter().map(|folder| folder.join(&short)));
    Ok(places)
}

/// The path by which a socket is bound or connected. A path too long for an address goes through an open folder,
/// returned too, which must stay open while the path is used.
fn addressed(place: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let (Some(folder), Some(name)) = (place.parent(), place.file_name()) else { return Ok((None, place.to_owned())) };
    if place.as_os_str().len() <= PATH_MAX {
        return Ok((None, place.to_owned()));
    }
    let folder = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    Ok((Some(folder), path))
}

/// Prefix of the cache's name in the source of a mount.
const SOURCE: &str = "entresol:";

/// Prefix of a percent-encoded name: one with characters that the options of a mount cannot contain.
const ENCODED_SOURCE: &str = "entresol%:";

/// Longest source in bytes: all options of a mount must fit into one page.
const SOURCE_MAX: usize = 3000;

/// The source of a mount over a cache: the cache's name, by which `ask` finds it. None if the name is too long for a
/// source.
pub fn mount_source(cache: &Path) -> Option<String> {
    let path = std::fs::canonicalize(cache).ok()?.into_os_string();
    let sayable = |c: char| !c.is_control() && c != ',' && c != '\\';
    let source = match path.to_str().filter(|path| path.chars().all(sayable)) {
        Some(path) => format!("{SOURCE}{path}"),
        None => format!("{ENCODED_SOURCE}{}", percent::encoded(path.as_bytes())),
    };
    (source.len() <= SOURCE_MAX).then_some(source)
}

/// The cache that a source names.
fn cache_of(source: &OsStr) -> Option<PathBuf> {
    let source = source.as_bytes();
    if let Some(path) = source.strip_prefix(SOURCE.as_bytes()) {
        return Some(PathBuf::from(OsStr::from_bytes(path)));
    }
    let path = percent::decoded(source.strip_prefix(ENCODED_SOURCE.as_bytes())?);
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// The cache of the mount that a directory lies in.
fn mounted_over(directory: &Path) -> Result<PathBuf> {
    let device = super::hold::metadata(directory)?.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = mounts().context("/proc/self/mountinfo")?;
    let cache = mounts.iter().filter(|mount| mount.device == device).find_map(|mount| cache_of(&mount.source));
    cache.with_context(|| format!("{}: no cache is mounted there, or none that a mount can name", directory.display()))
}

/// The cache whose mount has its root at a directory, by that directory's path from the root; none if there is no such
/// mount.
pub(crate) fn mounted_at(directory: &Path) -> Result<Option<PathBuf>> {
    let mounts = mounts().context("/proc/self/mountinfo")?;
    // A later mount covers an earlier one.
    Ok(mounts.iter().rfind(|mount| mount.at == directory).and_then(|mount| cache_of(&mount.source)))
}

/// The cache of the mount that contains a file, and the file's path relative to the mounted directory; none outside
/// such mounts.
pub(crate) fn file_of_mount(file: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let device = super::hold::metadata(file.parent().unwrap_or(file))?.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = mounts().context("/proc/self/mountinfo")?;
    let found = mounts.iter().filter(|mount| mount.device == device).filter_map(|mount| {
        let (cache, rest) = (cache_of(&mount.source)?, file.strip_prefix(&mount.at).ok()?);
        // A bind mount of a subfolder has that folder as its root: the path is given from the root.
        let part = mount.root.strip_prefix("/").unwrap_or(&mount.root);
        Some((mount.at.as_os_str().len(), (cache, part.join(rest))))
    });
    Ok(found.max_by_key(|(length, _)| *length).map(|(_, found)| found))
}

/// Returns the paths at which the control socket of a cache may be.
///
/// `place` names the cache: its own path, the path of its socket, or a directory where it is mounted.
fn candidates(place: &Path) -> Result<Vec<PathBuf>> {
    let kind = super::hold::metadata(place)?.file_type();
    if kind.is_socket() {
        return Ok(vec![place.to_owned()]);
    }
    let folders = [own_folders(), service_folders(Path::new(RUNTIME))].concat();
    if kind.is_dir() { places(&mounted_over(place)?, folders) } else { places(place, folders) }
}

/// Asks the process that serves a cache; none when no process answers for it.
///
/// The cache is named by its own path, by its control socket or by a directory where it is mounted.
pub(crate) fn ask(cache: &Path, question: Question, limit: Option<Duration>) -> Result<Option<serde_json::Value>> {
    let begun = Instant::now();
    loop {
        let answer = open(cache, question.clone(), limit);
        // A process that is being killed takes connections until its files are closed.
        let is_ending = |error: &anyhow::Error| error.downcast_ref().is_some_and(is_end) && begun.elapsed() < ENDING;
        if !matches!(question, Question::Stats) || !answer.as_ref().is_err_and(is_ending) {
            return Ok(answer?.map(|(value, _)| value));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// True if the other end of a connection has ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Asks the process that serves a cache for its requests from now on; none when no process answers for it.
pub fn listen_in(cache: &Path) -> Result<Option<RecordListener>> {
    let Some((value, reader)) = open(cache, Question::Record, Some(PATIENCE))? else { return Ok(None) };
    let limit = reader.get_ref().set_read_timeout(None);
    limit.and_then(|()| reader.get_ref().set_write_timeout(None)).context("the control socket")?;
    Ok(Some(RecordListener::new(value, reader)?))
}

/// Asks for an upgrade of the process that serves a cache, which must answer within `limit`; the outcome comes within
/// `outcome` as a line of text. None when no process answers for the cache.
pub(crate) fn upgrade(cache: &Path, limit: Option<Duration>, outcome: Duration) -> Result<Option<String>> {
    let Some((_, mut reader)) = open(cache, Question::Upgrade, limit)? else { return Ok(None) };
    reader.get_ref().set_read_timeout(Some(outcome)).context("the control socket")?;
    let mut line = String::new();
    reader.read_line(&mut line).context("no outcome of the upgrade")?;
    Ok(Some(line.trim_end().to_owned()))
}

/// Connects within a limit. A connection waits too if a stopped process has a full queue of waiting clients.
fn connect(place: &Path, limit: Option<Duration>) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, limit)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, limit)?;
    let (_folder, path) = addressed(place).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
    Ok(socket.into())
}

/// Error for a process that has given no sign within the limit. It may still carry out the request.
fn too_late(place: &Path, limit: Option<Duration>) -> anyhow::Error {
    let seconds = limit.unwrap_or_default().as_secs_f64();
    anyhow::anyhow!(
        "{}: the process that serves the cache has not answered within {seconds} s: it is stopped, or waits for a \
         device; the request may still be carried out (--timeout SECONDS waits longer)",
        place.display()
    )
}

/// Asks, and returns the answer with a reader of the bytes that follow it; none when no process answers.
fn open(
    cache: &Path,
    question: Question,
    limit: Option<Duration>,
) -> Result<Option<(serde_json::Value, BufReader<UnixStream>)>> {
    for place in candidates(cache)? {
        let stream = match connect(&place, limit) {
            Ok(stream) => stream,
            Err(Errno::AGAIN) => return Err(too_late(&place, limit)),
            Err(_) => continue,
        };
        let mut reader = BufReader::new(stream);
        let answer = exchange(&mut reader, question).map_err(|error| match error.downcast_ref::<io::Error>() {
            Some(io) if io.kind() == io::ErrorKind::WouldBlock => too_late(&place, limit),
            _ => error.context(place.display().to_string()),
        })?;
        return match answer {
            Answer::Done(value) => Ok(Some((value, reader))),
            Answer::Refused(why) => bail!("{why}"),
        };
    }
    Ok(None)
}

fn exchange(stream: &mut BufReader<UnixStream>, question: Question) -> Result<Answer> {
    stream.get_ref().write_all(&protocol::encode_question(question))?;
    let line = protocol::read_line(stream, ANSWER_MAX)?;
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server ended without an answer");
    let line = line.ok_or_else(ended)?;
    protocol::decode_answer(&line).map_err(anyhow::Error::msg)
}

/// An open control socket; [`stop`](Control::stop) or the drop closes it.
pub(crate) struct Control {
    shared: Arc<Shared>,
    /// The first path of the socket; a socket that is made anew may have another.
    #[cfg(test)]
    place: PathBuf,
    /// Wakes the acceptor when it is dropped.
    wake: Option<OwnedFd>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    /// None once the cache is about to be closed.
    cache: Mutex<Option<Arc<dyn Controlled>>>,
    /// Held while a setting is applied: the end waits for settings, not for other questions.
    changing: RwLock<()>,
    stopping: AtomicBool,
    open: AtomicUsize,
    /// Clients that are recording.
    listening: AtomicUsize,
}

impl Control {
    /// Opens the control socket of a cache that this process has open.
    ///
    /// # Errors
    /// If the socket can be had at no path; the text says which were tried.
    pub(crate) fn start(path: &Path, cache: Arc<dyn Controlled>) -> Result<Self> {
        let bound = listen(path)?;
        #[cfg(test)]
        let place = bound.place.clone();
        // A pipe rather than a connection: the socket's file may be gone at the end.
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context("a pipe")?;
        let path = std::fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let shared = Arc::new(Shared {
            cache: Mutex::new(Some(cache)),
            changing: RwLock::default(),
            stopping: false.into(),
            open: 0.into(),
            listening: 0.into(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new().name("control".into());
        let acceptor = acceptor
            .spawn(move || accept(bound, &path, &woken, &accepting))
            .context("a thread for the control socket")?;
        Ok(Control {
            shared,
            #[cfg(test)]
            place,
            wake: Some(wake),
            acceptor: Some(acceptor),
        })
    }

    /// Waits for settings that are being applied, and refuses all questions from then on. An answer under way, perhaps
    /// a long one, is not waited for.
    pub(crate) fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.cache.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(self.shared.changing.write());
        self.shared.stopping.store(true, SeqCst);
        // A client that records gets the rest. The wait for one that does not read it is short.
        for _ in 0..REST_WAITS {
            if self.shared.listening.load(SeqCst) == 0 {
                break;
            }
            std::thread::sleep(REST_WAIT);
        }
        self.wake.take();
        // A panic of the acceptor has been printed; the socket is closed in any case.
        let _ = acceptor.join();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A bound socket and the identity of its file.
struct Bound {
    listener: UnixListener,
    place: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Bound {
    fn new(listener: UnixListener, place: PathBuf) -> Self {
        let inode = inode(&place);
        Bound { listener, place, inode }
    }

    /// True if the file at the path is still this socket.
    fn is_there(&self) -> bool {
        self.inode.is_some() && inode(&self.place) == self.inode
    }

    /// Removes the file, if it is still this socket.
    fn remove(&self) {
        if self.is_there() {
            let _ = std::fs::remove_file(&self.place);
        }
    }
}

fn inode(place: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(place).ok().map(|found| (found.dev(), found.ino()))
}

fn listen(cache: &Path) -> Result<Bound> {
    let mut tried = Vec::new();
    for place in places(cache, own_folders())? {
        let bound = addressed(&place).map_err(|error| format!("{}: {error}", place.display()));
        let bound = bound.and_then(|(_folder, path)| Listener::unix(&path).map_err(|error| error.to_string()));
        match bound {
            Ok(Listener::Unix(listener, _)) => return Ok(Bound::new(listener, place)),
            Ok(Listener::Loopback(_)) => unreachable!("a path was given"),
            Err(error) => tried.push(error),
        }
    }
    match tried.is_empty() {
        true => bail!("no directory for a control socket: neither $RUNTIME_DIRECTORY nor $XDG_RUNTIME_DIR is set"),
        false => bail!("no directory for a control socket: {}", tried.join("; ")),
    }
}

/// Waits for a client: true if one may be waiting, false after 1 s without one, none once the socket is to be closed.
///
/// When no client came, the socket's file is checked. If it was removed, it is made again.
fn wait(bound: &mut Bound, cache: &Path, woken: &OwnedFd) -> Option<bool> {
    let mut waited = [PollFd::new(&bound.listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
    let ready = rustix::event::poll(&mut waited, Some(&LOOKED_AFTER));
    if !waited[1].revents().is_empty() {
        return None;
    }
    if ready != Ok(0) {
        return Some(true);
    }
    // The folder may be gone as well; the next second may find it again. Another process's socket stays.
    if !bound.is_there()
        && let Ok(again) = listen(cache)
    {
        *bound = again;
    }
    Some(false)
}

fn accept(mut bound: Bound, cache: &Path, woken: &OwnedFd, shared: &Arc<Shared>) {
    let _ = bound.listener.set_nonblocking(true);
    loop {
        let Some(waiting) = wait(&mut bound, cache, woken) else { return bound.remove() };
        if !waiting {
            let _ = bound.listener.set_nonblocking(true);
            continue;
        }
        let accepted = bound.listener.accept();
        let accepted = accepted.and_then(|(stream, from)| stream.set_nonblocking(false).map(|()| (stream, from)));
        if matches!(&accepted, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            continue;
        }
        let Ok((stream, _)) = accepted else {
            // The process may be out of descriptors, of which other connections free some.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if shared.open.fetch_add(1, SeqCst) >= CONNECTIONS_MAX {
            shared.open.fetch_sub(1, SeqCst);
            continue;
        }
        let serving = Arc::clone(shared);
        let served = std::thread::Builder::new().name("control client".into()).spawn(move || {
            // A client that hangs up or sends no line cannot be answered.
            let _ = converse(&stream, &serving);
            serving.open.fetch_sub(1, SeqCst);
        });
        if served.is_err() {
            shared.open.fetch_sub(1, SeqCst);
        }
    }
}

/// Answers one client until it has no more questions.
fn converse(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let line = match protocol::read_line(&mut reader, QUESTION_MAX) {
            Ok(None) => return Ok(()),
            Ok(Some(line)) => line,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // The beginning of the next message is not known any more.
                return (&mut &*stream).write_all(&protocol::encode_answer(Answer::Refused(error.to_string())));
            }
            Err(error) => return Err(error),
        };
        let answer = match protocol::decode_question(&line) {
            Ok(Question::Record) => match shared.recorder() {
                Ok(recorder) => return recorder.play(stream, &shared.stopping, &shared.listening),
                Err(why) => Answer::Refused(why),
            },
            Ok(Question::Upgrade) => match shared.upgrade(None) {
                Ok(()) => {
                    (&mut &*stream).write_all(&protocol::encode_answer(Answer::Done(serde_json::Value::Null)))?;
                    // The holder answers, since this process will be gone.
                    let refused = shared.upgrade(Some(stream.as_fd())).err();
                    return refused.map_or(Ok(()), |why| writeln!(&mut &*stream, "{why}"));
                }
                Err(why) => Answer::Refused(why),
            },
            Ok(question @ Question::Set(_)) => shared.answer_with_signs(&question, stream),
            Ok(question) => shared.answer(&question),
            Err(why) => Answer::Refused(why),
        };
        (&mut &*stream).write_all(&protocol::encode_answer(answer))?;
    }
}

impl Shared {
    fn cache(&self) -> Option<Arc<dyn Controlled>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn recorder(&self) -> Result<Recorder, String> {
        let cache = self.cache().ok_or(CLOSING)?;
        cache.record().map_err(|error| format!("{error:#}"))
    }

    fn upgrade(&self, report: Option<BorrowedFd>) -> Result<(), String> {
        let cache = self.cache().ok_or(CLOSING)?;
        cache.upgrade(report).map_err(|error| format!("{error:#}"))
    }

    /// Answers a question. A blank goes ahead of the answer each second in which there is progress: a client's limit is for
    /// the next byte, and JSON may begin with blanks.
    fn answer_with_signs(&self, question: &Question, stream: &UnixStream) -> Answer {
        let progress = || self.cache().map_or(0, |cache| cache.progress());
        let (answered, answer) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut last = progress();
                while answer.recv_timeout(LOOKED_AT_PROGRESS) == Err(RecvTimeoutError::Timeout) {
                    let now = progress();
                    if now != last && (&mut &*stream).write_all(b" ").is_err() {
                        return;
                    }
                    last = now;
                }
            });
            let answer = self.answer(question);
            drop(answered);
            answer
        })
    }

    fn answer(&self, question: &Question) -> Answer {
        // Taken before the cache is looked up: the end first takes the cache away, and then waits for this lock.
        let changes = matches!(question, Question::Set(_) | Question::Resolve { .. });
        let _changing = changes.then(|| self.changing.read().unwrap_or_else(PoisonError::into_inner));
        let Some(cache) = self.cache() else {
            return Answer::Refused(CLOSING.to_owned());
        };
        let done = match question {
            Question::Stats => cache.stats(),
            Question::Set(settings) => cache.set(settings).map(serde_json::Value::from),
            Question::Resolve { path, keep } => cache.resolve(path, *keep).map(serde_json::Value::from),
            Question::Record | Question::Upgrade => unreachable!("it takes the connection for itself"),
        };
        done.map_or_else(|error| Answer::Refused(format!("{error:#}")), Answer::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_mount_says_its_cache_whatever_its_name_is() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let folder = scratch.path().canonicalize().expect("a folder");
        for (name, sayable) in [("a b", true), ("a,b", false), ("a\\b", false), ("a\nb%2C", false), ("ä#%2C", true)] {
            let cache = folder.join(name);
            std::fs::write(&cache, "").expect("a file");
            let said = mount_source(&cache).expect("a source");
            assert_eq!(said == format!("entresol:{}", cache.display()), sayable, "{said}");
            assert!(!said.contains([',', '\\', '\n']), "{said}");
            assert_eq!(cache_of(OsStr::new(&said)), Some(cache));
        }
        assert_eq!(cache_of(OsStr::new("tmpfs")), None);
        let refused = ask(&folder, Question::Stats, None).expect_err("no mount");
        assert!(refused.to_string().contains("no cache is mounted there"), "{refused}");
    }

    #[test]
    fn a_cache_without_a_folder_of_its_own_has_its_socket_in_that_of_its_service() {
        let folders = named_folders(OsStr::new("/run/entresol-a:/run/b"), "/run/user/5".into());
        assert_eq!(folders, ["/run/entresol-a", "/run/b", "/run/user/5"].map(PathBuf::from));
        assert_eq!(named_folders(OsStr::new(""), OsString::new()), Vec::<PathBuf>::new());

        let scratch = tempfile::tempdir().expect("a scratch directory");
        let runtime = scratch.path();
        for name in ["entresol-b", "postgresql", "entresol-a"] {
            std::fs::create_dir(runtime.join(name)).expect("a folder");
        }
        let found = service_folders(runtime);
        assert_eq!(found, ["entresol-a", "entresol-b"].map(|name| runtime.join(name)));
        assert_eq!(service_folders(&runtime.join("none")), Vec::<PathBuf>::new());

        let cache = runtime.join("cache");
        std::fs::write(&cache, "").expect("a file");
        let places = places(&cache, found).expect("places");
        let short = places[1].file_name().expect("a name").to_owned();
        assert!(places[0].ends_with("cache.control") && short.as_bytes().ends_with(b".control"), "{places:?}");
        assert_eq!(places[1..], ["entresol-a", "entresol-b"].map(|name| runtime.join(name).join(&short)));
    }

    struct Echo;

    impl Controlled for Echo {
        fn stats(&self) -> Result<serde_json::Value> {
            Ok(serde_json::json!({ "hits": 5 }))
        }

        fn set(&self, settings: &[(String, String)]) -> Result<Vec<String>> {
            match settings {
                [(name, value)] => Ok(vec![format!("{name} is {value}")]),
                _ => bail!("one at a time"),
            }
        }

        fn progress(&self) -> u64 {
            0
        }

        fn resolve(&self, path: &str, _keep: Keep) -> Result<String> {
            Ok(path.to_owned())
        }

        fn upgrade(&self, _report: Option<BorrowedFd>) -> Result<()> {
            bail!("nobody to do it")
        }

        fn record(&self) -> Result<Recorder> {
            bail!("nothing to listen to")
        }
    }

    fn started() -> (tempfile::TempDir, PathBuf, Control) {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let cache = scratch.path().join("cache");
        std::fs::write(&cache, "").expect("a file");
        let control = Control::start(&cache, Arc::new(Echo)).expect("a socket");
        (scratch, cache, control)
    }

    fn say(control: &Control, bytes: &[u8]) -> Option<Answer> {
        let stream = UnixStream::connect(&control.place).expect("a connection");
        (&stream).write_all(bytes).expect("it is sent");
        stream.shutdown(std::net::Shutdown::Write).expect("the end of what is said");
        let line = protocol::read_line(&mut BufReader::new(&stream), ANSWER_MAX).expect("a line");
        line.map(|line| protocol::decode_answer(&line).expect("an answer"))
    }

    #[test]
    fn it_is_the_owners_alone_answers_and_goes() {
        let (scratch, cache, mut control) = started();
        assert_eq!(control.place, scratch.path().canonicalize().expect("a folder").join("cache.control"));
        let mode = std::fs::metadata(&control.place).expect("the socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stats = ask(&cache, Question::Stats, None).expect("an answer").expect("a server");
        assert_eq!(stats["hits"], 5);
        let set = |settings| ask(&cache, Question::Set(settings), None);
        let done = set(vec![("mode".into(), "fast".into())]).expect("an answer").expect("a server");
        assert_eq!(done[0], "mode is fast");
        assert_eq!(set(vec![]).expect_err("a refusal").to_string(), "one at a time");
        control.stop();
        assert!(!scratch.path().join("cache.control").exists());
        assert!(ask(&cache, Question::Stats, None).expect("no error").is_none(), "nobody answers");
    }

    #[test]
    fn what_is_malformed_or_too_long_is_refused_and_others_are_served() {
        let (_scratch, cache, control) = started();
        let refused = |bytes: &[u8]| match say(&control, bytes) {
            Some(Answer::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(b"hello\n").contains("no message"));
        assert!(refused(b"{\"version\":9,\"ask\":\"stats\"}\n").contains("version 9"));
        assert!(refused(&[b'x'; QUESTION_MAX as usize]).contains("more than 16384 bytes"));
        assert_eq!(say(&control, b"{\"version\":1,"), None, "half a message is none");
        // Silent clients occupy connections, but no more than there are.
        let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(&control.place)).collect();
        drop(silent);
        for _ in 0..200 {
            if ask(&cache, Question::Stats, None).is_ok_and(|answer| answer.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("nobody is served any more");
    }

    #[test]
    fn the_socket_that_a_killed_server_left_is_replaced() {
        let (_scratch, cache, control) = started();
        let place = control.place.clone();
        drop(control);
        drop(UnixListener::bind(&place).expect("a socket of somebody who is gone"));
        assert!(ask(&cache, Question::Stats, None).expect("no error").is_none(), "a dead socket answers nothing");
        let control = Control::start(&cache, Arc::new(Echo)).expect("it is replaced");
        assert_eq!(control.place, place);
        ask(&cache, Question::Stats, None).expect("an answer").expect("a server");
    }

    #[test]
    fn a_cache_of_any_path_and_name_has_its_socket_beside_it() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let deep = scratch.path().canonicalize().expect("a folder").join("d".repeat(120)).join("e".repeat(250));
        std::fs::create_dir_all(&deep).expect("folders");
        for name in ["cache".to_owned(), "c".repeat(NAME_MAX - ".control".len()), "n".repeat(200)] {
            let cache = deep.join(&name);
            std::fs::write(&cache, "").expect("a file");
            let mut control = Control::start(&cache, Arc::new(Echo)).expect("a socket");
            assert_eq!(control.place.parent(), Some(&*deep));
            assert!(std::fs::symlink_metadata(&control.place).expect("the socket").file_type().is_socket());
            let told = ask(&cache, Question::Stats, None).expect("an answer").expect("a server");
            assert_eq!(told["hits"], 5);
            let by_socket = ask(&control.place, Question::Stats, None).expect("an answer").expect("a server");
            assert_eq!(by_socket["hits"], 5);
            std::fs::remove_file(&control.place).expect("the socket");
            for _ in 0..250 {
                if control.place.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(ask(&cache, Question::Stats, None).expect("no error").is_some(), "it is made again");
            control.stop();
            assert!(!control.place.exists() && ask(&cache, Question::Stats, None).expect("no error").is_none());
        }
    }

    #[test]
    fn a_server_that_is_being_killed_is_one_that_does_not_answer() {
        let (_scratch, cache, control) = started();
        let place = control.place.clone();
        drop(control);
        let dying = UnixListener::bind(&place).expect("a socket");
        let asked = std::thread::spawn(move || ask(&cache, Question::Stats, None));
        drop(dying.accept().expect("a question"));
        // The next one is never taken.
        let waits = || rustix::event::poll(&mut [PollFd::new(&dying, PollFlags::IN)], None).expect("a wait");
        assert_eq!(waits(), 1);
        drop(dying);
        assert!(asked.join().expect("no panic").expect("no error").is_none());
    }

    /// Answers when it is released.
    struct Stuck {
        begun: AtomicUsize,
        freed: AtomicBool,
        progresses: bool,
    }

    impl Stuck {
        fn wait(&self) {
            self.begun.fetch_add(1, SeqCst);
            while !self.freed.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    impl Controlled for Stuck {
        fn stats(&self) -> Result<serde_json::Value> {
            self.wait();
            Ok(serde_json::Value::Null)
        }

        fn set(&self, _: &[(String, String)]) -> Result<Vec<String>> {
            self.wait();
            Ok(Vec::new())
        }

        fn progress(&self) -> u64 {
            self.begun.fetch_add(usize::from(self.progresses), SeqCst) as u64
        }

        fn resolve(&self, _: &str, _: Keep) -> Result<String> {
            self.wait();
            Ok(String::new())
        }

        fn upgrade(&self, _report: Option<BorrowedFd>) -> Result<()> {
            bail!("nobody to do it")
        }

        fn record(&self) -> Result<Recorder> {
            bail!("nothing to listen to")
        }
    }

    fn stuck(cache: &Path, progresses: bool) -> (Arc<Stuck>, Control) {
        let stuck = Arc::new(Stuck { begun: AtomicUsize::new(0), freed: AtomicBool::new(false), progresses });
        let control = Control::start(cache, stuck.clone()).expect("a socket");
        (stuck, control)
    }

    #[test]
    fn settings_that_make_progress_are_waited_for_beyond_the_limit_and_others_are_not() {
        let limit = Duration::from_secs(3);
        for progresses in [true, false] {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            let cache = scratch.path().join("cache");
            std::fs::write(&cache, "").expect("a file");
            let (stuck, mut control) = stuck(&cache, progresses);
            let asked = std::thread::spawn(move || ask(&cache, Question::Set(Vec::new()), Some(limit)));
            if progresses {
                std::thread::sleep(limit + Duration::from_secs(2));
                stuck.freed.store(true, SeqCst);
                assert!(asked.join().expect("no panic").is_ok_and(|answer| answer.is_some()), "it was waited for");
            } else {
                let why = asked.join().expect("no panic").expect_err("nothing came").to_string();
                assert!(why.contains("has not answered within 3 s"), "{why}");
                stuck.freed.store(true, SeqCst);
            }
            control.stop();
        }
    }

    #[test]
    fn a_stop_waits_for_settings_and_not_for_questions() {
        let resolve = Question::Resolve { path: String::new(), keep: Keep::Cache };
        for (question, waits) in [(Question::Stats, false), (Question::Set(Vec::new()), true), (resolve, true)] {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            let cache = scratch.path().join("cache");
            std::fs::write(&cache, "").expect("a file");
            let (stuck, mut control) = stuck(&cache, false);
            let asked = std::thread::spawn(move || ask(&cache, question, None));
            while stuck.begun.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let (ended, end) = std::sync::mpsc::channel();
            let stopping = std::thread::spawn(move || {
                control.stop();
                let _ = ended.send(());
            });
            if waits {
                assert!(end.recv_timeout(Duration::from_millis(300)).is_err(), "a setting is carried out to its end");
                stuck.freed.store(true, SeqCst);
            }
            assert!(end.recv_timeout(Duration::from_secs(60)).is_ok(), "it has stopped");
            stuck.freed.store(true, SeqCst);
            stopping.join().expect("no panic");
            assert!(asked.join().expect("no panic").is_ok(), "what was asked is answered");
        }
    }
}
