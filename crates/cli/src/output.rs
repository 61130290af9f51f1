//! Writing results: whole or not at all.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a file under a temporary name beside it and renames it, so that an error leaves nothing half-written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path, "tmp");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let done = written.and_then(|()| std::fs::rename(&temporary, path));
    done.inspect_err(|_| drop(std::fs::remove_file(&temporary))).with_context(|| path.display().to_string())
}

/// The path with an ending added to its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// Makes sure, before hours of work, that the file can be written.
pub fn check_writable(path: &Path) -> Result<()> {
    let probe = beside(path, "tmp");
    File::create(&probe).with_context(|| path.display().to_string())?;
    std::fs::remove_file(&probe).with_context(|| path.display().to_string())
}

/// Prints to standard output; a closed pipe is an error like any other.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The command line that made a result, quoted for a shell.
pub fn command_line() -> String {
    let quote = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:,./%+@".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let mut words = vec!["entresol".to_owned()];
    words.extend(std::env::args_os().skip(1).map(|word| quote(word.to_string_lossy().into_owned())));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let target = scratch.path().join("taken");
        std::fs::create_dir(&target).expect("a directory in the way");
        std::fs::write(target.join("full"), "x").expect("a file in it");
        assert!(write_file(&target, b"y").is_err());
        assert_eq!(std::fs::read_dir(scratch.path()).expect("the scratch directory").count(), 1);
        assert!(check_writable(&scratch.path().join("absent/file")).is_err());
    }
}
