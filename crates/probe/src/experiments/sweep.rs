//! Bandwidth by queue depth and size (002, section 4.2, figure 4): the depth and size that saturate the device.

use super::lab::{KIB, Lab, MIB, PATTERNS, harmonic_mean, iops, line, points_at, settled_mb_s, tries_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::{Cell, Findings};
use crate::fit::{Estimate, bootstrap};
use crate::target::{Pace, Pattern, Samples, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sweep",
    about: "bandwidth by queue depth and size, four patterns",
    source: "002, section 4.2, figure 4",
    after: &["fill"],
    plan,
    run,
};

const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SIZES_KIB: [u32; 7] = [4, 8, 16, 32, 64, 128, 256];
const SEGMENTS_KIB: [u32; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Most bytes that a point moves, unless [`TURNS`] need more. A buffer takes the first half of them, which is not counted.
const BYTES_PER_POINT: u64 = 32 * MIB;

/// Fewest times that each place of the queue is taken in a point. Devices whose I/Os share a rate end all that began
/// together at once, so with fewer turns the counted half would be the end of a single one.
const TURNS: u64 = 4;

/// Share of the maximum that counts as saturated.
const SATURATED: f64 = 0.95;

fn plan(setup: &Setup) -> Cost {
    let mut grid = Cost::default();
    for (kib, depth) in SIZES_KIB.iter().flat_map(|kib| DEPTHS.map(|depth| (u64::from(*kib), depth))) {
        let bytes = 2 * (BYTES_PER_POINT.max(turns(depth) * kib * KIB) + kib * KIB * tries_at(depth));
        let seconds = 4.0 * points_at(setup, 1, 0, 0.0, depth).seconds;
        grid = grid + Cost { read_bytes: bytes, written_bytes: bytes, seconds };
    }
    let tried: u64 = SEGMENTS_KIB.iter().map(|kib| u64::from(*kib) * KIB * (tries_at(1) + 40)).sum();
    let written_bytes = SEGMENTS_KIB.len() as u64 * 2 * BYTES_PER_POINT + tried;
    let seconds = SEGMENTS_KIB.len() as f64 * setup.seconds + written_bytes as f64 / 20e6;
    grid + Cost { written_bytes, seconds, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    for (name, pattern, write_share) in PATTERNS {
        let grid = grid(&mut lab, pattern, write_share)?;
        lab.curves(
            &format!("Bandwidth of {name}s by queue depth"),
            "queue depth",
            "MB/s",
            SIZES_KIB
                .iter()
                .zip(&grid)
                .map(|(kib, row)| {
                    let points = DEPTHS.iter().zip(row).map(|(depth, rate)| (f64::from(*depth), rate.value)).collect();
                    line(format!("{kib} KiB"), points)
                })
                .collect(),
        );
        let rows = SIZES_KIB.iter().zip(&grid).map(|(kib, row)| {
            let rates = row.iter().map(|rate| Cell::from(rate.value));
            [Cell::from(f64::from(*kib))].into_iter().chain(rates).collect()
        });
        let heads: Vec<String> = DEPTHS.iter().map(|depth| format!("depth {depth}")).collect();
        let columns: Vec<(&str, &str)> =
            [("size", "KiB")].into_iter().chain(heads.iter().map(|head| (head.as_str(), "MB/s"))).collect();
        lab.table(&format!("Bandwidth of {name}s"), &columns, rows.collect());
        fit_grid(&mut lab, &name.replace(' ', "_"), &grid);
        lab.rest()?;
    }
    segment(&mut lab)?;
    Ok(lab.found)
}

/// I/Os of [`TURNS`] turns at a depth.
fn turns(depth: u32) -> u64 {
    TURNS * u64::from(depth)
}

/// Bandwidth in MB/s by size, then depth.
fn grid(lab: &mut Lab<'_>, pattern: Pattern, write_share: f64) -> Result<Vec<Vec<Estimate>>, TargetError> {
    let mut grid = Vec::new();
    for kib in SIZES_KIB {
        let bytes = kib * KIB as u32;
        let mut row = Vec::new();
        for depth in DEPTHS {
            let stream = Stream { pattern: pattern.clone(), write_share, ..lab.stream(bytes) };
            row.push(rate(lab, Stream { pace: Pace::Closed { depth }, ..stream }, BYTES_PER_POINT)?);
        }
        grid.push(row);
    }
    Ok(grid)
}

/// The settled bandwidth of a stream that moves `most` bytes unless time runs out, and has its turns in any case.
fn rate(lab: &mut Lab<'_>, stream: Stream, most: u64) -> Result<Estimate, TargetError> {
    let by_bytes = most / u64::from(stream.bytes);
    let depth = match stream.pace {
        Pace::Closed { depth } => depth as usize,
        Pace::Open { .. } => 0,
    };
    let turns = turns(depth as u32);
    let mut stream = lab.sized(stream)?;
    if let Until::Count(count) = stream.until {
        // A writer's buffer has to be filled, whatever number of I/Os the setup asks for.
        let floor = if stream.write_share > 0.0 && count == lab.setup.ios { by_bytes } else { count };
        stream.until = Until::Count(floor.min(by_bytes).max(turns.max(40)));
    }
    stream.keep_raw = true;
    let (bytes, seed) = (stream.bytes, lab.seed());
    let samples = lab.run_one(stream)?;
    if samples.completions < 4 * turns {
        return Ok(mb_s_by_turns(&samples, bytes, depth, seed));
    }
    Ok(settled_mb_s(&samples, bytes, seed))
}

/// Bandwidth in MB/s of a point of few turns: between I/Os that are a whole turn apart, because those that began together
/// end together, and without those at the end that no further I/O was beside.
fn mb_s_by_turns(samples: &Samples, bytes: u32, depth: usize, seed: u64) -> Estimate {
    let last = samples.raw.iter().map(|&(end, latency)| end - latency).max().unwrap_or(0);
    let ends: Vec<u64> = samples.raw.iter().map(|&(end, _)| end).filter(|&end| end <= last).collect();
    let moved = depth as f64 * f64::from(bytes) * 1e3;
    let pairs = (ends.len() / 2).max(depth)..ends.len();
    let rates: Vec<f64> = pairs.map(|at| moved / (ends[at] - ends[at - depth]).max(1) as f64).collect();
    if rates.is_empty() { settled_mb_s(samples, bytes, seed) } else { bootstrap(&rates, seed, harmonic_mean) }
}

fn fit_grid(lab: &mut Lab<'_>, name: &str, grid: &[Vec<Estimate>]) {
    let best = |row: &[Estimate]| row.iter().copied().fold(row[0], |a, b| if b.value > a.value { b } else { a });
    let bests: Vec<Estimate> = grid.iter().map(|row| best(row)).collect();
    lab.fit(&format!("{name}_mb_s"), "MB/s", best(&bests));
    lab.fit(&format!("{name}_4k_iops"), "1/s", bests[0].map(|mb_s| mb_s * 1e6 / 4096.0));
    for (kib, row) in SIZES_KIB.iter().zip(grid) {
        let enough = row.iter().position(|rate| rate.value >= SATURATED * best(row).value).unwrap_or(0);
        if matches!(kib, 4 | 16 | 32 | 128) {
            let depth = Estimate::exact(DEPTHS[enough].into());
            lab.fit(&format!("{name}_{kib}k_saturation_depth"), "", depth);
        }
    }
    // Little's law: the number of I/Os in service is the number that pass in the time of one alone.
    let parallel = bests[0].value / grid[0][0].value;
    lab.fit(&format!("{name}_4k_parallelism"), "", Estimate::exact(parallel));
}

/// The smallest write, one at a time, that reaches 95 % of the largest one's rate.
fn segment(lab: &mut Lab<'_>) -> Result<(), TargetError> {
    let mut rates = Vec::new();
    for kib in SEGMENTS_KIB {
        let stream = Stream { pattern: Pattern::Sequential, write_share: 1.0, ..lab.stream(kib * KIB as u32) };
        if u64::from(stream.bytes) * 8 <= lab.bytes() {
            rates.push((f64::from(kib), rate(lab, stream, 2 * BYTES_PER_POINT)?.value));
        }
    }
    let most = rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
    if let Some(&(kib, _)) = rates.iter().find(|rate| rate.1 >= SATURATED * most) {
        lab.fit("segment_kib", "KiB", Estimate::exact(kib));
    }
    lab.curves("Sequential writes one at a time, by size", "KiB", "MB/s", vec![line("sequential write", rates)]);
    Ok(())
}

/// I/Os a second of a run without its first tenth, over slices.
pub(super) fn settled_iops(samples: &Samples, seed: u64) -> Estimate {
    let per_slice = (samples.raw.len() / 40).max(1);
    let ends: Vec<u64> = samples.raw.iter().skip(per_slice - 1).step_by(per_slice).map(|raw| raw.0).collect();
    let rates: Vec<f64> = ends
        .windows(2)
        .filter(|pair| pair[1] > pair[0])
        .map(|pair| per_slice as f64 * 1e9 / (pair[1] - pair[0]) as f64)
        .collect();
    if rates.len() < 8 {
        return Estimate::exact(iops(samples));
    }
    bootstrap(&rates[rates.len() / 10..], seed, harmonic_mean)
}
