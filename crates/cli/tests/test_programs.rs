//! Each file of tests is a part of a program, and commands that name a program of tests name one that is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files in a folder and in all below, but for those that were built or are git's.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let kept = entries.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        !path.is_symlink() && name != ".git" && !name.starts_with("target")
    });
    kept.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Names of the programs of tests that a crate declares. None if cargo finds them by their files.
fn declared(manifest: &str) -> Option<BTreeSet<String>> {
    if !manifest.lines().any(|line| line == "autotests = false") {
        return None;
    }
    let tests = manifest.split("\n[").filter_map(|section| section.strip_prefix("[test]]\n"));
    let name =
        |test: &str| Some(test.lines().find_map(|line| line.strip_prefix("name = "))?.trim_matches('"').to_owned());
    Some(tests.filter_map(name).collect())
}

/// Files of a crate's tests: those in the folder itself, and each `main.rs` of a folder in it.
fn test_files(of: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(of.join("tests")) else { return Vec::new() };
    let entries = entries.map(|entry| entry.expect("an entry").path());
    let stem = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let found = entries.filter_map(|path| {
        let main = path.join("main.rs");
        let is_source = path.extension().is_some_and(|ending| ending == "rs");
        (is_source || main.exists()).then(|| (stem(&path), if is_source { path } else { main }))
    });
    found.collect()
}

/// Crates of the workspace: folders with a manifest.
fn crates() -> Vec<PathBuf> {
    let manifests = files(&root()).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    manifests.map(|path| path.parent().expect("a folder").to_owned()).collect()
}

#[test]
fn every_file_of_tests_is_in_a_program() {
    let mut merged = 0;
    for folder in crates() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let Some(programs) = declared(&manifest) else { continue };
        let files = test_files(&folder);
        let texts: Vec<String> = files
            .iter()
            .filter(|(name, _)| programs.contains(name))
            .map(|(_, path)| fs::read_to_string(path).expect("text"))
            .collect();
        assert_eq!(texts.len(), programs.len(), "{}: a program has no file", folder.display());
        for (name, path) in files.iter().filter(|(name, _)| !programs.contains(name)) {
            let line = format!("mod {name};");
            assert!(texts.iter().any(|text| text.lines().any(|has| has == line)), "{}: never run", path.display());
            merged += 1;
        }
    }
    println!("{merged} files of tests share a program");
    assert!(merged > 20, "{merged}");
}

#[test]
fn commands_name_programs_of_tests_that_are_there() {
    let programs: BTreeSet<String> = crates()
        .iter()
        .flat_map(|folder| {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
            let found = || test_files(folder).into_iter().map(|(name, _)| name).collect();
            declared(&manifest).unwrap_or_else(found)
        })
        .collect();
    let (mut named, mut wrong) = (0, Vec::new());
    for path in files(&root()) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !(name == "Makefile" || [".md", ".sh", ".py"].iter().any(|ending| name.ends_with(ending))) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        // sysbench has tests of its own.
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.contains("sysbench")) {
            for program in line.split("--test ").skip(1) {
                let end = program.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(program.len());
                let program = &program[..end];
                named += 1;
                if !program.is_empty() && !programs.contains(program) {
                    wrong.push(format!("{}:{}: {program}", path.display(), at + 1));
                }
            }
        }
    }
    assert!(named > 50, "{named} are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
