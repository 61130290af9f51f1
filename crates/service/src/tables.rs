//! Database names of tables and indexes, for the files of a cache.
//!
//! The server of a cache knows only files. The client that asks for figures finds the names, through the mount as any
//! other reader would. It first looks below the root directory of the process that serves the cache, as needed for the
//! private mount of `run`. If that fails, it looks at the mount in its own namespace.

use super::figures::Figures;
use super::namer::{FileName, Namer};
use anyhow::Result;
use entresol_names::postgres::Connection;
use std::time::Duration;

/// Source of the names of tables and indexes.
#[derive(Clone, Debug, Default)]
pub enum NameSource {
    /// The catalogue's files, which are as old as the last checkpoint.
    #[default]
    Catalogue,
    /// A PostgreSQL server.
    Server(Connection),
    /// None: files go by their paths, and nothing is read through the cache.
    None,
}

/// Names for the files of one cache, read on demand.
pub struct Tables {
    source: NameSource,
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
    pub fn new(source: &NameSource) -> Self {
        Tables { source: source.clone(), found: None, late: false }
    }

    /// Adds the names of tables to a reading, as far as they come within a limit. Files without a name keep their
    /// paths.
    ///
    /// # Errors
    /// If the server to be asked cannot be asked.
    pub fn name(&mut self, figures: &mut Figures, limit: Option<Duration>) -> Result<()> {
        let server = match &self.source {
            NameSource::None => return Ok(()),
            NameSource::Catalogue => None,
            NameSource::Server(connection) => Some(connection),
        };
        let Some(mountpoint) = &figures.mountpoint else { return Ok(()) };
        if self.found.as_ref().is_none_or(|found| found.process != figures.process || found.namer.is_dead()) {
            let process = figures.process;
            self.found = Some(Found { process, namer: Namer::start(process, mountpoint, server)? });
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
