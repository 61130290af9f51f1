//! A process that looks at a mount for the mount's server.
//!
//! A thread that waits for an answer to a request which was read already cannot be killed while it waits, and a process
//! does not end before its threads. If a server waits for its own answer in that way when it is killed, it never ends, no
//! other server follows, and all who use the mount wait for ever. So no thread of a server asks its own mount for
//! anything: this process does, which waits for the next server then as all others do.

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Word of the command line that starts the process.
pub const WORD: &str = "look-at";

/// The process, from the first look on.
pub(crate) struct Onlooker {
    mountpoint: PathBuf,
    process: Option<Process>,
}

/// A running process. It ends when its pipes are closed.
struct Process {
    child: Child,
    looks: ChildStdin,
    answers: ChildStdout,
}

impl Onlooker {
    /// For the mount at this absolute path.
    pub fn new(mountpoint: PathBuf) -> Self {
        Onlooker { mountpoint, process: None }
    }

    /// Looks at the mount, and returns when its server has answered.
    ///
    /// # Errors
    /// If there is no process. The next look starts another one.
    pub fn look(&mut self) -> io::Result<()> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.mountpoint)?,
        };
        if let Err(error) = process.look() {
            // It has ended, or does so at once.
            drop((process.looks, process.answers));
            process.child.wait()?;
            return Err(error);
        }
        self.process = Some(process);
        Ok(())
    }
}

impl Process {
    fn start(mountpoint: &Path) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("entresol")
            .arg(WORD)
            .arg(mountpoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (looks, answers) = (child.stdin.take(), child.stdout.take());
        Ok(Process { looks: looks.expect("a pipe"), answers: answers.expect("a pipe"), child })
    }

    fn look(&mut self) -> io::Result<()> {
        self.looks.write_all(&[0])?;
        self.answers.read_exact(&mut [0])
    }
}

/// The process: looks at a mount for each byte of its input, and answers with a byte, until the input ends.
///
/// # Errors
/// Of the pipes.
pub fn run(mountpoint: &Path) -> Result<()> {
    let (mut looks, mut answers) = (io::stdin().lock(), io::stdout().lock());
    while looks.read(&mut [0])? > 0 {
        // The mount may have ended: that is no hang.
        let _ = statx(CWD, mountpoint, AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS);
        answers.write_all(&[0])?;
        answers.flush()?;
    }
    Ok(())
}
