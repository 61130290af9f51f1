//! Checkpoints of Python and PyTorch programs in the burst buffer: `extensions/python` with real daemons. `make pytorch` builds and
//! installs it.

mod common;

use common::burst::Daemon;
use common::{Scratch, Signal, signal};
use entresol_skip::skipped;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const JOB: &str = "9";
const MIB: u64 = 1 << 20;
/// Longest wait for a step of all ranks: they begin with the import of PyTorch.
const STEP: Duration = Duration::from_secs(180);
/// Programs of four ranks have the processors one after the other.
static ONE: Mutex<()> = Mutex::new(());

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The Python that has the wheel. The skip of the test is printed where there is none, or where it lacks PyTorch and that is wanted.
fn python(wants_pytorch: bool) -> Option<PathBuf> {
    let python = repository("target/pytorch/bin/python");
    for (need, reason) in [("wheel", "the wheel of entresol-burst"), ("torch", "PyTorch")] {
        let mark = repository("target/pytorch").join(need);
        if !mark.exists() && (wants_pytorch || need == "wheel") {
            skipped!(mark.to_str().expect("text"), "{reason} is not installed: `make pytorch` does it");
            return None;
        }
    }
    Some(python)
}

/// A coordinator and nodes that keep two copies of each byte.
struct Buffer {
    scratch: Scratch,
    tmpfs: Scratch,
    coordinator: Daemon,
    nodes: Vec<Daemon>,
}

impl Buffer {
    /// The nodes drain to the folder `drain`.
    fn start(nodes: usize, memory: &str, drain: &str) -> Buffer {
        let scratch = Scratch::new();
        ["pfs", "elsewhere"].iter().for_each(|name| std::fs::create_dir(scratch.path(name)).expect("a directory"));
        // A node that writes to the other directory takes it for the same one.
        ["pfs", "elsewhere"].iter().for_each(|name| {
            std::os::unix::fs::symlink("pfs", scratch.path(&format!("{name}/.entresol-burst"))).expect("an identity");
        });
        let count = nodes.to_string();
        let coordinate =
            ["coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--policy", "chunked", "--nodes", &count];
        let coordinator = Daemon::start(&scratch, &coordinate);
        let serve = |node: usize| {
            let node = node.to_string();
            let own = ["serve", "--node", &node, "--listen", "127.0.0.1:0", "--memory", memory];
            Daemon::start(&scratch, &[&own[..], &["--coordinator", &coordinator.address, "--pfs", drain]].concat())
        };
        let nodes = (0..nodes).map(serve).collect();
        Buffer { scratch, tmpfs: Scratch::within(Path::new("/dev/shm")), coordinator, nodes }
    }

    fn list(&self) -> String {
        self.scratch.ok(&["burst", "ls", "--coordinator", &self.coordinator.address, "--pfs", "pfs", "--job", JOB])
    }

    /// A command that knows this burst buffer.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("ENTRESOL_BURST_COORDINATOR", &self.coordinator.address);
        command.env("ENTRESOL_BURST_PFS", self.scratch.path("pfs")).env("ENTRESOL_BURST_JOB", JOB);
        command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(self.scratch.path("."));
        command
    }

    /// Starts the ranks of a program of the tests.
    fn ranks(&self, python: &Path, ranks: usize, arguments: &[&str]) -> Ranks {
        let name = format!("{}-of-{ranks}", arguments.join("-"));
        let rank = |rank: usize| {
            let mut command = self.command(python);
            command.arg(repository("extensions/python/tests/ranks.py")).args(arguments);
            command.env("RENDEZVOUS", self.scratch.path(&name)).env("TMPFS", self.tmpfs.path("."));
            Rank::start(command, rank, ranks, self.nodes.len(), &self.scratch.path(&format!("{name}-{rank}.log")))
        };
        Ranks((0..ranks).map(rank).collect())
    }
}

/// A rank of a program.
struct Rank {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Rank {
    fn start(mut command: Command, rank: usize, ranks: usize, nodes: usize, log: &Path) -> Rank {
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("NODE", (rank % nodes).to_string()).env("OMP_NUM_THREADS", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(std::fs::File::create(log).expect("a file"));
        let mut child = command.spawn().expect("a rank");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Rank { child, lines, log: log.to_owned() }
    }

    /// Returns the lines before one.
    fn wait_for(&self, step: &str) -> Vec<String> {
        let mut before = Vec::new();
        let until = Instant::now() + STEP;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line == step => return before,
                Ok(line) => before.push(line),
                Err(why) => {
                    let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                    panic!("no {step:?} ({why}) after {before:?}\n{log}");
                }
            }
        }
    }

    fn go_on(&self) {
        writeln!(self.child.stdin.as_ref().expect("a pipe")).expect("the rank reads");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Ranks(Vec<Rank>);

impl Ranks {
    fn wait_for(&self, step: &str) {
        self.0.iter().for_each(|rank| drop(rank.wait_for(step)));
    }

    fn go_on(&self) {
        self.0.iter().for_each(Rank::go_on);
    }

    /// Waits for the end of all, and returns what the first one printed.
    fn end(mut self) -> Vec<String> {
        let printed: Vec<_> = self.0.iter().map(|rank| rank.wait_for("ended")).collect();
        self.0.iter_mut().for_each(|rank| assert!(rank.child.wait().expect("an end").success()));
        printed.into_iter().next().expect("a rank")
    }
}

/// A figure of a process's memory in bytes.
fn memory(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn files_and_ranks_from_python() {
    let Some(python) = python(false) else { return };
    let buffer = Buffer::start(2, "256MiB", "pfs");
    let mut command = buffer.command(&python);
    let output = command.arg(repository("extensions/python/tests/files.py")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success());
}

/// A file of a job under a key: with its ticket, and without.
const WITH_A_TICKET: &str = "
import sys
from entresol_burst import BurstError, Client
coordinator, ticket = sys.argv[1:]
with Client(coordinator, 'pfs', ticket=ticket).open(9, 1, 1, 'state', 'w') as file:
    file.write(b'bytes')
assert file.acknowledgement.level == 'absorbed', file.acknowledgement
with Client(coordinator, 'pfs', ticket=ticket).open(9, 1, None, 'state') as file:
    assert file.read() == b'bytes'
try:
    Client(coordinator, 'pfs').newest(9)
except BurstError as why:
    assert 'has a key' in str(why), why
else:
    raise AssertionError('without a ticket')
";

#[test]
fn a_ticket_is_what_a_cluster_with_a_key_asks_for() {
    let Some(python) = python(false) else { return };
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    scratch.ok(&["burst", "key", "key"]);
    let user = rustix::process::getuid().as_raw().to_string();
    let ticket = scratch.ok(&["burst", "ticket", "--key", "key", "--job", "9", "--user", &user]);
    scratch.file("ticket", ticket);
    std::fs::set_permissions(scratch.path("ticket"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("ours");
    let own = ["--listen", "127.0.0.1:0", "--key", "key"];
    let state = ["coordinate", "--state", "state", "--policy", "ldbb", "--nodes", "1"];
    let coordinator = Daemon::start(&scratch, &[&state[..], &own].concat());
    let node = ["serve", "--node", "0", "--memory", "64MiB", "--pfs", "pfs", "--coordinator", &coordinator.address];
    let _node = Daemon::start(&scratch, &[&node[..], &own].concat());
    let mut command = Command::new(python);
    command.args(["-c", WITH_A_TICKET, &coordinator.address, "ticket"]).current_dir(scratch.path("."));
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn distributed_checkpoints_are_restored_by_as_many_ranks_and_by_fewer() {
    let Some(python) = python(true) else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer = Buffer::start(3, "512MiB", "pfs");
    buffer.ranks(&python, 4, &["saves"]).end();
    println!("{}", buffer.list());
    // A number whose save by four has failed is saved by two, and that is loaded by four.
    buffer.ranks(&python, 2, &["reshards", "5"]).end();
    buffer.ranks(&python, 4, &["reshards", "6"]).end();
    println!("{}", buffer.list());
}

#[test]
fn a_node_that_is_killed_after_a_save_takes_nothing_along() {
    let Some(python) = python(true) else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = Buffer::start(3, "512MiB", "elsewhere");
    // Nothing is ever drained: the job's folder cannot be made.
    buffer.scratch.file(&format!("elsewhere/job-{JOB}"), "");
    let ranks = buffer.ranks(&python, 4, &["survives_a_node"]);
    ranks.wait_for("at saved");
    buffer.nodes[1].signal(Signal::KILL);
    buffer.nodes[1].wait();
    ranks.go_on();
    ranks.end();
    println!("{}", buffer.list());
}

#[test]
fn a_node_that_is_killed_during_a_save_takes_nothing_along() {
    let Some(python) = python(true) else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = Buffer::start(4, "512MiB", "pfs");
    let ranks = buffer.ranks(&python, 4, &["loses_a_node"]);
    ranks.0[3].wait_for("at struck");
    // That of the rank in the middle of its file.
    buffer.nodes[3].signal(Signal::KILL);
    buffer.nodes[3].wait();
    ranks.0[3].go_on();
    ranks.wait_for("at saved");
    ranks.go_on();
    ranks.end();
    println!("{}", buffer.list());
}

#[test]
fn a_rank_that_is_killed_while_it_saves_leaves_the_older_checkpoint() {
    let Some(python) = python(true) else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer = Buffer::start(3, "512MiB", "pfs");
    let mut ranks = buffer.ranks(&python, 4, &["is_killed"]);
    let last = ranks.0.pop().expect("a rank");
    last.wait_for("at struck");
    signal(last.child.id(), Signal::KILL);
    for rank in &mut ranks.0 {
        assert_eq!(rank.child.wait().expect("an end").code(), Some(7), "a save has failed");
    }
    println!("killed:\n{}", buffer.list());
    buffer.ranks(&python, 4, &["goes_on"]).end();
    println!("saved again:\n{}", buffer.list());
}

/// Two pieces of a file: one is filled while the other is stored.
const PIECES_BYTES: u64 = 32 * MIB;
/// Beside them: heaps of threads, buffers of connections, the plan and the metadata of a save.
const SLACK_BYTES: u64 = 8 * MIB;

#[test]
fn a_save_takes_the_memory_of_two_pieces() {
    let Some(python) = python(true) else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer = Buffer::start(2, "2304MiB", "pfs");
    let mebibytes = "512";
    let ranks = buffer.ranks(&python, 4, &["is_measured", mebibytes]);
    ranks.wait_for("at before");
    let processes: Vec<u32> = ranks.0.iter().map(|rank| rank.child.id()).collect();
    // The kernel keeps the largest total alone. The ranks' own memory, and the pages of the nodes' memory that they fill, are sampled instead.
    let of_all = || processes.iter().map(|&process| ["RssAnon", "RssShmem"].map(|name| memory(process, name)));
    let before: Vec<[u64; 2]> = of_all().collect();
    let is_over = AtomicBool::new(false);
    let (most, samples) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let (mut most, mut samples) = (before.clone(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let pairs = most.iter_mut().zip(of_all());
                pairs.for_each(|(most, now)| *most = [most[0].max(now[0]), most[1].max(now[1])]);
                samples += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            (most, samples)
        });
        ranks.go_on();
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ranks.wait_for("at after")));
        is_over.store(true, Ordering::Relaxed);
        waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sampler.join().expect("samples")
    });
    ranks.go_on();
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    for (rank, (most, before)) in most.iter().zip(&before).enumerate() {
        let [above, nodes] = [most[0] - before[0], most[1] - before[1]];
        println!(
            "rank {rank}: {:.1} MiB before, at most {:.1} MiB more in {samples} samples",
            mib(before[0]),
            mib(above)
        );
        println!("rank {rank}: and at most {:.1} MiB of the nodes' memory", mib(nodes));
        assert!(above <= PIECES_BYTES + SLACK_BYTES, "{above} B");
        // The samples are of the save: a piece was collected, and pieces were filled in the nodes' memory.
        assert!(above >= PIECES_BYTES / 2 && nodes >= PIECES_BYTES, "{above} B, {nodes} B");
    }
    ranks.end().iter().for_each(|line| println!("{line}"));
}

/// The example of the documentation, as a program of four ranks.
#[test]
fn the_example_of_the_documentation_works() {
    let Some(python) = python(true) else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let page = std::fs::read_to_string(repository("docs/burst.md")).expect("docs/burst.md");
    let (_, section) = page.split_once("\n## From Python and PyTorch\n").expect("the section");
    let blocks: Vec<&str> =
        section.split("```python\n").skip(1).map(|rest| rest.split("```").next().expect("an end")).collect();
    assert!(blocks.len() >= 2, "an example of files and one of PyTorch");
    let buffer = Buffer::start(2, "256MiB", "pfs");
    for (number, block) in blocks.iter().enumerate() {
        let program = buffer.scratch.path(&format!("example-{number}.py"));
        std::fs::write(&program, format!("{block}\nprint('ended', flush=True)\n")).expect("a file");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let ranks = if block.contains("torch") { 4 } else { 1 };
        let rank = |rank: usize| {
            let mut command = buffer.command(&python);
            command.arg(&program).env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            Rank::start(command, rank, ranks, 2, &buffer.scratch.path(&format!("example-{number}-{rank}.log")))
        };
        Ranks((0..ranks).map(rank).collect()).end();
    }
}
