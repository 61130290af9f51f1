//! The holder's loop: messages of the server and of its standby, signals, ends of both, and the time.

use crate::lines::write_line;
use crate::notify::Manager;
use crate::process::{Image, Program};
use crate::protocol::{DESCRIPTORS_MAX, Message, NAME_BYTES_MAX, Reason, Start, UPGRADED, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two attempts to start a server, when the system starts none.
const PAUSE: Duration = Duration::from_millis(100);
/// A server that ends sooner after it was ready, or before, ended at once.
const AT_ONCE: Duration = Duration::from_millis(250);
/// Servers in a row that may end at once and are replaced without a pause. Each further one doubles the pause.
const UNPAUSED: u32 = 2;
/// The first such pause.
const FIRST_PAUSE: Duration = Duration::from_millis(62);
/// Delay of the holder itself, after which a server's silence counts from now on: it may be that the machine stood still.
const LATE: Duration = Duration::from_secs(1);

/// Settings of a holder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest silence of a server that is ready. After it the server is killed and another one started. Without it there
    /// is no such limit.
    pub watchdog: Option<Duration>,
    /// Servers in a row that end without getting ready, after which the holder ends too.
    pub attempts: u32,
    /// Longest time that a standby takes to be ready for an upgrade.
    pub standby: Duration,
    /// Longest pause before another server, when several in a row ended as soon as they were ready.
    pub pause_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let half_a_minute = Duration::from_secs(30);
        let pause_max = Duration::from_secs(1);
        Settings { watchdog: Some(half_a_minute), attempts: 5, standby: half_a_minute, pause_max }
    }
}

/// Starts a server of `program` and holds its descriptors until it ends for good. This process has no other threads.
pub fn run(program: Program, settings: Settings) -> ExitCode {
    let code = Holder::start(program, settings).and_then(Holder::hold).unwrap_or_else(|error| {
        say(format_args!("the holder: {error}"));
        1
    });
    code.into()
}

/// A server or a standby.
struct Member {
    child: Child,
    socket: OwnedFd,
    /// False once the other end of the socket is closed.
    is_open: bool,
    image: Image,
    state: State,
    /// The reason for which the holder killed this server.
    killed_for: Option<Reason>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Starting,
    /// A standby that may take until then to be ready.
    Preparing(Instant),
    /// A standby that waits for the end of the server before.
    Waiting,
    /// In service, with its last sign of life.
    Ready(Instant),
    Stopping,
    /// As `Stopping`, and nothing is left to do.
    Done,
}

impl State {
    /// True if no other server is to follow.
    fn is_last(self) -> bool {
        matches!(self, State::Stopping | State::Done)
    }
}

/// Sender of a message.
#[derive(Clone, Copy, PartialEq)]
enum From {
    Server,
    Standby,
}

struct Holder {
    program: Program,
    settings: Settings,
    manager: Manager,
    signals: SignalDelivery<UnixStream, SignalOnly>,
    /// The limit of open files with which this process was started, for its servers.
    files: Rlimit,
    kept: BTreeMap<String, OwnedFd>,
    server: Member,
    standby: Option<Member>,
    /// Receiver of the outcome of the upgrade that is under way.
    report: Option<OwnedFd>,
    /// The executable of before an upgrade, until the new server is ready.
    former: Option<Image>,
    start: Start,
    /// Servers in a row that ended without getting ready; with `end`, all that ended since.
    failures: u32,
    /// Servers in a row that ended at once.
    brief: u32,
    /// Moment at which the server became ready.
    ready_at: Option<Instant>,
    /// The last signal that asked for the end.
    end: Option<Signal>,
}

impl Holder {
    fn start(program: Program, settings: Settings) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        // `nohup` ignores SIGHUP so that the end of a terminal does not end its command.
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let heeded = [SIGCHLD, SIGINT, SIGTERM, SIGUSR2].into_iter().chain(hang_up);
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, heeded)?;
        let files = getrlimit(Resource::Nofile);
        // A server may have raised its own limit, and all its descriptors are to be kept.
        setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum })?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", program.path.display()));
        let image = program.open().map_err(named)?;
        let server = Member::spawn(&program, &image, files, State::Starting).map_err(named)?;
        let start = Start { reason: Reason::First, crashes: 0, hangs: 0, upgrades: 0, since_ns: 0 };
        Ok(Holder {
            program,
            settings,
            manager: Manager::of_environment(),
            signals,
            files,
            kept: BTreeMap::new(),
            server,
            standby: None,
            report: None,
            former: None,
            start,
            failures: 0,
            brief: 0,
            ready_at: None,
            end: None,
        })
    }

    /// Serves until the end, whose exit code is returned.
    fn hold(mut self) -> io::Result<u8> {
        loop {
            let due = self.wait()?;
            let signals: Vec<i32> = self.signals.pending().collect();
            self.drain(From::Server);
            self.drain(From::Standby);
            for signal in signals {
                match signal {
                    SIGCHLD => {}
                    SIGUSR2 => self.upgrade(None),
                    signal => {
                        self.end = Signal::from_named_raw(signal);
                        self.give_up_standby();
                        self.end.into_iter().for_each(|signal| self.server.signal(signal));
                    }
                }
            }
            if let Some(code) = self.reap()? {
                self.manager.stopping();
                if let Some(mut standby) = self.standby.take() {
                    let _ = standby.child.kill().and_then(|()| standby.child.wait());
                }
                return Ok(code);
            }
            self.check_time(due);
        }
    }

    /// Waits for something to do, and returns the time until which it may have waited.
    fn wait(&mut self) -> io::Result<Option<Instant>> {
        let due = self.silence_max().into_iter().chain(self.standby.as_ref().and_then(Member::prepares_until)).min();
        let left = |due: Instant| Timespec::try_from(due.saturating_duration_since(Instant::now())).ok();
        let members = [Some(&self.server), self.standby.as_ref()].into_iter().flatten();
        let sockets = members.filter(|member| member.is_open).map(|member| member.socket.as_fd());
        let all = std::iter::once(self.signals.get_read().as_fd()).chain(sockets);
        let mut all: Vec<PollFd> = all.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
        match poll(&mut all, due.and_then(left).as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(due),
            Err(error) => Err(error.into()),
        }
    }

    /// Moment until which the server must have given a sign of life.
    fn silence_max(&self) -> Option<Instant> {
        let State::Ready(beat) = self.server.state else { return None };
        beat.checked_add(self.settings.watchdog?).filter(|_| self.server.killed_for.is_none())
    }

    fn check_time(&mut self, due: Option<Instant>) {
        let now = Instant::now();
        if let State::Ready(beat) = &mut self.server.state
            && due.is_some_and(|due| now.saturating_duration_since(due) > LATE)
        {
            *beat = now;
        }
        if self.silence_max().is_some_and(|max| max <= now) {
            say(format_args!("the server gives no sign of life; it is killed, and another one started"));
            self.server.kill_for(Reason::Hang);
        }
        if self.standby.as_ref().and_then(Member::prepares_until).is_some_and(|until| until <= now) {
            let limit = self.settings.standby;
            no_upgrade(self.report.take(), format_args!("the new program is not ready after {limit:?}"));
            self.give_up_standby();
        }
    }

    /// Takes all messages that were sent up to now.
    fn drain(&mut self, from: From) {
        while let Some(member) = self.member(from).filter(|member| member.is_open) {
            match receive(member.socket.as_fd(), false) {
                Ok(Some(message)) => self.take(from, message),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => member.is_open = false,
            }
        }
    }

    fn member(&mut self, from: From) -> Option<&mut Member> {
        match from {
            From::Server => Some(&mut self.server),
            From::Standby => self.standby.as_mut(),
        }
    }

    fn take(&mut self, from: From, message: Message) {
        let (letter, rest) = (message.bytes[0], &message.bytes[1..]);
        match (letter, from) {
            (b'H', From::Server) => self.answer(from, &self.start.encode(b'h'), &[]),
            (b'H', From::Standby) => self.answer(from, &self.upgraded().encode(b'h'), &[]),
            (b'L', From::Server) => self.list(rest),
            (b'K', From::Server) => {
                let done = self.keep(rest.to_vec(), message);
                self.done(from, done);
            }
            (b'F', From::Server) => {
                self.kept.retain(|name, _| name.as_bytes() != rest);
                self.done(from, Ok(()));
            }
            (b'K' | b'F' | b'L', From::Standby) => self.done(from, Err(Errno::PERM)),
            (b'R', From::Server) if !self.server.state.is_last() => self.is_ready(),
            (b'B', From::Server) => {
                if let State::Ready(beat) = &mut self.server.state {
                    *beat = Instant::now();
                }
                self.manager.alive();
            }
            (b'S', From::Server) => {
                self.server.state = if rest == b"D" { State::Done } else { State::Stopping };
                self.manager.stopping();
                self.give_up_standby();
            }
            (b'U', From::Server) => self.upgrade(message.descriptors.into_iter().next()),
            (b'Y', From::Standby) => {
                if let Some(standby) = self.standby.as_mut().filter(|standby| standby.prepares_until().is_some()) {
                    standby.state = State::Waiting;
                    self.server.kill_for(Reason::Upgrade);
                }
            }
            _ => {}
        }
    }

    /// Answers a question. A server that takes no answers is of no use, if it is not gone already.
    fn answer(&mut self, from: From, bytes: &[u8], names: &[String]) {
        let descriptors: Vec<_> = names.iter().map(|name| self.kept[name].as_fd()).collect();
        let member = if from == From::Server { Some(&self.server) } else { self.standby.as_ref() };
        let sent = member.map(|member| send(member.socket.as_fd(), bytes, &descriptors, false));
        if let (Some(Err(_)), Some(member)) = (sent, self.member(from)) {
            let _ = member.child.kill();
        }
    }

    fn done(&mut self, from: From, done: Result<(), Errno>) {
        let number = done.err().map_or(0, Errno::raw_os_error);
        self.answer(from, &[&b"k"[..], &number.to_le_bytes()].concat(), &[]);
    }

    fn keep(&mut self, name: Vec<u8>, message: Message) -> Result<(), Errno> {
        let name = String::from_utf8(name).map_err(|_| Errno::INVAL)?;
        let mut descriptors = message.descriptors.into_iter();
        match (descriptors.next(), descriptors.next()) {
            (Some(descriptor), None) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
                self.kept.insert(name, descriptor);
                Ok(())
            }
            (None, _) if message.is_cut => Err(Errno::MFILE),
            _ => Err(Errno::INVAL),
        }
    }

    fn list(&mut self, from: &[u8]) {
        let from = from.try_into().map_or(0, u32::from_le_bytes);
        let names: Vec<String> = self.kept.keys().skip(from as usize).take(DESCRIPTORS_MAX).cloned().collect();
        let bytes = |name: &String| [&[name.len() as u8], name.as_bytes()].concat();
        let bytes: Vec<u8> = std::iter::once(b'l').chain(names.iter().flat_map(bytes)).collect();
        self.answer(From::Server, &bytes, &names);
    }

    fn is_ready(&mut self) {
        let now = Instant::now();
        (self.server.state, self.ready_at) = (State::Ready(now), Some(now));
        if self.former.take().is_some() {
            say(format_args!("{UPGRADED}"));
            self.report.take().iter().for_each(|report| tell(report, UPGRADED));
        }
        self.manager.ready();
        match self.end {
            // A server before this one may have died of the signal, or before it got there.
            Some(signal) => self.server.signal(signal),
            None => self.failures = 0,
        }
    }

    /// Ends the standby, unless the server before was killed for it.
    fn give_up_standby(&mut self) {
        if self.server.killed_for != Some(Reason::Upgrade)
            && let Some(standby) = &mut self.standby
        {
            standby.state = State::Stopping;
            let _ = standby.child.kill();
        }
    }

    /// Begins an upgrade. Its outcome goes to standard error output and to `report`.
    fn upgrade(&mut self, report: Option<OwnedFd>) {
        if self.standby.is_some() {
            return no_upgrade(report, format_args!("one is under way"));
        }
        if self.end.is_some() || !matches!(self.server.state, State::Ready(_)) {
            return no_upgrade(report, format_args!("the server is not ready, or about to end"));
        }
        let state = State::Preparing(Instant::now() + self.settings.standby);
        let spawn = |image| Member::spawn(&self.program, &image, self.files, state);
        match self.program.open().and_then(spawn) {
            Ok(standby) => {
                (self.standby, self.report) = (Some(standby), report);
                say(format_args!("an upgrade begins: the program on disk is started"));
            }
            Err(error) => no_upgrade(report, format_args!("{}: {error}", self.program.path.display())),
        }
    }

    /// The start of the standby.
    fn upgraded(&self) -> Start {
        Start { reason: Reason::Upgrade, upgrades: self.start.upgrades + 1, since_ns: monotonic_ns(), ..self.start }
    }

    /// Sees which members have ended. The exit code is returned if that is the end of all.
    fn reap(&mut self) -> io::Result<Option<u8>> {
        if let Some(standby) = &mut self.standby
            && let Some(status) = standby.child.try_wait()?
        {
            if standby.state != State::Stopping {
                no_upgrade(self.report.take(), format_args!("the new program ended ({status})"));
            }
            self.standby = None;
        }
        if former_stays() && self.server.killed_for.is_some() {
            // As if it were gone. It hears nothing of that.
            std::mem::forget(self.server.socket.try_clone()?);
            return Ok(self.ended(ExitStatus::from_raw(Signal::KILL.as_raw())));
        }
        Ok(self.server.child.try_wait()?.and_then(|status| self.ended(status)))
    }

    /// Decides what comes after the end of the server: another one, or the end with an exit code.
    fn ended(&mut self, status: ExitStatus) -> Option<u8> {
        self.drain(From::Server);
        let Member { state, killed_for, .. } = self.server;
        // A server that was about to end, and was killed for an upgrade, has not done what it was about to do.
        let is_cut = killed_for == Some(Reason::Upgrade) && status.signal() == Some(Signal::KILL.as_raw());
        let is_start_error = self.start.reason == Reason::First && state == State::Starting;
        let is_good = state.is_last() || (status.success() && self.former.is_none());
        if !is_cut && (is_good || is_start_error) {
            let is_done = state == State::Done && status.code().is_none();
            return Some(if is_done { 0 } else { code(status) });
        }
        if let Some(standby) = self.standby.take_if(|standby| standby.state == State::Waiting) {
            self.promote(standby);
            return None;
        }
        let was_ready = matches!(state, State::Ready(_));
        if !was_ready || self.end.is_some() {
            self.failures += 1;
        }
        let silence = if let State::Ready(beat) = state { beat.elapsed() } else { Duration::ZERO };
        let reason = killed_for.filter(|reason| *reason == Reason::Hang).unwrap_or(Reason::Crash);
        let count = if reason == Reason::Hang { &mut self.start.hangs } else { &mut self.start.crashes };
        *count += 1;
        self.start.reason = reason;
        // Of servers in a row that do not get ready, the pause began with the first.
        if was_ready {
            let silence = if reason == Reason::Hang { silence.as_nanos() as u64 } else { 0 };
            self.start.since_ns = monotonic_ns().saturating_sub(silence);
        }
        let (image, which) = match self.former.take().filter(|_| !was_ready) {
            Some(former) => (former, "the program of before the upgrade"),
            None => (self.server.image.clone(), "another one"),
        };
        let when = if was_ready { "" } else { " before it was ready" };
        let words = format!("the server ended{when} ({status}); {which} is started");
        say(format_args!("{words}"));
        self.report.take().iter().for_each(|report| tell(report, &words));
        self.pause();
        while self.failures < self.settings.attempts {
            match Member::spawn(&self.program, &image, self.files, State::Starting) {
                Ok(server) => {
                    self.server = server;
                    self.manager.alive();
                    return None;
                }
                Err(error) => {
                    say(format_args!("no server can be started: {error}"));
                    self.failures += 1;
                    sleep(PAUSE);
                }
            }
        }
        say(format_args!("{} servers in a row ended without getting ready; the holder gives up", self.failures));
        Some(code(status).max(1))
    }

    /// Pauses before another server is started, if several in a row have ended at once.
    fn pause(&mut self) {
        let is_brief = self.ready_at.take().is_none_or(|ready| ready.elapsed() < AT_ONCE);
        self.brief = if is_brief { self.brief.saturating_add(1) } else { 0 };
        if let Some(more) = self.brief.checked_sub(UNPAUSED + 1) {
            let pause = FIRST_PAUSE.saturating_mul(1 << more.min(16)).min(self.settings.pause_max);
            sleep(pause);
        }
    }

    /// Makes the standby the server, after the one before is gone.
    fn promote(&mut self, standby: Member) {
        self.start = self.upgraded();
        let server = Member { state: State::Starting, ..standby };
        self.former = Some(std::mem::replace(&mut self.server, server).image);
        (self.failures, self.ready_at) = (0, None);
        self.manager.alive();
        self.answer(From::Server, &self.start.encode(b'g'), &[]);
    }
}

impl Member {
    fn spawn(program: &Program, image: &Image, files: Rlimit, state: State) -> io::Result<Self> {
        let (child, socket) = program.spawn(image, state != State::Starting, files)?;
        Ok(Member { child, socket, is_open: true, image: image.clone(), state, killed_for: None })
    }

    fn kill_for(&mut self, reason: Reason) {
        self.killed_for = Some(reason);
        // It fails only if the process has ended already.
        let _ = if former_stays() { signal_hook::low_level::raise(SIGCHLD) } else { self.child.kill() };
    }

    /// Sends a signal to the process, unless it was waited for: its number may be another's then.
    fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn prepares_until(&self) -> Option<Instant> {
        if let State::Preparing(until) = self.state { Some(until) } else { None }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// True if this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Time of the clock by which [`Start::since_ns`] counts, in nanoseconds.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reports that there will be no upgrade.
fn no_upgrade(report: Option<OwnedFd>, why: fmt::Arguments) {
    let words = format!("no upgrade: {why}");
    say(format_args!("{words}"));
    report.iter().for_each(|report| tell(report, &words));
}

/// A fault that tests put into the holder: a server that another one replaces is not killed.
fn former_stays() -> bool {
    cfg!(feature = "mutants") && std::env::var_os("ENTRESOL_FORMER_STAYS").is_some()
}

/// Sends a line to somebody who waits for the outcome of an upgrade, and may be gone.
fn tell(report: &OwnedFd, words: &str) {
    let _ = rustix::net::send(report, format!("{words}\n").as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Prints a line for people.
fn say(words: fmt::Arguments) {
    write_line(format_args!("entresol: {words}"));
}
