//! The closure test: the probe measures models and has to recover their parameters. The fits see latencies and
//! completions only; the truth is computed here from the numbers of the profiles.

mod claims;
mod disk;
mod flash;
mod nvm;
mod replacement;
mod shared;

use entresol_device::profile::{self, Model, Profile};
use entresol_probe::{Findings, ModelTarget, Setup, Target, experiments};

/// Seed of every run here; failures name it.
pub const SEED: u64 = 20;

/// Runs all experiments, or those named, in their order, and checks each against its planned cost.
pub fn probe(target: &mut ModelTarget, setup: &Setup, names: Option<&[&str]>) -> Findings {
    let mut findings = Findings::default();
    for experiment in experiments() {
        if names.is_none_or(|names| names.contains(&experiment.name)) {
            let (wear, began) = (target.wear(), target.now());
            let found = (experiment.run)(target, setup, SEED);
            let (cost, after) = ((experiment.plan)(setup), target.wear());
            let read = after.host_read_bytes - wear.host_read_bytes;
            let written = after.host_written_bytes - wear.host_written_bytes;
            let seconds = (target.now() - began) as f64 / 1e9;
            let kept = read <= cost.read_bytes && written <= cost.written_bytes && seconds <= cost.seconds;
            let what = format!("{}: {}", target.describe(), experiment.name);
            assert!(kept, "{what}: read {read} B, wrote {written} B, took {seconds:.1} s; planned {cost:?}");
            findings.merge(found.unwrap_or_else(|error| panic!("{}: {error}", experiment.name)));
        }
    }
    findings
}

/// A built-in profile, as a target of this capacity or its own.
pub fn target(profile: &Profile, capacity_bytes: u64) -> ModelTarget {
    ModelTarget::of_profile(profile, capacity_bytes, SEED).expect("a profile of the house can be built")
}

/// A built-in profile.
pub fn load(name: &str) -> Profile {
    profile::load(name).expect("it comes with the program")
}

/// The smallest power of two of outstanding I/Os that keeps a bottleneck busy 95 % of the time.
pub fn saturation_depth(latency: f64, bottleneck: f64) -> f64 {
    let mut depth = 1.0;
    while depth * bottleneck / latency < 0.95 {
        depth *= 2.0;
    }
    depth
}

/// The parameters of a disk's profile.
pub fn disk_of(profile: &Profile) -> &entresol_device::disk::DiskParameters {
    match &profile.device {
        Model::Disk(parameters) => parameters,
        other => panic!("{} is a {}", profile.name, other.kind()),
    }
}
