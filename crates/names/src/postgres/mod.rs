//! PostgreSQL: a file is a segment of a fork of a relation, and `pg_class` names the relation.

mod catalogue;
mod heap;
mod path;
pub mod server;
pub(crate) mod tablespace;

pub use path::{Location, Relation};
pub use server::Connection;

use crate::{Found, Kind, Name, Result};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tablespace::{Tablespace, Top};

/// True if the directory is a data directory.
pub fn is_cluster(directory: &Path) -> bool {
    directory.join("PG_VERSION").is_file() && directory.join("global").is_dir() && directory.join("base").is_dir()
}

/// Relations by the location of their files, with all of their names but the database.
pub(crate) type Relations = HashMap<Location, Described>;

/// A relation as the catalogue describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub schema: String,
    pub object: String,
    pub kind: Kind,
    pub of: Option<String>,
}

/// Names as of one reading.
#[derive(Default)]
pub(crate) struct Known {
    /// By object id.
    pub databases: HashMap<u32, String>,
    pub relations: Relations,
}

/// A data directory, and its server if it may be asked.
pub struct Cluster {
    directory: PathBuf,
    /// The directory whose files are to be named; the data directory is at or below it.
    top: Top,
    tablespaces: Vec<Tablespace>,
    connection: Option<Connection>,
    known: Known,
}

impl Cluster {
    /// A data directory at or below `within`, the directory whose files are to be named. No names are read yet.
    pub fn new(directory: &Path, within: &Path) -> Self {
        Cluster {
            directory: directory.to_owned(),
            top: Top::new(within),
            tablespaces: Vec::new(),
            connection: None,
            known: Known::default(),
        }
    }

    /// Takes names from the server from now on, not from the files.
    pub fn ask(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    /// True if the directory is the one at a path, under any name.
    pub fn is_at(&self, path: &Path) -> bool {
        let number = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        self.directory == path || number(path).is_some_and(|found| Some(found) == number(&self.directory))
    }

    /// Reads all names again.
    ///
    /// # Errors
    /// Errors of the server or of a file; earlier names stay known.
    pub fn refresh(&mut self) -> Result<()> {
        self.tablespaces = tablespace::list(&self.directory, &self.top);
        self.known = match &self.connection {
            Some(connection) => server::read(connection)?,
            None => catalogue::read(&self.directory, &self.tablespaces)?,
        };
        Ok(())
    }

    /// The path in the data directory of a file in a tablespace below `within`, and the length of the part up to the
    /// tablespace.
    pub(crate) fn in_tablespace(&self, path: &str) -> Option<(usize, String)> {
        tablespace::inner(&self.tablespaces, path)
    }

    /// True if the path in the data directory is a link to a tablespace that is below `within`.
    pub(crate) fn links_to_below(&self, path: &str) -> bool {
        let oid = path.strip_prefix("pg_tblspc/").and_then(|oid| oid.parse().ok());
        self.tablespaces.iter().any(|tablespace| Some(tablespace.oid) == oid && tablespace.is_below())
    }

    /// Identifies a file by its path in the data directory.
    pub fn find(&self, path: &str) -> Found {
        let Some(relation) = Relation::parse(path) else { return Found::Other };
        let Some(described) = self.known.relations.get(&relation.location) else { return Found::Unknown };
        let database = match relation.location.database {
            0 => "",
            oid => match self.known.databases.get(&oid) {
                Some(name) => name,
                None => return Found::Unknown,
            },
        };
        Found::Name(Name {
            database: database.to_owned(),
            schema: described.schema.clone(),
            object: described.object.clone(),
            kind: if relation.session.is_some() { Kind::Temporary } else { described.kind },
            of: described.of.clone(),
            part: relation.fork.map(str::to_owned),
        })
    }
}
