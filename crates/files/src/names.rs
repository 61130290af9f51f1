//! Names of the files that bypass the cache.

use std::fmt;
use std::str::FromStr;

/// A pattern of names as in a shell: `*` is any part of a name and `?` any character of it; neither stands for a `/`.
/// The pattern matches wherever its names stand one after the other in a path, so a directory's name means all that is
/// in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

/// Logs of databases, which a cache does not help: they are written once, read never or after a crash, and ordered and
/// synced by their own file system. SQLite's `-shm` is shared between processes by mapping.
pub const LOGS: &[&str] = &["pg_wal/*", "ib_logfile*", "#innodb_redo", "*-wal", "*-shm", "*-journal"];

/// Temporary files of databases, which live as long as a query or a server.
const TEMPORARY: &[&str] = &["pgsql_tmp", "ibtmp*"];

/// Files that bypass a cache by default.
pub fn not_cached() -> impl Iterator<Item = &'static str> {
    LOGS.iter().chain(TEMPORARY).copied()
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<String> = text.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.is_empty() { Err("a pattern has at least one name".to_owned()) } else { Ok(Self(names)) }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

impl Pattern {
    /// True if the pattern names the file at this path, which is relative to the backing directory.
    pub fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let fits =
            |run: &[&str]| run.iter().zip(&self.0).all(|(name, wanted)| fits(wanted.as_bytes(), name.as_bytes()));
        names.windows(self.0.len()).any(fits)
    }
}

/// Matches one name against one pattern, in time at most proportional to the product of their lengths.
fn fits(wanted: &[u8], name: &[u8]) -> bool {
    let (mut w, mut n) = (0, 0);
    // Position of the last `*`, and of the end of the part of the name that it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match wanted.get(w) {
            Some(b'*') => {
                star = Some((w, n));
                w += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => (w, n) = (w + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (w, n) = (at + 1, taken + 1);
            }
        }
    }
    wanted[w..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_names_anywhere_in_a_path() {
        let cases = [
            ("pg_wal/*", "data/pg_wal/000000010000000000000001", true),
            ("pg_wal/*", "pg_wal/archive_status/x.ready", true),
            ("pg_wal/*", "pg_wal", false),
            ("pg_wal/*", "my_pg_wal/x", false),
            ("pgsql_tmp", "base/pgsql_tmp/pgsql_tmp12.0", true),
            ("*-wal", "a/b.db-wal", true),
            ("*-wal", "a/b.db-wal2", false),
            ("ib_logfile?", "ib_logfile1", true),
            ("ib_logfile?", "ib_logfile", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("*", "anything", true),
            ("x/y", "x/z/y", false),
        ];
        for (pattern, path, wanted) in cases {
            assert_eq!(pattern.parse::<Pattern>().unwrap().matches(path), wanted, "{pattern} and {path}");
        }
        assert!("/".parse::<Pattern>().is_err());
    }
}
