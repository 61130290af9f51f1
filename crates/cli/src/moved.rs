//! Commands of earlier releases that are the laboratory's now.

use anyhow::{Result, bail};
use clap::Args;
use std::ffi::OsString;

/// A command that has moved to the program entresol-lab
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct MovedArgs {
    /// Its arguments there
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Refuses the command, and names the one that does what it did.
pub fn run(name: &str, _arguments: &MovedArgs) -> Result<()> {
    bail!("{name} has moved to the program entresol-lab: `entresol-lab {name}` takes the same arguments")
}
