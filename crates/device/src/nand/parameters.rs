//! What a NAND drive is made of, in the units of data sheets.

use super::ftl::Pace;
use super::gc::Cleaning;
use super::geometry::{Geometry, UNIT_BYTES};
use crate::io::{DeviceError, Nanos};
use serde::Deserialize;

/// How write amplification comes about. A report has to say which one it used ([`Amplification::label`]).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Amplification {
    /// From the translation layer's own cleaning.
    Mech,
    /// A line in the logarithm of the size of a write through two measured points, level outside them; cleaning is
    /// charged for and not carried out.
    Curve {
        /// The smaller write, bytes.
        small_bytes: u32,
        /// Its amplification.
        small: f64,
        /// The larger write, bytes.
        large_bytes: u32,
        /// Its amplification.
        large: f64,
    },
}

impl Amplification {
    /// The name of the mode.
    pub const fn label(&self) -> &'static str {
        match self {
            Amplification::Mech => "mech",
            Amplification::Curve { .. } => "curve",
        }
    }

    /// What the curve gives for a write of this size; `None` in mode `mech`.
    pub fn of_size(&self, bytes: u32) -> Option<f64> {
        let Amplification::Curve { small_bytes, small, large_bytes, large } = *self else { return None };
        let span = (f64::from(large_bytes) / f64::from(small_bytes)).ln();
        let along = (f64::from(bytes) / f64::from(small_bytes)).ln() / span;
        Some(small + (large - small) * along.clamp(0.0, 1.0))
    }
}

/// A NAND drive. Times are in microseconds and rates in 10^6 bytes a second, as data sheets give them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NandParameters {
    /// What it is called.
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
    /// What a read of flash takes besides without holding its die: error correction, firmware.
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
    /// The host's software, per I/O; I/Os overlap in it.
    pub host_us: f64,
    /// The controller, per I/O, one at a time: the reciprocal is the most I/Os a second.
    pub command_us: f64,
    /// The rest of a read's way through controller and firmware; I/Os overlap in it.
    pub fixed_read_us: f64,
    /// The rest of a write's.
    pub fixed_write_us: f64,
    /// What each read of flash under way adds to a write: firmware that tends them in turn.
    pub write_per_read_us: f64,
    /// Cache of pages read, written and read ahead.
    pub buffer_bytes: u64,
    /// Pages written and not yet programmed that the buffer can hold.
    pub write_buffer_bytes: u64,
    /// Bytes read ahead of a sequential stream; 0 for none.
    pub read_ahead_bytes: u64,
    /// Sequential requests in a row, each alone in the drive, before it reads ahead.
    pub read_ahead_after: u32,
    /// Merging a write that does not fill a unit with what the unit held.
    pub merge_us: f64,
    /// Fetching what the unit held where the buffer does not have it.
    pub merge_read_us: f64,
    /// Reads of a page after which it is written anew because its neighbours are disturbed; 0 for never.
    pub disturb_reads: u32,
    /// What the last of them waits for that.
    pub refresh_us: f64,
    /// A read interrupts an erasure after this time; `None` where the drive cannot.
    pub erase_suspend_us: Option<f64>,
    /// How a block to clean is chosen.
    pub cleaning: Cleaning,
    /// A die cleans when fewer of its blocks are free, at least 2.
    pub gc_start_blocks: u32,
    /// It stops when this many are.
    pub gc_stop_blocks: u32,
    /// Pages moved for each that the host writes while a die cleans; `None` for as many as its victim needs.
    pub gc_moves_per_write: Option<f64>,
    /// How write amplification comes about.
    pub amplification: Amplification,
    /// Whether what is in the buffer survives a power cut, so that a flush has nothing to wait for.
    pub power_loss_protection: bool,
    /// Erasures that a block endures; 0 where no source gives a figure.
    pub endurance_cycles: u32,
    /// Seed of the drive's random choices.
    pub seed: u64,
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

    /// How its dies clean.
    pub const fn pace(&self) -> Pace {
        Pace {
            start_blocks: self.gc_start_blocks,
            stop_blocks: self.gc_stop_blocks,
            moves_per_write: self.gc_moves_per_write,
        }
    }

    /// The same drive with another capacity: as many dies, fewer blocks in each. Its steady state is the whole drive's,
    /// because over-provisioning is kept and blocks held in reserve come on top; it is reached after proportionally
    /// fewer writes. A whole drive's map takes about 9 bytes for each 4 KiB, 0.6 GB for the 840 Pro; tests use 2 to
    /// 8 GiB, at least some twenty blocks a die.
    #[must_use]
    pub fn scaled_to(mut self, capacity_bytes: u64) -> Self {
        self.capacity_bytes = capacity_bytes;
        self
    }

    /// The same drive with the amplification that was measured for two sizes of write (table 2 of FaCE: 5.15 and 1.03
    /// for the 840 Pro, 3.04 and 1.08 for the S3500, at 4 and 256 KiB) in place of its own cleaning.
    #[must_use]
    pub fn with_curve(mut self, at_4_kib: f64, at_256_kib: f64) -> Self {
        self.amplification =
            Amplification::Curve { small_bytes: 4 << 10, small: at_4_kib, large_bytes: 256 << 10, large: at_256_kib };
        self
    }

    /// Samsung 840 Pro, 256 GB, SATA, calibrated to tables 1 and 2 of FaCE (paper 001).
    ///
    /// Dies, pages a block, over-provisioning, program time and controller time are fitted to them; a program of 16 KiB
    /// takes four times that of 4. Sense and erase times are typical of MLC of its day (paper 000, section 2.2).
    pub fn s840_pro() -> Self {
        NandParameters {
            name: "840-pro".into(),
            capacity_bytes: 256_060_514_304,
            channels: 8,
            chips_per_channel: 4,
            dies_per_chip: 1,
            planes_per_die: 2,
            page_bytes: 8192,
            units_per_block: 256,
            stripe_units: 4,
            over_provisioning: 1.108,
            sense_us: vec![(1.0, 60.0)],
            decode_us: 0.0,
            program_us: 4.0 * 317.0,
            erase_us: 1500.0,
            gc_read_us: 120.0,
            channel_mb_s: 400.0,
            link_mb_s: 537.0,
            host_us: 0.0,
            command_us: 15.2,
            fixed_read_us: 20.0,
            fixed_write_us: 10.0,
            write_per_read_us: 0.0,
            buffer_bytes: 8 << 20,
            write_buffer_bytes: 4 << 20,
            read_ahead_bytes: 128 << 10,
            read_ahead_after: 2,
            merge_us: 32.0,
            merge_read_us: 52.0,
            disturb_reads: 0,
            refresh_us: 0.0,
            erase_suspend_us: None,
            cleaning: Cleaning::Greedy,
            gc_start_blocks: 2,
            gc_stop_blocks: 2,
            gc_moves_per_write: None,
            amplification: Amplification::Mech,
            power_loss_protection: false,
            endurance_cycles: 3000,
            seed: 1,
        }
    }

    /// Intel DC S3500, 480 GB, SATA, calibrated as [`NandParameters::s840_pro`].
    pub fn s3500() -> Self {
        NandParameters {
            name: "s3500".into(),
            capacity_bytes: 480_103_981_056,
            over_provisioning: 1.21,
            program_us: 4.0 * 297.0,
            gc_read_us: 205.0,
            link_mb_s: 473.0,
            command_us: 16.6,
            power_loss_protection: true,
            ..Self::s840_pro()
        }
    }

    /// Samsung 850 Evo, 250 GB, SATA. Only its row in table 1 of FaCE is known: over-provisioning is assumed (256 GiB of
    /// flash would be 1.10, of which the SLC cache takes some), program time follows from sequential writes and the
    /// time of a move from random ones.
    pub fn evo_850() -> Self {
        NandParameters {
            name: "850-evo".into(),
            capacity_bytes: 250_059_350_016,
            over_provisioning: 1.08,
            program_us: 4.0 * 422.0,
            gc_read_us: 345.0,
            link_mb_s: 521.0,
            command_us: 10.14,
            endurance_cycles: 1000,
            ..Self::s840_pro()
        }
    }

    /// Intel DC P3700, 400 GB, NVMe, calibrated as [`NandParameters::s840_pro`].
    pub fn p3700() -> Self {
        NandParameters {
            name: "p3700".into(),
            capacity_bytes: 400_088_457_216,
            channels: 18,
            over_provisioning: 1.5,
            program_us: 4.0 * 425.0,
            gc_read_us: 60.0,
            link_mb_s: 2690.0,
            command_us: 2.18,
            fixed_read_us: 6.0,
            fixed_write_us: 7.0,
            write_buffer_bytes: 8 << 20,
            power_loss_protection: true,
            endurance_cycles: 10_000,
            ..Self::s840_pro()
        }
    }

    /// Intel DC P3700, 2 TB, NVMe, the drive that paper 002 measured. Fitted to it, not taken apart:
    ///
    /// Sense times are the baseline row of its table 1 less what a read costs otherwise. 2.8 ms to program 32 KiB on 180
    /// dies give reads their tail beside 4-KiB overwrites (2.5 to 3.2 ms from the 99th percentile on), their mean beside
    /// 1.5 GB/s of writes (971 us) and 2.0 GB/s of writes at most. Merging fits figure 6: 54, 66, 80 us at 1, 2, 3 KiB. Stripes
    /// of 8 KiB are the paper's clustered page (section 4.2).
    /// A refresh after 50 reads and its cost fit the last row of table 1; `write_per_read_us` fits figure 5 (c, d), for
    /// which the paper gives no mechanism.
    pub fn p3700_2tb() -> Self {
        NandParameters {
            name: "p3700-2tb".into(),
            capacity_bytes: 2_000_398_934_016,
            channels: 18,
            chips_per_channel: 5,
            dies_per_chip: 2,
            planes_per_die: 2,
            page_bytes: 16_384,
            stripe_units: 2,
            over_provisioning: 1.28,
            sense_us: P3700_SENSE.to_vec(),
            decode_us: 12.0,
            program_us: 2800.0,
            erase_us: 2000.0,
            channel_mb_s: 800.0,
            link_mb_s: 2500.0,
            merge_us: 31.0,
            merge_read_us: 27.0,
            host_us: 2.0,
            fixed_read_us: 4.1,
            fixed_write_us: 5.5,
            write_per_read_us: 1.1,
            buffer_bytes: 10 << 20,
            read_ahead_bytes: 256 << 10,
            disturb_reads: 50,
            refresh_us: 190.0,
            ..Self::p3700()
        }
    }

    /// # Errors
    /// When a number is impossible; the message names it.
    pub fn check(&self) -> Result<(), DeviceError> {
        let fail = |what: String| Err(DeviceError::Profile { device: self.name.clone(), what });
        let counts = [
            ("channels", self.channels),
            ("chips-per-channel", self.chips_per_channel),
            ("dies-per-chip", self.dies_per_chip),
            ("planes-per-die", self.planes_per_die),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return fail(format!("{name} is 0"));
        }
        if counts.iter().map(|(_, count)| u64::from(*count)).product::<u64>() > 1 << 20 {
            return fail("more than 2^20 planes".into());
        }
        let times = [
            ("decode-us", self.decode_us),
            ("program-us", self.program_us),
            ("erase-us", self.erase_us),
            ("gc-read-us", self.gc_read_us),
            ("host-us", self.host_us),
            ("command-us", self.command_us),
            ("fixed-read-us", self.fixed_read_us),
            ("fixed-write-us", self.fixed_write_us),
            ("write-per-read-us", self.write_per_read_us),
            ("merge-us", self.merge_us),
            ("merge-read-us", self.merge_read_us),
            ("refresh-us", self.refresh_us),
            ("erase-suspend-us", self.erase_suspend_us.unwrap_or(0.0)),
            ("gc-moves-per-write", self.gc_moves_per_write.unwrap_or(0.0)),
        ];
        if let Some((name, value)) = times.iter().find(|(_, value)| !(0.0..1e9).contains(value)) {
            return fail(format!("{name} is {value}"));
        }
        for (name, rate) in [("channel-mb-s", self.channel_mb_s), ("link-mb-s", self.link_mb_s)] {
            if !(1e-3..1e9).contains(&rate) {
                return fail(format!("{name} is {rate}"));
            }
        }
        self.check_sense().or_else(fail)?;
        self.check_layout().or_else(fail)?;
        self.check_amplification().or_else(fail)
    }

    fn check_sense(&self) -> Result<(), String> {
        let ascending = self.sense_us.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        let inside = self.sense_us.iter().all(|(share, us)| (0.0..=1.0).contains(share) && (0.0..1e9).contains(us));
        if !ascending || !inside || self.sense_us.last().is_none_or(|last| last.0 != 1.0) {
            return Err("sense-us needs points (share, time) in ascending order that end at share 1".into());
        }
        Ok(())
    }

    fn check_layout(&self) -> Result<(), String> {
        if self.page_bytes == 0 || !u64::from(self.page_bytes).is_multiple_of(UNIT_BYTES) {
            return Err(format!("page-bytes is {}, not a multiple of {UNIT_BYTES}", self.page_bytes));
        }
        let per_program = u64::from(self.planes_per_die) * u64::from(self.page_bytes) / UNIT_BYTES;
        if !self.units_per_block.is_power_of_two()
            || self.units_per_block > 1 << 15
            || !u64::from(self.units_per_block).is_multiple_of(per_program)
        {
            return Err(format!(
                "units-per-block is {}, not a power of two up to 32768 that whole programs of {per_program} units fill",
                self.units_per_block
            ));
        }
        if !(1.001..=100.0).contains(&self.over_provisioning) {
            return Err(format!("over-provisioning is {}, not within 1.001 to 100", self.over_provisioning));
        }
        if self.gc_start_blocks < 2 || self.gc_start_blocks > 1 << 16 || self.gc_stop_blocks < self.gc_start_blocks {
            return Err(format!(
                "cleaning starts at {} and stops at {} blocks",
                self.gc_start_blocks, self.gc_stop_blocks
            ));
        }
        let stripe = u64::from(self.stripe_units);
        if stripe == 0 || !per_program.is_multiple_of(stripe) {
            return Err(format!("stripe-units is {stripe}, no divisor of the {per_program} units of a program"));
        }
        let least = per_program * (per_program / stripe) * UNIT_BYTES;
        if self.write_buffer_bytes < least {
            return Err(format!("write-buffer-bytes is {}, less than {least}", self.write_buffer_bytes));
        }
        if matches!(self.cleaning, Cleaning::Choices(0)) {
            return Err("cleaning by the best of 0 choices".into());
        }
        let most = u64::from(u32::MAX / 2) * UNIT_BYTES;
        if self.capacity_bytes == 0 || (self.capacity_bytes as f64 * self.over_provisioning) as u64 > most {
            return Err(format!(
                "capacity-bytes is {}, not within 1 to {most} with over-provisioning",
                self.capacity_bytes
            ));
        }
        Ok(())
    }

    fn check_amplification(&self) -> Result<(), String> {
        if let Amplification::Curve { small_bytes, small, large_bytes, large } = self.amplification
            && (small_bytes == 0
                || small_bytes >= large_bytes
                || !(1.0..1e3).contains(&small)
                || !(1.0..1e3).contains(&large))
        {
            return Err(
                "a curve of amplification needs two sizes in ascending order and two factors of at least 1".into()
            );
        }
        Ok(())
    }
}

/// Sense times of the P3700: the baseline row of table 1 of paper 002 less 27 us (2.0 host, 2.2 command, 4.1 fixed, 5.1
/// on the channel, 1.6 on the link, 12 decoding); figure 3 begins at 52 us and ends at 314.
const P3700_SENSE: [(f64, f64); 8] = [
    (0.0, 25.0),
    (0.5, 63.0),
    (0.99, 114.0),
    (0.995, 132.0),
    (0.999, 155.0),
    (0.9995, 159.0),
    (0.9999, 270.0),
    (1.0, 287.0),
];
