//! Settings of a cache that is in use, by the names that its user knows.

use super::control::{Question, ask};
use super::objects::ObjectFigures;
use super::stats::{check_at_rest, live};
use super::tables::{NameSource, Tables};
use anyhow::{Result, bail};
use std::path::Path;
use std::time::Duration;

/// Changes settings of a cache in use; returns a line for the outcome of each.
///
/// # Errors
/// If the cache is not in use, its server does not answer within `limit`, or a setting is refused.
pub fn set(cache: &Path, settings: &[(String, String)], names: &NameSource, limit: Option<Duration>) -> Result<String> {
    let settings = with_paths(cache, settings, names, limit)?;
    let Some(done) = ask(cache, Question::Set(settings), limit)? else {
        check_at_rest(cache)?;
        bail!("{}: is not in use; give its settings as options when you serve it", cache.display());
    };
    let lines = done.as_array().into_iter().flatten().filter_map(|line| line.as_str());
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// The settings in the server's terms: the server knows files, not tables.
fn with_paths(
    cache: &Path,
    settings: &[(String, String)],
    names: &NameSource,
    limit: Option<Duration>,
) -> Result<Vec<(String, String)>> {
    let is_table = |setting: &&(String, String)| matches!(setting.0.as_str(), "place" | "unplace");
    if !settings.iter().any(|setting| is_table(&setting)) {
        return Ok(settings.to_vec());
    }
    let figures = live(cache, &mut Tables::new(names), limit)?;
    let objects = figures.map_or(Vec::new(), |figures| figures.objects);
    let mut by_path = Vec::new();
    for setting in settings {
        if is_table(&setting) {
            let paths = paths(&objects, &setting.1)?;
            by_path.extend(paths.into_iter().map(|path| (setting.0.clone(), path)));
        } else {
            by_path.push(setting.clone());
        }
    }
    Ok(by_path)
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
