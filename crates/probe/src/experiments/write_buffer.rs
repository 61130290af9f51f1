//! The write buffer: a burst after a rest is taken at the rate of the bus until the buffer is full, then at the rate
//! of the media. Its size is the bytes taken when the rate breaks, less the bytes drained meanwhile.

use super::flash::{program_busy, program_cost};
use super::lab::{KIB, Lab, MIB, line};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, line_through, mean};
use crate::target::{Pace, Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "write_buffer",
    about: "how much a burst of writes is faster than the media",
    source: "002, section 4.1: writes at the speed of a buffer",
    after: &["fill"],
    plan,
    run,
};

const BURST: u64 = 64 * MIB;
const WRITE: u32 = 64 * KIB as u32;
const REPEATS: u64 = 5;

/// Ratio of media to bus rate from which no buffer shows.
const VISIBLE: f64 = 0.9;

fn plan(setup: &Setup) -> Cost {
    let written_bytes = REPEATS * BURST + 8 * u64::from(WRITE);
    // A slow drive writes 50 MB/s.
    program_cost(setup)
        + Cost { written_bytes, seconds: REPEATS as f64 * 0.5 + written_bytes as f64 / 50e6, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let burst = BURST.min(lab.bytes());
    let pace = Pace::Closed { depth: 8 };
    let base = Stream { write_share: 1.0, pattern: Pattern::Sequential, pace, ..lab.stream(WRITE) };
    let stream = Stream { range: 0..burst, keep_raw: true, until: Until::Count(burst / u64::from(WRITE)), ..base };
    if lab.typical_us(Stream { keep_raw: false, ..stream.clone() }, 8)? > 5_000.0 {
        lab.note("writes take more than 5 ms: no buffer in front of a disk");
        lab.fit("write_buffer_mib", "MiB", Estimate::exact(0.0));
        return Ok(lab.found);
    }
    let (mut sizes, mut curve) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        lab.rest()?;
        let samples = lab.run_one(stream.clone())?;
        let points: Vec<(f64, f64)> = samples
            .raw
            .iter()
            .enumerate()
            .map(|(i, raw)| (raw.0 as f64 / 1e3, (i + 1) as f64 * f64::from(WRITE)))
            .collect();
        sizes.extend(buffered(&points));
        curve = points.iter().step_by(8).map(|(us, bytes)| (us / 1e3, bytes / MIB as f64)).collect();
    }
    lab.curves("A burst of writes after a rest", "ms", "MiB taken", vec![line("written", curve)]);
    lab.rest()?;
    let mut size = Estimate::exact(0.0);
    if sizes.len() as u64 == REPEATS {
        // Dies begin together and a page leaves the buffer when its program ends, so the drain is a staircase whose
        // steps are a program long: on average it is half a step late.
        let late = program_busy(&mut lab)?.map_or(0.0, |busy| busy.value / 2.0);
        let bytes: Vec<f64> = sizes.iter().map(|(taken, drain)| taken + drain * late).collect();
        let (least, most) = bytes.iter().fold((f64::MAX, 0.0f64), |(a, b), size| (a.min(*size), b.max(*size)));
        size = Estimate { value: mean(&bytes), low: least, high: most }.map(|bytes| bytes / MIB as f64);
    } else {
        lab.note("a burst is taken at one rate throughout: no buffer shows, or it never fills");
    }
    lab.fit("write_buffer_mib", "MiB", size);
    Ok(lab.found)
}

/// The bytes taken beyond the drain when the rate breaks, and the drain in bytes a us, from points (us, bytes); `None`
/// where there is one rate.
fn buffered(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let misfit = |points: &[(f64, f64)]| {
        let (a, b) = line_through(points);
        points.iter().map(|(x, y)| (y - a - b * x).powi(2)).sum::<f64>()
    };
    let candidates = (1..40).map(|part| part * points.len() / 40).filter(|at| (4..points.len() - 4).contains(at));
    let coarse = candidates.min_by(|a, b| {
        let both = |at: usize| misfit(&points[..at]) + misfit(&points[at..]);
        both(*a).total_cmp(&both(*b))
    })?;
    // The lines on both sides meet where the rate breaks.
    let (fast, slow) = (line_through(&points[..coarse]), line_through(&points[coarse..]));
    if slow.1 > VISIBLE * fast.1 {
        return None;
    }
    let at = (slow.0 - fast.0) / (fast.1 - slow.1);
    Some((slow.0.max(0.0), slow.1)).filter(|_| at > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_gives_what_did_not_drain() {
        // 500 bytes a us until 4,000 bytes are buffered at a drain of 300, then 300.
        let points: Vec<(f64, f64)> = (1..=200)
            .map(|i| f64::from(i) * 0.5)
            .map(|us| (us, if us < 20.0 { 500.0 * us } else { 4_000.0 + 300.0 * us }))
            .collect();
        let (size, drain) = buffered(&points).expect("a break");
        assert!((size - 4_000.0).abs() < 100.0 && (drain - 300.0).abs() < 3.0, "{size} and {drain}");
        let straight: Vec<(f64, f64)> = (1..=200).map(|i| (f64::from(i), 300.0 * f64::from(i))).collect();
        assert_eq!(buffered(&straight), None);
    }
}
