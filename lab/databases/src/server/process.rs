//! Processes that end with this one.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A process that is killed when it is dropped, and when the thread that started it ends, for whatever reason.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Guarded {
    /// Starts a command in a process group of its own, so that a Ctrl-C at the terminal does not reach it.
    ///
    /// # Errors
    /// The system's error.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let last = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
        command.process_group(0);
        // SAFETY: between fork and exec one system call is made, and nothing is allocated.
        let child = unsafe { command.pre_exec(last) }.spawn()?;
        Ok(Self { child, ended: None })
    }

    /// The child, with its input, output and errors as far as they were piped and not taken.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Exit status of the process, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Sends the process a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.try_wait().is_none() {
            // The process may end at this moment.
            let _sent = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits for the end of the process.
    pub fn wait_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let started = Instant::now();
        loop {
            if self.try_wait().is_some() || started.elapsed() > time {
                return self.ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ids of the process and its descendants.
    pub fn processes(&mut self) -> Vec<u32> {
        let own = self.child.id();
        std::iter::once(own).chain(descendants(own)).collect()
    }

    /// Processor time of the process and its descendants, as far as they exist or were waited for.
    pub fn processor_time(&mut self) -> Duration {
        self.processes().into_iter().map(processor_time).sum()
    }

    /// Kills the process and its descendants, and waits until they are gone.
    pub fn kill_all(&mut self) {
        if self.try_wait().is_some() {
            return;
        }
        // A stopped process starts no more descendants.
        self.signal(Signal::STOP);
        let own = self.child.id();
        let family = descendants(own);
        // The parent is killed first, because it would log the death of its children.
        self.signal(Signal::KILL);
        for &pid in &family {
            // The descendant may have ended.
            let _sent = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
        }
        self.ended = self.child.wait().ok();
        let started = Instant::now();
        let there = |pid: &u32| status(*pid).is_some_and(|(_, state)| state != 'Z');
        while family.iter().any(there) && started.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Fields of `/proc/PID/stat` for a process, from its state on.
fn said(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain some.
    Some(text.rsplit_once(')')?.1.to_owned())
}

/// A process's parent and its state.
fn status(pid: u32) -> Option<(u32, char)> {
    let text = said(pid)?;
    let mut fields = text.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// Processor time of a process and of its children that it waited for; none of one that is gone.
pub fn processor_time(pid: u32) -> Duration {
    /// Unit in which Linux counts processor time, on every machine still in use.
    const TICK: Duration = Duration::from_millis(10);
    /// User and system time, of the process and of its children: fields 14 to 17 of proc(5); field 3, the state, is
    /// the first here.
    const TIMES: std::ops::Range<usize> = 11..15;
    let text = said(pid).unwrap_or_default();
    let times = text.split_whitespace().skip(TIMES.start).take(TIMES.len());
    TICK * times.filter_map(|field| field.parse::<u32>().ok()).sum::<u32>()
}

/// Processor time of this process and its descendants, without `one` and its descendants.
pub fn processor_time_but(one: u32) -> Duration {
    let (own, but) = (std::process::id(), [vec![one], descendants(one)].concat());
    let ours = [vec![own], descendants(own)].concat().into_iter().filter(|pid| !but.contains(pid));
    ours.map(processor_time).sum()
}

/// All descendants of a process.
fn descendants(of: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers.filter_map(|pid| Some((pid, status(pid)?.0))).collect();
    let mut family = vec![of];
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| pid));
        at += 1;
    }
    family.split_off(1)
}

/// The last non-empty lines of a log.
pub fn last_lines(log: &Path, count: usize) -> Vec<String> {
    const LOOKED_AT: u64 = 16 << 10;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LOOKED_AT)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_takes_its_children_with_it() {
        let mut shell = Command::new("sh");
        let mut shell = Guarded::spawn(shell.args(["-c", "(sleep 600 & sleep 600) & sleep 600"])).expect("a shell");
        let id = shell.child().id();
        let started = Instant::now();
        while descendants(id).len() < 3 {
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}", descendants(id));
            std::thread::sleep(Duration::from_millis(5));
        }
        let family = descendants(id);
        shell.kill_all();
        assert!(family.iter().all(|pid| status(*pid).is_none_or(|(_, state)| state == 'Z')), "{family:?}");
        assert!(shell.try_wait().is_some());
    }

    #[test]
    fn processor_time_is_that_of_the_children_too() {
        let mut shell = Command::new("sh");
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut shell =
            Guarded::spawn(shell.args(["-c", &format!("({busy}); ({busy}; sleep 600) & sleep 600")])).expect("a shell");
        let started = Instant::now();
        let (mut last, mut unchanged) = (Duration::ZERO, 0);
        // Both must have been counted: the times no longer change, and are above 0.
        while unchanged < 10 && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
            let now = shell.processor_time();
            unchanged = if now == last && now > Duration::ZERO { unchanged + 1 } else { 0 };
            last = now;
        }
        let own = processor_time(shell.child().id());
        assert!(own > Duration::ZERO && last > own, "{own:?} of {last:?}");
        shell.kill_all();
        assert_eq!(processor_time(u32::MAX), Duration::ZERO);
    }

    /// A descendant that computes is counted, unless it is the excluded one.
    #[test]
    fn processor_time_is_that_of_the_family_but_for_one() {
        let start = |script: &str| Guarded::spawn(Command::new("sh").args(["-c", script])).expect("a shell");
        let (mut busy, mut idle) = (start("(while :; do :; done) & wait"), start("sleep 600 & wait"));
        let (computes, sleeps) = (busy.child().id(), idle.child().id());
        // Tests beside this one compute as well, so the difference of two counts shows the excluded part.
        let looked = || (processor_time_but(sleeps), processor_time_but(computes));
        let (all_before, others_before) = looked();
        let started = Instant::now();
        loop {
            let (all, others) = looked();
            let its = all.saturating_sub(all_before).saturating_sub(others.saturating_sub(others_before));
            if its >= Duration::from_millis(100) {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "of {all:?} {its:?} are what it computed");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn the_last_lines_of_a_log_are_those() {
        let log = std::env::temp_dir().join(format!("entresol-lines-{}", std::process::id()));
        let text: String = (0..5000).map(|line| format!("line {line}\n\n")).collect();
        std::fs::write(&log, text).expect("a log");
        assert_eq!(last_lines(&log, 2), ["line 4998", "line 4999"]);
        std::fs::remove_file(&log).expect("the log");
        assert_eq!(last_lines(&log, 2), [""; 0]);
    }
}
