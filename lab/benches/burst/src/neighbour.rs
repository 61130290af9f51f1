//! Slowdown of a program by a node of a burst buffer on the same machine: the triad of STREAM on one processor, beside a node that takes checkpoints
//! over TCP at a rate and drains them under a cap of this rate.

use crate::cluster::{Cluster, Shape};
use crate::role::JOB;
use crate::{Comparison, HEAD};
use anyhow::{Context, Result, ensure};
use entresol_burst::{CheckpointId, Object};
use entresol_burst_live::client::{Client, Level};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const READING: &str = "The program is the triad of STREAM, `a[i] = b[i] + s * c[i]`, in a process of its own on one processor; its rate counts three words an element. The node, \
another process, takes checkpoints of one rank over TCP at a rate and drains them into a directory in memory under `--drain-rate` of the same rate. The writer, which would be on another host, has the other \
processor. One row has the node where the system puts it, the other one on the processor of the program, as on a host without a free one. Rates are medians in 10^9 bytes a second, the ratio is that of a pair, \
and its interval is from the second to the ninth of ten pairs.";

/// Bytes of a checkpoint.
const CHECKPOINT: usize = 16 << 20;
/// Time of the triads of one measurement.
const WINDOW_S: f64 = 2.0;
/// Time for which the node has its load before a measurement.
const RUN_UP: Duration = Duration::from_millis(300);
/// Rate of the triad beside the node, of its rate alone.
const BOUND: f64 = 0.95;

/// Pins this thread, and the processes that it starts, to some processors.
fn stay_on(processors: &CpuSet) -> Result<()> {
    sched_setaffinity(None, processors).context("the processors")
}

fn only(processor: usize) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(processor);
    one
}

/// The program beside the node.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(mib: u64) -> Result<Program> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.args(["triads", &mib.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut program = Program { child, output };
        ensure!(program.line()? == "ready", "the program has failed");
        Ok(program)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Seconds of so many triads.
    fn run(&mut self, count: u32) -> Result<f64> {
        writeln!(self.child.stdin.as_mut().context("a pipe")?, "{count}")?;
        self.line()?.parse().context("the program has failed")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Stores checkpoints at a rate, until it is to end; returns the number of the next one.
fn write(client: &Client, rate: u64, first: u64, ends: &AtomicBool) -> Result<u64> {
    let bytes = vec![7; CHECKPOINT];
    let (begin, each) = (Instant::now(), CHECKPOINT as f64 / rate as f64);
    let mut checkpoint = first;
    while !ends.load(Ordering::Relaxed) {
        let object = Object { job: JOB, checkpoint: CheckpointId(checkpoint), rank: 0 };
        let level = client.put(object, 1, &bytes)?.level;
        ensure!(level == Level::Absorbed, "stored as {level:?}: the node is full");
        checkpoint += 1;
        let due = begin + Duration::from_secs_f64((checkpoint - first) as f64 * each);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(checkpoint)
}

/// Sums of what a node did while the program ran.
#[derive(Default)]
struct Sums {
    time_s: f64,
    processor_s: f64,
    drained: u64,
}

impl Sums {
    /// Adds the node's work during an action.
    fn add(&mut self, cluster: &Cluster, act: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let (processor_s, drained, begin) = (cluster.processor_s(1)?, cluster.drained_bytes(1)?, Instant::now());
        let seconds = act()?;
        self.time_s += begin.elapsed().as_secs_f64();
        self.processor_s += cluster.processor_s(1)? - processor_s;
        self.drained += cluster.drained_bytes(1)? - drained;
        Ok(seconds)
    }
}

/// A row for each of the two placements of the node, and what the node did meanwhile.
pub fn measure(scratch: &Path, pairs: u32, mib: u64, rate: u64) -> Result<String> {
    let all = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&it| all.is_set(it)).collect();
    let [program_on, others_on, ..] = processors[..] else {
        anyhow::bail!("this needs two processors: one for the program, one for the writer");
    };
    stay_on(&only(program_on))?;
    let mut program = Program::start(mib)?;
    let once = program.run(1).and_then(|_| program.run(1))?;
    let count = (WINDOW_S / once).ceil() as u32;
    let bytes = u64::from(count) * 3 * (mib << 20);
    let mut report = format!(
        "Three arrays of {mib} MiB each, {count} triads a measurement; checkpoints of {} MiB at {} MB/s.\n\n{HEAD}",
        CHECKPOINT >> 20,
        rate / 1_000_000
    );
    let mut notes = String::new();
    let placements = [
        ("a triad beside the node, which may use the other processor", all),
        ("a triad beside the node, on the same processor", only(program_on)),
    ];
    for (number, (name, node_on)) in placements.into_iter().enumerate() {
        stay_on(&node_on)?;
        // The writer's own node has no space: the bytes go over TCP.
        let memory = &[1 << 20, 1 << 30];
        let shape = Shape { memory, policy: "cdbb:object=whole", checksums: true, keeps: false, drain_rate: rate };
        let cluster = Cluster::start(scratch, &format!("neighbour-{number}"), &shape)?;
        stay_on(&only(others_on))?;
        let (mut next, mut sums) = (1, Sums::default());
        let program = RefCell::new(&mut program);
        let beside = || {
            let (client, first, ends) = (cluster.reader(0)?, next, AtomicBool::new(false));
            let (ran, written) = std::thread::scope(|scope| {
                let writer = scope.spawn(|| write(&client, rate, first, &ends));
                std::thread::sleep(RUN_UP);
                let ran = sums.add(&cluster, || program.borrow_mut().run(count));
                ends.store(true, Ordering::Relaxed);
                (ran, writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            next = written?;
            cluster.remove_drained()?;
            ran
        };
        let alone = || program.borrow_mut().run(count);
        let measured = Comparison::run(name, "a triad alone", Some(BOUND), pairs, beside, alone)?;
        report += &measured.row(bytes);
        let slower = |ratio: f64| 100.0 * (1.0 - ratio);
        let (ratio, low, high) = measured.ratios();
        notes += &format!(
            "\n- {name}: {:.1} % slower ({:.1} to {:.1}). The node used {:.3} of a processor and drained {:.0} MB/s meanwhile.",
            slower(ratio),
            slower(high),
            slower(low),
            sums.processor_s / sums.time_s,
            sums.drained as f64 / 1e6 / sums.time_s
        );
    }
    Ok(report + &notes + "\n")
}
