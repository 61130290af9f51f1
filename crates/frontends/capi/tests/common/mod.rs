//! Programs in C, compiled under the strictest warnings and linked to the library of the crate under test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the crate under test.
pub fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of this test, which also has the library.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("this test").parent().expect("a folder").to_owned()
}

/// Compiles a program and links it to a library; `None` where there is no compiler.
pub fn compiled(scratch: &Path, source: &Path, library: &str) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        entresol_skip::skipped!("cc", "there is no C compiler");
        return None;
    }
    let program = scratch.join(source.file_stem().expect("a name"));
    let folder = libraries();
    let folder = folder.display();
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I"]);
    command.arg(here().join("include")).arg(source).arg("-o").arg(&program);
    command.args([format!("-L{folder}"), format!("-l{library}"), format!("-Wl,-rpath,{folder}")]);
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs a program. Returns true if it succeeded, and what it wrote to standard output and standard error.
pub fn run(command: &mut Command) -> (bool, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Compares numbers of the library with those of C expressions under its header.
pub fn check_numbers(header: &str, library: &str, numbers: &[(&str, usize)]) {
    let print = |(of, _): &(&str, usize)| format!("    printf(\"%zu\\n\", (size_t)({of}));\n");
    let prints: String = numbers.iter().map(print).collect();
    let program = format!("#include \"{header}\"\n#include <stdio.h>\nint main(void)\n{{\n{prints}    return 0;\n}}\n");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = scratch.path().join("numbers.c");
    std::fs::write(&source, program).expect("a file");
    let Some(program) = compiled(scratch.path(), &source, library) else { return };
    let (good, said, complaint) = run(&mut Command::new(program));
    assert!(good, "{complaint}");
    for ((of, ours), theirs) in numbers.iter().zip(said.lines()) {
        assert_eq!(ours.to_string(), theirs, "{of}");
    }
    assert_eq!(said.lines().count(), numbers.len());
}

/// Names of functions: `entresol_...(` in a text without comments.
fn functions(text: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (i, part) in text.split("/*").enumerate() {
        code += if i == 0 { part } else { part.split_once("*/").expect("a comment ends").1 };
    }
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("entresol_") {
        let name: String = code[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if code[at + name.len()..].starts_with('(') {
            found.insert(name);
        }
    }
    found
}

/// Compares the functions that a header declares, `count` of them, with those that the library exports.
pub fn check_exports(header: &str, library: &str, count: usize) {
    let header = std::fs::read_to_string(here().join("include").join(header)).expect("the header");
    let declared = functions(&header);
    assert_eq!(declared.len(), count, "{declared:?}");
    let library = libraries().join(format!("lib{library}.so"));
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output();
    let Ok(symbols) = symbols else {
        entresol_skip::skipped!("nm", "there is no nm");
        return;
    };
    assert!(symbols.status.success(), "{}", String::from_utf8_lossy(&symbols.stderr));
    let symbols = String::from_utf8(symbols.stdout).expect("text");
    let exported = symbols.lines().filter_map(|line| line.split_whitespace().last());
    let exported: BTreeSet<String> = exported.filter(|name| name.starts_with("entresol_")).map(str::to_owned).collect();
    assert_eq!(declared, exported);
}
