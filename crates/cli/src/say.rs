//! Lines on standard error.

/// Writes a line to standard error, as `eprintln!` does, and goes on where that cannot be written: a full disk or a reader that
/// has gone must not end a server, whose threads would panic one after the other.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}

/// The line of [`say!`].
pub fn line(text: std::fmt::Arguments) {
    use std::io::Write;
    // One write a line, so that lines of several threads and processes stay whole. There is nowhere to report a failure.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}
