//! Names of tables: paths in the forms of PostgreSQL and InnoDB, and the files of their catalogues.

use entresol_names::innodb::{self, DataDirectory};
use entresol_names::postgres::{Cluster, Relation};
use std::fs;
use std::path::Path;

/// Catalogues of PostgreSQL that are read: databases, relations, schemas, indexes.
const CATALOGUES: [u32; 4] = [1262, 1259, 2615, 2610];

/// Pages of zeros with edits. An edit is 4 bytes and its contents: page, offset in the page (2 bytes), length.
fn pages(data: &[u8], page_bytes: usize, number: usize) -> Vec<u8> {
    let mut image = vec![0; page_bytes * number];
    let mut rest = data;
    while let [page, low, high, len, tail @ ..] = rest {
        let at = usize::from(*page) % number * page_bytes + usize::from(u16::from_le_bytes([*low, *high])) % page_bytes;
        let len = usize::from(*len).min(tail.len()).min(image.len() - at);
        image[at..at + len].copy_from_slice(&tail[..len]);
        rest = &tail[len..];
    }
    image
}

/// A map of relations to files with a valid checksum; all catalogues are in one file.
fn filenode_map() -> Vec<u8> {
    let mut map = [0x0059_2717_u32, CATALOGUES.len() as u32].map(u32::to_le_bytes).concat();
    CATALOGUES.iter().for_each(|oid| map.extend([oid.to_le_bytes(), 100_u32.to_le_bytes()].concat()));
    map.resize(504, 0);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &map) as u32;
    map.extend(crc.to_le_bytes());
    map.resize(512, 0);
    map
}

/// The first byte chooses: a path, a catalogue of PostgreSQL, the dictionary of InnoDB.
pub(crate) fn names(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    if choice % 3 == 0 {
        let text = String::from_utf8_lossy(bytes);
        let _ = Relation::parse(&text);
        let _ = innodb::index_id(bytes);
        for path in [text.to_string(), format!("{text}.ibd")] {
            let _ = DataDirectory::new(Path::new("/nonexistent")).find(&path);
        }
        return;
    }
    let place = [Path::new("/dev/shm"), &std::env::temp_dir()].into_iter().find_map(|at| tempfile::tempdir_in(at).ok());
    let directory = place.expect("a directory for files");
    let at = |name: &str| directory.path().join(name);
    if choice % 3 == 1 {
        for folder in ["global", "base/5", "pg_xact"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        fs::write(at("PG_VERSION"), "15\n").expect("a file");
        for folder in ["global", "base/5"] {
            fs::write(at(&format!("{folder}/pg_filenode.map")), filenode_map()).expect("a file");
            fs::write(at(&format!("{folder}/100")), pages(bytes, 8192, 2)).expect("a file");
        }
        fs::write(at("pg_xact/0000"), [0x55; 64]).expect("a file");
        let mut cluster = Cluster::new(directory.path(), directory.path());
        let _damaged = cluster.refresh();
        let _ = cluster.find("base/5/100");
    } else {
        fs::write(at("ibdata1"), pages(bytes, 16384, 12)).expect("a file");
        let mut data = DataDirectory::new(directory.path());
        let _damaged = data.refresh();
    }
}
