//! `make bench-device`: device models and the simulation with time against their bounds, in processor time.

mod models;
mod simulation;

use clap::Parser;
use entresol_bench_common::{deliver, end, heading, median, process_time};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures the device models and the simulation with time against their bounds; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Make every run so many times shorter: a look, no measurement.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    shorter: u64,
}

/// Measured runs of one subject: a device model or a simulation with time.
struct Measured {
    what: String,
    /// Requests that a run serves.
    requests: u64,
    /// Processor time of each run, in seconds.
    seconds: Vec<f64>,
    /// Least million requests per second of processor time; none without a bound.
    bound: Option<f64>,
    /// Remark that a reader needs beside the figure.
    note: String,
}

impl Measured {
    /// Times `rounds` runs of `run`. Each run's state is made by `prepare`, whose time is not counted.
    fn of<S>(
        what: impl Into<String>,
        bound: Option<f64>,
        requests: u64,
        rounds: u32,
        mut prepare: impl FnMut() -> S,
        mut run: impl FnMut(S) -> String,
    ) -> Self {
        let mut measured = Measured { what: what.into(), requests, seconds: Vec::new(), bound, note: String::new() };
        for _ in 0..rounds {
            let prepared = prepare();
            let started = process_time();
            measured.note = run(prepared);
            measured.seconds.push((process_time() - started).as_secs_f64());
        }
        measured
    }

    /// Million requests per second of processor time, median of the runs.
    fn speed(&self) -> f64 {
        self.requests as f64 / median(&self.seconds) / 1e6
    }

    fn verdict(&self) -> &'static str {
        match self.bound {
            None => "",
            Some(bound) if self.speed() >= bound => "met",
            Some(_) => "MISSED",
        }
    }
}

fn main() -> ExitCode {
    end("entresol-bench-device", run(&Arguments::parse()))
}

const READING: &str = "Million requests per second of processor time of one thread, the median of the rounds. Making the \
     devices, preconditioning and loading are not counted. Where others use the machine, its caches are theirs too.";

fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { rounds, shorter, .. } = *arguments;
    let heading = heading("Speed of the device models and of the simulation with time", "bench-device", READING);
    let mut measured = models::calendars(rounds, shorter);
    measured.push(models::translation(rounds, shorter));
    measured.push(models::disk(rounds, shorter));
    measured.push(models::flash_drive(rounds, shorter));
    measured.extend(simulation::all(rounds, shorter)?);
    deliver(&format!("{heading}{}", table(&measured)), arguments.out.as_deref())
}

fn table(measured: &[Measured]) -> String {
    let mut out =
        String::from("| what | M/s | slowest, fastest | bound | | |\n| --- | ---: | ---: | ---: | --- | --- |\n");
    for each in measured {
        let of = |pick: fn(f64, f64) -> f64, start| {
            each.requests as f64 / each.seconds.iter().copied().fold(start, pick) / 1e6
        };
        let (slowest, fastest) = (of(f64::max, 0.0), of(f64::min, f64::INFINITY));
        let bound = each.bound.map(|bound| bound.to_string()).unwrap_or_default();
        let (what, speed, verdict, note) = (&each.what, each.speed(), each.verdict(), &each.note);
        writeln!(out, "| {what} | {speed:.1} | {slowest:.1}, {fastest:.1} | {bound} | {verdict} | {note} |")
            .expect("writing to a string");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_or_missed_by_the_median() {
        let measured = |seconds: &[f64], bound| Measured {
            what: "x".into(),
            requests: 10_000_000,
            seconds: seconds.to_vec(),
            bound,
            note: String::new(),
        };
        // Medians of 2 s and of 0.15 s: 5 and 66.7 M/s.
        assert_eq!(measured(&[9.0, 2.0, 1.0], Some(5.0)).verdict(), "met");
        assert_eq!(measured(&[9.0, 2.1, 1.0], Some(5.0)).verdict(), "MISSED");
        assert_eq!(measured(&[1.0], None).verdict(), "");
        let text = table(&[measured(&[0.2, 0.1], Some(50.0))]);
        assert!(text.contains("| x | 66.7 | 50.0, 100.0 | 50 | met |  |"), "{text}");
    }

    #[test]
    fn everything_is_measured_and_every_bound_of_the_issue_is_there() {
        let mut measured = models::calendars(1, 10_000);
        measured.extend([models::translation(1, 1000), models::disk(1, 1000), models::flash_drive(1, 1000)]);
        measured.extend(simulation::all(1, 1000).expect("the simulation runs"));
        let bounds = |bound| measured.iter().filter(|each| each.bound == Some(bound)).count();
        assert!(bounds(50.0) >= 10 && bounds(2.0) == 1 && bounds(1.0) == 1 && bounds(5.0) == 1);
        assert!(measured.iter().all(|each| each.speed() > 0.0));
    }
}
