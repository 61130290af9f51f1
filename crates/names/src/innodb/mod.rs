//! InnoDB: a file is a table, or a partition of one, with all its indexes. Each page has the number of its index, and
//! the dictionary has the index's name.

mod dictionary;
mod filename;

pub use filename::{decode, encode};

use crate::{Found, Kind, Name, Result};
use dictionary::Dictionary;
use std::path::{Path, PathBuf};

/// Offsets in a page, in bytes: of the number of its index (`PAGE_INDEX_ID`), and of its type (`FIL_PAGE_TYPE`).
const PAGE_INDEX_ID: usize = 66;
const PAGE_TYPE: usize = 24;
/// Types of index pages: of a B+tree, its root after an instant change of columns, an R-tree.
const INDEX_PAGES: [u16; 3] = [17855, 18, 17854];

/// True if the directory is a data directory.
pub fn is_data_directory(directory: &Path) -> bool {
    directory.join("ibdata1").is_file()
}

/// The number of the index that a page belongs to; `None` if it belongs to none.
pub fn index_id(page: &[u8]) -> Option<u64> {
    let kind = u16::from_be_bytes(page.get(PAGE_TYPE..PAGE_TYPE + 2)?.try_into().ok()?);
    let id = u64::from_be_bytes(page.get(PAGE_INDEX_ID..PAGE_INDEX_ID + 8)?.try_into().ok()?);
    INDEX_PAGES.contains(&kind).then_some(id)
}

/// A data directory.
pub struct DataDirectory {
    directory: PathBuf,
    dictionary: Dictionary,
}

impl DataDirectory {
    /// A data directory whose dictionary has not been read yet.
    pub fn new(directory: &Path) -> Self {
        DataDirectory { directory: directory.to_owned(), dictionary: Dictionary::default() }
    }

    /// Reads the dictionary from disk. MySQL 8 keeps it elsewhere, so indexes have only numbers there.
    ///
    /// # Errors
    /// If `ibdata1` cannot be read or is damaged; earlier names stay known.
    pub fn refresh(&mut self) -> Result<()> {
        self.dictionary = dictionary::read(&self.directory.join("ibdata1"))?;
        Ok(())
    }

    /// Identifies a file by its path in the data directory.
    pub fn find(&self, path: &str) -> Found {
        let name = |database: &str, object: String, kind, part: Option<String>| {
            let schema = String::new();
            Found::Name(Name { database: decode(database), schema, object, kind, of: None, part })
        };
        match path.split('/').collect::<Vec<_>>()[..] {
            [file] => match file {
                _ if file.starts_with("ibtmp") => name("", file.to_owned(), Kind::Temporary, None),
                _ if file.starts_with("ibdata") || file.starts_with("undo") || file == "mysql.ibd" => {
                    name("", file.to_owned(), Kind::System, None)
                }
                _ => Found::Other,
            },
            [database, file] => {
                let Some((stem, ending)) = file.rsplit_once('.') else { return Found::Other };
                let (table, part) = match stem.split_once("#P#").or_else(|| stem.split_once("#p#")) {
                    Some((table, part)) => (table, Some(decode(part).replace("#SP#", ".").replace("#sp#", "."))),
                    None => (stem, None),
                };
                // The older engines keep rows and indexes in two files.
                let (kind, part) = match ending {
                    "ibd" | "MAD" | "MYD" => (Kind::Table, part),
                    "MAI" | "MYI" => (Kind::Index, part.or(Some("indexes".into()))),
                    _ => return Found::Other,
                };
                let kind = match table {
                    _ if table.starts_with("#sql") => Kind::Temporary,
                    // Tables of a full-text index.
                    _ if table.starts_with("FTS_") => Kind::System,
                    _ => kind,
                };
                name(database, decode(table), kind, part)
            }
            _ => Found::Other,
        }
    }

    /// The index that a page of a file belongs to. An index missing from the dictionary is named by its number.
    pub fn index_of(&self, path: &str, page: &[u8]) -> Option<Name> {
        let Found::Name(table) = self.find(path) else { return None };
        let id = index_id(page)?;
        let object = match self.dictionary.index(id) {
            // The server's mark of an index that is being made.
            Some(name) => name.trim_start_matches('\u{fffd}').to_owned(),
            None => format!("index {id}"),
        };
        Some(Name { object, kind: Kind::Index, of: Some(table.object), ..table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_tables_are_told_from_all_others() {
        let directory = DataDirectory::new(Path::new("/nowhere"));
        let cases = [
            ("shop/orders.ibd", "shop.orders", Kind::Table),
            ("shop/orders#P#p2024.ibd", "shop.orders (p2024)", Kind::Table),
            ("shop/orders#P#p1#SP#s0.ibd", "shop.orders (p1.s0)", Kind::Table),
            ("my@002dshop/a@0020b.ibd", "my-shop.a b", Kind::Table),
            ("shop/#sql-alter-2f-3.ibd", "shop.#sql-alter-2f-3", Kind::Temporary),
            ("mysql/db.MAI", "mysql.db (indexes)", Kind::Index),
            ("mysql/db.MAD", "mysql.db", Kind::Table),
            ("ibdata1", "ibdata1", Kind::System),
            ("undo001", "undo001", Kind::System),
            ("ibtmp1", "ibtmp1", Kind::Temporary),
        ];
        for (path, shown, kind) in cases {
            let Found::Name(name) = directory.find(path) else { panic!("{path} has a name") };
            assert_eq!((name.to_string().as_str(), name.kind), (shown, kind), "{path}");
        }
        for path in ["shop/orders.frm", "shop/db.opt", "ib_logfile0", "a/b/c.ibd", "", "aria_log_control"] {
            assert_eq!(directory.find(path), Found::Other, "{path}");
        }
    }

    #[test]
    fn a_page_says_which_index_it_is_of() {
        let mut page = vec![0; 16384];
        page[PAGE_INDEX_ID..PAGE_INDEX_ID + 8].copy_from_slice(&47_u64.to_be_bytes());
        assert_eq!(index_id(&page), None, "it is no page of an index");
        page[PAGE_TYPE..PAGE_TYPE + 2].copy_from_slice(&17855_u16.to_be_bytes());
        assert_eq!(index_id(&page), Some(47));
        assert_eq!(index_id(&page[..70]), None, "it is cut off");
    }
}
