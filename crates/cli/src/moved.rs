//! Commands of earlier releases that now belong to the laboratory's program.

use anyhow::{Result, bail};
use clap::Args;
use std::ffi::OsString;

/// A command that has moved to the program entresol-lab
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct MovedArgs {
    /// Arguments of the command there
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Refuses the command, and names its replacement.
pub fn run(name: &str, _arguments: &MovedArgs) -> Result<()> {
    bail!("{name} has moved to the program entresol-lab: `entresol-lab {name}` takes the same arguments")
}
