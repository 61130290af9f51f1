//! Lines on standard error.

/// Writes a line to standard error as [`write_line`] does. `eprintln!` would end the threads of a server one after the other on
/// a full disk or for a reader that is gone, and have them wait for one that stands still.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::write_line(format_args!($($text)*))
    };
}

pub use entresol_hold::write_line;
