//! `entresol names`: lists the table or index of each file in a database directory.

use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use entresol_names::postgres::Connection;
use entresol_names::{Found, Name, Names};
use entresol_render::{Cell, Column, NumberFormat, Table, TextStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// List the table or index of each file in a database directory
///
/// Finds the data directories of PostgreSQL (12 to 18) and of MariaDB or MySQL at DIR and up to two directories below.
/// Names are read from the catalogues' files, with or without a running server; objects made since its last checkpoint
/// have no name yet. With --ask a PostgreSQL server gives the names instead. For a cached directory give its mount
/// point, because the backing directory may lack the catalogues' newest pages. Files of a tablespace inside DIR are
/// listed by their own path, files of other tablespaces by the link in the data directory.
#[derive(Args)]
pub struct NamesArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Ask this PostgreSQL server: 'host=/run/postgresql port=5432 user=me dbname=postgres', or a part of that; it must
    /// let the user in without a password
    #[arg(long, value_name = "CONNECTION")]
    pub ask: Option<Connection>,
    /// List every file, not only sums per table and index
    #[arg(long)]
    pub files: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Most nested directories that are read: the files of a tablespace are five below a data directory. A circular link
/// ends here.
const DEPTH_MAX: usize = 8;

/// One file.
#[derive(Serialize)]
struct NamedFile {
    path: String,
    bytes: u64,
    #[serde(flatten)]
    name: Option<Name>,
}

#[derive(Serialize)]
struct Printed {
    files: Vec<NamedFile>,
    /// Files of tables and indexes without a name.
    unknown: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &NamesArgs, quiet: bool) -> Result<()> {
    let mut names = Names::find(&arguments.directory)?;
    if let Some(connection) = &arguments.ask {
        names.ask(connection.clone())?;
    }
    anyhow::ensure!(
        !names.is_empty(),
        "{}: no data directory of PostgreSQL, MariaDB or MySQL here or in two directories below",
        arguments.directory.display()
    );
    for (place, server, trouble) in names.troubles() {
        let place = arguments.directory.join(place);
        match trouble {
            Some(error) => say!("entresol: {}: {server}: {error}", place.display()),
            None if !quiet => say!("{}: {server}", place.display()),
            None => {}
        }
    }
    let mut printed = Printed { files: Vec::new(), unknown: Vec::new() };
    walk(&arguments.directory, "", DEPTH_MAX, &names, &mut printed)?;
    printed.files.sort_by(|a, b| a.path.cmp(&b.path));
    if arguments.json {
        return output::print(&(serde_json::to_string_pretty(&printed)? + "\n"));
    }
    output::print(&table(&printed, arguments.files).to_text(TextStyle::stdout()))?;
    if !quiet && !printed.unknown.is_empty() {
        let some = printed.unknown.first().map(String::as_str).unwrap_or_default();
        say!("{} files of tables or indexes have no name (yet), {some} first", printed.unknown.len());
    }
    Ok(())
}

/// Notes the files below a directory; `prefix` is the directory's path relative to the one given.
fn walk(directory: &Path, prefix: &str, depth: usize, names: &Names, printed: &mut Printed) -> Result<()> {
    let at = || directory.display().to_string();
    for entry in std::fs::read_dir(directory).with_context(at)? {
        let entry = entry.with_context(at)?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // Tablespaces are links to directories; those that lie below are found without the link. A file removed by the
        // running server is skipped.
        let Ok(found) = std::fs::metadata(entry.path()) else { continue };
        if found.is_dir() {
            if depth > 0 && !names.is_link_to_below(&path) {
                walk(&entry.path(), &format!("{path}/"), depth - 1, names, printed)?;
            }
            continue;
        }
        match names.known(&path) {
            Found::Name(name) => printed.files.push(NamedFile { path, bytes: found.len(), name: Some(name) }),
            Found::Unknown => {
                printed.unknown.push(path.clone());
                printed.files.push(NamedFile { path, bytes: found.len(), name: None });
            }
            Found::Other => {}
        }
    }
    Ok(())
}

/// A table with a row per file, or per name with segments and forks summed, the largest first.
fn table(printed: &Printed, files: bool) -> Table {
    let columns = [Column::text("name"), Column::text("what"), Column::text("of").priority(1), Column::number("size")];
    let of = |name: &Name| name.of.clone().map_or(Cell::missing(), Cell::from);
    let size = |bytes: u64| Cell::short(bytes as f64, NumberFormat::Bytes);
    if files {
        let mut table = Table::new("Files", [Column::text("file")].into_iter().chain(columns));
        for file in &printed.files {
            let (shown, kind, of) = match &file.name {
                Some(name) => (name.to_string().into(), name.kind.word().into(), of(name)),
                None => (Cell::missing(), Cell::missing(), Cell::missing()),
            };
            table.push([file.path.as_str().into(), shown, kind, of, size(file.bytes)]);
        }
        return table;
    }
    let mut sums: BTreeMap<String, (&Name, u64, i64)> = BTreeMap::new();
    for file in &printed.files {
        let Some(name) = &file.name else { continue };
        let whole = Name { part: None, ..name.clone() }.to_string();
        let sum = sums.entry(whole).or_insert((name, 0, 0));
        sum.1 += file.bytes;
        sum.2 += 1;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (_, bytes, _))| std::cmp::Reverse(*bytes));
    let mut table = Table::new("Tables and indexes", columns.into_iter().chain([Column::number("files")]));
    for (shown, (name, bytes, count)) in sums {
        table.push([shown.into(), name.kind.word().into(), of(name), size(bytes), count.into()]);
    }
    table
}
