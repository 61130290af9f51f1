//! Resolves the databases' names for their relations to files of the backing directory.

use crate::message::Use;
use entresol_files::FileId;
use entresol_names::innodb::encode;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Upper bound on the segments of a relation: 32 TiB.
const SEGMENTS_MAX: usize = 1 << 15;

/// The mount point where files are served, and their backing directory.
#[derive(Clone, Debug)]
pub struct Served {
    mountpoint: PathBuf,
    backing: PathBuf,
}

impl Served {
    /// Files of `backing` as seen at `mountpoint`; both paths are absolute.
    pub fn new(mountpoint: PathBuf, backing: PathBuf) -> Self {
        Served { mountpoint, backing }
    }

    /// The directory in which programs see the files.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The path of a directory relative to the mount point; `None` if it is outside.
    pub fn within(&self, directory: &str) -> Option<PathBuf> {
        let within = Path::new(directory).strip_prefix(&self.mountpoint).ok()?;
        within.components().all(|part| matches!(part, Component::Normal(_))).then(|| within.to_owned())
    }

    fn file(path: &Path) -> Option<FileId> {
        let found = std::fs::metadata(path).ok().filter(|found| found.is_file())?;
        Some(FileId { device: found.dev(), inode: found.ino() })
    }

    /// Adds the files of a relation of PostgreSQL: its segments.
    pub fn relation(&self, within: &Path, how: Use, path: &str, files: &mut Vec<FileId>) {
        let Some(first) = self.place(within, path) else { return };
        let Some(file) = Self::file(&first) else { return };
        files.push(file);
        if how == Use::File {
            return;
        }
        let segment = |n| Self::file(Path::new(&format!("{}.{n}", first.display())));
        files.extend((1..SEGMENTS_MAX).map_while(segment));
    }

    /// The path of a file in the backing directory. A tablespace is a link to the directory where its files are served.
    fn place(&self, within: &Path, path: &str) -> Option<PathBuf> {
        let data = self.backing.join(within);
        let mut parts = path.splitn(3, '/');
        let (Some("pg_tblspc"), Some(tablespace), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Some(data.join(path));
        };
        let link = std::fs::read_link(data.join("pg_tblspc").join(tablespace)).ok()?;
        let within = self.within(link.to_str()?)?;
        Some(self.backing.join(within).join(rest))
    }

    /// Adds the files of a table of MariaDB. InnoDB has one, or one for each partition; the older engines have two.
    pub fn table(&self, within: &str, database: &str, table: &str, files: &mut Vec<FileId>) {
        let folder = self.backing.join(within).join(encode(database));
        let stem = encode(table);
        let before = files.len();
        let whole = ["ibd", "MAD", "MAI", "MYD", "MYI"];
        files.extend(whole.iter().filter_map(|ending| Self::file(&folder.join(format!("{stem}.{ending}")))));
        if files.len() > before {
            return;
        }
        let part = format!("{stem}#P#");
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&part) && name.ends_with(".ibd") {
                files.extend(Self::file(&entry.path()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(root: &Path, paths: &[&str]) {
        for path in paths {
            std::fs::create_dir_all(root.join(path).parent().expect("a folder")).expect("folders");
            std::fs::write(root.join(path), path).expect("a file");
        }
    }

    fn found(root: &Path, files: &[FileId]) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                if entry.file_type().expect("its kind").is_dir() {
                    folders.push(entry.path());
                } else if Served::file(&entry.path()).is_some_and(|file| files.contains(&file)) {
                    names.push(std::fs::read_to_string(entry.path()).expect("its text"));
                }
            }
        }
        names.sort();
        names
    }

    #[test]
    fn a_relation_is_all_its_segments_wherever_its_tablespace_is() {
        let backing = tempfile::tempdir().expect("a scratch directory");
        let root = backing.path();
        made(
            root,
            &["pg/base/5/7", "pg/base/5/7.1", "pg/base/5/7.2", "pg/base/5/7.4", "pg/base/5/7_fsm", "pg/base/5/71"],
        );
        made(root, &["space/PG_15_1/5/9"]);
        std::fs::create_dir(root.join("pg/pg_tblspc")).expect("a folder");
        std::os::unix::fs::symlink("/mnt/here/space", root.join("pg/pg_tblspc/900")).expect("a link");
        std::os::unix::fs::symlink("/elsewhere", root.join("pg/pg_tblspc/901")).expect("a link");
        let served = Served::new("/mnt/here".into(), root.to_owned());
        let within = served.within("/mnt/here/pg").expect("it is there");
        assert_eq!(served.within("/mnt/hereafter/pg"), None);
        assert_eq!(served.within("/mnt/here/../pg"), None);
        let cases: [(&str, Use, &[&str]); 6] = [
            ("base/5/7", Use::Scan, &["pg/base/5/7", "pg/base/5/7.1", "pg/base/5/7.2"]),
            ("base/5/7", Use::File, &["pg/base/5/7"]),
            ("base/5/8", Use::Scan, &[]),
            ("base/5", Use::Scan, &[]),
            ("pg_tblspc/900/PG_15_1/5/9", Use::Index, &["space/PG_15_1/5/9"]),
            ("pg_tblspc/901/PG_15_1/5/9", Use::Index, &[]),
        ];
        for (path, how, wanted) in cases {
            let mut files = Vec::new();
            served.relation(&within, how, path, &mut files);
            assert_eq!(found(root, &files), wanted, "{path}");
        }
    }

    #[test]
    fn a_table_is_its_file_or_those_of_its_partitions() {
        let backing = tempfile::tempdir().expect("a scratch directory");
        let root = backing.path();
        made(root, &["my/shop/a.ibd", "my/shop/p#P#x.ibd", "my/shop/p#P#y.ibd", "my/shop/p.frm", "my/shop/m.MAD"]);
        made(root, &["my/shop/m.MAI", "my/shop/a@0020b.ibd"]);
        let served = Served::new("/mnt".into(), root.to_owned());
        let cases: [(&str, &[&str]); 5] = [
            ("a", &["my/shop/a.ibd"]),
            ("p", &["my/shop/p#P#x.ibd", "my/shop/p#P#y.ibd"]),
            ("m", &["my/shop/m.MAD", "my/shop/m.MAI"]),
            ("a b", &["my/shop/a@0020b.ibd"]),
            ("../shop/a", &[]),
        ];
        for (table, wanted) in cases {
            let mut files = Vec::new();
            served.table("my", "shop", table, &mut files);
            assert_eq!(found(root, &files), wanted, "{table}");
        }
    }
}
