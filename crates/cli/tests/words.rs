//! The words of the code: names that were given up for the field's terms do not come back, and a doc comment opens with a noun.

#[path = "../../policy/tests/common/sources.rs"]
mod sources;

use proc_macro2::{TokenStream, TokenTree};
use sources::sources;
use std::fs;
use std::path::{Path, PathBuf};

/// Identifiers that are given up, with the folder in which each is: the same word is a good name elsewhere where it has its ordinary
/// meaning there.
const GIVEN_UP: &[(&str, &str)] = &[
    ("Keeper", ""),
    ("keeper", ""),
    ("KeeperCounts", ""),
    ("Turn", ""),
    ("Lease", "crates/cache"),
    ("lease", "crates/cache"),
    ("turn", "crates/cache/src"),
    ("World", ""),
    ("world", ""),
    ("Flight", ""),
    ("flight", ""),
    ("fly", ""),
    ("take_off", ""),
    ("call_back", ""),
    ("board", ""),
    ("land", "crates/cache"),
    ("Landing", ""),
    ("Passenger", ""),
    ("passenger", ""),
    ("Cargo", ""),
    ("cargo", ""),
    ("Sent", ""),
    ("Pending", ""),
    ("Cover", ""),
    ("room", ""),
    ("vacate", ""),
    ("upkeep", ""),
    ("Upkeep", ""),
    ("Servant", ""),
    ("servant", ""),
    ("Duty", ""),
    ("duty", ""),
    ("tape", ""),
    ("Tape", ""),
    ("reel", ""),
    ("Reel", ""),
    ("Gauge", ""),
    ("Door", ""),
    ("door", ""),
    ("rescued", ""),
    ("hollow_out", ""),
    ("leave_gaps", ""),
    ("bring", ""),
    ("placed", "crates/buffer/src"),
    ("Told", ""),
    ("Ground", ""),
    ("Story", ""),
    ("Watchman", ""),
    ("watchman", ""),
    ("Held", ""),
    ("lives", ""),
    ("place", "crates/store/src"),
    ("place", "crates/cache/src/durability"),
    ("AnyLog", ""),
    ("LogCounts", ""),
    ("log", "crates/cache/src/durability"),
    ("log", "crates/cache/src/maintenance"),
    ("log", "crates/cache/src/executor.rs"),
    ("log", "crates/cache/src/decision.rs"),
];

/// All sources of the workspace, by their paths in it.
fn all() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files: Vec<PathBuf> =
        ["crates", "lab", "fuzz", "extensions"].iter().flat_map(|folder| sources(&root.join(folder))).collect();
    assert!(files.len() > 500, "the sources are found");
    let text = |path: &PathBuf| fs::read_to_string(path).expect("text");
    let name = |path: &PathBuf| path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), text(path))).collect()
}

/// Adds the identifiers of a source with their lines. Comments and texts have none.
fn identifiers(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => found.push((word.span().start().line, word.to_string())),
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[test]
fn names_that_were_given_up_do_not_come_back() {
    let mut back = Vec::new();
    for (path, text) in all() {
        let mut words = Vec::new();
        identifiers(text.parse().unwrap_or_else(|error| panic!("{path}: {error}")), &mut words);
        for (line, word) in words {
            if GIVEN_UP.iter().any(|&(name, folder)| name == word && path.starts_with(folder)) {
                back.push(format!("{path}:{line}: {word}"));
            }
        }
    }
    assert!(back.is_empty(), "docs/GLOSSARY.md has the field's terms for these: {back:#?}");
}

#[test]
fn a_doc_comment_opens_with_the_thing_it_is_about() {
    let opens = |line: &str| {
        let text = line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"))?;
        let word = text.trim_start().split(|c: char| !c.is_alphabetic()).next()?;
        ["What", "Who", "How", "That", "Whether", "Where"].contains(&word).then(|| line.trim().to_owned())
    };
    let all = all();
    let lines = all.iter().flat_map(|(path, text)| text.lines().map(move |line| (path, line)));
    let found: Vec<String> =
        lines.filter_map(|(path, line)| opens(line).map(|text| format!("{path}: {text}"))).collect();
    assert!(found.is_empty(), "{found:#?}");
}
