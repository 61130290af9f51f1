//! Gain in I/Os by more threads. Where there is a gain, the host limits a single thread (002, section 4.2: 1.2 GB/s of
//! 4-KiB I/Os on either of two very different drives).

use super::lab::{Lab, PAGE, iops, line, points_at};
use super::sweep::settled_iops;
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::target::{Pace, Stream, Target, TargetError};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "threads",
    about: "4-KiB random reads by number of threads, and what an I/O costs the host",
    source: "002, section 4.2: the cap of one thread",
    after: &["fill"],
    plan,
    run,
};

const THREADS: [usize; 4] = [1, 2, 4, 8];
const DEPTH: u32 = 64;

/// Factor from which four threads count as faster than one because of the host.
const HOST_LIMITS: f64 = 1.2;

fn plan(setup: &Setup) -> Cost {
    points_at(setup, THREADS.iter().sum::<usize>() as u64, PAGE, 0.0, DEPTH)
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let (mut rates, mut alone) = (Vec::new(), None);
    let stream = Stream { pace: Pace::Closed { depth: DEPTH }, keep_raw: true, ..lab.stream(PAGE) };
    let stream = lab.sized(stream)?;
    for threads in THREADS {
        let samples = lab.run(&vec![stream.clone(); threads])?;
        if threads == 1 {
            let seed = lab.seed();
            alone = Some(settled_iops(&samples[0], seed));
        }
        rates.push((threads as f64, samples.iter().map(iops).sum::<f64>()));
    }
    let alone = alone.expect("one thread was measured");
    let most = rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
    let host_limits = most > HOST_LIMITS * alone.value;
    let name = if host_limits { "host_busy_us" } else { "device_busy_us" };
    lab.fit(name, "us", alone.map(|iops| 1e6 / iops));
    lab.fit("threads_gain", "", alone.map(|iops| most / iops));
    lab.curves("4-KiB random reads by threads", "threads", "I/Os a second", vec![line("random read", rates)]);
    Ok(lab.found)
}
