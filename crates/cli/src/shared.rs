//! Values, defaults and outputs of the command line that the laboratory's program shares with `entresol`.

pub use crate::arguments::{DIRTY_AGE, OnOff, keyword, word};
pub use crate::output::{check_writable, command_line, print, write_file};
pub use crate::tiers::Waf;
pub use entresol_service::config::one_policy;
pub use entresol_service::keyword::Keyword;
pub use entresol_service::values::{Limit, bytes, bytes_or_none, layout, seconds_or_none};

use clap::Parser;
use std::process::ExitCode;

/// Runs another program with the conventions of `entresol`: `run` gets its arguments. An error gives exit code 2 and
/// one line on standard error.
pub fn program<C: Parser>(run: impl FnOnce(&C) -> anyhow::Result<()>) -> ExitCode {
    match C::try_parse() {
        Ok(cli) => crate::ended(run(&cli).map(|()| ExitCode::SUCCESS)),
        Err(error) => crate::usage(&error, &crate::config::Origins::default()),
    }
}
