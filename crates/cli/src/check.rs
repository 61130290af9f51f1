//! `entresol check`: compares the contents of a cache with their checksums and with the backing store.

use crate::output;
use anyhow::Result;
use entresol_service::check::{self, CheckArgs, Checked, Sound};
use entresol_service::hold::is_damage;

/// Runs the command.
pub fn run(arguments: &CheckArgs) -> Result<()> {
    if !arguments.repair {
        return check(arguments).map(drop);
    }
    match check(arguments) {
        Ok(Sound::All) => return Ok(()),
        Ok(Sound::BySomeCopies) => {}
        Err(error) if !is_damage(&error) => return Err(error),
        Err(error) => say!("{error}"),
    }
    output::print(&check::repair(arguments)?)?;
    check(arguments).map(drop)
}

/// Checks, and prints what the cache contains.
fn check(arguments: &CheckArgs) -> Result<Sound> {
    let Checked { text, outcome } = check::check(arguments)?;
    output::print(&text)?;
    outcome
}
