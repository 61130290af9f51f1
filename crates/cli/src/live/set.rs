//! `entresol set`: changes a cache that is in use.

use super::control::{Question, ask};
use super::objects::ObjectFigures;
use super::stats::{TimeoutArg, check_at_rest, live};
use super::tables::{NameArgs, Tables};
use crate::output;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;

/// Change a cache that is in use
///
/// A change holds until the process that serves the cache ends; its command line or configuration decides again at the
/// next start. All settings are checked before the first is applied. docs/OPERATING.md describes each.
#[derive(Args)]
pub struct SetArgs {
    /// The cache, its control socket, or a directory where it is mounted
    #[arg(long, value_name = "CACHE|SOCKET|DIR")]
    pub cache: PathBuf,
    /// Settings to change, in the order given: mode (write-back, write-through, write-around, read-only), policy (NAME
    /// or NAME:OPTION=VALUE:...), cache-size (pages the policy may keep: 50%, 10GiB, 2000p), device-size (bytes of its
    /// file or device to which the cache grows), dirty-high and dirty-low (per cent of its pages: above the first,
    /// dirty pages are written back down to the second), dirty-age (time for which a page may differ from the backing
    /// store, such as 1h, or none), sequential-cutoff (bytes of a sequential stream after which the rest bypasses the
    /// cache; 0: never), dram (its memory, for a policy with two tiers), place and unplace (a table or index by its
    /// database's name or the part of the name after a dot, or a file: policy table-placement holds it whole, or no
    /// longer), place-rate (bytes a second that this may read)
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = pair)]
    pub settings: Vec<(String, String)>,
    #[command(flatten)]
    pub names: NameArgs,
    #[command(flatten)]
    pub timeout: TimeoutArg,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}

/// The settings in the server's terms: the server knows files, not tables.
fn with_paths(arguments: &SetArgs) -> Result<Vec<(String, String)>> {
    let is_table = |setting: &&(String, String)| matches!(setting.0.as_str(), "place" | "unplace");
    if !arguments.settings.iter().any(|setting| is_table(&setting)) {
        return Ok(arguments.settings.clone());
    }
    let figures = live(&arguments.cache, &mut Tables::new(&arguments.names), arguments.timeout.limit())?;
    let objects = figures.map_or(Vec::new(), |figures| figures.objects);
    let mut settings = Vec::new();
    for setting in &arguments.settings {
        if is_table(&setting) {
            let paths = paths(&objects, &setting.1)?;
            settings.extend(paths.into_iter().map(|path| (setting.0.clone(), path)));
        } else {
            settings.push(setting.clone());
        }
    }
    Ok(settings)
}

/// The files of a table, or the file with this path. An unknown name is passed on for the server to refuse.
fn paths(objects: &[ObjectFigures], called: &str) -> Result<Vec<String>> {
    if objects.iter().any(|object| object.path == called) {
        return Ok(vec![called.to_owned()]);
    }
    let behind_a_dot = format!(".{called}");
    let is_called = |name: &str| name == called || name.ends_with(&behind_a_dot);
    let of = |object: &&ObjectFigures| object.name.as_deref().is_some_and(is_called);
    let mut found: Vec<&ObjectFigures> = objects.iter().filter(of).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    let mut names: Vec<&str> = found.iter().map(|object| object.label()).collect();
    names.sort_unstable();
    names.dedup();
    match names.len() {
        0 => Ok(vec![called.to_owned()]),
        1 => Ok(found.iter().map(|object| object.path.clone()).collect()),
        _ => bail!("'{called}' may be {}", names.join(" or ")),
    }
}

/// Runs the command.
pub fn run(arguments: &SetArgs, quiet: bool) -> Result<()> {
    let settings = with_paths(arguments)?;
    let Some(done) = ask(&arguments.cache, Question::Set(settings), arguments.timeout.limit())? else {
        check_at_rest(&arguments.cache)?;
        bail!("{}: is not in use; what it is served with is decided when it is", arguments.cache.display());
    };
    let lines = done.as_array().into_iter().flatten().filter_map(|line| line.as_str());
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    if quiet { Ok(()) } else { output::print(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_all_its_files_and_a_name_that_two_have_is_refused() {
        let object = |path: &str, name: Option<&str>| ObjectFigures {
            path: path.to_owned(),
            name: name.map(str::to_owned),
            ..ObjectFigures::default()
        };
        let objects = [
            object("5/7.1", Some("shop.public.orders")),
            object("5/7", Some("shop.public.orders")),
            object("5/8", Some("shop.old.orders")),
            object("5/9", Some("shop.public.lines")),
            object("plain", None),
        ];
        let found = |called| paths(&objects, called).map_err(|error| error.to_string());
        for (called, wanted) in [
            ("public.orders", &["5/7", "5/7.1"][..]),
            ("shop.old.orders", &["5/8"]),
            ("lines", &["5/9"]),
            ("5/7", &["5/7"]),
            ("plain", &["plain"]),
            ("ines", &["ines"]),
        ] {
            assert_eq!(found(called), Ok(wanted.iter().map(|&path| path.to_owned()).collect()), "{called}");
        }
        assert_eq!(found("orders"), Err("'orders' may be shop.old.orders or shop.public.orders".to_owned()));
    }
}
