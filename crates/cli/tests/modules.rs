//! Uses among modules have no cycle, so that each module can be read, moved and tested after those that it uses.

#[path = "modules/uses.rs"]
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use uses::{Uses, uses};

/// A cycle: a path from a module back to itself.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    fn walk(uses: &Uses, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
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
fn a_circle_is_found_where_there_is_one() {
    let of = |pairs: &[(&str, &[&str])]| {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        pairs.iter().map(|(module, names)| (module.to_string(), set(names))).collect::<Uses>()
    };
    assert_eq!(circle(&of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let found = circle(&of(&[("a", &["b"]), ("b", &["c"]), ("c", &["d", "b"]), ("d", &[])]));
    assert_eq!(found, Some(["b", "c", "b"].map(str::to_owned).to_vec()));
}

/// The modules that `x` uses in a crate of these files. In the root are `a` to `f` too, without code.
fn used_by_x(files: &[(&str, &str)]) -> Vec<String> {
    let files: BTreeMap<&Path, &str> = files.iter().map(|(path, code)| (Path::new(*path), *code)).collect();
    let text = |path: &Path| match (files.get(path), path.to_str()) {
        (Some(code), _) => Some((*code).to_owned()),
        (None, Some("lib.rs")) => Some("mod a; mod b; mod c; mod d; mod e; mod f; mod x;".to_owned()),
        (None, Some("a.rs" | "b.rs" | "c.rs" | "d.rs" | "e.rs" | "f.rs")) => Some(String::new()),
        (None, _) => None,
    };
    uses(Path::new(""), &text).remove("x").expect("it is in the root").into_iter().collect()
}

#[test]
fn a_path_is_read_from_the_module_that_names_it() {
    let of = |code: &str| used_by_x(&[("x.rs", code)]).concat();
    // All ways to write a path.
    assert_eq!(
        of("use crate::a; use super::b::B; use crate::{c::{C, D}, d as other}; fn f() { super::e::g::<u8>() }"),
        "abcde"
    );
    assert_eq!(of("use crate::{self as root, a::{self}}; use {super::b, std::io}; type T = Vec<crate::c::C>;"), "abc");
    assert_eq!(of("use super::{a, b::*,}; pub(in crate::x) fn f() { say!(\"{}\", crate :: c :: C as u8) }"), "abc");
    // Neither a comment nor a text is a use.
    assert_eq!(
        of(
            "//! crate::a\n/// [`b`](crate::b)\nfn f() { /* crate::c */ \"crate::d\"; r#\"crate::e\"#; '\"'; crate::f!() } // crate::a"
        ),
        "f"
    );
    // One more `super` in a module of the file.
    assert_eq!(of("mod a { use super::b; } mod tests { use super::*; use super::c::C; use super::super::d::D; }"), "d");
    assert_eq!(
        of("mod y { mod z { fn f() { super::super::super::a::f(); super::super::b::f(); super::c::f() } } }"),
        "a"
    );
    assert_eq!(of("use self::a; mod y { use self::b; use crate::x::c; use crate::d; }"), "d");
    // In files.
    let below = [
        ("x/mod.rs", "mod y; #[path = \"other.rs\"] mod z;"),
        ("x/y.rs", "use super::a; use super::super::b; mod v;"),
        ("x/y/v.rs", "use super::super::c; use super::super::super::d;"),
        ("x/other.rs", "use super::e; use super::super::f; mod w;"),
        ("x/w.rs", "use super::super::super::a::A;"),
    ];
    assert_eq!(used_by_x(&below).concat(), "abdf");
    // A file beside that of its parent.
    let beside = [
        ("x.rs", "mod y;"),
        ("x/y.rs", "use super::super::a; #[cfg(test)] #[path = \"y_tests.rs\"] mod tests;"),
        ("x/y_tests.rs", "use super::b; use super::super::c; use super::super::super::d;"),
    ];
    assert_eq!(used_by_x(&beside).concat(), "ad");
}

#[test]
fn a_name_that_the_root_imports_is_one_of_the_module_that_it_is_from() {
    let root = "mod a; mod b; #[macro_use] mod c; mod d; mod e { pub use super::b::BB; } mod x;
        pub use a::{A, AA as Other}; use self::b::B; pub use d::*; pub use std::io::Read; pub struct Own;";
    let macros = "macro_rules! say { () => {} }";
    let of = |code: &str| used_by_x(&[("lib.rs", root), ("c.rs", macros), ("x.rs", code)]).concat();
    assert_eq!(of("use crate::{Other, B}; use crate::Own; use crate::Read;"), "ab");
    assert_eq!(of("use crate::AA;"), "d", "of those that have a star, which may be the one");
    assert_eq!(of("use crate::e::BB;"), "e");
    // A macro for all modules, and one of the module's own.
    assert_eq!(of("fn f() { say!() }"), "c");
    assert_eq!(of("macro_rules! say { () => {} } fn f() { say!() }"), "");
    // A module and a function of one name.
    let two = |code: &str| used_by_x(&[("lib.rs", "mod a; mod b; mod x; pub use b::a;"), ("x.rs", code)]).concat();
    assert_eq!((two("use super::a::A;"), two("use super::a;")), ("a".to_owned(), "ab".to_owned()));
    // A macro is no function of its name.
    assert_eq!(of("use super::*; fn f() { A!() }"), "d");
    // All names of the root, or some: words are names then.
    assert_eq!(of("use super::*; fn f(b: A) -> e::BB { b::c(a) }"), "abde");
    assert_eq!(
        of("macro_rules! all { ($($m:ident::$f:ident)*) => { $(crate::$m::$f();)* } } all! { a::f e::f }"),
        "ade"
    );
}

/// Folders of crates in a folder and in its folders.
fn crates(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let folders = folders.filter(|path| path.is_dir());
    folders.flat_map(|path| if path.join("Cargo.toml").exists() { vec![path] } else { crates(&path) }).collect()
}

#[test]
fn no_module_of_any_crate_is_used_by_one_that_it_uses() {
    let crates = crates(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let mut modules = 0;
    for folder in &crates {
        let uses = uses(&folder.join("src"), &|path| fs::read_to_string(path).ok());
        modules += uses.len();
        if let Some(way) = circle(&uses) {
            panic!("{}: a circle: {}", folder.display(), way.join(" -> "));
        }
    }
    println!("{} crates, {modules} modules", crates.len());
    assert!(crates.len() >= 28 && modules > 300, "{} crates with {modules} modules", crates.len());
}
