//! Uses among modules have no cycle, so that each module can be read, moved and tested after those that it uses.

#[path = "../../policy/tests/common/sources.rs"]
mod sources;

use sources::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Beginnings of paths from a crate's root: the texts after `crate::`, and after as many `super::` as lead from a module
/// of this depth to the root. A module inside of the file may need one more.
fn from_root(text: &str, depth: usize) -> impl Iterator<Item = &str> {
    let after = |step: &'static str| text.match_indices(step).map(move |(at, _)| (at, &text[at + step.len()..]));
    let by_parents = after("super::").filter_map(move |(at, mut rest)| {
        let mut steps = 1;
        while let Some(further) = rest.strip_prefix("super::") {
            (rest, steps) = (further, steps + 1);
        }
        (steps >= depth && !text[..at].ends_with("super::")).then_some(rest)
    });
    after("crate::").map(|(_, rest)| rest).chain(by_parents)
}

/// Modules of a crate's root that a text names, one by one (`crate::NAME`) or in a list (`crate::{NAME, ...}`); `depth`
/// is that of the text's module, 1 at the root.
fn named(text: &str, depth: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rest in from_root(text, depth) {
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{') {
            Some(list) => {
                let (mut depth, mut item) = (0, String::new());
                for c in list.chars() {
                    match c {
                        '}' if depth == 0 => break,
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            names.insert(word(item.trim()));
                            item.clear();
                        }
                        c if depth == 0 => item.push(c),
                        _ => {}
                    }
                }
                names.insert(word(item.trim()));
            }
            None => drop(names.insert(word(rest))),
        }
    }
    names
}

/// The modules that each module of a crate's root uses.
fn uses(crate_sources: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files = sources(crate_sources);
    let module = |path: &Path| {
        let first = path.strip_prefix(crate_sources).expect("inside").iter().next().expect("a name");
        first.to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<String> =
        files.iter().map(|path| module(path)).filter(|name| name != "lib" && name != "main").collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files.iter().filter(|path| modules.contains(&module(path))) {
        let text = fs::read_to_string(path).expect("text");
        // Comments are no use of a module.
        let code: String =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
        let of = uses.entry(module(path)).or_default();
        let steps = path.strip_prefix(crate_sources).expect("inside").components().count();
        let depth = if path.ends_with("mod.rs") { steps - 1 } else { steps };
        of.extend(named(&code, depth).into_iter().filter(|name| modules.contains(name) && *name != module(path)));
    }
    uses
}

/// A cycle: a path from a module back to itself.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(uses: &BTreeMap<String, BTreeSet<String>>, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let at = way.last().expect("a beginning").clone();
        for next in uses.get(&at).into_iter().flatten() {
            if let Some(first) = way.iter().position(|passed| passed == next) {
                way.drain(..first);
                way.push(next.clone());
                return true;
            }
            if !done.contains(next) {
                way.push(next.clone());
                if walk(uses, way, done) {
                    return true;
                }
                way.pop();
            }
        }
        done.insert(at);
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|start| {
        let mut way = vec![start.clone()];
        walk(uses, &mut way, &mut done).then_some(way)
    })
}

#[test]
fn circles_are_found_where_there_are_some() {
    let of = |pairs: &[(&str, &[&str])]| {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        pairs.iter().map(|(module, names)| (module.to_string(), set(names))).collect::<BTreeMap<_, BTreeSet<_>>>()
    };
    assert_eq!(circle(&of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let found = circle(&of(&[("a", &["b"]), ("b", &["c"]), ("c", &["d", "b"]), ("d", &[])]));
    assert_eq!(found, Some(["b", "c", "b"].map(str::to_owned).to_vec()));
    let names = named("use crate::{a, b::{self, c}, d as e};\nuse crate::f::g; crate::h(); use super::i::j;", 1);
    assert_eq!(Vec::from_iter(names), ["a", "b", "d", "f", "h", "i"]);
    let names = named("use super::a; use super::super::{b, c::d}; mod tests { use super::super::super::e; }", 2);
    assert_eq!(Vec::from_iter(names), ["b", "c", "e"]);
}

/// Crates whose modules have no cycle, and how many modules each has at least.
const CRATES: [(&str, usize); 5] = [("cache", 25), ("cli", 20), ("fsck", 5), ("service", 40), ("store", 25)];

#[test]
fn no_module_is_used_by_one_that_it_uses() {
    for (name, modules_min) in CRATES {
        let uses = uses(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"));
        assert!(uses.len() > modules_min, "{name}: {uses:?}");
        if let Some(way) = circle(&uses) {
            panic!("{name}: a circle: {}", way.join(" -> "));
        }
    }
}
