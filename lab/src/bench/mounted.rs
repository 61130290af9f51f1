//! The benchmark's handle on the process that mounts.

use super::daemon::{Figures, FileFigures};
use anyhow::{Context, Result, anyhow, bail};
use entresol_bench::server::{Guarded, Owner, last_lines};
use serde::de::DeserializeOwned;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest time that the process may take to close its cache.
const CLOSED_WITHIN: Duration = Duration::from_secs(300);

/// A directory that another process mounts.
pub struct Mounted {
    process: Guarded,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    mountpoint: PathBuf,
    log: PathBuf,
    owner: Owner,
}

impl Mounted {
    /// Starts the process with these arguments, as this user; `run` is a directory that the user may enter. Returns
    /// the figures of its open.
    pub fn start(arguments: &[String], mountpoint: &Path, run: &Path, owner: &Owner) -> Result<(Self, Figures)> {
        let log = run.join("mount.log");
        let errors = OpenOptions::new().create(true).append(true).open(&log);
        let errors = errors.with_context(|| log.display().to_string())?;
        // A user who may not enter the program's directory can run it by this name.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--quiet", "bench", "daemon"]).args(arguments).current_dir(run);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = Guarded::spawn(owner.applied(&mut command)).context("the process that mounts")?;
        let (input, output) = (process.child().stdin.take(), process.child().stdout.take());
        let answers = BufReader::new(output.context("a pipe")?);
        let owner = owner.clone();
        let mut mounted = Mounted { process, input, answers, mountpoint: mountpoint.to_owned(), log, owner };
        let found = mounted.answer()?;
        Ok((mounted, found))
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the process that mounts")?;
        if line.is_empty() {
            let ended = self.process.wait_within(Duration::from_secs(1));
            let said = last_lines(&self.log, 3).join(" | ");
            let how = ended.map_or("silent".to_owned(), |status| status.to_string());
            bail!("the process that mounts has ended ({how}): {said}");
        }
        serde_json::from_str(&line).map_err(|error| anyhow!("the process that mounts: {error}: {line}"))
    }

    /// Process id.
    pub fn pid(&mut self) -> u32 {
        self.process.child().id()
    }

    /// Sends a command and returns the figures after it.
    pub fn ask(&mut self, word: &str) -> Result<Figures> {
        self.say(word)?;
        self.answer()
    }

    /// The counts of all files that were used through a cache.
    pub fn files(&mut self) -> Result<Vec<FileFigures>> {
        self.say("files")?;
        self.answer()
    }

    fn say(&mut self, word: &str) -> Result<()> {
        let input = self.input.as_mut().context("a process that was asked to end")?;
        input.write_all(format!("{word}\n").as_bytes()).context("the process that mounts")
    }

    /// Processor time that the process has spent.
    pub fn processor_time(&mut self) -> Duration {
        self.process.processor_time()
    }

    /// Unmounts and closes the cache.
    pub fn close(mut self) -> Result<()> {
        drop(self.input.take());
        match self.process.wait_within(CLOSED_WITHIN) {
            Some(status) if status.success() => Ok(()),
            ended => {
                let said = last_lines(&self.log, 3).join(" | ");
                let how = ended.map_or("it was killed".to_owned(), |status| status.to_string());
                bail!("the process that mounts did not end in good order ({how}): {said}")
            }
        }
    }

    /// Kills the process, as a crash does. The mount stays without a server until it is removed or replaced.
    pub fn kill(&mut self) {
        self.process.kill_all();
    }
}

/// The process that mounts, shared by several threads.
pub type Shared<'a> = Mutex<&'a mut Mounted>;

/// Sends a command while no other thread does, and returns the figures after it.
pub fn ask(mounted: &Shared, word: &str) -> Result<Figures> {
    mounted.lock().unwrap_or_else(PoisonError::into_inner).ask(word)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.process.kill_all();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if !mounts.contains(&*self.mountpoint.to_string_lossy()) {
            return;
        }
        let mut command = Command::new("fusermount3");
        command.args(["-u", "-z", "--"]).arg(&self.mountpoint).current_dir("/").stderr(Stdio::null());
        // Root may remove any user's mount. If it cannot be removed, the next start replaces it.
        let gone = self.owner.applied(&mut command).status().is_ok_and(|status| status.success());
        if !gone {
            let _tried = rustix::mount::unmount(&self.mountpoint, rustix::mount::UnmountFlags::DETACH);
        }
    }
}
