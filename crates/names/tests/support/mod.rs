//! Private servers on a Unix socket in a scratch directory, as a user other than root. All of it is removed at the end.

#![allow(dead_code, reason = "each test binary uses a part")]

use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// User of the servers where root runs the tests.
pub const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(60);

/// A scratch directory that the servers' user owns.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        let scratch = tempfile::Builder::new().prefix("entresol-names").tempdir().expect("a scratch directory");
        if is_root() {
            chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("its owner");
        }
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
        Scratch(scratch)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// A command of a program, as the servers' user.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir("/").stdin(Stdio::null()).env("LC_ALL", "C");
    command
}

/// Runs a command that must succeed; returns its output.
pub fn ok(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until `so` holds.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The directory of PostgreSQL's programs, of the newest installed version.
pub fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut versions: Vec<u32> = versions.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable();
    let folder = PathBuf::from(format!("/usr/lib/postgresql/{}/bin", versions.pop()?));
    ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).is_file()).then_some(folder)
}

/// A server that is ended with the test in any case.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGINT ends PostgreSQL at once and in order. A server that ignores it is killed.
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if self.0.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A PostgreSQL server.
pub struct Postgres {
    pub scratch: Scratch,
    pub programs: PathBuf,
    settings: String,
    running: Option<Running>,
}

impl Postgres {
    /// Starts a server; `None`, with a note, if the package is missing. `settings` are lines of its configuration.
    pub fn start(settings: &str) -> Option<Self> {
        let Some(programs) = postgres_programs() else {
            entresol_skip::skipped!("postgres", "the package postgresql is not installed");
            return None;
        };
        let scratch = Scratch::new();
        let data = scratch.path("data");
        let mut initdb = command(&programs.join("initdb"));
        ok(initdb.arg("-D").arg(&data).args(["-U", "me", "-A", "trust", "--no-sync", "-E", "UTF8"]));
        let sockets = scratch.path("");
        let own = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nfsync = off\nautovacuum = off\n{settings}\n",
            sockets.display()
        );
        let mut server = Postgres { scratch, programs, running: None, settings: own };
        server.restart("");
        Some(server)
    }

    /// Starts the server again, with more lines of configuration.
    pub fn restart(&mut self, more: &str) {
        self.stop();
        let configuration = self.data().join("postgresql.auto.conf");
        std::fs::write(configuration, format!("{}{more}", self.settings)).expect("a configuration");
        self.run();
    }

    pub fn data(&self) -> PathBuf {
        self.scratch.path("data")
    }

    /// Connection string for clients of the server.
    pub fn connection(&self, database: &str) -> String {
        format!("host={} user=me dbname={database}", self.scratch.path("").display())
    }

    fn run(&mut self) {
        let log = std::fs::File::create(self.scratch.path("log")).expect("a log");
        let mut server = command(&self.programs.join("postgres"));
        server.arg("-D").arg(self.data()).stdout(Stdio::null()).stderr(log);
        self.running = Some(Running(server.spawn().expect("the server starts")));
        eventually("the server answers", || {
            let mut asked = command(&self.programs.join("psql"));
            asked
                .args([&self.connection("postgres"), "-c", "SELECT 1"])
                .output()
                .is_ok_and(|done| done.status.success())
        });
    }

    /// Ends the server in order.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Runs statements; returns the rows, one per line, with `|` between columns.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let mut psql = command(&self.programs.join("psql"));
        let quiet = ["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", statements];
        ok(psql.arg(self.connection(database)).args(quiet)).trim_end().to_owned()
    }
}

/// A MariaDB server.
pub struct MariaDb {
    pub scratch: Scratch,
    running: Option<Running>,
}

impl MariaDb {
    /// Starts a server; `None`, with a note, if the package is missing. `settings` are lines of its configuration.
    pub fn start(settings: &str) -> Option<Self> {
        let server = Path::new("/usr/sbin/mariadbd");
        let install = Path::new("/usr/bin/mariadb-install-db");
        if !server.is_file() || !install.is_file() {
            entresol_skip::skipped!("mariadbd", "the package mariadb-server is not installed");
            return None;
        }
        let scratch = Scratch::new();
        let configuration = scratch.path("my.cnf");
        let text = format!(
            "[mariadbd]\ndatadir={}\nsocket={}\npid-file={}\nskip-networking\ninnodb_flush_log_at_trx_commit=0\n{settings}\n",
            scratch.path("data").display(),
            scratch.path("socket").display(),
            scratch.path("pid").display()
        );
        std::fs::write(&configuration, text).expect("a configuration");
        std::fs::set_permissions(&configuration, PermissionsExt::from_mode(0o644)).expect("its mode");
        let defaults = format!("--defaults-file={}", configuration.display());
        // A server that starts removes temporary tables of all others that share its directory for them.
        let mut made = command(install);
        made.env("TMPDIR", scratch.path("."));
        ok(made.args([&defaults, "--auth-root-authentication-method=normal", "--skip-test-db"]).stderr(Stdio::null()));
        let log = std::fs::File::create(scratch.path("log")).expect("a log");
        let mut child = command(server);
        child.env("TMPDIR", scratch.path("."));
        let child = child.arg(&defaults).stdout(Stdio::null()).stderr(log).spawn();
        let server = MariaDb { scratch, running: Some(Running(child.expect("the server starts"))) };
        eventually("the server answers", || server.client("SELECT 1").output().is_ok_and(|done| done.status.success()));
        Some(server)
    }

    pub fn data(&self) -> PathBuf {
        self.scratch.path("data")
    }

    fn client(&self, statements: &str) -> Command {
        let mut client = command(Path::new("/usr/bin/mariadb"));
        let socket = format!("--socket={}", self.scratch.path("socket").display());
        client.args(["--no-defaults", &socket, "-u", "root", "-N", "-B", "-e", statements]);
        client
    }

    /// Runs statements; returns the rows, one per line, with tabs between columns.
    pub fn sql(&self, statements: &str) -> String {
        ok(&mut self.client(statements)).trim_end().to_owned()
    }

    /// Ends the server in order.
    pub fn stop(&mut self) {
        // MariaDB ignores SIGINT, and ends in order on request.
        let _ = self.client("SHUTDOWN").output();
        self.running = None;
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.stop();
    }
}
