//! The measurements as Markdown.

use crate::bounds::{self, Agreement};
use crate::measure::{HASH_POWERS, Measured, SIZES, SweepCost, Times, memory};
use std::collections::HashMap;
use std::fmt::Write as _;

/// A Markdown table: the first column to the left, the others to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Table { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(2);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for (r, row) in self.rows.iter().enumerate() {
            for (c, cell) in row.iter().enumerate() {
                let width = widths[c];
                let padded = if c == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                write!(out, "| {padded} ").expect("writing to a string");
            }
            out.push_str("|\n");
            if r == 0 {
                for (c, width) in widths.iter().enumerate() {
                    let line = "-".repeat(width - 1);
                    out.push_str(&if c == 0 { format!("|:{line}- ") } else { format!("| {line}-:") });
                }
                out = out.trim_end().to_owned() + "|\n";
            }
        }
        out.push('\n');
        out
    }
}

/// `bound, met` or `bound, MISSED`; a dash without a bound.
pub fn judged(figure: f64, bound: Option<f64>, at_least: bool) -> String {
    let Some(bound) = bound else { return "-".to_owned() };
    let met = if at_least { figure >= bound } else { figure <= bound };
    let sign = if at_least { ">=" } else { "<=" };
    format!("{sign} {bound} {}", if met { "met" } else { "MISSED" })
}

/// Misses in libCacheSim's oracle file by its name for the policy and the size.
pub type Oracle = HashMap<(String, usize), u64>;

/// Reads the lines `algorithm,size,repetition,requests,misses,...`; others are skipped.
pub fn parse_oracle(text: &str) -> Oracle {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [name, pages, _, _, misses, ..] = fields.as_slice() else { return None };
        Some(((name.to_string(), pages.parse().ok()?), misses.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn agreement(ours: u64, theirs: u64, agreement: Agreement) -> String {
    let per_cent = 100.0 * (ours as f64 / theirs as f64 - 1.0);
    match agreement {
        Agreement::Equal if ours == theirs => "equal, as it must be".to_owned(),
        Agreement::Equal => format!("{per_cent:+.3} %: WRONG, must be equal"),
        Agreement::Within(bound) if ours == theirs => format!("equal; bound {bound} %"),
        Agreement::Within(bound) if per_cent.abs() <= bound => format!("{per_cent:+.3} %; bound {bound} %"),
        Agreement::Within(bound) => format!("{per_cent:+.3} %: WRONG; bound {bound} %"),
        Agreement::Differs(why) => format!("{per_cent:+.2} %: {why}"),
    }
}

/// Misses beside libCacheSim's: those of this run, or else those of the oracle file.
pub fn misses(cells: &[Measured], oracle: &Oracle) -> String {
    let mut table = Table::new(&["policy", "pages", "misses", "libCacheSim", "in the oracle file", "deviation"]);
    for cell in cells.iter().filter(|cell| cell.label == cell.policy()) {
        let Some(peer) = bounds::peer(cell.policy()) else { continue };
        let known = oracle.get(&(peer.oracle.to_owned(), cell.pages)).copied();
        let theirs = cell.peer.as_ref().map(|runs| runs.misses);
        let text = |misses: Option<u64>| misses.map_or("-".to_owned(), |misses| misses.to_string());
        let deviation = theirs.or(known).map(|theirs| agreement(cell.misses(), theirs, peer.agreement));
        table.push(vec![
            cell.label.clone(),
            cell.pages.to_string(),
            cell.misses().to_string(),
            text(theirs),
            text(known),
            deviation.unwrap_or("-".to_owned()),
        ]);
    }
    table.render()
}

/// Speed at one size. `load` is the time to load the trace from libCacheSim's file.
pub fn speed(cells: &[Measured], pages: usize, load: &Times) -> String {
    let mut heads = vec!["policy", "misses", "Mreq/s", "bound"];
    let with_peer = cells.iter().any(|cell| cell.peer.is_some());
    if with_peer {
        heads.extend(["libCacheSim", "ratio", "one-off", "bound", "tuned", "ratio", "one-off"]);
    }
    let mut table = Table::new(&heads);
    for cell in cells.iter().filter(|cell| cell.pages == pages) {
        let mut row = vec![cell.label.clone(), cell.misses().to_string(), format!("{:.1}", cell.speed())];
        row.push(judged(cell.speed(), bounds::speed(cell.policy()), true));
        if let Some(peer) = &cell.peer {
            for (i, times) in peer.times.iter().enumerate() {
                let theirs = times.median();
                row.push(format!("{:.1}", cell.row.requests as f64 / theirs / 1e6));
                row.push(format!("{:.1}", theirs / cell.times.median()));
                let one_off = theirs / (cell.times.median() + load.median());
                row.push(format!("{one_off:.1}"));
                if i == 0 {
                    row.push(judged(one_off, Some(bounds::ONE_OFF), true));
                }
            }
        }
        row.resize(heads.len(), String::new());
        table.push(row);
    }
    table.render()
}

/// Speed and write-backs on a trace with writes.
pub fn writes(cells: &[Measured], pages: usize) -> String {
    let mut table = Table::new(&["policy", "misses", "pages written back", "I/Os", "Mreq/s", "bound"]);
    for cell in cells.iter().filter(|cell| cell.pages == pages) {
        table.push(vec![
            cell.label.clone(),
            cell.misses().to_string(),
            cell.row.write_backs.to_string(),
            cell.row.write_back_ios.to_string(),
            format!("{:.1}", cell.speed()),
            judged(cell.speed(), bounds::speed(cell.policy()), true),
        ]);
    }
    table.render()
}

/// Three tiers with writes.
pub fn three_tiers(cell: &Measured) -> String {
    let mut table = Table::new(&["stack", "misses", "pages written back", "Mreq/s", "bound"]);
    table.push(vec![
        format!("`{}`", cell.label),
        cell.misses().to_string(),
        cell.row.write_backs.to_string(),
        format!("{:.1}", cell.speed()),
        judged(cell.speed(), Some(bounds::THREE_TIERS), true),
    ]);
    table.render()
}

/// Bytes of state.
pub fn state(cells: &[Measured], footprint: usize) -> Result<String, String> {
    let heads = ["policy", "pages", "state, MiB", "B a handle", "+ B a page held", "of a resident page", "of a ghost"];
    let mut table = Table::new(&heads);
    for cell in cells.iter().filter(|cell| cell.pages == SIZES[1]) {
        let [handle, frame] = memory(cell, footprint)?;
        let (list, ghosts) = (bounds::is_list(cell.policy()), bounds::has_ghosts(cell.policy()));
        table.push(vec![
            cell.label.clone(),
            cell.row.capacity_pages.to_string(),
            format!("{:.1}", cell.row.memory_bytes as f64 / (1 << 20) as f64),
            format!("{handle:.1}"),
            format!("{frame:.1}"),
            judged(handle + frame, list.then_some(bounds::RESIDENT_BYTES), false),
            judged(handle, ghosts.then_some(bounds::GHOST_BYTES), false),
        ]);
    }
    Ok(table.render())
}

/// The cost of a sweep, in a sentence.
pub fn sweep(cost: &SweepCost) -> String {
    let minutes = cost.cpu.as_secs_f64() / 60.0;
    format!(
        "{} cells in {minutes:.2} CPU-minutes on {} threads ({:.0} s by the clock): {}.\n\n",
        cost.cells,
        cost.threads,
        cost.wall.as_secs_f64(),
        judged(minutes, Some(bounds::SWEEP_MINUTES), false)
    )
}

/// Note in the report on the meaning of libCacheSim's columns.
pub fn peer_note(version: &str) -> String {
    format!(
        "libCacheSim is the PyPI package `libcachesim` {version}, driven by its own C loop over the same requests in \
         oracleGeneral format; its columns are Mreq/s. Its hash table has 2^24 buckets unless told otherwise; *tuned* is \
         with 2^{}, which suits these sizes and the processor's cache. *ratio* is our speed with the trace loaded \
         over its speed; *one-off* the same with our loading of its file, which it maps and reads as it goes.\n\n",
        HASH_POWERS[1].0
    )
}
