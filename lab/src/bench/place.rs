//! Place of a benchmark's databases: one directory, removed at the end.

use super::witness;
use anyhow::{Context, Result, bail};
use entresol_bench::server::Owner;
use entresol_files::{Pattern, not_cached};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory and its parts: the loaded database, the working copy of a run, its mount point, the cache, and files
/// that processes leave while they run.
pub struct Place {
    root: PathBuf,
    run: PathBuf,
    owner: Owner,
}

impl Place {
    /// Makes a new directory in `scratch`, which its user must be able to enter.
    pub fn make(scratch: &Path, owner: Owner) -> Result<Self> {
        let at = |path: &Path| path.display().to_string();
        fs::create_dir_all(scratch).with_context(|| at(scratch))?;
        let scratch = scratch.canonicalize().with_context(|| at(scratch))?;
        let name = format!("entresol-bench-{}", std::process::id());
        let root = scratch.join(&name);
        owner.make_directory(&root)?;
        // Names of sockets are short.
        let run = std::env::temp_dir().join(name + ".run");
        let place = Place { root, run, owner };
        for path in [&place.run, &place.loaded(), &place.mountpoint()] {
            place.owner.make_directory(path)?;
        }
        Ok(place)
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    pub fn loaded(&self) -> PathBuf {
        self.root.join("loaded")
    }

    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.root.join("mount")
    }

    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Path of the recording, where the user of the process that mounts may write.
    pub fn recording(&self) -> PathBuf {
        self.run.join("recording.etr")
    }

    pub fn run(&self) -> &Path {
        &self.run
    }

    /// Makes a fresh copy of the loaded database, without a cache.
    pub fn renew(&self) -> Result<()> {
        self.clear()?;
        let mut copy = Command::new("cp");
        copy.args(["-a", "--reflink=auto", "--"]).arg(self.loaded()).arg(self.work());
        let output = copy.output().context("cp")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Removes the working copy and the cache of a run, and the notes of its witness.
    pub fn clear(&self) -> Result<()> {
        witness::clear(&self.run)?;
        if self.work().exists() {
            fs::remove_dir_all(self.work()).with_context(|| self.work().display().to_string())?;
        }
        match fs::remove_file(self.cache()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.cache().display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the files that a cache would hold.
    pub fn loaded_bytes(&self) -> Result<u64> {
        let patterns: Vec<Pattern> = not_cached().filter_map(|name| name.parse().ok()).collect();
        let (root, mut bytes) = (self.loaded(), 0);
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
                let path = entry?.path();
                let found = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
                let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
                if found.is_dir() {
                    directories.push(path);
                } else if !patterns.iter().any(|pattern| pattern.matches(&name)) {
                    bytes += found.len();
                }
            }
        }
        Ok(bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for path in [&self.root, &self.run] {
            if let Err(error) = fs::remove_dir_all(path) {
                say!("entresol: {}: is left behind: {error}", path.display());
            }
        }
    }
}
