//! The processes of an emulated cluster: a coordinator, the PFS, and for each node a daemon and its writers.

use crate::network::{Counters, Host, Network, Rates};
use crate::pfs::now_ns;
use crate::result::{read, write};
use crate::role::{Planned, Results};
use anyhow::{Context, Result, bail, ensure};
use entresol_burst::simulate::Cluster as Model;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Time between the start of the last process and the begin.
const LEAD_NS: u64 = 2_000_000_000;
/// Longest wait for the last drain.
const DRAIN_MAX: Duration = Duration::from_secs(300);

/// A process in a role.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    /// File with its messages, which are shown when it fails.
    errors: PathBuf,
}

impl Process {
    fn start(role: &[String], errors: PathBuf) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(role).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Process { child, output, errors })
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default().trim().to_owned()
    }

    fn wait_for(&mut self, expected: &str) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == expected, "a process has ended before it was {expected}: {}", self.messages());
        Ok(())
    }

    /// Has the process write its results.
    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "a process has failed: {status}: {}", self.messages());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Results of a whole run.
pub struct Outcome {
    /// Time of the begin.
    pub begin_ns: u64,
    /// Of the writers of each node.
    pub writers: Vec<Results>,
    /// Of each node's daemon.
    pub nodes: Vec<Results>,
    pub coordinator: Results,
    pub counters: Counters,
}

/// A cluster that is set up for one run.
pub struct Cluster<'a> {
    pub model: &'a Model,
    pub policy: String,
    pub lease_ns: u64,
    /// Without buckets, if only messages are of interest.
    pub is_paced: bool,
    /// With a meter in front of the coordinator.
    pub is_metered: bool,
    /// Directory of this run in memory.
    pub scratch: &'a Path,
}

impl Cluster<'_> {
    pub fn pfs(&self) -> PathBuf {
        self.scratch.join("pfs")
    }

    pub fn grant_log(&self) -> PathBuf {
        self.scratch.join("grants.jsonl")
    }

    pub fn messages(&self) -> PathBuf {
        self.scratch.join("messages.json")
    }

    /// Runs the writers of each node to the end, and returns when `is_drained` says that all is on the PFS.
    pub fn run(&self, plans: &[Vec<Planned>], is_drained: impl Fn(&Path) -> bool) -> Result<Outcome> {
        let model = self.model;
        let rates = Rates { link: model.link, copy: model.copy, pfs: model.pfs };
        let network = Network::create(model.nodes, self.is_paced.then_some(rates))?;
        std::fs::create_dir(self.pfs())?;
        let file = |name: String| self.scratch.join(name);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
        let started = Cell::new(0);
        let start = |role: Vec<String>| {
            started.set(started.get() + 1);
            let mut process = Process::start(&role, file(format!("{}-{}.errors", role[0], started.get())))?;
            process.wait_for("ready").with_context(|| role.join(" "))?;
            anyhow::Ok(process)
        };
        let of_node = |role: &str, node: usize| {
            let result = text(&file(format!("{role}-{node}.json")));
            let mut on = vec![node.to_string(), text(&self.pfs()), result];
            if self.is_paced {
                on.push(format!("--stream={}", model.stream));
            }
            on
        };

        let count = plans.len();
        let result = text(&file("coordinator.json".to_owned()));
        let coordinator = start(strings(&[
            "coordinate",
            &text(&file("state".to_owned())),
            &self.policy,
            &count.to_string(),
            &self.lease_ns.to_string(),
            &text(&self.grant_log()),
            &result,
            &u8::from(self.is_metered).to_string(),
        ]))?;
        let meter = self.is_metered.then(|| start(strings(&["meter", &text(&self.messages())]))).transpose()?;
        let pfs = start(strings(&["pfs", &text(&self.pfs())]))?;
        let mut nodes = Vec::new();
        for node in 0..count {
            let role = strings(&["serve", &model.buffer_bytes.to_string()]);
            nodes.push(start([role, of_node("serve", node)].concat())?);
        }
        self.wait_for_nodes(count)?;
        let mut writers = Vec::new();
        for (node, plan) in plans.iter().enumerate() {
            let path = file(format!("plan-{node}.json"));
            write(&path, plan)?;
            writers.push(start([strings(&["write", &text(&path)]), of_node("write", node)].concat())?);
        }

        let begin_ns = now_ns() + LEAD_NS;
        for writer in &mut writers {
            let input = writer.child.stdin.as_mut().context("a pipe")?;
            writeln!(input, "{begin_ns}")?;
            input.flush()?;
        }
        for writer in &mut writers {
            writer.wait_for("done")?;
        }
        let until = Instant::now() + DRAIN_MAX;
        while !is_drained(&self.pfs()) {
            ensure!(Instant::now() < until, "not all is on the PFS");
            std::thread::sleep(Duration::from_millis(100));
        }
        let counters = network.counters()?;
        writers.into_iter().try_for_each(Process::end)?;
        nodes.into_iter().try_for_each(Process::end)?;
        meter.map_or(Ok(()), Process::end)?;
        coordinator.end()?;
        pfs.end()?;
        let all = |role: &str| (0..count).map(|node| read(&file(format!("{role}-{node}.json")))).collect::<Result<_>>();
        let coordinator = read(Path::new(&result))?;
        Ok(Outcome { begin_ns, writers: all("write")?, nodes: all("serve")?, coordinator, counters })
    }

    /// Waits until all nodes have reported, by the grant log: this process is not in their network.
    fn wait_for_nodes(&self, count: usize) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let log = std::fs::read_to_string(self.grant_log())?;
            if log.lines().filter(|line| line.contains("\"Report\"")).count() >= count {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the nodes do not join {}", Host::Coordinator.control());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
