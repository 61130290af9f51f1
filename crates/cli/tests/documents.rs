//! Documents with output of the command show today's output.

mod common;

use common::Scratch;
use std::path::Path;

#[test]
fn the_chapter_on_policies_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let written = std::fs::read_to_string(&path).expect("docs/policies.md");
    let now = Scratch::new().ok(&["policies", "--markdown"]);
    assert!(written == now, "docs/policies.md is out of date: entresol policies --markdown > docs/policies.md");
    assert_eq!(now.matches("\n### ").count(), 47, "every policy of the catalogue is in a family");
}

#[test]
fn the_list_of_metrics_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let written = std::fs::read_to_string(&path).expect("docs/metrics.md");
    let now = Scratch::new().ok(&["metrics", "--markdown"]);
    assert!(written == now, "docs/metrics.md is out of date: entresol metrics --markdown > docs/metrics.md");
}

/// Runs the commands of a document's `console` blocks, in order and in one directory, and replaces the output in the
/// document by theirs.
fn rerun(document: &str) -> String {
    let scratch = Scratch::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_entresol")).parent().expect("the command is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a search path"));
    let mut out = String::new();
    let mut in_console = false;
    for line in document.lines() {
        if line.starts_with("```") {
            in_console = line == "```console";
        }
        if !in_console || line.starts_with("```") {
            out += &format!("{line}\n");
        } else if let Some(command) = line.strip_prefix("$ ") {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("{{ {command}; }} 2>&1")]).current_dir(scratch.path("."));
            let printed = shell.env("PATH", &path).env("NO_COLOR", "1").output().expect("a shell runs").stdout;
            out += &format!("{line}\n{}", String::from_utf8(printed).expect("text"));
        }
    }
    out
}

/// Checks that the commands of a document print the output that it shows, and that it has at least `commands` of them.
fn check_document(name: &str, commands: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    let written = std::fs::read_to_string(&path).expect(name);
    let now = rerun(&written);
    assert!(written.matches("\n$ entresol ").count() >= commands, "{name} shows fewer commands");
    // Written each time, so that no earlier output is taken for it.
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join(path.file_name().expect("a name"));
    std::fs::write(&fresh, &now).expect("the fresh document");
    if written != now {
        let wrong = written.lines().zip(now.lines()).find(|(old, new)| old != new);
        panic!("{name} is out of date, first at {wrong:?}; as it is today: {}", fresh.display());
    }
}

#[test]
fn the_commands_of_the_manual_print_what_it_says() {
    check_document("docs/cli.md", 15);
}

#[test]
fn the_commands_of_the_readme_print_what_it_says() {
    check_document("README.md", 2);
}

/// One number of policies everywhere: that of all published ones, which is the catalogue without `auto` and `reuse`.
#[test]
fn the_readme_has_one_number_of_policies() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let published = Scratch::new().ok(&["policies", "--markdown"]).matches("\n### ").count() - 2;
    let words: Vec<&str> = readme.split_whitespace().collect();
    let published_ones = words.windows(2).filter(|pair| pair[1] == "published");
    let told: Vec<usize> = published_ones.filter_map(|pair| pair[0].parse().ok()).collect();
    assert!(!told.is_empty() && told.iter().all(|&number| number == published), "{told:?} are not {published}");
}
