//! Database names of tables and indexes, for the files of a cache.
//!
//! The server of a cache knows only files. The client that asks for figures finds the names, through the mount as any
//! other reader would. It first looks below the root directory of the process that serves the cache, as needed for the
//! private mount of `run`. If that fails, it looks at the mount in its own namespace.

use super::figures::Figures;
use super::namer::{FileName, Namer};
use anyhow::Result;
use clap::Args;
use entresol_names::postgres::Connection;
use std::time::Duration;

/// Names of tables and indexes
#[derive(Args, Clone, Default)]
pub struct NameArgs {
    /// Ask this PostgreSQL server for the names of its files ('host=/run/postgresql port=5432 user=me dbname=postgres',
    /// or a part of that). Otherwise the names come from the catalogue's files, which are as old as the last checkpoint
    #[arg(long, value_name = "CONNECTION")]
    pub ask: Option<Connection>,
    /// Show paths instead of names, and do not read the catalogue, which would go through the cache
    #[arg(long, conflicts_with = "ask")]
    pub paths: bool,
}

/// Names for the files of one cache, read on demand.
pub struct Tables {
    arguments: NameArgs,
    found: Option<Found>,
    /// True if names were asked for and did not come in time.
    late: bool,
}

struct Found {
    /// The process that serves the cache; another process may serve another directory.
    process: u32,
    namer: Namer,
}

impl Tables {
    /// Starts without any names.
    pub fn new(arguments: &NameArgs) -> Self {
        Tables { arguments: arguments.clone(), found: None, late: false }
    }

    /// Adds the names of tables to a reading, as far as they come within a limit. Files without a name keep their
    /// paths.
    ///
    /// # Errors
    /// If the server to be asked cannot be asked.
    pub fn name(&mut self, figures: &mut Figures, limit: Option<Duration>) -> Result<()> {
        let Some(mountpoint) = figures.mountpoint.as_ref().filter(|_| !self.arguments.paths) else { return Ok(()) };
        if self.found.as_ref().is_none_or(|found| found.process != figures.process || found.namer.is_dead()) {
            let process = figures.process;
            self.found =
                Some(Found { process, namer: Namer::start(process, mountpoint, self.arguments.ask.as_ref())? });
        }
        let Some(Found { namer, .. }) = &mut self.found else { return Ok(()) };
        let paths: Vec<&str> = figures.objects.iter().map(|object| object.path.as_str()).collect();
        self.late = !namer.learn(&paths, limit)?;
        for object in &mut figures.objects {
            if let Some(FileName { kind, name }) = namer.name(&object.path).cloned() {
                (object.kind, object.name) = (Some(kind), Some(name));
            }
        }
        Ok(())
    }

    /// Why names could not be read, a line for each data directory.
    pub fn troubles(&self) -> Vec<String> {
        let late =
            "names of tables did not come in time: the mount, or its backing store, stalls; files go by their paths";
        let told = self.found.iter().flat_map(|found| found.namer.troubles().iter().cloned());
        self.late.then(|| late.to_owned()).into_iter().chain(told).collect()
    }
}
