//! What a disk is made of, as a profile states it.

use super::scheduler::Discipline;
use super::seek::SeekTable;
use crate::io::DeviceError;
use serde::Deserialize;

/// A run of cylinders with the same number of sectors on each track. It ends where the next zone starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// First cylinder, counted from the outer edge.
    pub first_cylinder: u32,
    /// Sectors on each track.
    pub sectors_per_track: u32,
}

/// A measured seek time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
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
/// cylinders, then back on the next surface, and so over all surfaces before the next band begins.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskParameters {
    /// Name, for messages.
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
    /// Largest relative error of a drive's speed: every drive draws its own.
    pub rpm_error: f64,
    /// By how much a track starts later than its predecessor on the same surface.
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
    /// Time in milliseconds to accept a read. It passes while earlier commands are being served.
    pub read_overhead_ms: f64,
    /// The same for a write.
    pub write_overhead_ms: f64,
    /// What a command that follows a write takes longer, in milliseconds.
    pub after_write_ms: f64,
    /// Sectors that the drive reads on into its buffer behind a read when nothing else waits.
    pub read_ahead_sectors: u32,
    /// The order in which waiting commands are served.
    pub discipline: Discipline,
    /// Commands among which the discipline chooses: the oldest ones. FCFS needs no more than one.
    pub window: usize,
}

/// First cylinder and sectors per track.
const CHEETAH_15K5_ZONES: [(u32, u32); 14] = [
    (0, 1200),
    (7801, 1160),
    (14201, 1120),
    (20201, 1104),
    (25901, 1080),
    (31301, 1020),
    (36401, 994),
    (41301, 960),
    (46001, 920),
    (50501, 880),
    (54901, 840),
    (59101, 816),
    (63201, 780),
    (67201, 720),
];

/// Cylinders and milliseconds.
const CHEETAH_15K5_SEEKS: [(u32, f64); 19] = [
    (1, 0.553),
    (10, 0.788),
    (58, 1.128),
    (100, 1.137),
    (300, 1.258),
    (410, 1.491),
    (1000, 1.65),
    (1700, 1.93),
    (2900, 2.04),
    (5300, 2.39),
    (7700, 2.72),
    (11000, 2.93),
    (17000, 3.47),
    (23000, 3.95),
    (29000, 4.22),
    (41000, 4.91),
    (53000, 5.78),
    (65000, 6.41),
    (71000, 6.83),
];

impl DiskParameters {
    /// The Seagate Cheetah 15K.5 ST3146855FC, 146.8 GB: the DIXtrac extraction of DiskSim 4.0 (see `COPYING.CMU`).
    /// The overheads are fitted to the means of the four cases of the measured trace that comes with it (a read or a
    /// write after a read or a write), which DiskSim's own miss by up to 0.4 ms. The window is a choice.
    pub fn cheetah_15k5() -> Self {
        DiskParameters {
            name: "cheetah-15k5".into(),
            sector_bytes: 512,
            sectors: 286_749_487,
            cylinders: 72_170,
            surfaces: 4,
            band_cylinders: 65,
            zones: CHEETAH_15K5_ZONES
                .map(|(first_cylinder, sectors_per_track)| Zone { first_cylinder, sectors_per_track })
                .into(),
            rpm: 15_020.0,
            rpm_error: 0.000_351_47,
            track_skew: 0.1417,
            surface_skew: 0.1894,
            band_skew: 0.3706,
            seek: CHEETAH_15K5_SEEKS.map(|(cylinders, ms)| SeekPoint { cylinders, ms }).into(),
            head_switch_ms: 0.001,
            write_settle_ms: 0.0,
            read_overhead_ms: 0.16,
            write_overhead_ms: 0.51,
            after_write_ms: 0.15,
            read_ahead_sectors: 1200,
            discipline: Discipline::Sptf,
            window: 64,
        }
    }

    /// The Cheetah 15K.6 of FaCE's testbed, 146.8 GB: the 15K.5 with 1.158 times the sectors on every track, that many
    /// times fewer cylinders over the same stroke, and 0.45 ms more settling for writes. The density and the settling
    /// are fitted to FaCE's table 1, the capacity is the drive's own.
    pub fn face_disk() -> Self {
        const DENSITY: f64 = 1.158;
        let scaled = |cylinder: u32| (f64::from(cylinder) / DENSITY).round() as u32;
        let mut disk = Self::cheetah_15k5();
        disk.name = "face-disk".into();
        disk.cylinders = scaled(disk.cylinders);
        for zone in &mut disk.zones {
            zone.first_cylinder = scaled(zone.first_cylinder);
            zone.sectors_per_track = (f64::from(zone.sectors_per_track) * DENSITY).round() as u32;
        }
        for point in &mut disk.seek {
            point.cylinders = scaled(point.cylinders);
        }
        disk.write_settle_ms = 0.45;
        disk
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

    /// Checks that a disk can be made of these parameters.
    ///
    /// # Errors
    /// The first number found that is missing or impossible.
    pub fn check(&self) -> Result<(), DeviceError> {
        let fail = |what: String| Err(DeviceError::Profile { device: self.name.clone(), what });
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
        self.check_zones().and_then(|()| self.check_seek()).or_else(fail)
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
