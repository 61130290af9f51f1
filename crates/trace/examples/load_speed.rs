//! Measures how fast a trace file is read and loaded: `cargo run --release -p entresol-trace --example load_speed -- FILE...`
//!
//! Prints, per file, lines (records) and page requests per second of CPU-bound wall time: once reading records only, once
//! building the trace, median of three.

use entresol_trace::{Detection, Input, LoadOptions, Meta, detect, load, source};
use std::path::Path;
use std::time::Instant;

fn records(path: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let input = Input::open(path)?;
    let format = match detect(input.head(), input.head_is_all(), &path.to_string_lossy()) {
        Detection::Format(format) => format,
        Detection::Unclear(what) => return Err(what.into()),
    };
    let meta = if format.needs_meta() { Meta::beside(path)? } else { Meta::default() };
    let mut source = source(format, input, meta)?;
    let mut count = 0;
    while source.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn median_s(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..3)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[1]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>10} {:>10} {:>12} {:>12}  file", "Mrecord/s", "Mreq/s", "records", "requests");
    for argument in std::env::args().skip(1) {
        let path = Path::new(&argument);
        let (count, requests) = (records(path)?, load(path, &LoadOptions::default())?.trace.len());
        let read_s = median_s(|| assert_eq!(records(path).ok(), Some(count)));
        let load_s =
            median_s(|| assert_eq!(load(path, &LoadOptions::default()).map(|l| l.trace.len()).ok(), Some(requests)));
        let rate = |n: f64, s: f64| n / s / 1e6;
        println!(
            "{:>10.2} {:>10.2} {count:>12} {requests:>12}  {}",
            rate(count as f64, read_s),
            rate(requests as f64, load_s),
            path.display()
        );
    }
    Ok(())
}
