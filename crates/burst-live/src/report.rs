//! Reports of failures that a daemon survives, for the log of its supervisor.

/// Prints a line to standard error. Simulated schedules are silent: thousands of them fail on purpose.
macro_rules! report {
    ($($text:tt)*) => {{
        #[cfg(test)]
        let silent = $crate::simulated::actor().is_some();
        #[cfg(not(test))]
        let silent = false;
        if !silent {
            eprintln!($($text)*);
        }
    }};
}

pub(crate) use report;
