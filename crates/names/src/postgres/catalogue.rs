//! Names from the files of a data directory, with or without a running server. `pg_filenode.map` leads to `pg_class`,
//! `pg_namespace`, `pg_index` and `pg_database`. Their first columns are the same in versions 12 to 18.

use super::heap::{self, Xacts, name_at, u32_at};
use super::tablespace::Tablespace;
use super::{Described, Known, Location, Relations};
use crate::error::at;
use crate::{Error, Kind, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Object ids of the catalogues, the same in every database.
const PG_DATABASE: u32 = 1262;
const PG_CLASS: u32 = 1259;
const PG_NAMESPACE: u32 = 2615;
const PG_INDEX: u32 = 2610;
/// Object ids of the two tablespaces that always exist.
const PG_DEFAULT: u32 = 1663;
const PG_GLOBAL: u32 = 1664;

/// A row of `pg_class`.
struct Class {
    name: String,
    schema: u32,
    filenode: u32,
    tablespace: u32,
    toast: u32,
    shared: bool,
    kind: u8,
}

impl Class {
    /// Parses a row into object id and class. From version 18 on, four more bytes precede `reltoastrelid`.
    fn parse(row: &[u8], version: u32) -> Option<(u32, Self)> {
        let after = if version >= 18 { 4 } else { 0 };
        let class = Class {
            name: name_at(row, 4)?,
            schema: u32_at(row, 68)?,
            filenode: u32_at(row, 88)?,
            tablespace: u32_at(row, 92)?,
            toast: u32_at(row, 108 + after)?,
            shared: *row.get(113 + after)? != 0,
            kind: *row.get(115 + after)?,
        };
        Some((u32_at(row, 0)?, class))
    }
}

/// Kind of a relation by its `relkind`; `None` for a kind without files.
pub(super) fn kind(letter: u8) -> Option<Kind> {
    Some(match letter {
        b'r' => Kind::Table,
        b'i' => Kind::Index,
        b't' => Kind::Toast,
        b'S' => Kind::Sequence,
        b'm' => Kind::MaterializedView,
        _ => return None,
    })
}

/// The major version, if its files are supported.
fn version(data: &Path) -> Result<u32> {
    let path = data.join("PG_VERSION");
    let text = at(&path, std::fs::read_to_string(&path))?;
    let known = text.trim().parse().ok().filter(|version| (12..=18).contains(version));
    known.ok_or_else(|| Error::Version { path: data.to_owned(), version: text.trim().to_owned() })
}

/// Directories with the catalogues of a database: path, object id, and object id of its default tablespace.
fn databases(data: &Path, tablespaces: &[Tablespace]) -> Result<Vec<(PathBuf, u32, u32)>> {
    let mut found = Vec::new();
    let mut add = |directory: &Path, tablespace| -> Result<()> {
        for entry in at(directory, std::fs::read_dir(directory))? {
            let entry = at(directory, entry)?;
            let database = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(database) = database.filter(|_| entry.path().join("pg_filenode.map").is_file()) {
                found.push((entry.path(), database, tablespace));
            }
        }
        Ok(())
    };
    add(&data.join("base"), 0)?;
    for tablespace in tablespaces {
        // After an upgrade there may be a directory of another version beside this one.
        for inner in std::fs::read_dir(&tablespace.directory).into_iter().flatten().flatten() {
            add(&inner.path(), tablespace.oid)?;
        }
    }
    Ok(found)
}

/// Path of the first file of a relation in a database's directory, by its file number.
fn table(directory: &Path, filenode: Option<&u32>) -> Result<PathBuf> {
    let missing = || Error::Damaged {
        path: directory.join("pg_filenode.map"),
        byte: 8,
        what: "there is no entry for a catalogue that every database has",
    };
    filenode.map(|filenode| directory.join(filenode.to_string())).ok_or_else(missing)
}

/// Reads all names.
pub(super) fn read(data: &Path, tablespaces: &[Tablespace]) -> Result<Known> {
    let version = version(data)?;
    let mut xacts = Xacts::new(data);
    let global = data.join("global");
    let shared = heap::mapped(&global)?;
    let mut known = Known::default();
    heap::rows(&table(&global, shared.get(&PG_DATABASE))?, &mut xacts, |row| {
        known.databases.extend(u32_at(row, 0).zip(name_at(row, 4)));
    })?;
    for (directory, database, tablespace) in databases(data, tablespaces)? {
        let read = Database { directory: &directory, version, database, tablespace, shared: &shared };
        match read.add(&mut xacts, &mut known.relations) {
            // The database was dropped meanwhile.
            Err(_) if !directory.is_dir() => {}
            result => result?,
        }
    }
    Ok(known)
}

struct Database<'a> {
    directory: &'a Path,
    version: u32,
    database: u32,
    tablespace: u32,
    shared: &'a HashMap<u32, u32>,
}

impl Database<'_> {
    fn add(&self, xacts: &mut Xacts, relations: &mut Relations) -> Result<()> {
        let mapped = heap::mapped(self.directory)?;
        let mut classes = HashMap::new();
        heap::rows(&table(self.directory, mapped.get(&PG_CLASS))?, xacts, |row| {
            classes.extend(Class::parse(row, self.version));
        })?;
        let file = |oid: u32| table(self.directory, classes.get(&oid).map(|class: &Class| &class.filenode));
        let mut schemas = HashMap::new();
        heap::rows(&file(PG_NAMESPACE)?, xacts, |row| schemas.extend(u32_at(row, 0).zip(name_at(row, 4))))?;
        // Owners: `pg_index` has the tables of indexes, and the table's row has its toast table.
        let mut owners = HashMap::new();
        heap::rows(&file(PG_INDEX)?, xacts, |row| owners.extend(u32_at(row, 0).zip(u32_at(row, 4))))?;
        owners.extend(classes.iter().filter(|(_, class)| class.toast != 0).map(|(&oid, class)| (class.toast, oid)));

        let schema = |class: &Class| schemas.get(&class.schema).cloned().unwrap_or_default();
        for (&oid, class) in &classes {
            let Some(kind) = kind(class.kind) else { continue };
            let maps = if class.shared { self.shared } else { &mapped };
            let filenode = if class.filenode == 0 { maps.get(&oid) } else { Some(&class.filenode) };
            let Some(&filenode) = filenode else { continue };
            let owner = owners.get(&oid).and_then(|table| classes.get(table));
            let of = owner.map(|owner| format!("{}.{}", schema(owner), owner.name));
            let described = Described { schema: schema(class), object: class.name.clone(), kind, of };
            relations.insert(self.location(class, filenode), described);
        }
        Ok(())
    }

    fn location(&self, class: &Class, filenode: u32) -> Location {
        let (tablespace, database) = match class.tablespace {
            PG_GLOBAL => (0, 0),
            PG_DEFAULT => (0, self.database),
            0 => (self.tablespace, self.database),
            other => (other, self.database),
        };
        Location { tablespace, database, filenode }
    }
}
