//! The server's end of the holder.

use crate::process::{SOCKET, STANDBY};
use crate::protocol::{DESCRIPTORS_MAX, Message, NAME_BYTES_MAX, Start, VERSION, receive, send};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The holder, as the server knows it. Every thread may call it.
///
/// A call fails if the holder is gone (`BrokenPipe`), besides the errors that it lists itself, and with errors of the
/// system.
pub struct Server {
    socket: OwnedFd,
    /// Held while a question waits for its answer.
    asking: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    start: Start,
    is_standby: bool,
}

impl Server {
    /// The holder that started this process; `None` if none did.
    ///
    /// It is called before any other thread is started, because it removes variables of the environment.
    ///
    /// # Errors
    /// `InvalidInput` if this process has other threads; `InvalidData` if the variable names no socket; `Unsupported` if
    /// the holder speaks another version of the protocol; `BrokenPipe` if it is gone.
    pub fn inherited() -> io::Result<Option<Server>> {
        let Some(number) = env::var_os(SOCKET) else { return Ok(None) };
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(Error::new(ErrorKind::InvalidInput, format!("${SOCKET} is read before threads are started")));
        }
        let is_standby = env::var_os(STANDBY).is_some_and(|word| word == "1");
        for name in [SOCKET, STANDBY] {
            // SAFETY: this thread is the only one, so that no other reads the environment.
            unsafe { env::remove_var(name) };
        }
        let number: Option<RawFd> = number.to_str().and_then(|number| number.parse().ok());
        let is_socket = |number: &RawFd| {
            let file = fs::read_link(format!("/proc/self/fd/{number}"));
            file.is_ok_and(|file| file.to_string_lossy().starts_with("socket:"))
        };
        let Some(number) = number.filter(is_socket) else {
            return Err(Error::new(ErrorKind::InvalidData, format!("${SOCKET} names no socket")));
        };
        // SAFETY: the holder left this open socket to whoever reads the variable, and that is gone: nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        if let Some(name) = env::args_os().next().as_deref().and_then(|name| Path::new(name).file_name()) {
            // The kernel named this process after the descriptor of its executable. People look for its name in lists.
            let _ = fs::write("/proc/self/comm", name.as_encoded_bytes());
        }
        let start = decode_start(&ask(&socket, b'h', &[b'H', VERSION], &[])?.bytes)?;
        Ok(Some(Server { socket, asking: Mutex::new(()), state: Mutex::new(State { start, is_standby }) }))
    }

    /// Start of this server.
    pub fn start(&self) -> Start {
        lock(&self.state).start
    }

    /// True if another server still serves, and this one has not been told to take its place.
    pub fn is_standby(&self) -> bool {
        lock(&self.state).is_standby
    }

    /// Waits, as a standby that has found itself in order, until the server before is gone; its descriptors are kept now.
    /// A standby that is not to take its place is killed. In any other server it returns at once.
    pub fn standby_ready(&self) -> io::Result<()> {
        if self.is_standby() {
            let start = decode_start(&self.ask(b'g', b"Y", &[])?.bytes)?;
            *lock(&self.state) = State { start, is_standby: false };
        }
        Ok(())
    }

    /// Kept descriptors with their names. Each call gives new descriptors of the same open files, which programs that
    /// are executed do not inherit.
    ///
    /// # Errors
    /// `PermissionDenied` to a standby; an error if this process may not have so many open files.
    pub fn kept(&self) -> io::Result<BTreeMap<String, OwnedFd>> {
        let (_asking, mut kept) = (lock(&self.asking), BTreeMap::new());
        loop {
            let from = u32::try_from(kept.len()).expect("there are fewer descriptors").to_le_bytes();
            let message = ask(&self.socket, b'l', &[&b"L"[..], &from].concat(), &[])?;
            if message.is_cut {
                let said = format!("more than {} kept descriptors are over the limit of open files", kept.len());
                return Err(Error::other(said));
            }
            let names = names(&message.bytes[1..]).filter(|names| names.len() == message.descriptors.len());
            let names = names.ok_or_else(malformed)?;
            if names.is_empty() {
                return Ok(kept);
            }
            kept.extend(names.into_iter().zip(message.descriptors));
        }
    }

    /// Keeps a descriptor under a name of 1 to 64 bytes, in place of the one of that name before. It survives this
    /// process from the moment that this call returns.
    ///
    /// # Errors
    /// `InvalidInput` for another name; `PermissionDenied` to a standby; EMFILE if the holder may not have so many open
    /// files.
    pub fn keep(&self, name: &str, descriptor: impl AsFd) -> io::Result<()> {
        self.change(b"K", name, &[descriptor.as_fd()])
    }

    /// Forgets a kept descriptor. A name that is not kept is no error.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        self.change(b"F", name, &[])
    }

    /// Says that this server serves. From now on it is watched.
    pub fn ready(&self) -> io::Result<()> {
        self.say(b"R")
    }

    /// Says that this server is alive. A server whose start takes long says so before it is ready too, for the sake of a
    /// service manager's watchdog.
    pub fn beat(&self) -> io::Result<()> {
        match send(self.socket.as_fd(), b"B", &[], false) {
            // The holder has signs of life enough that it has not looked at.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            sent => gone(sent),
        }
    }

    /// Says that this server is about to end for good: no other is started, with whatever code it ends. It is watched no
    /// longer. If it has done all that it had to, in good order, `is_done` is true, and a signal that ends it now counts
    /// as exit code 0.
    pub fn stopping(&self, is_done: bool) -> io::Result<()> {
        self.say(if is_done { b"SD" } else { b"S" })
    }

    /// Asks for an upgrade to the program as it is on disk now, as SIGUSR2 to the holder does. The outcome goes to the
    /// holder's standard error output, and as a line of text to the socket `report`, which outlives this process:
    /// [`UPGRADED`](crate::UPGRADED), or why there is no upgrade.
    pub fn upgrade(&self, report: Option<BorrowedFd>) -> io::Result<()> {
        gone(send(self.socket.as_fd(), b"U", report.as_slice(), true))
    }

    /// Waits until the holder is gone.
    pub fn lost(&self) -> io::Result<()> {
        // The end of the other side is told without being asked for. Answers are left to those who wait for them.
        let mut sockets = [PollFd::new(&self.socket, PollFlags::empty())];
        retry_on_intr(|| poll(&mut sockets, None))?;
        Ok(())
    }

    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        gone(send(self.socket.as_fd(), bytes, &[], true))
    }

    fn ask(&self, answer: u8, bytes: &[u8], descriptors: &[BorrowedFd]) -> io::Result<Message> {
        let _asking = lock(&self.asking);
        ask(&self.socket, answer, bytes, descriptors)
    }

    fn change(&self, letter: &[u8], name: &str, descriptors: &[BorrowedFd]) -> io::Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let said = format!("'{name}' does not have 1 to {NAME_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::InvalidInput, said));
        }
        self.ask(b'k', &[letter, name.as_bytes()].concat(), descriptors).map(|_| ())
    }
}

fn decode_start(bytes: &[u8]) -> io::Result<Start> {
    match bytes[1..].split_first() {
        Some((&VERSION, rest)) => Start::decode(rest).ok_or_else(malformed),
        Some((version, _)) => {
            let said = format!("the holder speaks version {version} of its protocol, this program version {VERSION}");
            Err(Error::new(ErrorKind::Unsupported, said))
        }
        None => Err(malformed()),
    }
}

/// Sends a message and waits for its answer, which begins with the letter `answer`.
fn ask(socket: &OwnedFd, answer: u8, bytes: &[u8], descriptors: &[BorrowedFd]) -> io::Result<Message> {
    gone(send(socket.as_fd(), bytes, descriptors, true))?;
    let message = receive(socket.as_fd(), true)?.ok_or_else(lost)?;
    if let [b'k', number @ ..] = &message.bytes[..] {
        let number = i32::from_le_bytes(number.try_into().map_err(|_| malformed())?);
        if number != 0 {
            return Err(Error::from_raw_os_error(number));
        }
    }
    if message.bytes[0] == answer { Ok(message) } else { Err(malformed()) }
}

/// Names in a list.
fn names(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while let Some((&len, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(len))?;
        names.push(String::from_utf8(name.to_vec()).ok()?);
        bytes = rest;
    }
    (names.len() <= DESCRIPTORS_MAX).then_some(names)
}

fn lost() -> Error {
    Error::new(ErrorKind::BrokenPipe, "the holder is gone")
}

fn malformed() -> Error {
    Error::new(ErrorKind::InvalidData, "the holder gave an answer that is none")
}

fn gone(sent: io::Result<()>) -> io::Result<()> {
    let is_gone = |error: &Error| matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
    sent.map_err(|error| if is_gone(&error) { lost() } else { error })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_list_are_read_to_its_end_or_not_at_all() {
        assert_eq!(names(b""), Some(vec![]));
        assert_eq!(names(b"\x01a\x02bc"), Some(vec!["a".to_owned(), "bc".to_owned()]));
        assert_eq!(names(b"\x01a\x03bc"), None);
        assert_eq!(names(b"\x01\xff"), None);
    }
}
