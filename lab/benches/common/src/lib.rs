//! Helpers that the benchmarks share: times, medians, the head and the end of a report.

use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the process so far.
pub fn process_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Processor time of this thread so far.
pub fn thread_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// The median: of an even number of values the mean of the middle two. NaN without any.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Load of the machine over the last 1, 5 and 15 minutes.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The head of a report: title, command, place and time, and the meaning of its figures.
pub fn heading(title: &str, make: &str, reading: &str) -> String {
    let command: Vec<String> = std::env::args().collect();
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "# {title}\n\n`make {make}`, which ran `{}`, on {date}; {cores} processors ({}); load average at the start: \
         {}.\n\n{reading}\n\n",
        command.join(" "),
        model.map_or("unknown", |(_, model)| model),
        load_average()
    )
}

/// Ends a report with the load of the machine, prints it, and writes it to `out` if given.
///
/// # Errors
/// When the file cannot be written.
pub fn deliver(report: &str, out: Option<&Path>) -> Result<(), String> {
    let report = format!("{report}\nLoad average at the end: {}.\n", load_average());
    print!("{report}");
    out.map_or(Ok(()), |path| std::fs::write(path, &report).map_err(|error| format!("{}: {error}", path.display())))
}

/// Exit code for `main` to return: 2 for an error, which is printed under the benchmark's name.
pub fn end(name: &str, result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
