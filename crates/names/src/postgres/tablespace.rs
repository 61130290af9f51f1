//! Tablespaces: `pg_tblspc/OID` is a link to a directory anywhere. If that is below the directory whose files are
//! named, its files have two paths: through the link, and as a cache that serves the whole directory sees them.

use super::Relation;
use std::path::{Component, Path, PathBuf};

/// A directory by the path that was given, and by the path that links in it use.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    given: PathBuf,
    seen: PathBuf,
}

impl Top {
    pub fn new(given: &Path) -> Self {
        let seen = in_other_root(given).or_else(|| given.canonicalize().ok());
        Top { given: given.to_owned(), seen: seen.unwrap_or_else(|| given.to_owned()) }
    }

    /// The path of a link's target below the directory, if it is there.
    fn below(&self, target: &Path) -> Option<PathBuf> {
        let plain = |below: &Path| below.components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(below) = target.strip_prefix(&self.seen).ok().filter(|below| plain(below)) {
            return Some(below.to_owned());
        }
        Some(target.canonicalize().ok()?.strip_prefix(&self.seen).ok()?.to_owned())
    }
}

/// Path of a file as another process sees it: `/...` for `/proc/PID/root/...`; `None` for other paths. Links in such a
/// directory use that process's paths, so following them from here leads elsewhere.
fn in_other_root(path: &Path) -> Option<PathBuf> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    parts.next()?;
    (parts.next()?.as_os_str() == "root").then(|| Path::new("/").join(parts.as_path()))
}

/// A tablespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tablespace {
    pub oid: u32,
    /// Directory in which its files can be read.
    pub directory: PathBuf,
    /// Its path below the given directory, ending in `/` unless empty; `None` if it is elsewhere.
    prefix: Option<String>,
    /// Beginning of the name of the directory in which servers of this version keep their files, such as `PG_15_`.
    folder: String,
}

impl Tablespace {
    /// True if the tablespace is below the given directory.
    pub fn is_below(&self) -> bool {
        self.prefix.is_some()
    }

    /// The path through the link of a file below the given directory, and the length of the part up to the tablespace.
    fn inner(&self, path: &str) -> Option<(usize, String)> {
        let prefix = self.prefix.as_ref()?;
        let inner = path.strip_prefix(prefix).filter(|inner| inner.starts_with(&self.folder))?;
        Some((prefix.len(), format!("pg_tblspc/{}/{inner}", self.oid)))
    }
}

/// The tablespaces of a data directory.
pub(crate) fn list(data: &Path, top: &Top) -> Vec<Tablespace> {
    let version = std::fs::read_to_string(data.join("PG_VERSION")).unwrap_or_default();
    let folder = format!("PG_{}_", version.trim());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data.join("pg_tblspc")).into_iter().flatten().flatten() {
        let Some(oid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let below = std::fs::read_link(entry.path()).ok().and_then(|target| top.below(&target));
        let directory = below.as_ref().map_or_else(|| entry.path(), |below| top.given.join(below));
        let prefix = below.and_then(|below| {
            let below = below.to_str()?;
            Some(if below.is_empty() { String::new() } else { format!("{below}/") })
        });
        found.push(Tablespace { oid, directory, prefix, folder: folder.clone() });
    }
    found
}

/// The path in the data directory of a file below the given directory, through its innermost tablespace; and the length
/// of the part up to that tablespace.
pub(crate) fn inner(tablespaces: &[Tablespace], path: &str) -> Option<(usize, String)> {
    tablespaces.iter().filter_map(|tablespace| tablespace.inner(path)).max_by_key(|(length, _)| *length)
}

/// True if a path has the form of a file in some tablespace.
pub(crate) fn is_like(path: &str) -> bool {
    let mut parts = path.rsplitn(4, '/');
    let (Some(file), Some(database), Some(version)) = (parts.next(), parts.next(), parts.next()) else { return false };
    Relation::parse(&format!("pg_tblspc/0/{version}/{database}/{file}")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A data directory, and tablespaces beside it, in it, elsewhere, and without a link.
    fn made(root: &Path) -> PathBuf {
        let data = root.join("top/data");
        for folder in ["top/data/pg_tblspc/903", "top/data/own/PG_15_1", "top/space/PG_15_1", "elsewhere/PG_15_1"] {
            std::fs::create_dir_all(root.join(folder)).expect("folders");
        }
        std::fs::write(data.join("PG_VERSION"), "15\n").expect("a file");
        for (oid, target) in [(900, "top/space"), (901, "top/data/own"), (902, "elsewhere")] {
            symlink(root.join(target), data.join(format!("pg_tblspc/{oid}"))).expect("a link");
        }
        data
    }

    #[test]
    fn files_of_tablespaces_are_found_by_where_their_links_lead() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let data = made(scratch.path());
        // The same directory under another name, and as another process sees it.
        symlink(scratch.path().join("top"), scratch.path().join("other")).expect("a link");
        let through = PathBuf::from(format!("/proc/self/root{}", scratch.path().join("top").display()));
        for top in [scratch.path().join("top"), scratch.path().join("other"), through] {
            let tablespaces = list(&data, &Top::new(&top));
            let inner = |path| inner(&tablespaces, path).map(|(_, inner)| inner);
            let cases = [
                ("space/PG_15_1/5/7", Some("pg_tblspc/900/PG_15_1/5/7")),
                ("data/own/PG_15_1/5/7_vm", Some("pg_tblspc/901/PG_15_1/5/7_vm")),
                ("space/PG_14_1/5/7", None),
                ("space", None),
                ("elsewhere/PG_15_1/5/7", None),
                ("data/pg_tblspc/900/PG_15_1/5/7", None),
            ];
            for (path, wanted) in cases {
                assert_eq!(inner(path).as_deref(), wanted, "{path} below {}", top.display());
            }
            let mut places: Vec<_> = tablespaces.iter().map(|one| (one.oid, one.directory.clone())).collect();
            places.sort();
            let inside = |oid: u32| (oid, data.join(format!("pg_tblspc/{oid}")));
            let wanted = [(900, top.join("space")), (901, top.join("data/own")), inside(902), inside(903)];
            assert_eq!(places, wanted);
        }
    }

    #[test]
    fn a_link_out_of_the_directory_and_back_by_dots_is_followed() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let data = made(scratch.path());
        let dots = scratch.path().join("top/../elsewhere");
        symlink(dots, data.join("pg_tblspc/904")).expect("a link");
        let tablespaces = list(&data, &Top::new(&scratch.path().join("top")));
        assert_eq!(tablespaces.iter().find(|one| one.oid == 904).expect("it is listed").prefix, None);
    }

    #[test]
    fn what_is_like_a_file_of_a_tablespace() {
        for path in ["PG_15_1/5/7", "a/b/PG_15_1/5/7.1", "a/PG_15_1/5/t3_7"] {
            assert!(is_like(path), "{path}");
        }
        for path in ["base/5/7", "a/PG_15_1/5/PG_VERSION", "PG_15_1/pgsql_tmp/pgsql_tmp1.0", "5/7", ""] {
            assert!(!is_like(path), "{path}");
        }
    }
}
