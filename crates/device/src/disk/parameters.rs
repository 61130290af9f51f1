//! Parameters of a disk, as a profile states them.

use super::scheduler::Discipline;
use super::seek::SeekTable;
use crate::check::Parameters;
use crate::house;
use crate::io::DeviceError;
use serde::{Deserialize, Serialize};

/// A run of cylinders with the same number of sectors on each track. A zone ends where the next zone starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// First cylinder, counted from the outer edge.
    pub first_cylinder: u32,
    /// Sectors on each track.
    pub sectors_per_track: u32,
}

/// A measured seek time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SeekPoint {
    /// Distance in cylinders.
    pub cylinders: u32,
    /// Time in milliseconds, settling for a read included.
    pub ms: f64,
}

/// The parameters of a [`Disk`](super::Disk). Angles are in turns of the platter.
///
/// Sectors are numbered along a track, then along the neighbouring tracks of one surface for `band_cylinders`
/// cylinders, then back on the next surface. The next band begins when all surfaces of a band are numbered.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiskParameters {
    /// Name, for messages; a profile has its own.
    #[serde(default, skip_serializing)]
    pub name: String,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Addressable sectors; at most what the zones hold.
    pub sectors: u64,
    /// Cylinders.
    pub cylinders: u32,
    /// Recording surfaces.
    pub surfaces: u32,
    /// Cylinders that are filled on one surface before the next surface is used.
    pub band_cylinders: u32,
    /// Zones from the outer edge; the first starts at cylinder 0.
    pub zones: Vec<Zone>,
    /// Turns per minute.
    pub rpm: f64,
    /// Largest relative error of a drive's speed. Every drive draws its own.
    pub rpm_error: f64,
    /// Angle by which a track starts later than its predecessor on the same surface.
    pub track_skew: f64,
    /// The same where the next track is on another surface.
    pub surface_skew: f64,
    /// The same where the next track is in another band.
    pub band_skew: f64,
    /// Seek times by distance, ascending, the first for one cylinder; linear in between and beyond the last.
    pub seek: Vec<SeekPoint>,
    /// Time in milliseconds to move on to the next surface in the same cylinder.
    pub head_switch_ms: f64,
    /// Time in milliseconds by which a write settles longer than a read after a seek.
    pub write_settle_ms: f64,
    /// Time in milliseconds to accept a read, which passes while earlier commands are being served.
    pub read_overhead_ms: f64,
    /// The same for a write.
    pub write_overhead_ms: f64,
    /// Extra time of a command that follows a write, in milliseconds.
    pub after_write_ms: f64,
    /// Sectors that the drive reads on into its buffer behind a read when nothing else waits.
    pub read_ahead_sectors: u32,
    /// The order in which waiting commands are served.
    pub discipline: Discipline,
    /// Commands among which the discipline chooses: the oldest ones. FCFS needs no more than one.
    pub window: usize,
}

impl DiskParameters {
    /// The Seagate Cheetah 15K.5 ST3146855FC, 146.8 GB, of the profile `cheetah-15k5`, where the source of each number
    /// is; its licence is in `COPYING.CMU`.
    pub fn cheetah_15k5() -> Self {
        Self::of_profile("cheetah-15k5")
    }

    /// The Cheetah 15K.6 of FaCE's testbed, 146.8 GB, of the profile `face-disk`.
    pub fn face_disk() -> Self {
        Self::of_profile("face-disk")
    }

    fn of_profile(name: &str) -> Self {
        match house::parameters(name, "device") {
            Ok(parameters) => DiskParameters { name: name.into(), ..parameters },
            Err(what) => unreachable!("the disk {name} comes with the program: {what}"),
        }
    }

    /// Sectors that the zones hold.
    pub fn physical_sectors(&self) -> u64 {
        let ends = self.zones.iter().skip(1).map(|zone| zone.first_cylinder).chain([self.cylinders]);
        self.zones
            .iter()
            .zip(ends)
            .map(|(zone, end)| {
                let tracks = u64::from(end.saturating_sub(zone.first_cylinder)) * u64::from(self.surfaces);
                tracks * u64::from(zone.sectors_per_track)
            })
            .sum()
    }

    /// The same as [`Parameters::check`], with the disk's name.
    pub(super) fn check_named(&self) -> Result<(), DeviceError> {
        self.check().map_err(|what| DeviceError::Profile { device: self.name.clone(), what })
    }

    fn check_zones(&self) -> Result<(), String> {
        if self.zones.first().is_none_or(|zone| zone.first_cylinder != 0) {
            return Err("the first zone must start at cylinder 0".into());
        }
        if self.zones.windows(2).any(|pair| pair[0].first_cylinder >= pair[1].first_cylinder)
            || self.zones.iter().any(|zone| zone.first_cylinder >= self.cylinders)
        {
            return Err(format!("zones must start in ascending order below cylinder {}", self.cylinders));
        }
        if self.zones.iter().any(|zone| !(1..=1_000_000).contains(&zone.sectors_per_track)) {
            return Err("a track holds 1 to 1000000 sectors".into());
        }
        let physical = self.physical_sectors();
        if self.sectors == 0 || self.sectors > physical {
            return Err(format!("{} sectors on zones that hold {physical}", self.sectors));
        }
        Ok(())
    }

    fn check_seek(&self) -> Result<(), String> {
        if self.seek.first().is_none_or(|point| point.cylinders != 1) {
            return Err("the first seek time must be that of one cylinder".into());
        }
        if self.seek.iter().any(|point| point.ms.is_nan())
            || self.seek.windows(2).any(|pair| pair[0].cylinders >= pair[1].cylinders || pair[0].ms > pair[1].ms)
        {
            return Err("seek times must ascend with distance".into());
        }
        let longest = SeekTable::milliseconds(&self.seek, self.cylinders - 1);
        if self.seek[0].ms < 0.0 || !(0.0..=1000.0).contains(&longest) {
            return Err(format!("seeks of {} to {longest} ms are not in 0..=1000 ms", self.seek[0].ms));
        }
        Ok(())
    }
}

impl Parameters for DiskParameters {
    fn check(&self) -> Result<(), String> {
        let fail = |what: String| Err(what);
        let turns =
            [("track_skew", self.track_skew), ("surface_skew", self.surface_skew), ("band_skew", self.band_skew)];
        let times = [
            ("head_switch_ms", self.head_switch_ms),
            ("write_settle_ms", self.write_settle_ms),
            ("read_overhead_ms", self.read_overhead_ms),
            ("write_overhead_ms", self.write_overhead_ms),
            ("after_write_ms", self.after_write_ms),
        ];
        if self.sector_bytes == 0 || self.surfaces == 0 || self.band_cylinders == 0 || self.window == 0 {
            return fail("sector_bytes, surfaces, band_cylinders and window must be at least 1".into());
        }
        if let Some((what, value)) = turns.into_iter().find(|(_, value)| !(0.0..1.0).contains(value)) {
            return fail(format!("{what} = {value} is not in 0..1 turn"));
        }
        if let Some((what, value)) = times.into_iter().find(|(_, value)| !(0.0..=1000.0).contains(value)) {
            return fail(format!("{what} = {value} is not in 0..=1000 ms"));
        }
        if !(60.0..=1e6).contains(&self.rpm) || !(0.0..0.1).contains(&self.rpm_error) {
            return fail(format!("a speed of {} turns a minute with an error of {}", self.rpm, self.rpm_error));
        }
        self.check_zones().and_then(|()| self.check_seek())
    }
}
