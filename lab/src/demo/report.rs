//! Report of the demo, on the terminal and as a page.

use super::crash::Crash;
use super::{CACHE_BYTES, DRAM_PAGES, DemoArgs, KILLED, PAGE_BYTES, Ran, WINDOW};
use entresol_cli::shared as output;
use entresol_render::{
    Axis, BarChart, BarLayout, Cell, Column, LineChart, NumberFormat, Page, Section, Series, Table, TextStyle, Tone,
    percent,
};

pub struct Report<'a> {
    pub arguments: &'a DemoArgs,
    /// The emulated device, in a line.
    pub about: &'a str,
    /// Pages of the loaded database.
    pub pages: u64,
    pub runs: &'a [Ran],
    pub crash: &'a Crash,
}

impl Report<'_> {
    fn per_second(&self, run: &Ran) -> f64 {
        self.arguments.transactions as f64 / run.took.as_secs_f64()
    }

    fn table(&self) -> Table {
        let columns = [
            Column::text("cache"),
            Column::number("transactions/s"),
            Column::number("against none"),
            Column::number("page requests").help("what SQLite asked of the database file, in pages"),
            Column::number("hit ratio").help("measured: pages found in the cache or in memory above it"),
            Column::number("hit ratio, simulated")
                .help("the recorded requests, shown to the same policy in the simulator"),
            Column::number("written back").help("pages that the policy wrote to the disk"),
            Column::number("written back, simulated"),
        ];
        let mut table = Table::new("The same transactions, one after the other", columns);
        let none = self.per_second(&self.runs[0]);
        for run in self.runs {
            let rate = self.per_second(run);
            let mut row: Vec<Cell> =
                vec![run.name.into(), Cell::fixed(rate, 1), Cell::short(rate / none, NumberFormat::Factor)];
            match (run.series.last(), run.simulated) {
                (Some(measured), Some(simulated)) => row.extend([
                    measured.requests.into(),
                    Cell::percent(measured.ratio(), 3),
                    agreeing(Cell::percent(simulated.ratio(), 3), simulated.found == measured.found),
                    measured.written_back.into(),
                    agreeing(simulated.written_back.into(), simulated.written_back == measured.written_back),
                ]),
                _ => row.extend((0..5).map(|_| Cell::missing())),
            }
            table.push(row);
        }
        table
    }

    fn crash_facts(&self) -> Vec<(String, String)> {
        let crash = self.crash;
        let faults = if crash.faults.is_empty() { "none".to_owned() } else { crash.faults.join("; ") };
        let facts = [
            ("killed after", format!("{} acknowledged transactions", crash.acknowledged)),
            ("in the database", format!("{} transactions", crash.found)),
            ("opened again in", format!("{:.1} ms", crash.reopened.as_secs_f64() * 1e3)),
            ("dirty pages that the cache brought back", crash.dirty_pages.to_string()),
            ("hit ratio of the next transactions", percent(crash.warm.ratio(), 1)),
            ("hit ratio of as many on an empty cache", percent(crash.cold.ratio(), 1)),
            ("faults found by integrity_check and TPC-C's conditions", faults),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn in_short(&self) -> String {
        let best = self.runs[1..].iter().max_by(|a, b| self.per_second(a).total_cmp(&self.per_second(b)));
        let best = best.expect("some policies were run");
        let (rate, none) = (self.per_second(best), self.per_second(&self.runs[0]));
        let agree =
            self.runs.iter().all(|run| run.simulated.is_none_or(|simulated| Some(&simulated) == run.series.last()));
        let sound = self.crash.faults.is_empty();
        format!(
            "On a database of {} pages, {} brings the load from {none:.1} to {rate:.1} transactions per second. \
             The simulator {} for every policy what was measured. After a kill {}.",
            self.pages,
            best.name,
            if agree { "counts to the page" } else { "does NOT count" },
            if sound { "every acknowledged transaction is there, and the cache is warm" } else { "there ARE faults" },
        )
    }
}

fn agreeing(cell: Cell, agrees: bool) -> Cell {
    cell.tone(if agrees { Tone::Good } else { Tone::Bad })
}

pub fn text(report: &Report) -> String {
    let mut text = report.table().to_text(TextStyle::stdout());
    text.push('\n');
    for (name, value) in report.crash_facts() {
        text += &format!("{name}: {value}\n");
    }
    text + "\n" + &report.in_short() + "\n"
}

pub fn page(report: &Report) -> Page {
    let rates = Axis::new("transactions per second", NumberFormat::Count);
    let rates = BarChart::new("Throughput", rates, BarLayout::Grouped, report.runs.iter().map(|run| run.name));
    let rates = rates.series("measured", report.runs.iter().map(|run| report.per_second(run)));
    let number = Axis::new("transactions", NumberFormat::Count);
    let ratio = Axis::new("hit ratio so far", NumberFormat::Percent).at_least(0.0, 1.0);
    let mut over_time = LineChart::new("Hit ratio as the caches fill", number, ratio);
    for run in &report.runs[1..] {
        let points = run.series.iter().enumerate().map(|(at, hits)| {
            let done = ((at as u64 + 1) * WINDOW).min(report.arguments.transactions);
            (done as f64, hits.ratio())
        });
        over_time = over_time.series(Series::new(run.name, points));
    }
    let setting = [
        (
            "load",
            format!(
                "{} transactions like TPC-C's, one connection, seed {}",
                report.arguments.transactions, report.arguments.seed
            ),
        ),
        (
            "database",
            format!("{} pages of {PAGE_BYTES} B; SQLite's own cache 256 KiB; WAL, synchronous=FULL", report.pages),
        ),
        ("below", format!("{} (emulated: {})", report.arguments.model, report.about)),
        (
            "cache",
            format!(
                "{} MiB of an ordinary file here; {DRAM_PAGES} pages of memory for a policy of two tiers",
                CACHE_BYTES >> 20
            ),
        ),
    ];
    Page::new("SQLite over a slow disk, with a cache")
        .command(output::command_line())
        .section(Section::new("Summary").text(report.in_short()).table(report.table()))
        .section(Section::new("Throughput and hits").chart(rates).chart(over_time))
        .section(
            Section::new("A kill in the middle")
                .text(format!("A process that runs the same load under {KILLED} is ended by SIGKILL; then its database is opened again."))
                .facts(report.crash_facts()),
        )
        .section(
            Section::new("How it was run").facts(setting).note(
                "The write-ahead log lies beside the database on the file system of this machine, as do the caches: only reads \
                 and writes of the database file take the emulated disk's time. On a busy machine throughput varies; what \
                 is counted in pages does not.",
            ),
        )
}
