//! Words made of others: names of files beside files, and words for a shell.

use std::path::{Path, PathBuf};

/// The path with an extension added to its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// A word quoted for a shell, if needed.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:,./%+@".contains(c);
    let is_plain = !word.is_empty() && word.chars().all(plain);
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The command line of this process, quoted for a shell.
pub fn command_line() -> String {
    let given = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("entresol".to_owned()).chain(given).collect::<Vec<_>>().join(" ")
}

/// A path quoted for a shell, if needed.
pub fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// The command that makes a cache.
pub fn format_command(cache: &Path, backing: &Path) -> String {
    format!("entresol format --cache {} --backing {}", quoted_path(cache), quoted_path(backing))
}

/// The command that writes the dirty pages of a cache below.
pub fn drain_command(cache: &Path, backing: &Path) -> String {
    format!("entresol drain --cache {} --backing {}", quoted_path(cache), quoted_path(backing))
}

/// A number of things: "1 page", "2 pages".
pub fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
