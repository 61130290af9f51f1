//! `entresol names` on the data directory that PostgreSQL's `initdb` makes.

mod common;

use common::Scratch;
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// `initdb` of an installed version.
fn initdb() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions.map(|version| version.path().join("bin/initdb")).find(|program| program.is_file())
}

#[test]
fn every_file_of_a_data_directory_has_a_name_but_those_that_are_no_relations() {
    let Some(initdb) = initdb() else {
        entresol_skip::skipped!("postgres", "the package postgresql is not installed");
        return;
    };
    let scratch = Scratch::new();
    let mut made = Command::new(initdb);
    if std::fs::metadata("/proc/self").expect("our own process").uid() == 0 {
        // The server's programs refuse to run as root.
        std::fs::set_permissions(scratch.path("."), PermissionsExt::from_mode(0o755)).expect("its mode");
        chown(scratch.path("."), Some(65534), Some(65534)).expect("its owner");
        made.uid(65534).gid(65534);
    }
    made.args(["-A", "trust", "--no-sync", "-D"]).arg(scratch.path("data")).current_dir("/").env("LC_ALL", "C");
    assert!(made.output().expect("initdb runs").status.success());

    let text = scratch.ok(&["-q", "names", "."]);
    assert!(text.contains("postgres.pg_catalog.pg_class ") && text.contains("pg_catalog.pg_database "), "{text}");
    let files = scratch.ok(&["-q", "names", ".", "--files"]);
    assert!(files.lines().any(|line| line.contains("_fsm") && line.contains("(fsm)")), "{files}");

    let json: Value = serde_json::from_str(&scratch.ok(&["-q", "names", "data", "--json"])).expect("json");
    assert_eq!(json["unknown"], serde_json::json!([]));
    // A tablespace beside the data directory, and one elsewhere. Each file is listed once, by its location or else
    // through the link.
    let apart = tempfile::tempdir().expect("a scratch directory");
    let version = std::fs::read_to_string(scratch.path("data/PG_VERSION")).expect("the version");
    let folder = format!("PG_{}_1/5", version.trim());
    for (oid, directory) in [(900, scratch.path("beside")), (901, apart.path().to_owned())] {
        std::fs::create_dir_all(directory.join(&folder)).expect("folders");
        std::fs::write(directory.join(&folder).join("7"), "").expect("a file");
        symlink(&directory, scratch.path(&format!("data/pg_tblspc/{oid}"))).expect("a link");
    }
    let both: Value = serde_json::from_str(&scratch.ok(&["-q", "names", ".", "--json"])).expect("json");
    let wanted = [format!("beside/{folder}/7"), format!("data/pg_tblspc/901/{folder}/7")];
    let mut unknown: Vec<&str> = both["unknown"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
    unknown.sort_unstable();
    assert_eq!(unknown, wanted);
    let files = json["files"].as_array().expect("files");
    let class = files.iter().find(|file| file["object"] == "pg_class" && file["database"] == "postgres");
    let class = class.expect("the catalogue of relations");
    let size = std::fs::metadata(scratch.path("data").join(class["path"].as_str().expect("a path"))).expect("the file");
    assert_eq!((class["bytes"].as_u64(), class["kind"].as_str()), (Some(size.len()), Some("table")));
    let index = files.iter().find(|file| file["object"] == "pg_class_oid_index").expect("an index");
    assert_eq!((&index["kind"], &index["of"]), (&"index".into(), &"pg_catalog.pg_class".into()));
}

#[test]
fn a_directory_without_databases_and_a_server_that_is_not_there_are_refused() {
    let scratch = Scratch::new();
    let said = scratch.refused(&["names", "."]);
    assert!(said.contains("no data directory of PostgreSQL, MariaDB or MySQL here"), "{said}");
    assert!(scratch.refused(&["names", "nowhere"]).contains("nowhere"));
    let said = scratch.refused(&["names", ".", "--ask", "host=/nowhere"]);
    assert!(said.contains("no data directory of PostgreSQL whose server could be asked"), "{said}");
    assert!(scratch.refused(&["names", ".", "--ask", "password=x"]).contains("unknown key 'password'"));
}
