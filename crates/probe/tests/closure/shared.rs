//! Devices whose I/Os share a rate: all that began together end together.

use super::{SEED, load, probe, target};
use entresol_probe::{ModelTarget, Setup};

/// No point of the sweep finds more than the rate that all I/Os share, at whatever depth.
#[test]
fn a_sweep_finds_no_more_than_a_shared_rate() {
    for (name, mb_per_s) in [("panasas-pfs", 30_000.0), ("gp3-3000", 131.072), ("gp3-16000", 1048.576), ("io2", 4000.0)]
    {
        let bytes = 1 << 30;
        let mut target: ModelTarget = target(&load(name), bytes);
        let findings = probe(&mut target, &Setup::new(bytes), Some(&["sweep"]));
        for pattern in ["sequential_read", "random_read", "sequential_write", "random_write"] {
            let found = findings.parameter(&format!("{pattern}_mb_s")).expect("a rate").value;
            println!("{name}, {pattern}: {found:.1} MB/s of {mb_per_s}");
            assert!((0.9..1.1).contains(&(found / mb_per_s)), "{name}, {pattern}: {found} of {mb_per_s} (seed {SEED})");
        }
    }
}
