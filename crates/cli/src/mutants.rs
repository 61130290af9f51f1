//! Leaves out one step of a protocol for the whole process, only in builds with the feature `mutants`. Tests of real
//! power cuts must detect such a program.

use anyhow::{Result, bail};

/// Names the step, as `crate:Step`: `files:DirectoryUnsynced`. The `mutant.rs` of each crate lists its steps.
const VARIABLE: &str = "ENTRESOL_MUTANT";

/// Leaves out the step that the environment names, and reports that.
///
/// # Errors
/// If there is no such step.
pub fn leave_out() -> Result<()> {
    let Some(named) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let named = named.to_string_lossy();
    let known = match named.split_once(':') {
        Some(("burst", step)) => entresol_burst::leave_out(step),
        Some(("burst-live", step)) => entresol_burst_live::leave_out(step),
        Some(("engine", step)) => entresol_store::mutant::leave_out(step),
        Some(("files", step)) => entresol_files::leave_out(step),
        _ => false,
    };
    if !known {
        bail!("{VARIABLE}: no step is named '{named}'; steps are named like files:DirectoryUnsynced");
    }
    say!("entresol: a program for tests, which loses data: {named} is left out");
    Ok(())
}
