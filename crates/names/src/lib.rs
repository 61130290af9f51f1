//! Names of the tables and indexes that the files of a database directory belong to.
//!
//! A cache knows files; a person knows tables. [`Names`] finds the data directories of PostgreSQL and of MariaDB or
//! MySQL at or below a directory. It identifies paths: `base/16384/16390.1` is the second GiB of `shop.public.orders`.
//!
//! Names are read from the server's files unless the server is asked: PostgreSQL's `pg_class` and its neighbours,
//! InnoDB's dictionary. The files are as of the last checkpoint, so an object made since then has no name yet. A server
//! that is asked ([`Names::ask`]) knows it at once. A file without a name makes the names be read again, at most once a
//! second, and ever more rarely while that does not help. A returned name is at most five minutes old, because tables
//! are renamed too.

mod error;
pub mod innodb;
pub mod postgres;

pub use error::{Error, Result};

use postgres::Connection;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Depth to which data directories are searched below the given directory.
const DEPTH_MAX: usize = 2;
/// Time between two readings for files without a name: the shortest, and the longest after readings that did not help.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];
/// Time for which a name is taken to be current: the time between the server's checkpoints. Before the next checkpoint
/// its files hold no other name.
const FRESH: Duration = Duration::from_secs(300);

/// Kind of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Rows. Where the server keeps them in one file (InnoDB), also all indexes of the table.
    Table,
    /// An index.
    Index,
    /// Values too large for their table's own pages.
    Toast,
    /// A sequence.
    Sequence,
    /// A materialized view.
    MaterializedView,
    /// A table or index that ends with its session or statement.
    Temporary,
    /// Data of the server itself: its dictionary, undo records.
    System,
}

impl Kind {
    /// The kind as printed.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Index => "index",
            Kind::Toast => "toast",
            Kind::Sequence => "sequence",
            Kind::MaterializedView => "materialized view",
            Kind::Temporary => "temporary",
            Kind::System => "system",
        }
    }
}

/// Name of the object that a file belongs to, as SQL has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Name {
    /// The database; empty for objects that all databases share.
    pub database: String,
    /// The schema; empty where the server has none.
    pub schema: String,
    /// The table, index or sequence.
    pub object: String,
    /// Kind of the object.
    pub kind: Kind,
    /// The table that an index or a toast table belongs to, with its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The part of the object, if not the main one: `fsm`, `vm` and `init` (PostgreSQL), a partition (InnoDB).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        for before in [&self.database, &self.schema] {
            if !before.is_empty() {
                write!(f, "{before}.")?;
            }
        }
        f.write_str(&self.object)?;
        self.part.as_ref().map_or(Ok(()), |part| write!(f, " ({part})"))
    }
}

/// One data directory.
enum Server {
    Postgres(postgres::Cluster),
    InnoDb(innodb::DataDirectory),
}

/// A data directory, and its path below the given directory.
struct Place {
    /// Ends in `/` unless it is empty.
    prefix: String,
    server: Server,
    /// Error of the last reading.
    trouble: Option<Error>,
    read: Instant,
    /// Time between readings for a file without a name.
    patience: Duration,
}

impl Place {
    fn is_postgres(&self) -> bool {
        matches!(self.server, Server::Postgres(_))
    }

    fn refresh(&mut self) {
        let read = match &mut self.server {
            Server::Postgres(cluster) => cluster.refresh(),
            Server::InnoDb(directory) => directory.refresh(),
        };
        // After an error the earlier names stay known.
        self.trouble = read.err();
        self.read = Instant::now();
    }

    /// A file's path in the data directory, and the length of the part that leads to the directory or its tablespace.
    fn inner<'p>(&self, path: &'p str) -> Option<(usize, Cow<'p, str>)> {
        if let Server::Postgres(cluster) = &self.server
            && let Some((length, inner)) = cluster.in_tablespace(path)
        {
            return Some((length, inner.into()));
        }
        path.strip_prefix(&self.prefix).map(|inner| (self.prefix.len(), inner.into()))
    }

    /// True if the path is a relation's file in this data directory or in a known tablespace of it.
    fn has_relation(&self, path: &str) -> bool {
        self.is_postgres() && self.inner(path).is_some_and(|(_, inner)| postgres::Relation::parse(&inner).is_some())
    }

    /// Identifies a file by its path. A path that looks like a tablespace's but is in no known one is `Unknown`.
    fn find(&self, path: &str) -> Found {
        let inner = self.inner(path);
        match (&self.server, inner) {
            (Server::Postgres(cluster), inner) => {
                let found = inner.map_or(Found::Other, |(_, inner)| cluster.find(&inner));
                let missed = found == Found::Other && postgres::tablespace::is_like(path);
                if missed { Found::Unknown } else { found }
            }
            (Server::InnoDb(directory), Some((_, inner))) => directory.find(&inner),
            (Server::InnoDb(_), None) => Found::Other,
        }
    }

    /// Identifies a file by its path, after another reading if one is due.
    fn find_fresh(&mut self, path: &str) -> Found {
        let found = self.find(path);
        let unknown = found == Found::Unknown;
        // InnoDB's files have their names in their paths.
        let due = match (&found, &self.server) {
            (Found::Unknown, _) => self.patience,
            (Found::Name(_), Server::Postgres(_)) => FRESH,
            _ => return found,
        };
        if self.read.elapsed() < due {
            return found;
        }
        self.refresh();
        let found = self.find(path);
        let in_vain = unknown && found == Found::Unknown;
        self.patience = if in_vain { (2 * self.patience).min(PATIENCE[1]) } else { PATIENCE[0] };
        found
    }
}

/// Knowledge about a file, by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The file's name.
    Name(Name),
    /// The file of a table or index of which nothing is known yet.
    Unknown,
    /// The file of neither a table nor an index.
    Other,
}

/// Names of the files below a directory.
pub struct Names {
    places: Vec<Place>,
}

impl Names {
    /// Finds the data directories at a directory and up to two levels below, and reads their names. If there are none,
    /// no file has a name; that is not an error.
    ///
    /// # Errors
    /// If the directory cannot be listed. [`troubles`](Names::troubles) lists data directories that cannot be read.
    pub fn find(directory: &Path) -> Result<Self> {
        let mut places = Vec::new();
        collect(directory, directory, String::new(), DEPTH_MAX, &mut places)?;
        places.iter_mut().for_each(Place::refresh);
        Ok(Names { places })
    }

    /// Takes names from a PostgreSQL server from now on. They apply to the only data directory of PostgreSQL found. If
    /// there are several, they apply to the one that the server reports as its own.
    ///
    /// If there is no data directory of PostgreSQL, none is the server's own, or the server cannot be asked.
    /// When there is no data directory of PostgreSQL, or the server cannot be asked.
    pub fn ask(&mut self, connection: Connection) -> Result<()> {
        let own = postgres::server::data_directory(&connection);
        let mut clusters: Vec<&mut Place> = self.places.iter_mut().filter(|place| place.is_postgres()).collect();
        let at = match (clusters.len(), own) {
            (0, _) => return Err(Error::NoCluster),
            (1, _) => 0,
            (_, Err(error)) => return Err(error),
            (_, Ok(own)) => {
                let same = |place: &&mut Place| match &place.server {
                    Server::Postgres(cluster) => cluster.is_at(Path::new(&own)),
                    Server::InnoDb(_) => false,
                };
                clusters.iter().position(same).ok_or(Error::OtherCluster(PathBuf::from(own)))?
            }
        };
        let place = &mut *clusters[at];
        if let Server::Postgres(cluster) = &mut place.server {
            cluster.ask(connection);
        }
        place.refresh();
        place.trouble.take().map_or(Ok(()), Err)
    }

    /// True if no data directory was found.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Name of a file, by its path below the directory; `None` when it has none or none is known.
    ///
    /// If nothing is known of a table's or index's file, the server or its files are asked again first, at most once a
    /// second. After a reading that does not help, the next waits twice as long, up to about a minute (64 s). Names of
    /// PostgreSQL that were read five minutes ago are read again in any case; those of InnoDB are in the paths.
    pub fn name_of(&mut self, path: &str) -> Option<Name> {
        let place = self.place_of(path);
        let lost = postgres::tablespace::is_like(path) && !place.is_some_and(|at| self.places[at].has_relation(path));
        // Any server may have made the tablespace since the last reading.
        let mut places = if lost { 0..self.places.len() } else { place.map_or(0..0, |at| at..at + 1) };
        places.find_map(|at| match self.places[at].find_fresh(path) {
            Found::Name(name) => Some(name),
            Found::Unknown | Found::Other => None,
        })
    }

    /// The knowledge behind the answer of [`name_of`](Names::name_of), without asking again.
    pub fn known(&self, path: &str) -> Found {
        let place = self.place_of(path).or_else(|| self.places.iter().position(Place::is_postgres));
        place.map_or(Found::Other, |at| self.places[at].find(path))
    }

    /// The index that a page of an InnoDB file belongs to.
    pub fn index_of(&self, path: &str, page: &[u8]) -> Option<Name> {
        let place = &self.places[self.place_of(path)?];
        match &place.server {
            Server::InnoDb(directory) => directory.index_of(&path[place.prefix.len()..], page),
            Server::Postgres(_) => None,
        }
    }

    /// Reads all names again now.
    pub fn refresh(&mut self) {
        self.places.iter_mut().for_each(Place::refresh);
    }

    /// The data directories: their paths below the given directory (empty for itself), the kind of server, and the
    /// error of reading their names, if any.
    pub fn troubles(&self) -> impl Iterator<Item = (&str, &'static str, Option<&Error>)> {
        self.places.iter().map(|place| {
            let kind = match place.server {
                Server::Postgres(_) => "PostgreSQL",
                Server::InnoDb(_) => "InnoDB",
            };
            (place.prefix.trim_end_matches('/'), kind, place.trouble.as_ref())
        })
    }

    /// True if the path is a link to a tablespace that is below the given directory.
    pub fn is_link_to_below(&self, path: &str) -> bool {
        self.places.iter().any(|place| match (&place.server, path.strip_prefix(&place.prefix)) {
            (Server::Postgres(cluster), Some(link)) => cluster.links_to_below(link),
            _ => false,
        })
    }

    /// The data directory of a file, as the path that [`troubles`](Names::troubles) gives.
    pub fn directory_of(&self, path: &str) -> Option<&str> {
        self.place_of(path).map(|at| self.places[at].prefix.trim_end_matches('/'))
    }

    /// The data directory that has a path, itself or in a tablespace; the innermost if several have it.
    fn place_of(&self, path: &str) -> Option<usize> {
        let holds = |at: usize| self.places[at].inner(path).map(|(length, _)| (length, at));
        (0..self.places.len()).filter_map(holds).max_by_key(|(length, _)| *length).map(|(_, at)| at)
    }
}

/// Adds the data directories at and below a directory.
fn collect(top: &Path, directory: &Path, prefix: String, depth: usize, places: &mut Vec<Place>) -> Result<()> {
    let server = if postgres::is_cluster(directory) {
        Some(Server::Postgres(postgres::Cluster::new(directory, top)))
    } else if innodb::is_data_directory(directory) {
        Some(Server::InnoDb(innodb::DataDirectory::new(directory)))
    } else {
        None
    };
    if let Some(server) = server {
        places.push(Place { prefix, server, trouble: None, read: Instant::now(), patience: PATIENCE[0] });
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in error::at(directory, std::fs::read_dir(directory))? {
        let entry = error::at(directory, entry)?;
        // A directory that cannot be listed is skipped: its files cannot be named either.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && std::fs::read_dir(entry.path()).is_ok() {
            let name = entry.file_name().to_string_lossy().into_owned();
            collect(top, &entry.path(), format!("{prefix}{name}/"), depth - 1, places)?;
        }
    }
    Ok(())
}
