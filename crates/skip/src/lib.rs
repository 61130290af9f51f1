//! Tests that lack a requirement, counted and named at the end of a run.
//!
//! The test runner counts a test without its server as passed. [`skipped!`] prints the reason, and appends a line to
//! the file in the environment variable `ENTRESOL_SKIPPED`. `make test` collects these lines. `.ci/run` fails on a line
//! whose requirement the machine has.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the file of skipped tests. Without it nothing is written.
pub const FILE: &str = "ENTRESOL_SKIPPED";

/// Records that a test ends early.
///
/// The first argument is the need: a program (`"fio"`), a path (`"/dev/fuse"`), `"root"`, `"kernel"` (a feature that
/// the running kernel may lack), `"data"` (the shared data beside the checkout), `"place"` (a property of the file
/// system of temporary files), `"mutants"` (a program that was built with that feature) or `"database"` (a server without
/// the fault of its own that the reason names). The other arguments are the reason, as for `println!`.
#[macro_export]
macro_rules! skipped {
    ($need:expr, $($reason:tt)+) => {
        $crate::note($need, module_path!(), ::std::format_args!($($reason)+))
    };
}

/// The function behind [`skipped!`].
pub fn note(need: &str, module: &str, reason: Arguments) {
    println!("skipped: {reason}");
    let Some(path) = std::env::var_os(FILE) else { return };
    let line = line(need, module, std::thread::current().name(), &reason.to_string());
    // One write to a file opened for appending: lines of tests that run at once do not mix.
    let written = OpenOptions::new().append(true).create(true).open(&path).and_then(|mut file| file.write_all(&line));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// A line of the file: the need, the test, and the reason on one line, separated by tabulators.
fn line(need: &str, module: &str, thread: Option<&str>, reason: &str) -> Vec<u8> {
    let binary = module.split("::").next().unwrap_or(module);
    let test = thread.filter(|name| *name != "main").map_or(module.to_owned(), |name| format!("{binary}: {name}"));
    let reason: Vec<&str> = reason.split_whitespace().collect();
    format!("{need}\t{test}\t{}\n", reason.join(" ")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_need_the_test_and_the_reason_on_one_line() {
        let expected = b"fio\tdoors: a_test\tit said: no nbd engine\n";
        assert_eq!(line("fio", "doors::common", Some("a_test"), "it said:\n  no nbd\tengine \n"), expected);
        assert_eq!(line("root", "doors::common", Some("main"), "x"), b"root\tdoors::common\tx\n");
        assert_eq!(line("root", "doors", None, "x"), b"root\tdoors\tx\n");
    }
}
