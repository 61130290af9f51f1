//! Which table or index a file of a database directory belongs to.
//!
//! A cache knows files; a person knows tables. [`Names`] finds the data directories of PostgreSQL and of MariaDB or MySQL at
//! or below a directory and says of a path what it is: `base/16384/16390.1` is the second GiB of `shop.public.orders`.
//!
//! Names are read from the server's files unless the server is asked: PostgreSQL's `pg_class` and its neighbours,
//! InnoDB's dictionary. These files are as the last checkpoint wrote them, so an object made since has no name yet. A
//! server that is asked ([`Names::ask`]) knows it at once. A file without a name makes them be read again: at most once
//! a second, and ever more rarely while that helps nothing. A name is at most five minutes old when it is told, for
//! tables are renamed too.

mod error;
pub mod innodb;
pub mod postgres;

pub use error::{Error, Result};

use postgres::Connection;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Directories below the one given in which a data directory is looked for.
const DEPTH_MAX: usize = 2;
/// Between two readings for the sake of files without a name: the shortest, and the longest when the one before did not help.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];
/// Time for which a name that was read is taken to be the current one. It is the time between the server's checkpoints:
/// before the next one its files know no other name.
const FRESH: Duration = Duration::from_secs(300);

/// Kind of contents that a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Rows, with all indexes of the table where the server keeps them in one file (InnoDB).
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
    /// Data that a server keeps for itself: its dictionary, undo records.
    System,
}

impl Kind {
    /// As printed.
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

/// Name of the object that a file belongs to, as the object's creator calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Name {
    /// The database; empty for what all of them share.
    pub database: String,
    /// The schema; empty where there are none.
    pub schema: String,
    /// The table, index or sequence.
    pub object: String,
    /// Kind of the object.
    pub kind: Kind,
    /// The table that an index or a toast table belongs to, with its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Which part of it the file is, if not the main one: `fsm`, `vm` and `init` (PostgreSQL), a partition (InnoDB).
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

/// A data directory and where it is below the one that was given.
struct Place {
    /// With a `/` at its end unless it is empty.
    prefix: String,
    server: Server,
    /// Why the last reading failed.
    trouble: Option<Error>,
    read: Instant,
    /// Time that a file without a name waits for the next reading.
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
        // What was known before stays known.
        self.trouble = read.err();
        self.read = Instant::now();
    }

    /// The path in the data directory of a file, and how much of its path leads to there or to the tablespace it is in.
    fn inner<'p>(&self, path: &'p str) -> Option<(usize, Cow<'p, str>)> {
        if let Server::Postgres(cluster) = &self.server
            && let Some((length, inner)) = cluster.in_tablespace(path)
        {
            return Some((length, inner.into()));
        }
        path.strip_prefix(&self.prefix).map(|inner| (self.prefix.len(), inner.into()))
    }

    /// Is it the path of a file of a relation in this data directory or a tablespace of it that is known?
    fn has_relation(&self, path: &str) -> bool {
        self.is_postgres() && self.inner(path).is_some_and(|(_, inner)| postgres::Relation::parse(&inner).is_some())
    }

    /// Of what looks like a tablespace's and is in none that is known it is said that nothing is known of it.
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

    /// Identifies a file by its path, after another reading where one is due.
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
    /// Its name.
    Name(Name),
    /// It is a table's or index's file, of which nothing is known (yet).
    Unknown,
    /// It is neither.
    Other,
}

/// Names of the files below a directory.
pub struct Names {
    places: Vec<Place>,
}

impl Names {
    /// Finds the data directories at and below a directory, two levels down at most, and reads what they say. No data
    /// directory is no error: then no file has a name.
    ///
    /// # Errors
    /// When the directory cannot be listed. A data directory that cannot be read shows in [`troubles`](Names::troubles).
    pub fn find(directory: &Path) -> Result<Self> {
        let mut places = Vec::new();
        collect(directory, directory, String::new(), DEPTH_MAX, &mut places)?;
        places.iter_mut().for_each(Place::refresh);
        Ok(Names { places })
    }

    /// Lets a PostgreSQL server tell the names of the data directories it serves: of the only one that was found, or of
    /// the one the server says is its own.
    ///
    /// # Errors
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

    /// Is there any data directory?
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Name of a file, by its path below the directory; none when it has none or none is known.
    ///
    /// If nothing is known of a file that must be a table or an index, the server or its files are asked again first.
    /// They are asked at most once a second. After a reading in vain the next waits twice as long, to about a minute.
    /// Names of PostgreSQL read five minutes ago are read again in any case; those of InnoDB are in the paths.
    pub fn name_of(&mut self, path: &str) -> Option<Name> {
        let place = self.place_of(path);
        let lost = postgres::tablespace::is_like(path) && !place.is_some_and(|at| self.places[at].has_relation(path));
        // Any server may have made the tablespace since.
        let mut places = if lost { 0..self.places.len() } else { place.map_or(0..0, |at| at..at + 1) };
        places.find_map(|at| match self.places[at].find_fresh(path) {
            Found::Name(name) => Some(name),
            Found::Unknown | Found::Other => None,
        })
    }

    /// Knowledge on which [`name_of`](Names::name_of) bases its answer, without asking again.
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

    /// Asks again, whether or not there is a reason to.
    pub fn refresh(&mut self) {
        self.places.iter_mut().for_each(Place::refresh);
    }

    /// The data directories, as paths below the one that was given (empty for itself), the kind of server, and why its names
    /// could not be read, where they could not.
    pub fn troubles(&self) -> impl Iterator<Item = (&str, &'static str, Option<&Error>)> {
        self.places.iter().map(|place| {
            let kind = match place.server {
                Server::Postgres(_) => "PostgreSQL",
                Server::InnoDb(_) => "InnoDB",
            };
            (place.prefix.trim_end_matches('/'), kind, place.trouble.as_ref())
        })
    }

    /// Is it the path of a link to a tablespace that is below the directory itself?
    pub fn is_link_to_below(&self, path: &str) -> bool {
        self.places.iter().any(|place| match (&place.server, path.strip_prefix(&place.prefix)) {
            (Server::Postgres(cluster), Some(link)) => cluster.links_to_below(link),
            _ => false,
        })
    }

    /// The data directory whose file this is, by its path as [`troubles`](Names::troubles) has it.
    pub fn directory_of(&self, path: &str) -> Option<&str> {
        self.place_of(path).map(|at| self.places[at].prefix.trim_end_matches('/'))
    }

    /// The data directory or one of its tablespaces that a path is in, the innermost where one is inside another.
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
        // What cannot be looked into cannot be named either.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && std::fs::read_dir(entry.path()).is_ok() {
            let name = entry.file_name().to_string_lossy().into_owned();
            collect(top, &entry.path(), format!("{prefix}{name}/"), depth - 1, places)?;
        }
    }
    Ok(())
}
