//! Renders every kind of chart and table with synthetic data into one page, to be looked at:
//! `cargo run -p entresol-render --example gallery -- gallery.html`. A name that ends
//! in `.svg` gets the first chart alone; without a name the table is printed on the terminal.

use entresol_render::*;

const POLICIES: [&str; 45] = [
    "fifo",
    "clock",
    "lru",
    "mru",
    "lfu",
    "lfu-aging",
    "random",
    "min",
    "min-clean",
    "lru-2",
    "2q",
    "mq",
    "arc",
    "car",
    "lirs",
    "clock-pro",
    "lecar",
    "cacheus",
    "expcache",
    "s3-fifo",
    "sieve",
    "w-tinylfu",
    "cflru",
    "lru-wsr",
    "ad-lru",
    "lru-dram",
    "h-arc",
    "io-cache",
    "longest",
    "hibachi",
    "hybrid-lru",
    "hybrid-arc",
    "tac",
    "lc",
    "heuristicdb",
    "table-placement",
    "face",
    "face-gsc",
    "multi-tier",
    "fab",
    "bplru",
    "lb-clock",
    "clc",
    "bpac",
    "wrb",
];
const SIZES_MIB: [f64; 8] = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];
const TRACES: [&str; 12] = [
    "rsrch_0",
    "usr_0",
    "src1_2",
    "stg_0",
    "wdev_0",
    "web_0",
    "ts_0",
    "mds_0",
    "webmail",
    "online",
    "webusers",
    "pg_tpcc_w20_sb32m",
];

/// A number in 0..1 that depends on `a` and `b` only: a gallery must look the same every time.
fn noise(a: usize, b: usize) -> f64 {
    let mut x = (a as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (b as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    for _ in 0..3 {
        x ^= x >> 31;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    }
    (x >> 11) as f64 / (1u64 << 53) as f64
}

fn miss_ratio(policy: usize, size: usize) -> f64 {
    let skill = if policy == 7 { 0.78 } else { 0.86 + 0.22 * noise(policy, 99) };
    (0.93 * (-(size as f64) * 0.28).exp() * skill + 0.01 * noise(policy, size)).min(1.0)
}

fn size_axis() -> Axis {
    Axis::new("cache size", NumberFormat::Bytes).spread(Spread::Log2)
}

fn curve(policy: usize) -> Series {
    let points = SIZES_MIB.iter().enumerate().map(|(i, mib)| (mib * 1_048_576.0, miss_ratio(policy, i)));
    Series::new(POLICIES[policy], points)
}

fn curves() -> LineChart {
    let miss = Axis::new("miss ratio", NumberFormat::Percent).at_least(0.0, 1.0);
    let mut chart = LineChart::new("Miss-ratio curves, pg_tpcc_w20_sb32m", size_axis(), miss).best(5, Better::Lower);
    for (policy, name) in POLICIES.iter().enumerate() {
        let series = curve(policy);
        chart = chart.series(if *name == "lru" { series.emphasised() } else { series });
    }
    chart
}

fn write_backs() -> LineChart {
    let count = Axis::new("pages written back", NumberFormat::Count).spread(Spread::Log10);
    [2, 12, 26, 18].into_iter().fold(LineChart::new("Write-backs", size_axis(), count), |chart, p| {
        let points = SIZES_MIB.iter().enumerate().map(|(i, mib)| (mib * 1_048_576.0, 4.2e6 * miss_ratio(p, i).powi(2)));
        chart.series(Series::new(POLICIES[p], points))
    })
}

fn skew() -> LineChart {
    let pages = Axis::new("share of pages, hottest first", NumberFormat::Percent);
    let hits = Axis::new("share of requests", NumberFormat::Percent).at_least(0.0, 1.0);
    let cdf = |name: &str, s: f64| {
        Series::new(name, (0..=400).map(move |i| (f64::from(i) / 400.0, (f64::from(i) / 400.0).powf(s))))
    };
    let chart = LineChart::new("Skew", pages, hits).curve(Curve::Step);
    chart.series(cdf("tpcc reads", 0.12)).series(cdf("tpcc writes", 0.3)).series(cdf("tpch reads", 0.8))
}

fn phases() -> TimeSeries {
    let requests = Axis::new("requests", NumberFormat::Count);
    let ratio = Axis::new("hit ratio", NumberFormat::Percent).at_least(0.0, 0.5);
    let weight = Axis::new("expert weight", NumberFormat::Decimal).at_least(0.0, 1.0);
    let line = |name: &str, k: usize, base: f64| {
        let points = (0..600usize).map(move |i| {
            let phase = if (220..400).contains(&i) { -0.2 } else { 0.0 };
            let y = base + phase * noise(k, 7) + 0.05 * (i as f64 / 40.0 + k as f64).sin() + 0.03 * noise(i, k);
            // One policy was not measured for a while: the line has a gap.
            (i as f64 * 10_000.0, if k == 2 && (100..130).contains(&i) { f64::NAN } else { y })
        });
        Series::new(name, points)
    };
    let weights = |name: &str, flip: f64| {
        Series::new(
            name,
            (0..600usize).map(move |i| (i as f64 * 10_000.0, 0.5 + flip * 0.45 * (i as f64 / 55.0).sin())),
        )
    };
    let top =
        Panel::new(ratio).series(line("expcache", 0, 0.42)).series(line("lecar", 1, 0.37)).series(line("lru", 2, 0.3));
    let below = Panel::new(weight).series(weights("w LRU", 1.0)).series(weights("w LFU", -1.0));
    TimeSeries::new("ExpCache over time, webmail, 10 % of the footprint", requests).panel(top).panel(below)
}

fn difference(baseline: &str, seed: usize) -> HeatMap {
    let mut map = HeatMap::differences(format!("Hit ratio of expcache minus that of {baseline}"), Better::Higher)
        .columns("cache size, share of the footprint", ["1%", "5%", "10%", "15%", "20%"]);
    for (row, trace) in TRACES.iter().enumerate() {
        map = map.row(
            *trace,
            (0..5).map(|c| if row == 3 && c == 0 { f64::NAN } else { noise(row * 5 + c, seed).powi(3) * 0.3 - 0.06 }),
        );
    }
    map
}

fn write_ratio() -> HeatMap {
    let columns = SIZES_MIB.map(|mib| NumberFormat::Bytes.short(mib * 1_048_576.0));
    let mut map = HeatMap::ratios("Write-backs relative to lru", Better::Lower).columns("cache size", columns);
    for policy in (20..45).step_by(2) {
        map = map.row(POLICIES[policy], (0..8).map(|c| 2f64.powf(3.0 * noise(policy, c + 50) - 2.2)));
    }
    map
}

fn ranking() -> BarChart {
    let mut order: Vec<usize> = (0..20).collect();
    order.sort_by(|&a, &b| miss_ratio(a, 3).total_cmp(&miss_ratio(b, 3)));
    let axis = Axis::new("hit ratio at 128 MiB", NumberFormat::Percent);
    BarChart::new("Ranking", axis, BarLayout::Grouped, order.iter().map(|&p| POLICIES[p]))
        .series("hit ratio", order.iter().map(|&p| 1.0 - miss_ratio(p, 3)))
}

fn tiers() -> BarChart {
    let axis = Axis::new("requests", NumberFormat::Count);
    let part = |k: usize| (0..6).map(move |i| (1e6 * noise(i, k)).round());
    BarChart::new("Where requests were served", axis, BarLayout::Stacked, ["a", "b", "c", "d", "hymem", "face-gsc"])
        .series("DRAM", part(1))
        .series("NVM", part(2))
        .series("SSD", part(3))
}

fn grouped_bars() -> BarChart {
    let axis = Axis::new("hit ratio", NumberFormat::Percent);
    BarChart::new("Reads and writes", axis, BarLayout::Grouped, ["lru", "arc", "h-arc"])
        .series("read hits", [0.41, 0.47, 0.44])
        .series("write hits", [0.62, f64::NAN, 0.71])
}

fn distances() -> Histogram {
    let shape =
        |centre: f64, wide: f64| (0..24).map(move |b| (2e5 * (-((b as f64 - centre) / wide).powi(2)).exp()) as u64);
    Histogram::new("Temporal distances", "distance in requests", NumberFormat::Binary)
        .series("read after read", shape(12.0, 4.0))
        .series("write after write", shape(6.0, 3.0))
        .series("read after write", shape(15.0, 3.0))
        .series("write after read", shape(17.0, 2.0))
}

fn latency() -> Histogram {
    Histogram::new("Hit latency", "latency", NumberFormat::Seconds)
        .unit(1e-9)
        .series("hits", (0..21).map(|b: u32| if b < 6 { 0 } else { 900_000 >> (b.abs_diff(8) * 2).min(31) }))
}

/// The table of all runs, also printed on the terminal.
pub fn table() -> Table {
    let columns = [
        Column::text("policy"),
        Column::text("family").priority(5),
        Column::number("capacity").help("bytes"),
        Column::number("requests").priority(4),
        Column::number("hits").priority(1),
        Column::number("hit ratio"),
        Column::number("write-backs").priority(2),
        Column::number("dirty at end").priority(6),
        Column::number("cpu s").priority(7),
    ];
    let mut table = Table::new("All runs", columns);
    for (p, name) in POLICIES.iter().enumerate() {
        for size in [1, 3, 5] {
            let hit = 1.0 - miss_ratio(p, size);
            let tone = if p == 7 { Tone::Strong } else { Tone::Plain };
            table.push([
                Cell::from(*name).tone(tone),
                ["classic", "adaptive", "dirty"][p * 3 / POLICIES.len()].into(),
                Cell::short(SIZES_MIB[size] * 1_048_576.0, NumberFormat::Bytes),
                12_345_678u64.into(),
                ((12_345_678.0 * hit) as u64).into(),
                Cell::percent(hit, 2).tone(if hit > 0.65 { Tone::Good } else { Tone::Plain }),
                if p < 2 { Cell::missing() } else { ((4e6 * noise(p, size)) as u64).into() },
                ((1e4 * noise(p, size + 9)) as u64).into(),
                Cell::fixed(0.3 + noise(p, size + 20), 3),
            ]);
        }
    }
    table
}

fn odd_ones() -> Vec<Chart> {
    let plain = |label: &str| Axis::new(label, NumberFormat::Decimal);
    vec![
        LineChart::new("No series", plain("x"), plain("y")).into(),
        LineChart::new("One point", plain("x"), plain("y")).series(Series::new("only", [(3.0, 7.0)])).into(),
        LineChart::new("Nothing finite", plain("x"), plain("y")).series(Series::new("nan", [(1.0, f64::NAN)])).into(),
        LineChart::new(
            "<script>alert('title')</script>",
            plain("<b>x</b>"),
            plain("a rather long label of the y axis"),
        )
        .series(Series::new("<img src=x onerror=alert(1)>", [(0.0, 1.0), (1.0, 2.0)]))
        .series(Series::new("a name that is much too long to stand at the end of its line", [(0.0, 1.5), (1.0, 1.99)]))
        .into(),
    ]
}

/// The page with everything.
pub fn page() -> Page {
    let results = Section::new("Miss ratio")
        .text("All 46 policies at eight sizes. The five best and the baseline are in front; point at a name to see its line.")
        .chart(curves())
        .grid([write_backs().into(), skew().into()]);
    let comparison = Section::new("Against a baseline")
        .grid([difference("lru", 3).into(), difference("h-arc", 4).into()])
        .chart(write_ratio());
    let time = Section::new("Over time").chart(phases());
    let shapes = Section::new("The trace and the ranking").chart(distances()).grid([
        latency().into(),
        grouped_bars().into(),
        ranking().into(),
        tiers().into(),
    ]);
    Page::new("Gallery of the report")
        .subtitle("Every chart with synthetic data")
        .command("entresol simulate pg_tpcc_w20_sb32m.csv.zst --policy all --size 16MiB,32MiB,64MiB,128MiB,256MiB --baseline lru --html report.html")
        .section(
            Section::new("Trace")
                .facts([
                    ("requests", "12345678"),
                    ("reads", "8230452 (66.67%)"),
                    ("writes", "4115226 (33.33%)"),
                    ("footprint", "1.25 GiB"),
                    ("page size", "4096 B"),
                    ("seed", "42"),
                ])
                .note("The first 10% of the requests are warm-up and are not counted."),
        )
        .section(results)
        .section(comparison)
        .section(time)
        .section(shapes)
        .section(Section::new("Odd ones").grid(odd_ones()))
        .section(Section::new("All numbers").table(table()))
}

fn main() -> std::io::Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        print!("{}", table().to_text(TextStyle::stdout()));
        println!("give a file name to write the page to");
        return Ok(());
    };
    let is_svg = std::path::Path::new(&path).extension().is_some_and(|e| e == "svg");
    std::fs::write(&path, if is_svg { Chart::from(curves()).to_svg() } else { page().to_html() })
}
