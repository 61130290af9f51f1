//! Pages about the code name files that are there, and functions and types that these files have.

#[path = "../../policy/tests/common/sources.rs"]
mod sources;

use sources::sources;
use std::fs;
use std::path::Path;

/// Pages whose code spans are compared with the sources.
const PAGES: [&str; 6] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/GLOSSARY.md",
    "docs/SEMANTICS.md",
    "docs/cache-format.md",
    "docs/file-map.md",
];

/// Code spans of a line, each with the text between it and the span before.
fn spans(line: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = line.split('`').collect();
    parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// True if a span is the path of a source. Patterns of paths have parts in capitals.
fn is_file(span: &str) -> bool {
    span.ends_with(".rs") && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/.".contains(c))
}

/// True if a span may be a name of the code, as `Type::function` is.
fn is_name(span: &str) -> bool {
    span.len() > 2 && span.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
}

/// True if a path is the one that a page names. Pages leave out `crates` and `src`, or all but the file's name.
fn is_named(path: &str, span: &str) -> bool {
    let short = |path: &str| path.replace("crates/", "").replace("/src/", "/");
    let (path, span) = (short(path), short(span));
    path == span || path.strip_suffix(&span).is_some_and(|before| before.ends_with('/'))
}

/// True if a source declares a function, type, constant, variable or module of this name, or a variant or field.
fn declares(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let ends = !text[at + name.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let before = text[..at].trim_end_matches([' ', '\n']);
        let declared =
            ["fn", "struct", "enum", "const", "static", "trait", "mod", "type", "let", "pub", "{", ",", "]", "!"];
        ends && text[..at].ends_with([' ', '\n', '!']) && declared.iter().any(|word| before.ends_with(word))
    })
}

#[test]
fn a_named_file_is_found_by_any_of_its_short_forms() {
    let path = "crates/cache/src/durability/void.rs";
    for span in
        ["crates/cache/src/durability/void.rs", "cache/src/durability/void.rs", "cache/durability/void.rs", "void.rs"]
    {
        assert!(is_named(path, span), "{span}");
    }
    assert!(!is_named(path, "oid.rs") && !is_named(path, "store/src/durability/void.rs"));
    assert_eq!(spans("a `b.rs`, `c`; d"), [("a ", "b.rs"), (", ", "c")]);
    assert!(declares("impl A {\n    pub(crate) fn b(&self) {}\n}", "b") && !declares("self.b()", "b"));
}

#[test]
fn files_and_functions_that_pages_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files: Vec<(String, String)> = ["crates", "lab", "fuzz"]
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .map(|path| {
            let name = path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("text"))
        })
        .collect();
    let (mut wrong, mut named, mut declared) = (Vec::new(), 0, 0);
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        for (number, line) in text.lines().enumerate() {
            let (mut file, mut before): (Option<&str>, &str) = (None, "");
            let spans = spans(line);
            for (at, &(between, span)) in spans.iter().enumerate() {
                let belongs_to_next =
                    spans.get(at + 1).is_some_and(|(between, next)| *between == " in " && is_file(next));
                // A name stands after its file, or before it: "`name` in `file.rs`".
                let mut pair = None;
                if is_file(span) {
                    file = Some(span);
                    named += 1;
                    if !files.iter().any(|(path, _)| is_named(path, span)) {
                        wrong.push(format!("{page}:{}: no file {span}", number + 1));
                    }
                    pair = [" in ", ", in "].contains(&between).then_some((span, before));
                } else if let Some(of) = file.filter(|_| [", ", " and ", ": "].contains(&between) && is_name(span)) {
                    pair = (!belongs_to_next).then_some((of, span));
                } else {
                    file = None;
                }
                if let Some((of, name)) = pair.filter(|(_, name)| is_name(name)) {
                    declared += 1;
                    let mut found = files.iter().filter(|(path, _)| is_named(path, of)).peekable();
                    let own = name.rsplit("::").next().unwrap_or(name);
                    if found.peek().is_some() && !found.any(|(_, text)| declares(text, own)) {
                        wrong.push(format!("{page}:{}: {of} declares no {name}", number + 1));
                    }
                }
                before = span;
            }
        }
    }
    assert!(named > 100 && declared > 30, "{named} files and {declared} functions are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Crates of ours that a crate uses: its dependencies in Cargo.toml, but for those of its tests.
fn used_by(manifest: &str) -> Vec<String> {
    let mut of_tests = false;
    let mut used: Vec<String> = Vec::new();
    for line in manifest.lines() {
        match line.strip_prefix('[') {
            Some(section) => of_tests = !section.contains("dependencies]") || section.contains("dev-"),
            None if of_tests => {}
            None => {
                let name = line.strip_prefix("entresol-").and_then(|rest| rest.split(['.', ' ', '=']).next());
                used.extend(name.map(str::to_owned));
            }
        }
    }
    used.sort();
    used.dedup();
    used
}

#[test]
fn the_table_of_crates_has_what_each_uses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("a page");
    let table = text.split("\n## ").find(|section| section.starts_with("Crates\n")).expect("the section");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let (mut compared, mut wrong, mut crates) = (0, Vec::new(), Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let names: Vec<&str> = cells[0].split('`').skip(1).step_by(2).collect();
        let uses = cells[cells.len() - 1];
        crates.extend(names.iter().map(|name| (*name).to_owned()));
        // The laboratory may use all, and the tests' crates are used by tests alone; the command's row has those it lacks.
        if uses.starts_with("may use") || uses.starts_with("for tests") || uses.starts_with("all but") {
            continue;
        }
        let [name] = names[..] else { panic!("several crates in {row}") };
        let folder = [format!("crates/{name}"), name.to_owned()].into_iter().map(|folder| root.join(folder));
        let manifest = folder.map(|folder| folder.join("Cargo.toml")).find(|path| path.exists()).expect("a crate");
        let used = used_by(&fs::read_to_string(manifest).expect("text"));
        let said: Vec<&str> = uses.split('`').nth(1).unwrap_or("").split_whitespace().collect();
        if said != used {
            wrong.push(format!("{name}: the page has {said:?}, Cargo.toml {used:?}"));
        }
        compared += 1;
    }
    let all =
        ["crates", "crates/frontends"].iter().flat_map(|folder| fs::read_dir(root.join(folder)).expect("a folder"));
    for path in all.map(|entry| entry.expect("an entry").path()).filter(|path| path.join("Cargo.toml").exists()) {
        let name = path.strip_prefix(root.join("crates")).expect("a crate").to_string_lossy().into_owned();
        if !crates.contains(&name) {
            wrong.push(format!("{name}: not in the table"));
        }
    }
    assert!(compared > 20, "{compared} crates");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
