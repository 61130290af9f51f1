//! Writes results whole or not at all.

use anyhow::{Context, Result, bail};
use entresol_service::words::quoted;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Destination of the bytes for a path.
enum Target {
    /// A file that appears complete or not at all: written under a temporary name beside it, then renamed.
    File(PathBuf),
    /// A device or pipe, which a rename would replace by a file.
    Stream,
}

impl Target {
    fn of(path: &Path) -> Result<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => bail!("{}: is a directory", path.display()),
            Ok(found) if !found.is_file() => Ok(Target::Stream),
            // A symbolic link stays, and its target is replaced.
            Ok(_) => Ok(Target::File(fs::canonicalize(path).with_context(|| path.display().to_string())?)),
            Err(_) if path.file_name().is_none() => bail!("{}: names no file", path.display()),
            Err(_) => Ok(Target::File(path.to_owned())),
        }
    }
}

/// Writes a file whole. An error leaves the earlier file, and no partial file beside it.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = match Target::of(path)? {
        Target::Stream => OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(bytes)),
        Target::File(target) => replace(&target, bytes),
    };
    written.with_context(|| path.display().to_string())
}

/// Writes a file whole, if it was asked for.
pub fn write_asked<B: AsRef<[u8]>>(path: &Option<PathBuf>, bytes: impl FnOnce() -> Result<B>) -> Result<()> {
    path.as_ref().map_or(Ok(()), |path| write_file(path, bytes()?.as_ref()))
}

fn replace(target: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = temporary(target);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&temporary, target));
    done.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// A temporary name beside `target` that no file of the user has.
fn temporary(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// Checks that the file can be written, before hours of work.
pub fn check_writable(path: &Path) -> Result<()> {
    let probed = match Target::of(path)? {
        Target::Stream => OpenOptions::new().write(true).open(path).map(drop),
        Target::File(target) => {
            let probe = temporary(&target);
            File::create(&probe).and_then(|_| fs::remove_file(&probe))
        }
    };
    probed.with_context(|| path.display().to_string())
}

/// Prints to standard output; a closed pipe is an error like any other.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a server's line to standard output. A missing reader does not stop the server.
pub fn announce(text: &str) {
    if let Err(error) = print(text) {
        say!("entresol: standard output: {error:#}");
    }
}

/// The command line that made a result, quoted for a shell.
pub fn command_line() -> String {
    let mut given = std::env::args_os();
    let program =
        given.next().and_then(|path| Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned()));
    let mut words = vec![program.unwrap_or_else(|| "entresol".to_owned())];
    words.extend(given.map(|word| quoted(&word.to_string_lossy())));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let taken = scratch.path().join("taken");
        fs::create_dir(&taken).expect("a directory in the way");
        for path in [taken.clone(), scratch.path().join("absent/file"), scratch.path().join("..")] {
            assert!(check_writable(&path).is_err(), "{}", path.display());
            assert!(write_file(&path, b"y").is_err(), "{}", path.display());
        }
        assert_eq!(fs::read_dir(scratch.path()).expect("the scratch directory").count(), 1);
    }

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (file, link) = (scratch.path().join("file"), scratch.path().join("link"));
        fs::write(&file, "old").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        check_writable(&link).expect("it can be written");
        write_file(&link, b"new").expect("it is written");
        assert_eq!(fs::read(&file).expect("the file"), b"new");
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
        let null = Path::new("/dev/null");
        check_writable(null).expect("it can be written");
        write_file(null, b"x").expect("it is written");
        assert!(!fs::metadata(null).expect("the device").is_file());
    }
}
