//! The closure test of the Optane drive of 002.

use super::claims::Within::{Absolute, Exactly, Share};
use super::claims::{Claim, check};
use super::{load, probe, saturation_depth, target};
use entresol_device::profile::Model;
use entresol_probe::{Cell, Findings, Setup};
use std::sync::LazyLock;

const BYTES: u64 = 1 << 30;

pub static P4800X: LazyLock<Findings> =
    LazyLock::new(|| probe(&mut target(&load("p4800x"), BYTES), &Setup::new(BYTES), None));

#[test]
fn p4800x() {
    let profile = load("p4800x");
    let Model::NvmBlock(p) = &profile.device else { panic!("it is NVM behind a block interface") };
    let host = profile.host.as_ref().expect("it was measured through a host");
    let us = |ns: u64| ns as f64 / 1e3;
    let transfer = |kib: f64| kib * 1.024 / p.read_gb_per_s;
    let latency = |kib: f64| us(host.software_ns + p.read_fixed_ns) + transfer(kib);
    let depth = |kib: f64| saturation_depth(latency(kib), us(host.busy_ns).max(transfer(kib)));
    let claims = [
        // The medians hold half of the tail, 60 ns.
        Claim("random_read_us", latency(4.0), Share(0.01)),
        Claim("read_fixed_us", us(p.read_fixed_ns), Share(0.02)),
        Claim("write_fixed_us", us(p.write_fixed_ns), Share(0.005)),
        Claim("read_gb_per_s", p.read_gb_per_s, Share(0.01)),
        Claim("write_gb_per_s", p.write_gb_per_s, Share(0.005)),
        Claim("software_us", us(host.software_ns), Share(0.005)),
        Claim("host_busy_us", us(host.busy_ns), Share(0.01)),
        Claim("refresh_reads", f64::from(p.refresh_reads), Exactly),
        Claim("refresh_us", us(p.refresh_ns), Share(0.05)),
        Claim("page_bytes", f64::from(p.page_bytes), Exactly),
        Claim("half_page_penalty_us", us(p.half_page_penalty_ns), Share(0.02)),
        Claim("odd_penalty_us", us(p.odd_penalty_ns), Share(0.02)),
        Claim("layers_meet_kib", f64::from(p.layers_meet_bytes) / 1024.0, Share(0.02)),
        Claim("random_read_4k_saturation_depth", depth(4.0), Exactly),
        Claim("random_read_16k_saturation_depth", depth(16.0), Exactly),
        Claim("random_read_32k_saturation_depth", depth(32.0), Exactly),
        Claim("random_read_128k_saturation_depth", depth(128.0), Exactly),
        Claim("sequential_read_mb_s", p.read_gb_per_s * 1e3, Share(0.01)),
        Claim("sequential_write_mb_s", p.write_gb_per_s * 1e3, Share(0.01)),
        Claim("fill_mb_s", p.write_gb_per_s * 1e3, Share(0.01)),
        Claim("overwrite_drop_percent", 0.0, Absolute(1.0)),
        Claim("random_write_slowdown", 1.0, Share(0.02)),
        // A flush takes as long as a read command, after its own software.
        Claim("flush_us", us(p.read_fixed_ns + host.software_ns), Share(0.01)),
        Claim("read_buffer", 0.0, Exactly),
        Claim("read_buffer_mib", 0.0, Exactly),
        Claim("write_buffer_mib", 0.0, Exactly),
        Claim("reads_ahead", 0.0, Exactly),
        Claim("rotates", 0.0, Exactly),
    ];
    check("p4800x", &P4800X, &claims);
}

#[test]
fn a_percentile_with_fewer_than_ten_samples_beyond_it_is_refused() {
    // 20,000 reads: twenty lie beyond 99.9 %, two beyond 99.99 %.
    let table = P4800X.tables.iter().find(|table| table.title.starts_with("Latency")).expect("the table of latencies");
    assert!(matches!(table.rows[1][4], Cell::Number(_)), "{:?}", table.rows[1]);
    assert!(matches!(table.rows[1][5], Cell::Text(_)), "{:?}", table.rows[1]);
    assert!(P4800X.parameter("random_read_p9999_us").is_none());
}

#[test]
fn the_same_seed_gives_the_same_findings_and_every_experiment_something() {
    let setup = Setup::new(BYTES).scaled(0.1);
    let run = || probe(&mut target(&load("p4800x"), BYTES), &setup, None);
    let findings = run();
    assert_eq!(findings, run());
    for experiment in entresol_probe::experiments() {
        let mut again = target(&load("p4800x"), BYTES);
        let found = (experiment.run)(&mut again, &setup, 1).expect(experiment.name);
        let silent = found.tables.is_empty() && found.curves.is_empty() && found.notes.is_empty();
        assert!(!silent, "{} found nothing", experiment.name);
        for table in &found.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
        }
        assert!((experiment.plan)(&setup).seconds > 0.0, "{} is planned to take no time", experiment.name);
    }
}

#[test]
fn findings_are_read_back_from_json() {
    let text = serde_json::to_string(&*P4800X).expect("numbers and texts");
    let read: Findings = serde_json::from_str(&text).expect("what was written");
    assert_eq!((read.tables.len(), read.curves.len()), (P4800X.tables.len(), P4800X.curves.len()));
    assert_eq!(read.notes, P4800X.notes);
    for (read, found) in read.fitted.iter().zip(&P4800X.fitted) {
        assert_eq!((&read.name, &read.unit, &read.from), (&found.name, &found.unit, &found.from));
        assert!((read.value - found.value).abs() <= 1e-12 * found.value.abs(), "{read:?}");
    }
}
