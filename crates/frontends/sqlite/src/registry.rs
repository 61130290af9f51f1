//! The databases that this process has open through a cache: one cache each, for all connections.

use crate::error::Error;
use crate::options::Given;
use crate::shared::Shared;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Device and inode.
type Key = (u64, u64);

struct Entry {
    shared: Arc<Shared>,
    connections: usize,
    writable: bool,
    /// Cache that the database was opened with; `texts` are the parameters of its URI.
    cache: Option<PathBuf>,
    texts: Vec<(&'static str, String)>,
}

static OPEN: Mutex<Option<HashMap<Key, Entry>>> = Mutex::new(None);

/// A connection's share of a cache.
pub(crate) struct Handle {
    key: Key,
    pub shared: Arc<Shared>,
}

/// Opens a database through its cache, or joins its other connections. `None` if there is no cache to use.
///
/// # Errors
/// As [`Shared::open`]; also if the database is open with other parameters.
pub(crate) fn open(database: &Path, given: &Given, writable: bool) -> Result<Option<Handle>, Error> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    let found = std::fs::metadata(database).map_err(|source| Error::File { path: database.into(), source })?;
    let key = (found.dev(), found.ino());
    if let Some(entry) = open.get_mut(&key) {
        entry.check(database, given, writable)?;
        entry.connections += 1;
        return Ok(Some(Handle { key, shared: Arc::clone(&entry.shared) }));
    }
    let options = &given.options;
    if options.cache.is_none() && options.below.is_none() {
        return match given.texts.first() {
            // Parameters of a cache without a cache file are a mistake.
            Some((name, _)) => Err(Error::Parameter {
                name: (*name).to_owned(),
                why: "without cache_file there is no cache".to_owned(),
            }),
            None => Ok(None),
        };
    }
    let shared = Arc::new(Shared::open(database, options, writable)?);
    let entry = Entry {
        shared: Arc::clone(&shared),
        connections: 1,
        writable,
        cache: options.cache.clone(),
        texts: given.texts.clone(),
    };
    open.insert(key, entry);
    Ok(Some(Handle { key, shared }))
}

impl Entry {
    /// Checks that a connection with these options may join.
    fn check(&self, database: &Path, given: &Given, writable: bool) -> Result<(), Error> {
        let other = |what: String| Err(Error::Other { path: database.into(), what });
        if writable && !self.writable {
            return other("it is open for reading only".to_owned());
        }
        let cache = &given.options.cache;
        if cache.is_some() && *cache != self.cache {
            return other("another cache".to_owned());
        }
        // A connection takes over the settings that its own URI leaves out.
        let differs = given.texts.iter().find(|&text| text.0 != "cache_file" && !self.texts.contains(text));
        differs.map_or(Ok(()), |(name, value)| other(format!("{name}={value}")))
    }
}

impl Handle {
    /// Ends a connection's use. The last connection closes the cache and gets the result, as of [`Shared::close`].
    ///
    /// `unlock` is called before this process closes the database file, which releases every POSIX lock that the
    /// process has on it.
    pub fn close(self, unlock: impl FnOnce()) -> io::Result<Option<io::Error>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        let entry = open.get_mut(&self.key).expect("a handle's cache is open");
        entry.connections -= 1;
        let closed = if entry.connections == 0 { self.shared.close() } else { Ok(None) };
        unlock();
        if entry.connections == 0 {
            open.remove(&self.key);
        }
        closed
    }
}
