//! Parameters of a NAND drive, in the units of data sheets.

use super::ftl::{Ftl, Pace};
use super::gc::Cleaning;
use super::geometry::{Geometry, UNIT_BYTES};
use crate::check::{self, Parameters};
use crate::house;
use crate::io::{DeviceError, Nanos};
use serde::{Deserialize, Serialize};

/// The longest time that a profile may state, in microseconds: a quarter of an hour.
const LONGEST_US: f64 = 1e9;

/// Largest error of the over-provisioning of a drive that was made smaller, where its blocks allow that.
const OVER_PROVISIONING_ERROR: f64 = 0.1;

/// Fewest programs that fill a block of a drive that was made smaller.
const BLOCK_PROGRAMS_MIN: u32 = 4;

/// The largest buffer that a profile may state.
const MOST_BUFFERED: u64 = 1 << 36;

/// Origin of write amplification. A report has to name it ([`Amplification::label`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amplification {
    /// From the translation layer's own cleaning.
    Mech,
    /// From [`NandParameters::curve`]: cleaning is charged for and not carried out.
    Curve,
}

impl Amplification {
    /// The name of the mode.
    pub const fn label(self) -> &'static str {
        match self {
            Amplification::Mech => "mech",
            Amplification::Curve => "curve",
        }
    }
}

/// Measured write amplification: a line in the logarithm of the size of a write through two points, level outside
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WafCurve {
    /// The smaller write, bytes.
    pub small_bytes: u32,
    /// Its amplification.
    pub small: f64,
    /// The larger write, bytes.
    pub large_bytes: u32,
    /// Its amplification.
    pub large: f64,
}

impl WafCurve {
    /// The amplification of a write of this size, or of a run of smaller ones that is as long.
    pub fn of_size(&self, bytes: u64) -> f64 {
        let span = (f64::from(self.large_bytes) / f64::from(self.small_bytes)).ln();
        let along = (bytes as f64 / f64::from(self.small_bytes)).ln() / span;
        self.small + (self.large - self.small) * along.clamp(0.0, 1.0)
    }

    fn check(&self) -> Result<(), String> {
        check::number("curve.small", self.small, 1.0, 1e3)?;
        check::number("curve.large", self.large, 1.0, 1e3)?;
        check::within("curve.small_bytes", self.small_bytes.into(), 1, u32::MAX.into())?;
        check::within("curve.large_bytes", self.large_bytes.into(), u64::from(self.small_bytes) + 1, u32::MAX.into())
    }
}

/// A NAND drive. Times are in microseconds and rates in 10^6 bytes a second, as data sheets give them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NandParameters {
    /// Name, for messages; a profile has its own.
    #[serde(default, skip_serializing)]
    pub name: String,
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Buses between controller and chips.
    pub channels: u32,
    /// Chips on a bus.
    pub chips_per_channel: u32,
    /// Dies in a chip; each does one thing at a time.
    pub dies_per_chip: u32,
    /// Planes in a die, programmed together.
    pub planes_per_die: u32,
    /// Bytes of a physical page, a multiple of 4096.
    pub page_bytes: u32,
    /// Units of 4 KiB in an erase block, a power of two.
    pub units_per_block: u32,
    /// Units of consecutive writes that go to one die before the next takes its turn; a divisor of
    /// [`NandParameters::units_per_program`].
    pub stripe_units: u32,
    /// Physical pages per logical page, above 1.
    pub over_provisioning: f64,
    /// Time to sense a page: points (share of senses, time) of its distribution, in ascending order, the last share 1;
    /// between points it is linear, below the first level. One point makes it constant.
    pub sense_us: Vec<(f64, f64)>,
    /// Time that a read of flash takes after its die is free: error correction, firmware.
    pub decode_us: f64,
    /// Time to program a page on every plane of a die at once.
    pub program_us: f64,
    /// Time to erase a block.
    pub erase_us: f64,
    /// Time that a die needs to read a unit it moves while cleaning, transfer and correction included. Programming it
    /// comes on top.
    pub gc_read_us: f64,
    /// Rate of a channel.
    pub channel_mb_s: f64,
    /// Rate of the path between buffer and host, which reads and writes share.
    pub link_mb_s: f64,
    /// Time of the controller per I/O, one at a time; its reciprocal is the most I/Os a second.
    pub command_us: f64,
    /// Time of a read's remaining way through controller and firmware; I/Os overlap in it.
    pub fixed_read_us: f64,
    /// Time of a write's remaining way through controller and firmware; I/Os overlap in it.
    pub fixed_write_us: f64,
    /// Time that each read of flash under way adds to a write: firmware that serves the reads in turn.
    pub write_per_read_us: f64,
    /// Cache of pages read, written and read ahead.
    pub buffer_bytes: u64,
    /// Pages written and not yet programmed that the buffer can hold.
    pub write_buffer_bytes: u64,
    /// Bytes read ahead of a sequential stream; 0 for none.
    pub read_ahead_bytes: u64,
    /// Consecutive sequential requests, each alone in the drive, before read-ahead begins.
    pub read_ahead_after: u32,
    /// Time to merge a write that does not fill a unit with the unit's old contents.
    pub merge_us: f64,
    /// Time to fetch a unit's old contents where the buffer does not have them.
    pub merge_read_us: f64,
    /// Reads of a page after which it is written anew because its neighbours are disturbed; 0 for never.
    pub disturb_reads: u32,
    /// Time that the last of these reads waits for the page to be written anew.
    pub refresh_us: f64,
    /// Time after which a read interrupts an erasure; `None` where the drive cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase_suspend_us: Option<f64>,
    /// Policy by which the block to clean is chosen.
    pub cleaning: Cleaning,
    /// A die cleans when fewer of its blocks are free than this; at least 2.
    pub gc_start_blocks: u32,
    /// Cleaning stops when this many blocks are free.
    pub gc_stop_blocks: u32,
    /// Pages moved for each page that the host writes while a die cleans; `None` for as many as its victim needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc_moves_per_write: Option<f64>,
    /// Origin of write amplification.
    pub amplification: Amplification,
    /// Measured write amplification; mode `curve` needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<WafCurve>,
    /// Random overwrites of the drive of a profile before it is handed over, in multiples of its capacity; 1 to 3 for a
    /// steady state. Every page is written in order before them. `None` for a drive that was never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition_overwrites: Option<f64>,
    /// True if the contents of the buffer survive a power cut, so that a flush has nothing to wait for.
    pub power_loss_protection: bool,
    /// Erasures that a block endures; 0 where no source gives a figure.
    pub endurance_cycles: u32,
}

/// Nanoseconds of so many microseconds.
pub(super) fn nanos(us: f64) -> Nanos {
    (us * 1000.0).round() as Nanos
}

/// Nanoseconds to move bytes at 10^6 bytes a second.
pub(super) fn transfer(bytes: u64, mb_s: f64) -> Nanos {
    (bytes as f64 * 1000.0 / mb_s).round() as Nanos
}

impl NandParameters {
    /// Dies of the drive.
    pub const fn dies(&self) -> u32 {
        self.channels * self.chips_per_channel * self.dies_per_chip
    }

    /// Units of 4 KiB that one program operation writes.
    pub const fn units_per_program(&self) -> u32 {
        self.planes_per_die * self.page_bytes / UNIT_BYTES as u32
    }

    /// The shape that the translation layer works on.
    pub fn geometry(&self) -> Geometry {
        let logical = self.capacity_bytes.div_ceil(UNIT_BYTES) as u32;
        Geometry::new(logical, self.over_provisioning, self.dies(), self.units_per_block, self.gc_start_blocks)
    }

    /// Thresholds and pace of its dies' cleaning.
    pub const fn pace(&self) -> Pace {
        Pace {
            start_blocks: self.gc_start_blocks,
            stop_blocks: self.gc_stop_blocks,
            moves_per_write: self.gc_moves_per_write,
        }
    }

    /// The same drive with another capacity: as many dies, fewer blocks in each. Its steady state is the whole
    /// drive's, because over-provisioning is kept and blocks held in reserve come on top. The steady state is reached
    /// after proportionally fewer writes. Over-provisioning is kept to the nearest block of a die. Where that changes it by more than
    /// a tenth, as below 2 GiB of the 840 Pro, blocks are halved, and so is the time of an erasure.
    #[must_use]
    pub fn scaled_to(mut self, capacity_bytes: u64) -> Self {
        self.capacity_bytes = capacity_bytes;
        let die_units = capacity_bytes as f64 / UNIT_BYTES as f64 / f64::from(self.dies());
        let is_near = |block: u32| {
            let blocks = (die_units * self.over_provisioning / f64::from(block)).round();
            let error = blocks * f64::from(block) / die_units - self.over_provisioning;
            error.abs() <= OVER_PROVISIONING_ERROR * (self.over_provisioning - 1.0)
        };
        let (whole, least) = (self.units_per_block, BLOCK_PROGRAMS_MIN * self.units_per_program());
        let mut block = whole;
        while !is_near(block) && block / 2 >= least {
            block /= 2;
        }
        self.units_per_block = block;
        self.erase_us *= f64::from(block) / f64::from(whole);
        self
    }

    /// Bytes of memory that a model of this drive needs for its pages: 4 for each logical one, 4 for each physical one,
    /// some for its blocks, 2 more where reads disturb. About 9 bytes for each 4 KiB, 0.3 GB for 128 GB; next to none
    /// in mode `curve`, which has no map.
    pub fn map_bytes(&self) -> u64 {
        let geometry = self.geometry();
        let disturbed = if self.disturb_reads > 0 { 2 * u64::from(geometry.logical_pages) } else { 0 };
        let map = match self.amplification {
            Amplification::Mech => Ftl::memory_bytes(&geometry),
            Amplification::Curve => 0,
        };
        map + disturbed
    }

    /// The same drive with an amplification for 4 and for 256 KiB in place of its own cleaning.
    #[must_use]
    pub fn with_curve(mut self, at_4_kib: f64, at_256_kib: f64) -> Self {
        self.amplification = Amplification::Curve;
        self.curve =
            Some(WafCurve { small_bytes: 4 << 10, small: at_4_kib, large_bytes: 256 << 10, large: at_256_kib });
        self
    }

    /// Samsung 840 Pro, 256 GB, SATA, of the profile `840-pro`, where the source of each number is; so with the others.
    pub fn s840_pro() -> Self {
        Self::of_profile("840-pro")
    }

    /// Intel DC S3500, 480 GB, SATA.
    pub fn s3500() -> Self {
        Self::of_profile("s3500")
    }

    /// Samsung 850 Evo, 250 GB, SATA.
    pub fn evo_850() -> Self {
        Self::of_profile("850-evo")
    }

    /// Intel DC P3700, 400 GB, NVMe: the one in FaCE's testbed.
    pub fn p3700() -> Self {
        Self::of_profile("p3700")
    }

    /// Intel DC P3700, 2 TB, NVMe: the one that paper 002 measured, without the host in front of it.
    pub fn p3700_2tb() -> Self {
        Self::of_profile("p3700-2tb")
    }

    fn of_profile(name: &str) -> Self {
        match house::parameters(name, "device") {
            Ok(parameters) => NandParameters { name: name.into(), ..parameters },
            Err(what) => unreachable!("the drive {name} comes with the program: {what}"),
        }
    }

    /// The same as [`Parameters::check`], with the drive's name.
    pub(super) fn check_named(&self) -> Result<(), DeviceError> {
        self.check().map_err(|what| DeviceError::Profile { device: self.name.clone(), what })
    }

    fn check_times(&self) -> Result<(), String> {
        let times = [
            ("decode_us", self.decode_us),
            ("program_us", self.program_us),
            ("erase_us", self.erase_us),
            ("gc_read_us", self.gc_read_us),
            ("command_us", self.command_us),
            ("fixed_read_us", self.fixed_read_us),
            ("fixed_write_us", self.fixed_write_us),
            ("write_per_read_us", self.write_per_read_us),
            ("merge_us", self.merge_us),
            ("merge_read_us", self.merge_read_us),
            ("refresh_us", self.refresh_us),
            ("erase_suspend_us", self.erase_suspend_us.unwrap_or(0.0)),
        ];
        times.into_iter().try_for_each(|(key, us)| check::number(key, us, 0.0, LONGEST_US))?;
        let ascending = self.sense_us.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        let inside =
            self.sense_us.iter().all(|(share, us)| (0.0..=1.0).contains(share) && (0.0..LONGEST_US).contains(us));
        if !ascending || !inside || self.sense_us.last().is_none_or(|last| last.0 != 1.0) {
            let points = &self.sense_us;
            return Err(format!(
                "key `sense_us` is {points:?}, expected [share, time] in ascending order, the last of share 1"
            ));
        }
        check::number("channel_mb_s", self.channel_mb_s, 1e-3, 1e9)?;
        check::number("link_mb_s", self.link_mb_s, 1e-3, 1e9)
    }

    fn check_layout(&self) -> Result<(), String> {
        if self.page_bytes == 0 || !u64::from(self.page_bytes).is_multiple_of(UNIT_BYTES) {
            return Err(format!("key `page_bytes` is {}, expected a multiple of {UNIT_BYTES}", self.page_bytes));
        }
        let per_program = u64::from(self.planes_per_die) * u64::from(self.page_bytes) / UNIT_BYTES;
        if !self.units_per_block.is_power_of_two()
            || self.units_per_block > 1 << 15
            || !u64::from(self.units_per_block).is_multiple_of(per_program)
        {
            return Err(format!(
                "key `units_per_block` is {}, expected a power of two up to 32768 that whole programs of {per_program} \
                 units fill",
                self.units_per_block
            ));
        }
        let stripe = u64::from(self.stripe_units);
        if stripe == 0 || !per_program.is_multiple_of(stripe) {
            return Err(format!(
                "key `stripe_units` is {stripe}, expected a divisor of the {per_program} units of a program"
            ));
        }
        let least = per_program * (per_program / stripe) * UNIT_BYTES;
        check::within("write_buffer_bytes", self.write_buffer_bytes, least, MOST_BUFFERED)?;
        check::within("buffer_bytes", self.buffer_bytes, 0, MOST_BUFFERED)?;
        check::within("read_ahead_bytes", self.read_ahead_bytes, 0, MOST_BUFFERED)
    }

    fn check_cleaning(&self) -> Result<(), String> {
        check::number("over_provisioning", self.over_provisioning, 1.001, 100.0)?;
        check::within("gc_start_blocks", self.gc_start_blocks.into(), 2, 1 << 16)?;
        check::within("gc_stop_blocks", self.gc_stop_blocks.into(), self.gc_start_blocks.into(), 1 << 17)?;
        check::number("gc_moves_per_write", self.gc_moves_per_write.unwrap_or(0.0), 0.0, 1e9)?;
        if matches!(self.cleaning, Cleaning::Choices(0)) {
            return Err("key `cleaning` is the best of 0 choices, expected 1 or more".into());
        }
        check::number("precondition_overwrites", self.precondition_overwrites.unwrap_or(0.0), 0.0, 100.0)?;
        match (self.amplification, &self.curve) {
            (Amplification::Curve, None) => {
                Err("key `curve` is missing, expected what amplification \"curve\" was measured".into())
            }
            (_, Some(curve)) => curve.check(),
            (Amplification::Mech, None) => Ok(()),
        }
    }
}

impl Parameters for NandParameters {
    fn check(&self) -> Result<(), String> {
        let counts = [
            ("channels", self.channels),
            ("chips_per_channel", self.chips_per_channel),
            ("dies_per_chip", self.dies_per_chip),
            ("planes_per_die", self.planes_per_die),
        ];
        counts.into_iter().try_for_each(|(key, count)| check::within(key, count.into(), 1, 1 << 10))?;
        let planes: u64 = counts.iter().map(|(_, count)| u64::from(*count)).product();
        check::within("planes of all dies", planes, 1, 1 << 20)?;
        self.check_times()?;
        self.check_layout()?;
        self.check_cleaning()?;
        let most = u64::from(u32::MAX / 2) * UNIT_BYTES;
        check::within("capacity_bytes", self.capacity_bytes, 1, (most as f64 / self.over_provisioning) as u64)
    }
}
