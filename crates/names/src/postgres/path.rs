//! The path of a relation's file: `base/DATABASE/FILENODE`, `global/FILENODE`, or
//! `pg_tblspc/TABLESPACE/PG_VERSION_CATALOGUE/DATABASE/FILENODE`. After the number come a fork (`_fsm`, `_vm`, `_init`)
//! and a segment (`.1` is the second GiB). Before it comes `t3_` if the relation is temporary and of session 3.

/// Location of a relation's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Object id of its tablespace; 0 for the database's default one, which is `base`, and for shared relations.
    pub tablespace: u32,
    /// Object id of its database; 0 for relations that all databases share.
    pub database: u32,
    /// Number of its files; every rewrite gives a new one.
    pub filenode: u32,
}

/// Relation, fork and segment of a file, from its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The relation.
    pub location: Location,
    /// The session that a temporary relation belongs to.
    pub session: Option<u32>,
    /// `fsm`, `vm` or `init`; `None` for the main fork.
    pub fork: Option<&'static str>,
    /// Number of the segment in the fork, from 0. A segment is 1 GiB unless the server was built otherwise.
    pub segment: u32,
}

/// Parses digits only: the server writes no sign, and no leading zero except in 0.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

impl Relation {
    /// Parses a path in the data directory; `None` if the file is not a relation's.
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        let (tablespace, database, file) = match parts[..] {
            ["global", file] => (0, 0, file),
            ["base", database, file] => (0, number(database)?, file),
            ["pg_tblspc", tablespace, version, database, file] if version.starts_with("PG_") => {
                (number(tablespace)?, number(database)?, file)
            }
            _ => return None,
        };
        let (file, segment) = match file.split_once('.') {
            Some((file, segment)) => (file, number(segment)?),
            None => (file, 0),
        };
        let (session, file) = match file.strip_prefix('t') {
            Some(rest) => {
                let (session, file) = rest.split_once('_')?;
                (Some(number(session)?), file)
            }
            None => (None, file),
        };
        let (filenode, fork) = match file.split_once('_') {
            Some((filenode, fork)) => (filenode, Some(*["fsm", "vm", "init"].iter().find(|known| **known == fork)?)),
            None => (file, None),
        };
        let location = Location { tablespace, database, filenode: number(filenode)? };
        Some(Relation { location, session, fork, segment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_of_relations_are_told_from_all_others() {
        let at = |tablespace, database, filenode| Location { tablespace, database, filenode };
        let plain = |location| Relation { location, session: None, fork: None, segment: 0 };
        let cases = [
            ("global/1262", Some(plain(at(0, 0, 1262)))),
            ("base/5/16390", Some(plain(at(0, 5, 16390)))),
            ("base/5/16390.12", Some(Relation { segment: 12, ..plain(at(0, 5, 16390)) })),
            ("base/5/16390_fsm", Some(Relation { fork: Some("fsm"), ..plain(at(0, 5, 16390)) })),
            ("base/5/16390_vm.1", Some(Relation { fork: Some("vm"), segment: 1, ..plain(at(0, 5, 16390)) })),
            ("base/5/t3_16390", Some(Relation { session: Some(3), ..plain(at(0, 5, 16390)) })),
            ("pg_tblspc/900/PG_15_202209061/5/7", Some(plain(at(900, 5, 7)))),
            ("base/5/PG_VERSION", None),
            ("base/5/pg_filenode.map", None),
            ("base/5/pg_internal.init", None),
            ("base/5/16390_tmp", None),
            ("base/5/16390.", None),
            ("base/5/+1", None),
            ("base/5/99999999999", None),
            ("global/pg_control", None),
            ("pg_xact/0000", None),
            ("pg_wal/000000010000000000000001", None),
            ("pg_tblspc/900/other/5/7", None),
            ("base/pgsql_tmp/pgsql_tmp12.0", None),
            ("", None),
        ];
        for (path, wanted) in cases {
            assert_eq!(Relation::parse(path), wanted, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_parsed_or_not_and_what_is_written_is_read_back(
            noise in ".*", database: u32, filenode: u32, segment in 0..40_u32, fork in 0..4_usize, session in 0..9_u32,
        ) {
            let _ = Relation::parse(&noise);
            let _ = Relation::parse(&format!("base/5/{noise}"));
            let fork = [None, Some("fsm"), Some("vm"), Some("init")][fork];
            let ending = fork.map(|fork| format!("_{fork}")).unwrap_or_default();
            let part = if segment > 0 { format!(".{segment}") } else { String::new() };
            let session = (session > 0).then_some(session);
            let owner = session.map(|session| format!("t{session}_")).unwrap_or_default();
            let location = Location { tablespace: 0, database, filenode };
            let path = format!("base/{database}/{owner}{filenode}{ending}{part}");
            prop_assert_eq!(Relation::parse(&path), Some(Relation { location, session, fork, segment }));
        }
    }
}
