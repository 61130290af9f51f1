//! Time limit for the process that serves a cache.

use clap::Args;
use std::time::Duration;

/// Time limit for the process that serves a cache
#[derive(Args)]
pub struct TimeoutArg {
    /// Seconds that the process which serves the cache may take to answer; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    timeout: f64,
}

impl TimeoutArg {
    /// The limit, if there is one.
    pub fn limit(&self) -> Option<Duration> {
        (self.timeout > 0.0).then(|| Duration::from_secs_f64(self.timeout.max(0.001)))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0 to 86400".to_owned())
}
