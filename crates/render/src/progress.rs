//! The one progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Unit that a progress bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Items with this name, in the plural: `runs`, `requests`.
    Items(&'static str),
    /// Bytes.
    Bytes,
}

/// A progress bar on standard error with an estimate of the time left. It may be advanced from many threads, shows
/// nothing where standard error is not a terminal or the user wants quiet, and disappears when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that shows the task in `doing` and the part of `total` done; without a total, the amount done and the
    /// rate.
    pub fn start(doing: &str, total: Option<u64>, unit: Unit, quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Progress::on(target, doing, total, unit)
    }

    fn on(target: ProgressDrawTarget, doing: &str, total: Option<u64>, unit: Unit) -> Progress {
        let bar = ProgressBar::with_draw_target(total, target).with_style(style(total.is_some(), unit));
        bar.set_prefix(doing.to_owned());
        if !bar.is_hidden() {
            // One long step must not look like a hang.
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Progress { bar }
    }

    /// Adds `amount` to the work done.
    pub fn advance(&self, amount: u64) {
        self.bar.inc(amount);
    }

    /// Shows the item being worked on.
    pub fn note(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Runs `print` while the bar is hidden, so that the bar does not tear the output.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(bounded: bool, unit: Unit) -> ProgressStyle {
    let template = match (bounded, unit) {
        (true, Unit::Bytes) => {
            "{prefix} {bar:30} {binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}, {eta} left {msg:.dim}"
                .to_owned()
        }
        (true, Unit::Items(name)) => {
            format!("{{prefix}} {{bar:30}} {{human_pos}}/{{human_len}} {name}, {{eta}} left {{msg:.dim}}")
        }
        (false, Unit::Bytes) => "{spinner} {prefix} {binary_bytes}, {binary_bytes_per_sec} {msg:.dim}".to_owned(),
        (false, Unit::Items(name)) => format!("{{spinner}} {{prefix}} {{human_pos}} {name}, {{per_sec}} {{msg:.dim}}"),
    };
    let template = ProgressStyle::with_template(&template).expect("the templates above are well-formed");
    template.progress_chars("━╸─")
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::InMemoryTerm;

    #[test]
    fn the_bar_says_what_how_much_and_goes_away() {
        for (total, unit, expected) in [
            (Some(1000), Unit::Items("runs"), "250/1,000 runs"),
            (Some(4096), Unit::Bytes, "250 B/4.00 KiB"),
            (None, Unit::Items("requests"), "250 requests"),
            (None, Unit::Bytes, "250 B"),
        ] {
            let term = InMemoryTerm::new(4, 120);
            let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
            let progress = Progress::on(target, "simulating", total, unit);
            std::thread::scope(|s| {
                for _ in 0..5 {
                    s.spawn(|| progress.advance(50));
                }
            });
            progress.note("arc");
            progress.bar.tick();
            let shown = term.contents();
            for part in ["simulating", expected, "arc"] {
                assert!(shown.contains(part), "{part} is not in {shown:?}");
            }
            drop(progress);
            assert_eq!(term.contents(), "");
        }
    }

    #[test]
    fn quiet_is_hidden() {
        assert!(Progress::start("x", Some(1), Unit::Bytes, true).bar.is_hidden());
    }

    #[test]
    fn output_aside_returns_its_result() {
        assert_eq!(Progress::start("x", None, Unit::Bytes, true).aside(|| 7), 7);
    }
}
