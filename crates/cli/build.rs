//! Commit and features, for `entresol --version`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ENTRESOL_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    // Packagers build without a repository, and say the commit themselves. Builds for tests need none, nor a new build for each.
    let given = std::env::var("ENTRESOL_COMMIT").ok();
    let is_test = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let found = given.or_else(|| if is_test { None } else { of_repository() });
    let commit = found.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ENTRESOL_COMMIT={commit}");
    let features = if std::env::var_os("CARGO_FEATURE_MUTANTS").is_some() { "mutants" } else { "none" };
    println!("cargo:rustc-env=ENTRESOL_FEATURES={features}");
}

/// The commit that is checked out, with a plus where files differ from it.
fn of_repository() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let directory = git(&["rev-parse", "--absolute-git-dir"])?;
    println!("cargo:rerun-if-changed={directory}/HEAD");
    println!("cargo:rerun-if-changed={directory}/logs/HEAD");
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}
