//! A holder under test.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time for anything to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a look finds something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: in vain");
        sleep(Duration::from_millis(2));
    }
}

/// Settings of a holder: the watchdog's limit, attempts, the limit of a standby, and the longest pause. Times are in
/// milliseconds.
pub const PATIENT: [&str; 4] = ["60000", "5", "60000", "0"];

/// The program of `examples/held.rs`. A plain `cargo test` builds it; one with `--test` does not, and finds an older one.
fn program() -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let program = tests.ancestors().nth(2).expect("a folder").join("examples/held");
    assert!(program.exists(), "{}: cargo build --examples makes it", program.display());
    program
}

/// A holder with its server, in a directory of their own.
pub struct Running {
    pub directory: TempDir,
    pub holder: Child,
}

impl Running {
    /// A holder with settings of its own, whose server serves.
    pub fn with(settings: [&str; 4], environment: &[(&str, &str)]) -> Self {
        let held = Self::prepared(settings, environment, |_| ());
        held.ask("pid");
        held
    }

    pub fn new() -> Self {
        Self::with(PATIENT, &[])
    }

    /// A holder whose directory was prepared before its server starts.
    pub fn prepared(settings: [&str; 4], environment: &[(&str, &str)], prepare: impl FnOnce(&TempDir)) -> Self {
        let directory = tempfile::Builder::new().prefix("entresol-hold").tempdir().expect("a directory");
        install(&directory, "first");
        prepare(&directory);
        let log = File::create(directory.path().join("log")).expect("a file");
        // A holder that is started with SIGHUP ignored, as these tests may be, ignores it.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(program())
            .arg("hold")
            .arg(directory.path())
            .args(settings)
            .envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let holder = command.spawn().expect("a holder");
        Running { directory, holder }
    }

    /// Replaces the program on disk.
    pub fn install(&self, mode: &str) {
        install(&self.directory, mode);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn ask(&self, line: &str) -> String {
        ask(self.directory.path(), line)
    }

    pub fn tell(&self, line: &str) -> Option<String> {
        tell(self.directory.path(), line)
    }

    /// Sends a signal to the server, and returns its process.
    pub fn signal_server(&self, signal: Signal) -> String {
        let server = self.ask("pid");
        let process = Pid::from_raw(server.parse().expect("a number")).expect("a process");
        kill_process(process, signal).expect("it takes a signal");
        server
    }

    pub fn signal_holder(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.holder), signal).expect("it takes a signal");
    }

    /// Waits until another server than this one serves.
    pub fn wait_for_another(&self, server: &str) -> String {
        until("another server", || Some(self.ask("pid")).filter(|process| process != server))
    }

    /// Kills the server, and waits for the next.
    pub fn kill(&self) {
        self.wait_for_another(&self.signal_server(Signal::KILL));
    }

    /// The exit code of the holder.
    pub fn end(&mut self) -> i32 {
        let ended = |holder: &mut Child| holder.try_wait().expect("a child");
        let status: ExitStatus = until("the end", || ended(&mut self.holder));
        status.code().unwrap_or_else(|| panic!("{:?}\n{}", status.signal(), self.log()))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("a file")
    }

    /// Waits until the holder has said so.
    pub fn wait_for_log(&self, words: &str) {
        until(words, || self.log().contains(words).then_some(()));
    }

    pub fn starts(&self) -> usize {
        fs::read_to_string(self.path("starts")).map_or(0, |starts| starts.lines().count())
    }

    /// Descriptors that the holder has open.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.holder.id())).expect("a process").count()
    }

    /// Waits until the holder has so many descriptors open: it hears of a server that is ready, or gone, after others do.
    pub fn wait_for_open_files(&self, number: usize) {
        until("open files", || (self.open_files() == number).then_some(()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = self.holder.kill().and_then(|()| self.holder.wait());
        // Servers end by themselves then. The directory is removed after them, because they leave a note in it.
        let starts = fs::read_to_string(self.path("starts")).unwrap_or_default();
        let runs = |server: &str| {
            fs::read_link(format!("/proc/{server}/exe")).is_ok_and(|program| program.starts_with(self.directory.path()))
        };
        let begun = Instant::now();
        while starts.lines().any(runs) && begun.elapsed() < PATIENCE {
            sleep(Duration::from_millis(2));
        }
    }
}

/// Puts the program at its place. A shell writes it: a file that this process has open for writing might be inherited by
/// a child of another test, and could not be executed as long.
fn install(directory: &TempDir, mode: &str) {
    let words = format!("{:>32}", format!("MODE:{mode}"));
    let script = r#"cp "$0" "$1.new" && printf %s "$2" >>"$1.new" && mv -f "$1.new" "$1""#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program()).arg(directory.path().join("program")).arg(words);
    assert!(command.status().expect("a shell").success());
}

/// Answer of the server of a directory, once it has one. The server may be another one than at first.
fn ask(directory: &Path, line: &str) -> String {
    until(line, || tell(directory, line))
}

/// Answer of the server of a directory; `None` if there is no server, or if it ends before it has answered.
fn tell(directory: &Path, line: &str) -> Option<String> {
    let mut connection = UnixStream::connect(directory.join("socket")).ok()?;
    connection.set_read_timeout(Some(PATIENCE)).expect("a time");
    writeln!(connection, "{line}").ok()?;
    let mut said = String::new();
    match connection.read_to_string(&mut said) {
        Ok(_) => said.strip_suffix('\n').map(str::to_owned),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CONNRESET.raw_os_error()) => None,
        Err(error) => panic!("{line}: {error}"),
    }
}
