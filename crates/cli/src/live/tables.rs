//! What the files of a cache are called by the databases whose they are. The server of a cache knows files; whoever asks it
//! finds their names, through the mount as any other reader would, and where a cache is in use for one command by the root
//! directory of the process that serves it.

use super::figures::Figures;
use super::objects::ObjectFigures;
use anyhow::{Context, Result};
use clap::Args;
use entresol_names::postgres::Connection;
use entresol_names::{Name, Names};
use std::path::{Path, PathBuf};

/// Names of tables and indexes
#[derive(Args, Clone, Default)]
pub struct NameArgs {
    /// Ask this PostgreSQL server what its files are called ('host=/run/postgresql port=5432 user=me dbname=postgres', or a part
    /// of that), rather than the catalogue's files, which are as old as the last checkpoint
    #[arg(long, value_name = "CONNECTION")]
    pub ask: Option<Connection>,
    /// Call files by their paths, and read no catalogue, which goes through the cache
    #[arg(long, conflicts_with = "ask")]
    pub paths: bool,
}

/// Names of the files of one cache, learned when they are wanted.
pub struct Tables {
    arguments: NameArgs,
    found: Option<Found>,
}

struct Found {
    /// The process that serves the cache: another one may serve another directory.
    process: u32,
    names: Names,
}

impl Tables {
    /// Of which nothing is known yet.
    pub fn new(arguments: &NameArgs) -> Self {
        Tables { arguments: arguments.clone(), found: None }
    }

    /// Puts the names of its tables into a reading.
    ///
    /// # Errors
    /// When the server that was to be asked cannot be. Where no names can be read files go by their paths.
    pub fn name(&mut self, figures: &mut Figures) -> Result<()> {
        let Some(mountpoint) = figures.mountpoint.as_ref().filter(|_| !self.arguments.paths) else { return Ok(()) };
        if self.found.as_ref().is_none_or(|found| found.process != figures.process) {
            let Some(mut names) = names(figures.process, mountpoint) else { return Ok(()) };
            if let Some(connection) = &self.arguments.ask {
                names.ask(connection.clone()).context("--ask")?;
            }
            self.found = Some(Found { process: figures.process, names });
        }
        if let Some(Found { names, .. }) = &mut self.found {
            figures.objects.iter_mut().for_each(|object| put(object, names));
        }
        Ok(())
    }

    /// Why names could not be read, a line for each data directory.
    pub fn troubles(&self) -> Vec<String> {
        let troubles = self.found.iter().flat_map(|found| found.names.troubles());
        let line = |(place, server, trouble): (&str, &str, Option<&entresol_names::Error>)| {
            let place = if place.is_empty() { "." } else { place };
            trouble.map(|error| format!("{place}: {server}: {error}; its files go by their paths"))
        };
        troubles.filter_map(line).collect()
    }
}

/// The data directories of a mount, as the process sees it that serves it, or as everybody does.
fn names(process: u32, mountpoint: &str) -> Option<Names> {
    let inside = PathBuf::from(format!("/proc/{process}/root")).join(mountpoint.trim_start_matches('/'));
    Names::find(&inside).or_else(|_| Names::find(Path::new(mountpoint))).ok()
}

fn put(object: &mut ObjectFigures, names: &mut Names) {
    let Some(name) = names.name_of(&object.path) else { return };
    // Of more than one server it is said which.
    let several = names.troubles().count() > 1;
    let of = names.directory_of(&object.path).filter(|_| several);
    // Forks and partitions are parts of one table.
    let whole = Name { part: None, ..name };
    object.kind = Some(whole.kind.word().to_owned());
    object.name = Some(of.map_or(whole.to_string(), |of| format!("{of}: {whole}")));
}
