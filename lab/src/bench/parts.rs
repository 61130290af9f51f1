//! Common parts of the benchmarks' reports.

use super::daemon::DeviceFigures;
use entresol_render::{Cell, Column, Table};

/// The median of some values, the mean of the middle two for an even number; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

/// Each value once, in order of first occurrence.
pub fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// Figures of the emulated devices in a run.
pub struct Asked {
    /// Name of the run.
    pub of: String,
    pub cache: Option<DeviceFigures>,
    pub backing: Option<DeviceFigures>,
    /// Length of the time, in seconds.
    pub seconds: f64,
}

/// Table of the I/Os of emulated devices while a load was measured; none without such devices.
pub fn device_table(runs: impl Iterator<Item = Asked>) -> Option<Table> {
    device_table_of("Emulated devices, while it was measured", runs)
}

/// Table of the I/Os of emulated devices in a time that the title names; none without such devices.
pub fn device_table_of(title: &str, runs: impl Iterator<Item = Asked>) -> Option<Table> {
    let columns = [
        Column::text("cache"),
        Column::text("device"),
        Column::number("reads/s"),
        Column::number("read MiB"),
        Column::number("writes/s"),
        Column::number("mean write KiB"),
        Column::number("sequential").help("writes that began where the one before ended"),
        Column::number("busy").help("share of the time in which something was asked of it"),
        Column::number("written MiB"),
        Column::number("WAF").help("bytes programmed per byte written, by the device's model"),
        Column::number("late").help("I/Os whose bytes this machine had only after the model's time"),
    ];
    let mut table = Table::new(title, columns);
    let mut any = false;
    for Asked { of, cache, backing, seconds } in runs {
        for (name, device) in [("cache", cache), ("backing", backing)] {
            let Some(device) = device else { continue };
            any = true;
            let mib = |bytes: u64| Cell::fixed(bytes as f64 / (1 << 20) as f64, 1);
            let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
            table.push([
                Cell::from(of.as_str()),
                Cell::from(name),
                Cell::fixed(device.reads as f64 / seconds, 0),
                mib(device.read_bytes),
                Cell::fixed(device.writes as f64 / seconds, 0),
                Cell::fixed(share(device.written_bytes, device.writes) / 1024.0, 1),
                Cell::percent(share(device.sequential_writes, device.writes), 1),
                Cell::percent(device.busy_s / seconds, 1),
                mib(device.written_bytes),
                // A model may move pages without any host write: then there is no factor.
                match (device.media_written_bytes, device.written_bytes) {
                    (0, _) | (_, 0) => Cell::missing(),
                    (media, written) => Cell::fixed(media as f64 / written as f64, 2),
                },
                Cell::percent(share(device.late, device.reads + device.writes), 2),
            ]);
        }
    }
    any.then_some(table)
}
