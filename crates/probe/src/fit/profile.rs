//! Makes a device that `simulate`, `advise` and the emulator accept from fitted parameters.
//!
//! A device that turns becomes a `disk` with one surface, with the measured tracks, zones and seek curve. A device
//! without a buffer, whose latency is a line in size, becomes an `nvm-block` if its bytes are all that limits it. Every
//! other device becomes a `fixed`: its parallelism is that of random reads, and its writes are the steady ones. A
//! `fixed` is a good model of reads at any depth and of writes at saturation, and too slow for a single write that a
//! buffer takes.
//!
//! A model of the last two kinds is run with as many I/Os as the probe had outstanding at most. It is taken only if its
//! rates of random 4-KiB I/Os are those measured ([`SATURATION_ERROR`]): a wrong limit would not show at depth 1.

use super::stats::interpolate;
use crate::findings::{Findings, SEEK_CURVE, ZONE_CURVE};
use entresol_core::Random;
use entresol_device::disk::{Discipline, DiskParameters, SeekPoint, Zone};
use entresol_device::fixed::FixedParameters;
use entresol_device::host::HostParameters;
use entresol_device::load::closed_loop;
use entresol_device::nvm_block::NvmBlockParameters;
use entresol_device::profile::{Model, Profile};
use entresol_device::{Io, Nanos, Parameters, TailPoint};

const SECTOR: u32 = 512;
/// Size of the I/Os by which a device's saturation is measured.
const PAGE: u32 = 4096;
/// Largest difference between a model's saturated rate and the measured one, as a share of the latter.
const SATURATION_ERROR: f64 = 0.2;
/// I/Os by which a model's saturation is measured, and how many are outstanding: the most of a probe.
const SATURATING: (u64, usize) = (20_000, 256);
/// Bytes of the model whose saturation is measured.
const SATURATED_BYTES: u64 = 1 << 30;
const SEED: u64 = 42;
/// Share of the bandwidth from which small reads are limited by their bytes.
const FULL: f64 = 0.95;

/// A device of these findings.
///
/// # Errors
/// When an experiment that the profile needs has not run: names the missing parameter, or the number that no device
/// can have. When no model gives the measured saturation again: names both rates.
pub fn to_profile(name: &str, findings: &Findings) -> Result<Profile, String> {
    let found = Found(findings);
    let about = format!("fitted to measurements, {:.0} B", found.get("capacity_bytes")?);
    let profile = |device: Model, host: Option<HostParameters>| {
        let (name, about, source) = (name.to_owned(), about.clone(), "entresol probe".to_owned());
        Profile { name, about, source, dollars_per_gb: None, device, host }
    };
    if found.is("rotates") {
        let disk = found.disk()?;
        disk.check()?;
        return Ok(profile(Model::Disk(disk), None));
    }
    if found.is_line_in_size() {
        let nvm = found.nvm_block()?;
        nvm.check()?;
        let profile = profile(Model::NvmBlock(nvm), found.host());
        if found.saturates(&profile).is_ok() {
            return Ok(profile);
        }
    }
    let fixed = found.fixed()?;
    fixed.check()?;
    let profile = profile(Model::Fixed(fixed), found.host());
    found.saturates(&profile)?;
    Ok(profile)
}

/// Random 4-KiB I/Os a second of a profile's device with as many outstanding as it can work on.
fn saturated_iops(profile: &Profile, write: bool) -> Result<f64, String> {
    let mut device = profile.build(SATURATED_BYTES, SEED).map_err(|error| error.to_string())?;
    let mut random = Random::new(SEED);
    let (count, depth) = SATURATING;
    let load = closed_loop(&mut device, depth, count, |_| {
        let offset = random.below(SATURATED_BYTES / u64::from(PAGE)) * u64::from(PAGE);
        if write { Io::write(offset, PAGE) } else { Io::read(offset, PAGE) }
    });
    Ok(load.iops())
}

fn nanos(us: f64) -> Nanos {
    (us.max(0.0) * 1e3).round() as Nanos
}

struct Found<'a>(&'a Findings);

impl Found<'_> {
    fn get(&self, name: &str) -> Result<f64, String> {
        self.0.value(name).ok_or_else(|| format!("parameter `{name}` was not measured"))
    }

    fn is(&self, name: &str) -> bool {
        self.get(name) == Ok(1.0)
    }

    /// True if there is no buffer, and latency is a line in size.
    fn is_line_in_size(&self) -> bool {
        let line = ["read_fixed_us", "write_fixed_us", "read_gb_per_s", "write_gb_per_s"];
        self.get("read_buffer") == Ok(0.0) && line.into_iter().all(|name| self.get(name).is_ok())
    }

    /// Random 4-KiB writes a second at saturation, once buffers are full.
    fn write_iops(&self) -> Result<f64, String> {
        self.get("steady_write_iops").or_else(|_| self.get("random_write_4k_iops"))
    }

    /// Fails unless a profile's device is as fast at saturation as was measured.
    fn saturates(&self, profile: &Profile) -> Result<(), String> {
        let measured = [("reads", false, self.get("random_read_4k_iops")?), ("writes", true, self.write_iops()?)];
        for (name, write, measured) in measured {
            let found = saturated_iops(profile, write)?;
            if (found / measured - 1.0).abs() > SATURATION_ERROR {
                let kind = profile.device.kind();
                return Err(format!(
                    "a {kind} model does {found:.0} random {name} a second, measured were {measured:.0}"
                ));
            }
        }
        Ok(())
    }

    /// The line of a curve.
    fn curve(&self, title: &str) -> Result<&[(f64, f64)], String> {
        let series = self.0.curves.iter().find(|series| series.title == title);
        let line = series.and_then(|series| series.lines.first());
        line.map(|line| line.points.as_slice()).ok_or_else(|| format!("curve `{title}` was not measured"))
    }

    /// The host, where it shows: by its software or by the cap of a thread.
    fn host(&self) -> Option<HostParameters> {
        let software = self.get("software_us").ok().filter(|us| *us > 0.0);
        let busy = self.get("host_busy_us").ok();
        software.or(busy)?;
        let software_ns = nanos(software.unwrap_or(0.0));
        Some(HostParameters { threads: 1, software_ns, busy_ns: busy.map_or(software_ns, nanos) })
    }

    fn nvm_block(&self) -> Result<NvmBlockParameters, String> {
        let page = self.get("page_bytes")?;
        let median = self.get("random_read_us")?;
        let tail = |(name, quantile): (&str, f64)| {
            let extra_ns = nanos(self.get(name).ok()? - median);
            Some(TailPoint { quantile, extra_ns })
        };
        let quantiles = [
            ("random_read_p99_us", 0.99),
            ("random_read_p995_us", 0.995),
            ("random_read_p999_us", 0.999),
            ("random_read_p9999_us", 0.9999),
        ];
        let middle = TailPoint { quantile: 0.5, extra_ns: 0 };
        let refresh_reads = self.get("refresh_reads").unwrap_or(0.0);
        let refreshes = (1.0..=255.0).contains(&refresh_reads);
        Ok(NvmBlockParameters {
            read_fixed_ns: nanos(self.get("read_fixed_us")?),
            write_fixed_ns: nanos(self.get("write_fixed_us")?),
            read_gb_per_s: self.get("read_gb_per_s")?,
            write_gb_per_s: self.get("write_gb_per_s")?,
            // Channels do not show from outside: whole pages take all of them.
            channels: 1,
            page_bytes: (page as u32).next_power_of_two().max(SECTOR),
            half_page_penalty_ns: self.get("half_page_penalty_us").map_or(0, nanos),
            odd_penalty_ns: self.get("odd_penalty_us").map_or(0, nanos),
            layers_meet_bytes: self.get("layers_meet_kib").map_or(1, |kib| (kib * 1024.0).round().max(1.0) as u32),
            refresh_reads: if refreshes { refresh_reads as u32 } else { 1 },
            refresh_ns: if refreshes { nanos(self.get("refresh_us")?) } else { 0 },
            hold_every_pages: 1,
            hold_ns: 0,
            read_tail: [middle].into_iter().chain(quantiles.into_iter().filter_map(tail)).collect(),
            endurance_writes: None,
        })
    }

    fn fixed(&self) -> Result<FixedParameters, String> {
        let page = f64::from(PAGE);
        let iops = self.get("random_read_4k_iops")?;
        let read = self.get("random_read_us")? - self.get("software_us").unwrap_or(0.0);
        // A latency that does not grow with size leaves no bandwidth to measure.
        let grows = self.get("read_fixed_us").is_err() || self.get("read_gb_per_s").is_ok();
        let fastest = self.get("sequential_read_mb_s")?.max(self.get("random_read_mb_s")?);
        let mb_s = grows.then_some(fastest);
        let write_mb_s = mb_s.map(|mb_s| self.get("sequential_write_mb_s").unwrap_or(mb_s));
        let transfer = |mb_s: Option<f64>| mb_s.map_or(0.0, |mb_s| page / mb_s);
        // Reads limited by their bytes show only a part of the parallelism, and writes may show more of it.
        let full = mb_s.is_some_and(|mb_s| iops * page / 1e6 >= FULL * mb_s);
        let of_writes = self.get("random_write_4k_parallelism").ok().filter(|_| full);
        let parallelism = (iops * read / 1e6).max(of_writes.unwrap_or(1.0)).round().clamp(1.0, 256.0);
        Ok(FixedParameters {
            read_ns: nanos(read - transfer(mb_s)).max(1),
            write_ns: nanos(parallelism * 1e6 / self.write_iops()? - transfer(write_mb_s)).max(1),
            gb_per_s: mb_s.map(|mb_s| mb_s / 1e3),
            write_gb_per_s: write_mb_s.map(|mb_s| mb_s / 1e3),
            parallelism: parallelism as u32,
            endurance_writes: None,
            energy: None,
        })
    }

    fn disk(&self) -> Result<DiskParameters, String> {
        let rpm = self.get("rpm")?;
        let turn_us = 60e6 / rpm;
        let next_track_us = self.get("track_to_track_us")?;
        // A track begins right behind the position from which the heads leave the one before.
        let skew = (next_track_us / turn_us + 0.01).min(0.99);
        let sectors = (self.get("capacity_bytes")? / f64::from(SECTOR)) as u64;
        let per_track = |mb_s: f64| (mb_s * turn_us * (1.0 + skew) / f64::from(SECTOR)).round().max(1.0);
        let rates = self.curve(ZONE_CURVE)?;

        // A rate holds up to the middle between its position and the next. Cylinders are tracks: there is one surface.
        let (mut zones, mut boundaries, mut cylinders): (Vec<Zone>, _, f64) = (Vec::new(), vec![(0.0, 0.0)], 0.0);
        let mut begin = 0.0;
        for (i, &(at, mb_s)) in rates.iter().enumerate() {
            let end = rates.get(i + 1).map_or(sectors as f64 * f64::from(SECTOR), |next| (at + next.0) / 2.0);
            let sectors_per_track = per_track(mb_s);
            let tracks = ((end - begin) / f64::from(SECTOR) / sectors_per_track).ceil();
            if tracks >= 1.0 {
                zones.push(Zone { first_cylinder: cylinders as u32, sectors_per_track: sectors_per_track as u32 });
                cylinders += tracks;
                boundaries.push((end, cylinders));
            }
            begin = end;
        }
        let mut seek = vec![SeekPoint { cylinders: 1, ms: next_track_us / 1e3 }];
        for &(distance, us) in self.curve(SEEK_CURVE)? {
            let (last, reached) = (seek[seek.len() - 1], interpolate(&boundaries, distance) as u32);
            if reached > last.cylinders {
                seek.push(SeekPoint { cylinders: reached, ms: (us / 1e3).max(last.ms) });
            }
        }
        let sorts = self.get("queue_gain").is_ok_and(|gain| gain > 1.2);
        let outer = zones.first().map_or(0, |zone| zone.sectors_per_track);
        Ok(DiskParameters {
            name: String::new(),
            sector_bytes: SECTOR,
            sectors,
            cylinders: cylinders as u32,
            surfaces: 1,
            band_cylinders: cylinders as u32,
            zones,
            rpm,
            rpm_error: 0.0,
            track_skew: skew,
            surface_skew: skew,
            band_skew: skew,
            seek,
            head_switch_ms: 0.0,
            write_settle_ms: self.get("write_settle_us")? / 1e3,
            read_overhead_ms: self.get("read_overhead_us")? / 1e3,
            write_overhead_ms: self.get("write_overhead_us")? / 1e3,
            after_write_ms: 0.0,
            read_ahead_sectors: if self.is("reads_ahead") { outer } else { 0 },
            discipline: if sorts { Discipline::Sptf } else { Discipline::Fcfs },
            window: 64,
        })
    }
}
