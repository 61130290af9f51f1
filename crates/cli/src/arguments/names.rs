//! Options for the names of tables.

use clap::Args;
use entresol_names::postgres::Connection;
use entresol_service::tables::NameSource;

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

impl NameArgs {
    /// The source that was asked for.
    pub fn source(&self) -> NameSource {
        match &self.ask {
            Some(connection) => NameSource::Server(connection.clone()),
            None if self.paths => NameSource::None,
            None => NameSource::Catalogue,
        }
    }
}
