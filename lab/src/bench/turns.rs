//! Runs of a benchmark, one after the other, and the output of their reports.

use super::testbed::TestbedArgs;
use anyhow::{Error, Result};
use entresol_cli::shared as output;
use entresol_render::{Page, Progress};

/// The runs measured until all were done or one failed.
pub struct Turns<M> {
    pub runs: Vec<M>,
    failed: Option<Error>,
}

impl<M> Turns<M> {
    /// Measures all cases `repeat` times, in rounds. The first run that fails ends the measurement.
    ///
    /// # Errors
    /// The error of the first run, if that fails.
    pub fn take<C>(
        cases: &[C],
        repeat: u32,
        bar: &Progress,
        name: impl Fn(&C) -> String,
        mut measure: impl FnMut(&C, u32) -> Result<M>,
        report: impl Fn(&M),
    ) -> Result<Self> {
        let mut turns = Turns { runs: Vec::new(), failed: None };
        for (repeat, case) in (1..=repeat).flat_map(|repeat| cases.iter().map(move |case| (repeat, case))) {
            match measure(case, repeat) {
                Ok(run) => {
                    bar.aside(|| report(&run));
                    turns.runs.push(run);
                }
                // Earlier runs are reported all the same.
                Err(error) => {
                    turns.failed = Some(error.context(format!("{}, run {repeat}", name(case))));
                    break;
                }
            }
        }
        match turns.failed.take_if(|_| turns.runs.is_empty()) {
            Some(error) => Err(error),
            None => Ok(turns),
        }
    }

    /// Returns the runs.
    ///
    /// # Errors
    /// The error that ended the runs early.
    pub fn end(self) -> Result<Vec<M>> {
        self.failed.map_or(Ok(self.runs), Err)
    }
}

/// Prints a report and writes it to the files that were asked for.
pub fn tell(
    arguments: &TestbedArgs,
    text: &str,
    json: impl FnOnce() -> Result<String>,
    page: impl FnOnce() -> Page,
) -> Result<()> {
    output::print(text)?;
    if let Some(path) = &arguments.json {
        output::write_file(path, json()?.as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        output::write_file(path, page().to_html().as_bytes())?;
    }
    Ok(())
}
