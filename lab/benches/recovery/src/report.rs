//! Messages between the processes, a line of numbers each, and the Markdown report made from them.

use crate::load::Sizes;
use std::fmt::Write as _;

/// Numbers by name, written as a line and parsed back.
macro_rules! line {
    ($(#[$what:meta])* $name:ident { $($(#[$field_what:meta])* $field:ident,)* }) => {
        $(#[$what])*
        pub struct $name { $($(#[$field_what])* pub $field: f64,)* }

        impl $name {
            pub fn to_line(&self) -> String {
                [$(self.$field),*].map(|number: f64| number.to_string()).join(" ")
            }

            pub fn from_line(line: &str) -> Result<Self, String> {
                let mut numbers = line.split(' ').map(|number| number.parse().map_err(|_| format!("no number: '{number}'")));
                let mut next = || numbers.next().unwrap_or_else(|| Err(format!("too short: '{line}'")));
                Ok($name { $($field: next()?,)* })
            }
        }
    };
}

line! {
    /// A cache after it was filled.
    Filled {
        requests,
        seconds,
        blocks_per_batch,
        pages_per_sync,
        hit_ratio,
        index_bytes,
        directory_bytes,
    }
}

line! {
    /// A cache after it was opened.
    Opened {
        /// Seconds in the store itself.
        store_s,
        /// Seconds from the start until requests are served.
        served_s,
        /// Seconds until the first request has hit.
        hit_s,
        /// Processor time of the process until then, in seconds.
        cpu_s,
        /// Processor time until requests are served, in seconds.
        served_cpu_s,
        /// Bytes that the store requested.
        read_bytes,
        /// Bytes that the kernel read for the process until then.
        device_bytes,
        pages,
        dirty_pages,
        unsynced_batches,
        /// Hit ratio over the second after the first hit.
        hit_ratio,
        /// 1 if I/O went by io_uring.
        rings,
    }
}

/// Median, least and most.
fn spread(opened: &[Opened], of: impl Fn(&Opened) -> f64) -> [f64; 3] {
    let mut all: Vec<f64> = opened.iter().map(of).collect();
    all.sort_unstable_by(f64::total_cmp);
    [all[all.len() / 2], all[0], all[all.len() - 1]]
}

/// The whole report.
pub fn text(sizes: &Sizes, filled: &Filled, opened: &[Opened], dropped: Result<(), String>) -> String {
    let pages = sizes.tiers.last().copied().unwrap_or(0) as f64;
    let mut out = format!(
        "{} segments of {} pages ({}), policy {}, {} pages; filled with {} requests ({:.0} s, {:.1} blocks a batch, {:.0} pages \
         a sync{}).\n",
        sizes.geometry.segments,
        sizes.geometry.segment_pages,
        sizes.geometry.layout.name(),
        sizes.policy.name,
        pages,
        filled.requests,
        filled.seconds,
        filled.blocks_per_batch,
        filled.pages_per_sync,
        match sizes.flush_every {
            0 => String::new(),
            every => format!(", a flush every {every} requests"),
        },
    );
    let executor = if opened.iter().all(|one| one.rings > 0.0) { "io_uring" } else { "threads" };
    let cold = match dropped {
        Ok(()) => "before each the kernel's caches were dropped".to_owned(),
        Err(why) => format!("the kernel's caches could not be dropped ({why})"),
    };
    let times = opened.len();
    writeln!(out, "Killed and opened {times} times, {executor}; {cold}. Median, least and most:\n").expect("a string");
    writeln!(out, "| | median | least | most |\n| --- | --- | --- | --- |").expect("a string");
    let mut row = |what: &str, unit: f64, digits: usize, of: &dyn Fn(&Opened) -> f64| {
        let [median, least, most] = spread(opened, of).map(|number| format!("{:.digits$}", number / unit));
        writeln!(out, "| {what} | {median} | {least} | {most} |").expect("a string");
    };
    row("start to first hit, s", 1.0, 3, &|one| one.hit_s);
    row("start to serving, s", 1.0, 3, &|one| one.served_s);
    row("of it the store, s", 1.0, 3, &|one| one.store_s);
    row("processor time until serving, s", 1.0, 3, &|one| one.served_cpu_s);
    row("processor time until the first hit, s", 1.0, 3, &|one| one.cpu_s);
    row("asked of the cache device, MB", 1e6, 1, &|one| one.read_bytes);
    row("read by the kernel until the first hit, MB", 1e6, 1, &|one| one.device_bytes);
    row("pages found", 1.0, 0, &|one| one.pages);
    row("of them dirty", 1.0, 0, &|one| one.dirty_pages);
    row("batches after the last sync", 1.0, 0, &|one| one.unsynced_batches);
    row("hit ratio of the second after", 1.0, 4, &|one| one.hit_ratio);
    row("the same by that before the crash", filled.hit_ratio, 4, &|one| one.hit_ratio);
    let (index, directory) = (filled.index_bytes / pages, filled.directory_bytes / pages);
    writeln!(
        out,
        "\nMemory per page of the policy's capacity: {index:.1} B of index, {directory:.1} B of names for the policy."
    )
    .expect("a string");
    out
}
