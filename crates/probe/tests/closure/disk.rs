//! The closure test of the whole 15k disk, 147 GB.

use super::claims::Within::{Absolute, Exactly, Share};
use super::claims::{Claim, check};
use super::{SEED, disk_of, load, probe, target};
use entresol_core::Random;
use entresol_device::disk::DiskParameters;
use entresol_probe::{Findings, Setup};
use std::sync::LazyLock;

pub static CHEETAH: LazyLock<Findings> = LazyLock::new(|| {
    let profile = load("cheetah-15k5");
    probe(&mut target(&profile, 0), &Setup::new(bytes(disk_of(&profile))), None)
});

pub fn bytes(p: &DiskParameters) -> u64 {
    p.sectors * u64::from(p.sector_bytes)
}

/// The cylinder of a byte: tracks follow each other along one surface of a band, then back along the next.
fn cylinder(p: &DiskParameters, offset: f64) -> f64 {
    let mut sector = (offset / f64::from(p.sector_bytes)) as u64;
    for (i, zone) in p.zones.iter().enumerate() {
        let end = p.zones.get(i + 1).map_or(p.cylinders, |next| next.first_cylinder);
        let cylinders = u64::from(end - zone.first_cylinder);
        let in_zone = cylinders * u64::from(p.surfaces) * u64::from(zone.sectors_per_track);
        if sector >= in_zone {
            sector -= in_zone;
            continue;
        }
        let (track, band) = (sector / u64::from(zone.sectors_per_track), u64::from(p.band_cylinders));
        let (number, within) = (track / (band * u64::from(p.surfaces)), track % (band * u64::from(p.surfaces)));
        let height = band.min(cylinders - number * band);
        let (surface, along) = (within / height, within % height);
        let row = if surface % 2 == 0 { along } else { height - 1 - along };
        return (u64::from(zone.first_cylinder) + number * band + row) as f64;
    }
    f64::from(p.cylinders - 1)
}

/// The table's seek time in microseconds.
fn seek_us(p: &DiskParameters, cylinders: f64) -> f64 {
    if cylinders < 1.0 {
        return 0.0;
    }
    let after = p.seek.partition_point(|point| f64::from(point.cylinders) < cylinders).clamp(1, p.seek.len() - 1);
    let (a, b) = (p.seek[after - 1], p.seek[after]);
    let along = (cylinders - f64::from(a.cylinders)) / f64::from(b.cylinders - a.cylinders);
    1e3 * (a.ms + (b.ms - a.ms) * along)
}

/// The seeks of many pairs of offsets, ascending.
fn seeks(p: &DiskParameters, mut pair: impl FnMut(&mut Random) -> (f64, f64)) -> Vec<f64> {
    let mut random = Random::new(SEED);
    let mut one = |_| {
        let (from, to) = pair(&mut random);
        seek_us(p, (cylinder(p, from) - cylinder(p, to)).abs())
    };
    let mut seeks: Vec<f64> = (0..20_000).map(&mut one).collect();
    seeks.sort_by(f64::total_cmp);
    seeks
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The seeks over a distance from near the outer edge.
fn seeks_over(p: &DiskParameters, distance: f64) -> Vec<f64> {
    let track = f64::from(p.zones[0].sectors_per_track * p.sector_bytes);
    seeks(p, |random| {
        let from = random.next_f64() * bytes(p) as f64 / 50.0;
        (from, from + distance + random.next_f64() * 1.2 * track)
    })
}

fn claims(p: &DiskParameters) -> Vec<Claim> {
    let turn_us = 60e6 / p.rpm;
    // A track's bytes pass in a turn, and the heads reach the next track after the skew.
    let mb_s = |zone: usize| {
        let track = f64::from(p.zones[zone].sectors_per_track * p.sector_bytes);
        track / (turn_us * (1.0 + p.track_skew))
    };
    let whole = bytes(p) as f64;
    vec![
        Claim("rotates", 1.0, Exactly),
        Claim("rpm", p.rpm, Share(0.001)),
        Claim("read_overhead_us", p.read_overhead_ms * 1e3, Absolute(20.0)),
        Claim("write_overhead_us", (p.write_overhead_ms + p.after_write_ms) * 1e3, Absolute(20.0)),
        Claim("outer_mb_s", mb_s(0), Share(0.02)),
        Claim("inner_mb_s", mb_s(p.zones.len() - 1), Share(0.02)),
        Claim("track_to_track_us", p.seek[0].ms * 1e3, Share(0.08)),
        Claim("full_stroke_us", mean(&seeks_over(p, 0.96 * whole)), Share(0.03)),
        Claim("average_seek_us", mean(&seeks(p, |r| (r.next_f64() * whole, r.next_f64() * whole))), Share(0.05)),
        Claim("write_settle_us", p.write_settle_ms * 1e3, Absolute(40.0)),
        Claim("reads_ahead", 1.0, Exactly),
    ]
}

#[test]
fn cheetah_15k5() {
    let profile = load("cheetah-15k5");
    let p = disk_of(&profile);
    check("cheetah", &CHEETAH, &claims(p));
}

#[test]
fn the_seek_curve_is_the_table() {
    let profile = load("cheetah-15k5");
    let p = disk_of(&profile);
    let series = CHEETAH.curves.iter().find(|series| series.title.starts_with("Seek time")).expect("a seek curve");
    let points = &series.lines[0].points;
    assert!(points.len() >= 12, "{points:?}");
    for &(distance, found) in points {
        // Tracks go back and forth over the surfaces, so a distance in bytes is a range of seeks, and the least of some
        // hundred times favours the short ones.
        let truth = seeks_over(p, distance);
        let (short, long) = (truth[truth.len() / 100], mean(&truth));
        println!("{distance:16.0} B: true {short:6.0} to {long:6.0} us, found {found:6.0} us");
        assert!(
            (0.96 * short - 60.0..1.04 * long + 60.0).contains(&found),
            "{found} us at {distance} B, true {short} to {long} (seed {SEED})"
        );
    }
}

#[test]
fn a_disk_whose_writes_settle_shows_it() {
    let profile = load("face-disk");
    let p = disk_of(&profile);
    let findings = probe(&mut target(&profile, 0), &Setup::new(bytes(p)), Some(&["disk"]));
    let claims = [Claim("write_settle_us", p.write_settle_ms * 1e3, Absolute(40.0)), Claim("rpm", p.rpm, Share(0.001))];
    check("face-disk", &findings, &claims);
    assert!(p.write_settle_ms > 0.1, "a disk that does not settle shows nothing here");
}
