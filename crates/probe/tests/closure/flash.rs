//! The closure test of two flash drives of FaCE, at 2 GiB, and of the refresh of 002's P3700.

use super::claims::Within::{Exactly, Share};
use super::claims::{Claim, check};
use super::{probe, saturation_depth};
use entresol_device::nand::{NandParameters, Ssd};
use entresol_probe::{Findings, ModelTarget, Setup};
use std::sync::LazyLock;

pub const BYTES: u64 = 2 << 30;

pub static S840_PRO: LazyLock<Findings> = LazyLock::new(|| whole(NandParameters::s840_pro()));
static P3700: LazyLock<Findings> = LazyLock::new(|| whole(NandParameters::p3700()));

pub fn ssd(p: NandParameters) -> ModelTarget {
    let name = p.name.clone();
    ModelTarget::new(name, Box::new(Ssd::new(p.scaled_to(BYTES), 1).expect("it can be built")), None)
}

fn whole(p: NandParameters) -> Findings {
    probe(&mut ssd(p), &Setup::new(BYTES).scaled(0.2), None)
}

/// Write amplification of a log that is cleaned in turn: rho / (rho + W0(-rho e^-rho)), by Newton's method.
fn amplification(rho: f64) -> f64 {
    let x = -rho * (-rho).exp();
    let mut w = -0.5f64;
    for _ in 0..100 {
        w -= (w * w.exp() - x) / (w.exp() * (w + 1.0));
    }
    rho / (rho + w)
}

fn claims(p: &NandParameters) -> Vec<Claim> {
    const UNIT: f64 = 4096.0;
    let units = f64::from(p.units_per_program());
    let at_once = f64::from(p.dies()) * units * UNIT;
    let program_busy = p.program_us + units * UNIT / p.channel_mb_s;
    let read = p.command_us + p.sense_us[0].1 + UNIT / p.channel_mb_s + UNIT / p.link_mb_s + p.fixed_read_us;
    let programmed = p.command_us + if p.power_loss_protection { 0.0 } else { p.program_us + UNIT / p.channel_mb_s };
    // A host page costs its share of a program; each page moved for it costs a read besides.
    let page = p.program_us / units;
    let (waf, moved) = (amplification(p.over_provisioning), p.gc_read_us + page);
    let slowdown = (page + (waf - 1.0) * moved) / page;
    vec![
        Claim("random_read_us", read, Share(0.01)),
        Claim("sense_us", p.sense_us[0].1, Share(0.02)),
        Claim("channel_mb_s", p.channel_mb_s, Share(0.02)),
        Claim("program_busy_us", program_busy, Share(0.05)),
        Claim("program_parallel_kib", at_once / 1024.0, Share(0.08)),
        Claim("fill_mb_s", at_once / program_busy, Share(0.03)),
        Claim("write_fixed_us", p.command_us + p.fixed_write_us, Share(0.01)),
        Claim("write_gb_per_s", p.link_mb_s / 1e3, Share(0.01)),
        Claim("sequential_read_mb_s", p.link_mb_s, Share(0.01)),
        Claim("device_busy_us", p.command_us, Share(0.03)),
        Claim("random_read_4k_saturation_depth", saturation_depth(read, p.command_us), Exactly),
        Claim("read_buffer", 1.0, Exactly),
        Claim("read_buffer_mib", p.buffer_bytes as f64 / 1_048_576.0, Share(0.05)),
        Claim("write_buffer_mib", p.write_buffer_bytes as f64 / 1_048_576.0, Share(0.05)),
        Claim("reads_ahead", 1.0, Exactly),
        Claim("refresh_reads", f64::from(p.disturb_reads), Exactly),
        Claim("page_bytes", UNIT, Exactly),
        // Each such write merges an end, and some both ends or with a page that has left the buffer.
        Claim("unaligned_penalty_us", p.merge_us, Share(0.3)),
        Claim("flush_us", programmed, Share(0.03)),
        Claim("steady", 1.0, Exactly),
        // The formula is that of a log cleaned in turn; greedy cleaning moves a few percent less.
        Claim("random_write_slowdown", slowdown, Share(0.1)),
        Claim("rotates", 0.0, Exactly),
    ]
}

#[test]
fn s840_pro() {
    check("840-pro", &S840_PRO, &claims(&NandParameters::s840_pro()));
}

#[test]
fn p3700() {
    check("p3700", &P3700, &claims(&NandParameters::p3700()));
}

#[test]
fn the_refresh_of_a_drive_with_a_buffer_is_found_behind_evictions() {
    let p = NandParameters::p3700_2tb();
    let findings = probe(&mut ssd(p.clone()), &Setup::new(BYTES), Some(&["fill", "disturb"]));
    let claims =
        [Claim("refresh_reads", f64::from(p.disturb_reads), Exactly), Claim("refresh_us", p.refresh_us, Share(0.15))];
    check("p3700-2tb", &findings, &claims);
}
