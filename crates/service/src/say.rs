//! Lines on standard error.

/// Writes a line to standard error as `eprintln!` does, but ignores failures. A full disk or a vanished reader must not
/// end a server, whose threads would panic one after the other.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}

/// Writes the line of [`say!`].
pub fn line(text: std::fmt::Arguments) {
    use std::io::Write;
    // One write per line, so that lines of several threads and processes stay whole. There is nowhere to report a
    // failure.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}
