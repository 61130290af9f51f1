//! A separate process that reads the databases' names for files, so that a stalled store does not block the command.
//!
//! Names are read through the mount. A process whose call waits in the kernel for a stalled file system can neither
//! continue nor be ended. The namer is therefore a process of its own. It gets lines of paths, answers each with one
//! line, and is abandoned if an answer does not come in time.

use anyhow::{Context, Result, bail};
use entresol_names::postgres::Connection;
use entresol_names::{Name, Names};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The database's name for a file, and the kind of thing that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileName {
    /// Kind of the object, such as a table.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Names learned for the paths of one line.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Learned {
    names: HashMap<String, FileName>,
    /// Why names could not be read, a line for each data directory.
    troubles: Vec<String>,
    /// Why the server to be asked could not be asked.
    refused: Option<String>,
}

/// The work of the process: answers lines until there are no more. It reads the names for the mount that `process`
/// serves, and asks a server for them if one is given.
pub fn answer(process: u32, mountpoint: &str, ask: Option<&Connection>) -> Result<()> {
    let (mut directories, mut refused) = (None, None);
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let paths: Vec<String> = serde_json::from_str(&line?).context("paths")?;
        if directories.is_none() {
            directories = Directories::find(process, mountpoint);
            if let (Some(directories), Some(connection)) = (&mut directories, ask) {
                refused = directories.ask(connection.clone()).err().map(|error| format!("--ask: {error}"));
            }
        }
        let mut learned = Learned { refused: refused.clone(), ..Learned::default() };
        if let Some(directories) = &mut directories {
            learned.names =
                paths.into_iter().filter_map(|path| Some((path.clone(), directories.name(&path)?))).collect();
            learned.troubles = directories.troubles();
        }
        writeln!(out, "{}", serde_json::to_string(&learned)?)?;
        out.flush()?;
    }
    Ok(())
}

/// The data directories of a mount, as seen by the process that serves the mount or by this process.
struct Directories(Names);

impl Directories {
    /// Finds the directories; none if the mount cannot be read.
    fn find(process: u32, mountpoint: &str) -> Option<Self> {
        let inside = PathBuf::from(format!("/proc/{process}/root")).join(mountpoint.trim_start_matches('/'));
        Names::find(&inside).or_else(|_| Names::find(Path::new(mountpoint))).ok().map(Directories)
    }

    /// Takes names from a server.
    ///
    /// # Errors
    /// If the server cannot be asked.
    fn ask(&mut self, connection: Connection) -> Result<(), entresol_names::Error> {
        self.0.ask(connection)
    }

    /// The name of a file by its path in the mount.
    fn name(&mut self, path: &str) -> Option<FileName> {
        let name = self.0.name_of(path)?;
        // With several servers the name includes the server's directory.
        let several = self.0.troubles().count() > 1;
        let of = self.0.directory_of(path).filter(|_| several);
        // Forks and partitions are parts of one table.
        let whole = Name { part: None, ..name };
        let name = of.map_or(whole.to_string(), |of| format!("{of}: {whole}"));
        Some(FileName { kind: whole.kind.word().to_owned(), name })
    }

    /// Why names could not be read, a line for each data directory.
    fn troubles(&self) -> Vec<String> {
        let line = |(place, server, trouble): (&str, &str, Option<&entresol_names::Error>)| {
            let place = if place.is_empty() { "." } else { place };
            trouble.map(|error| format!("{place}: {server}: {error}; its files go by their paths"))
        };
        self.0.troubles().filter_map(line).collect()
    }
}

/// The process that reads names, and its answers so far.
pub(crate) struct Namer {
    child: Child,
    lines: ChildStdin,
    answers: Receiver<Learned>,
    /// True while the process has not answered its last line.
    owes: bool,
    /// True once the process has ended.
    dead: bool,
    learned: Learned,
}

impl Namer {
    /// Starts the process for the files of a mount; `process` serves the mount. A server is asked for the names if one is
    /// given.
    pub(crate) fn start(process: u32, mountpoint: &str, ask: Option<&Connection>) -> Result<Self> {
        let program = std::env::current_exe().context("this program")?;
        let mut command = Command::new(program);
        command.arg("names-of").arg(process.to_string()).arg(mountpoint);
        if let Some(connection) = ask {
            command.arg(format!("--ask={connection}"));
        }
        // No output is inherited: the process could otherwise keep a reader of this process's output waiting.
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("a process that reads names")?;
        let lines = child.stdin.take().context("a pipe")?;
        let mut from = BufReader::new(child.stdout.take().context("a pipe")?);
        let (told, answers) = channel();
        let listen = move || {
            let mut line = String::new();
            while from.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let Ok(learned) = serde_json::from_str(&line) else { return };
                if told.send(learned).is_err() {
                    return;
                }
                line.clear();
            }
        };
        std::thread::Builder::new().name("names".into()).spawn(listen).context("a thread for names")?;
        Ok(Namer { child, lines, answers, owes: false, dead: false, learned: Learned::default() })
    }

    /// Learns the names of the files at these paths; true if the answer came in time. Names learned before stay known.
    ///
    /// # Errors
    /// If the server to be asked cannot be asked.
    pub(crate) fn learn(&mut self, paths: &[&str], limit: Option<Duration>) -> Result<bool> {
        if !self.owes {
            let line = serde_json::to_string(paths).context("paths")?;
            if writeln!(self.lines, "{line}").is_err() {
                self.dead = true;
                return Ok(false);
            }
            self.owes = true;
        }
        let answer = match limit {
            Some(limit) => self.answers.recv_timeout(limit),
            None => self.answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let learned = match answer {
            Ok(learned) => learned,
            Err(why) => {
                self.dead = why == RecvTimeoutError::Disconnected;
                return Ok(false);
            }
        };
        self.owes = false;
        if let Some(why) = learned.refused {
            bail!("{why}");
        }
        self.learned = learned;
        Ok(true)
    }

    /// True if the process has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// The name of a file, if it is known.
    pub(crate) fn name(&self, path: &str) -> Option<&FileName> {
        self.learned.names.get(path)
    }

    /// Why names could not be read.
    pub(crate) fn troubles(&self) -> &[String] {
        &self.learned.troubles
    }
}

impl Drop for Namer {
    fn drop(&mut self) {
        // A process that waits in the kernel ends when the kernel lets it; this process does not wait for that.
        let _ = self.child.kill();
        if !self.owes || self.dead {
            let _ = self.child.wait();
        }
    }
}
