//! `entresol emulate`: compares an emulated device with its model.

use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_core::Random;
use entresol_device::emulated::{Accuracy, EmulatedDevice, WallClock, load};
use entresol_device::load::{Load, closed_loop};
use entresol_device::profile::{self, Profile};
use entresol_device::{Io, IoKind};
use entresol_render::{Column, Progress, Table, TextStyle, Unit};
use entresol_service::values::bytes;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

/// Emulate a device over a file, load it at several depths and compare with its model
///
/// A closed loop of random I/Os runs twice at each depth: over the model, in virtual time, and over the emulated
/// device, in real time. The device's file is a nameless one in DIR: existing files are not touched, and nothing is
/// left behind.
#[derive(Args)]
pub struct EmulateArgs {
    /// The device: a built-in profile (an unknown name lists them) or a TOML file
    #[arg(long, value_name = "PROFILE")]
    pub model: String,
    /// Directory of the file; a directory in memory, such as /dev/shm, keeps the host's own disk out of the measurement
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Size of the device in bytes; the file is sparse and takes only the space written [default: the device's own, if
    /// it has one, else 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub size: Option<u64>,
    /// Numbers of outstanding I/Os
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub depth: Vec<u16>,
    /// Share of the I/Os that are writes, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    pub writes: u8,
    /// Bytes of an I/O, and the alignment of its offset
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = bytes)]
    pub bytes: u64,
    /// I/Os at each depth
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Seed of the offsets and of the device
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

/// Measurements at one queue depth: the load that the model predicts, and the load that the emulated device gave.
struct Row {
    depth: u16,
    asked: Load,
    given: Load,
    accuracy: Accuracy,
}

/// Runs the command.
pub fn run(arguments: &EmulateArgs, quiet: bool) -> Result<()> {
    let profile = profile::load(&arguments.model)?;
    let size = match arguments.size {
        Some(size) => size,
        // A device with a capacity of its own ignores a lesser one.
        None => profile.build(1 << 30, arguments.seed)?.capacity_bytes(),
    };
    if arguments.bytes > size || arguments.bytes > u64::from(u32::MAX) {
        bail!("--bytes {}: an I/O is at most 4 GiB and no larger than the device, {size} B", arguments.bytes);
    }
    let file = nameless(&arguments.dir, size).with_context(|| arguments.dir.display().to_string())?;
    let bar = Progress::start(&profile.name, Some(arguments.depth.len() as u64), Unit::Items("depths"), quiet);
    let mut rows = Vec::new();
    for &depth in &arguments.depth {
        rows.push(compare(&profile, &file, size, depth, arguments).with_context(|| profile.name.clone())?);
        bar.advance(1);
    }
    drop(bar);
    output::print(&text(&profile, &rows))
}

/// A new sparse file that has already lost its name: it disappears with the process.
fn nameless(dir: &Path, size: u64) -> std::io::Result<File> {
    let path = dir.join(format!(".entresol-emulated.{}.tmp", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.set_len(size)?;
    Ok(file)
}

/// Runs the same stream over the model and over the emulated device, both new.
fn compare(profile: &Profile, file: &File, size: u64, depth: u16, arguments: &EmulateArgs) -> Result<Row> {
    let stream = || {
        let mut random = Random::new(arguments.seed);
        move |_| {
            let offset = random.below(size / arguments.bytes) * arguments.bytes;
            let kind = if random.below(100) < u64::from(arguments.writes) { IoKind::Write } else { IoKind::Read };
            Io { kind, ..Io::read(offset, arguments.bytes as u32) }
        }
    };
    let depth_used = usize::from(depth);
    let asked = closed_loop(&mut profile.build(size, arguments.seed)?, depth_used, arguments.count, stream());
    let device = EmulatedDevice::new(file.try_clone()?, profile.build(size, arguments.seed)?, WallClock::new())?;
    let given = load::closed_loop(&device, depth_used, arguments.count, stream())?;
    Ok(Row { depth, asked, given, accuracy: device.accuracy() })
}

fn text(profile: &Profile, rows: &[Row]) -> String {
    let table = Table::of(format!("{}, emulated", profile.name), rows)
        .column(Column::number("depth"), |row| row.depth.to_string())
        .column(Column::number("model IOPS"), |row| format!("{:.1}", row.asked.iops()))
        .column(Column::number("given IOPS"), |row| format!("{:.1}", row.given.iops()))
        .column(Column::number("given / model"), |row| format!("{:.3}", row.given.iops() / row.asked.iops()))
        .column(Column::number("model mean us"), |row| format!("{:.1}", row.asked.latency.mean() / 1e3))
        .column(Column::number("given mean us"), |row| format!("{:.1}", row.given.latency.mean() / 1e3))
        .done();
    let mut text = table.to_text(TextStyle::stdout());
    text.push('\n');
    for row in rows {
        writeln!(text, "depth {}: {}", row.depth, row.accuracy).expect("text grows");
    }
    text
}
