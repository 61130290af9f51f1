//! The closure test of replacement: a model built from the fitted profile matches the original on loads that the fit
//! has not seen.

use super::disk::CHEETAH;
use super::flash::{BYTES, S840_PRO, ssd};
use super::nvm::P4800X;
use super::{SEED, load, probe, target};
use entresol_device::nand::NandParameters;
use entresol_device::profile::{Model, Profile};
use entresol_probe::fit::to_profile;
use entresol_probe::{Findings, ModelTarget, Pace, Pattern, Setup, Stream, Target, Until};

/// Depth, bytes, share of writes, pattern, tolerance.
type Load = (u32, u32, f64, Pattern, f64);

fn compare(original: &mut ModelTarget, fitted: &mut ModelTarget, bytes: u64, count: u64, loads: &[Load]) {
    for (depth, size, write_share, pattern, tolerance) in loads.iter().cloned() {
        let what = format!("{pattern:?} I/Os of {size} B, {write_share} writes, depth {depth}");
        let stream = Stream {
            write_share,
            bytes: size,
            align: size,
            range: 0..bytes,
            pattern,
            pace: Pace::Closed { depth },
            until: Until::Count(count),
            flush_every: None,
            keep_raw: false,
        };
        let rate = |target: &mut ModelTarget| {
            let samples = target.run(std::slice::from_ref(&stream), SEED).expect("within both").remove(0);
            samples.completions as f64 * 1e9 / samples.elapsed as f64
        };
        let (truth, found) = (rate(original), rate(fitted));
        println!("{what}: original {truth:.0}, fitted {found:.0} I/Os a second");
        assert!((found / truth - 1.0).abs() <= tolerance, "{what}: {found:.0}, original {truth:.0} (seed {SEED})");
    }
}

/// The fitted profile, read back from its text as `simulate` would.
fn fitted(name: &str, kind: &str, findings: &Findings) -> Profile {
    let profile = to_profile(name, findings).expect("all that it needs was measured");
    assert_eq!(profile.device.kind(), kind);
    let read = Profile::from_toml(name, &profile.to_toml()).expect("what is written can be read");
    assert_eq!(read, profile);
    profile
}

#[test]
fn an_nvm_drive() {
    let profile = fitted("fitted", "nvm-block", &P4800X);
    let bytes = 1 << 30;
    let loads = [
        (1, 4096, 0.0, Pattern::Random, 0.02),
        (2, 8192, 0.3, Pattern::Random, 0.03),
        (3, 12_288, 1.0, Pattern::Sequential, 0.03),
        (1, 6144, 1.0, Pattern::Sequential, 0.02),
        (8, 65_536, 0.5, Pattern::Random, 0.02),
    ];
    compare(&mut target(&load("p4800x"), bytes), &mut target(&profile, bytes), bytes, 50_000, &loads);
}

#[test]
fn a_disk() {
    let profile = fitted("fitted", "disk", &CHEETAH);
    let mut original = target(&load("cheetah-15k5"), 0);
    let mut fitted = target(&profile, 0);
    let bytes = original.capacity_bytes();
    assert_eq!(fitted.capacity_bytes(), bytes);
    let loads = [
        (1, 4096, 0.0, Pattern::Random, 0.05),
        (8, 4096, 0.0, Pattern::Random, 0.08),
        (32, 8192, 0.0, Pattern::Random, 0.08),
        (2, 65_536, 0.5, Pattern::Random, 0.08),
        (2, 131_072, 0.0, Pattern::Sequential, 0.05),
    ];
    compare(&mut original, &mut fitted, bytes, 4_000, &loads);
}

#[test]
fn a_flash_drive_as_a_device_of_fixed_latency() {
    let profile = fitted("fitted", "fixed", &S840_PRO);
    let mut original = ssd(NandParameters::s840_pro());
    probe(&mut original, &Setup::new(BYTES).scaled(0.2), Some(&["fill", "steady"]));
    original.idle(1_000_000_000).expect("a model is patient");
    // The loads are reads at any depth, and writes at the steady state. The model cannot split large I/Os over several
    // dies.
    let loads = [
        (1, 4096, 0.0, Pattern::Random, 0.05),
        (4, 4096, 0.0, Pattern::Random, 0.1),
        (24, 4096, 0.0, Pattern::Random, 0.1),
        (64, 65_536, 0.0, Pattern::Random, 0.05),
        (64, 4096, 1.0, Pattern::Random, 0.15),
    ];
    compare(&mut original, &mut target(&profile, BYTES), BYTES, 40_000, &loads);
}

/// All findings about a built-in profile that is a `fixed`, from a short probe.
fn found(name: &str) -> Findings {
    probe(&mut target(&load(name), BYTES), &Setup::new(BYTES).scaled(0.1), None)
}

#[test]
fn a_device_of_fixed_latency_keeps_its_parallelism() {
    let profile = fitted("fitted", "fixed", &found("arulraj-ssd"));
    let Model::Fixed(fixed) = &profile.device else { panic!("it is a fixed") };
    assert_eq!(fixed.parallelism, 8);
    let loads = [0.0, 0.5, 1.0]
        .into_iter()
        .flat_map(|writes| [1, 4, 32, 256].map(|depth| (depth, 4096, writes, Pattern::Random, 0.03)));
    let loads: Vec<Load> = loads.chain([(32, 65_536, 0.3, Pattern::Random, 0.03)]).collect();
    compare(&mut target(&load("arulraj-ssd"), BYTES), &mut target(&profile, BYTES), BYTES, 40_000, &loads);
}

#[test]
fn a_device_without_bandwidth_gets_a_profile_without_one() {
    let profile = fitted("fitted", "fixed", &found("yang-nand"));
    let Model::Fixed(fixed) = &profile.device else { panic!("it is a fixed") };
    assert_eq!((fixed.gb_per_s, fixed.write_gb_per_s, fixed.parallelism), (None, None, 1));
    let loads =
        [1, 32].into_iter().flat_map(|depth| [4096, 262_144].map(|bytes| (depth, bytes, 0.5, Pattern::Random, 0.02)));
    let loads: Vec<Load> = loads.collect();
    compare(&mut target(&load("yang-nand"), BYTES), &mut target(&profile, BYTES), BYTES, 20_000, &loads);
}

#[test]
fn no_profile_is_made_that_is_not_as_fast_at_saturation() {
    let mut findings = S840_PRO.clone();
    let latency_us = findings.value("random_read_us").expect("it was measured");
    let rate = findings.fitted.iter_mut().find(|parameter| parameter.name == "random_read_4k_iops");
    // Between one read at a time and two.
    rate.expect("it was measured").value = 1.45e6 / latency_us;
    let reason = to_profile("x", &findings).expect_err("no whole number of reads at a time");
    assert!(reason.contains("fixed") && reason.contains("random reads a second, measured were"), "{reason}");
}

#[test]
fn a_profile_needs_its_measurements() {
    let empty = to_profile("x", &Findings::default()).expect_err("nothing was measured");
    assert!(empty.contains("not measured"), "{empty}");
    let mut findings = CHEETAH.clone();
    findings.fitted.retain(|parameter| parameter.name != "rpm");
    assert_eq!(to_profile("x", &findings).expect_err("no speed"), "parameter `rpm` was not measured");
}
