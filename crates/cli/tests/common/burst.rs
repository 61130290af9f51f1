//! The daemons of a burst buffer, for tests.

use super::{PROGRAM, Scratch, Signal};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A daemon, killed when it is dropped.
pub struct Daemon {
    child: Child,
    /// Address at which it listens.
    pub address: String,
}

impl Daemon {
    /// Starts a daemon; it prints its address after the word `at`.
    pub fn start(scratch: &Scratch, arguments: &[&str]) -> Daemon {
        // With as many descriptors as services and logins begin with.
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -S -n 1024 && exec \"$@\"", "sh", PROGRAM, "burst"])
            .args(arguments)
            .current_dir(scratch.path("."))
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("a daemon");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let (_, rest) = line.split_once(" at ").unwrap_or_else(|| panic!("{line:?}"));
        let address = rest.split([',', ' ']).next().expect("an address").to_owned();
        Daemon { child, address }
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it is a child");
    }

    /// True until the daemon has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is a child").is_none()
    }

    /// Waits for the end of the daemon and returns its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    /// Terminates the daemon and returns its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
