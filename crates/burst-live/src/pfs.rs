//! The directory on the parallel file system (PFS), behind a trait that tests fail.

use crate::mutant::{self, Mutant};
use crate::server::lock;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files in folders of the PFS.
pub trait Pfs: Send + Sync {
    /// Creates or replaces a file. It is durable under its name afterwards, and a failure or crash before leaves no file
    /// of this name with other contents than all of these, or those of before.
    ///
    /// # Errors
    /// When a step fails. The file may be there then, but not durable.
    fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()>;

    /// Reads `bytes` bytes of a file from `at` on.
    ///
    /// # Errors
    /// When the file is missing or shorter.
    fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>>;

    /// A whole small file.
    ///
    /// # Errors
    /// When the file is missing or longer than [`SMALL_BYTES_MAX`].
    fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>>;

    /// The names in a folder; none if the folder is missing.
    ///
    /// # Errors
    /// When it cannot be read.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Name of the directory, the same for all who see the same one; none where it cannot be known.
    fn identity(&self) -> Option<&str> {
        None
    }
}

/// Longest file that is read whole, in bytes.
pub const SMALL_BYTES_MAX: u64 = 64 << 20;
/// Link in the directory whose target is its identity. The system makes such a link at once and never in place of another.
const IDENTITY: &str = ".entresol-burst";
/// Beginning of the names of files that are not complete.
pub const TEMPORARY: &str = ".tmp-";

/// The calls of a file system that [`Directory`] and [`replace`] make, behind a trait that tests fail one by one.
pub trait FileSystem: Send + Sync {
    /// Creates a directory with these permissions, of which the process's mask is taken away.
    ///
    /// # Errors
    /// `AlreadyExists`, or when the call fails.
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// When the call fails.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory. A name that is not text is left out: none of ours is.
    ///
    /// # Errors
    /// When the directory is missing or cannot be read.
    fn names(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Creates or empties a file.
    ///
    /// # Errors
    /// When the call fails.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Opens a file to read it from `at` on.
    ///
    /// # Errors
    /// When the file is missing or the call fails.
    fn open(&self, path: &Path, at: u64) -> io::Result<Box<dyn Read>>;

    /// Gives a file a name in the same directory, in place of another file.
    ///
    /// # Errors
    /// When the call fails.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// When the call fails.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write {
    /// Makes the bytes durable.
    ///
    /// # Errors
    /// When the call fails. The bytes that were written may be lost then, whatever a later call says.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file systems of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct Mounted;

impl NewFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl FileSystem for Mounted {
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(mode).create(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
            .collect()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path, at: u64) -> io::Result<Box<dyn Read>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(at))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// The PFS as a mounted directory.
pub struct Directory {
    files: Box<dyn FileSystem>,
    root: PathBuf,
    /// Part of temporary names, so that two processes never share one.
    owner: String,
    identity: Option<String>,
    next: AtomicU64,
    /// Folders whose names this process has made durable.
    synced: Mutex<BTreeSet<PathBuf>>,
    /// True if the folders of jobs are for their owners alone.
    is_private: bool,
}

impl Directory {
    /// The directory at this path. It is not created: a path that is not mounted must not be filled.
    ///
    /// # Errors
    /// When there is no directory.
    pub fn open(root: &Path) -> io::Result<Directory> {
        if !fs::metadata(root)?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{}: not a directory", root.display())));
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let owner = format!("{}-{}-{}", host.trim().replace('/', "_"), std::process::id(), crate::clock::now_ns());
        let identity = identity(root, &owner)?;
        Ok(Directory { identity, ..Directory::over(Box::new(Mounted), root, owner) })
    }

    /// A directory of any file system. `owner` is a part of temporary names that no other process has.
    pub fn over(files: Box<dyn FileSystem>, root: &Path, owner: String) -> Directory {
        let (next, synced) = (AtomicU64::new(0), Mutex::default());
        Directory { files, root: root.to_owned(), owner, identity: None, next, synced, is_private: false }
    }

    /// The directory with folders of jobs that nobody but their owners may use. One that others may use is refused: another
    /// user may have made it, to read what is written there.
    #[must_use]
    pub fn into_private(self) -> Directory {
        Directory { is_private: true, ..self }
    }

    /// Path of the directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Path of a folder.
    pub(crate) fn path(&self, folder: &str) -> PathBuf {
        self.root.join(folder)
    }

    /// Makes the names in a folder durable.
    pub(crate) fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.files.sync_directory(path)
    }

    /// Fails if another directory is at the path now, as when a file system is mounted there no more.
    fn check_identity(&self) -> io::Result<()> {
        let Some(identity) = &self.identity else { return Ok(()) };
        match linked(&self.root)? {
            Some(now) if now == *identity => Ok(()),
            _ => {
                Err(io::Error::other(format!("{}: another directory than before; is it mounted?", self.root.display())))
            }
        }
    }

    /// Creates a folder. Its name is durable afterwards.
    pub(crate) fn create_folder(&self, folder: &str) -> io::Result<PathBuf> {
        let mut path = self.root.clone();
        for (depth, name) in folder.split('/').enumerate() {
            path.push(name);
            let is_of_job = self.is_private && depth == 0;
            let created = match self.files.create_directory(&path, if is_of_job { 0o700 } else { 0o777 }) {
                Ok(()) => self.check_identity().inspect_err(|_| drop(fs::remove_dir(&path))).map(|()| true)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            if is_of_job {
                check_private(&path)?;
            }
            // An existing folder may be one that another process has not synced yet.
            if created || !lock(&self.synced).contains(&path) {
                self.files.sync_directory(path.parent().unwrap_or(&self.root))?;
                lock(&self.synced).insert(path.clone());
            }
        }
        Ok(path)
    }
}

/// Identity of a directory, made at its first use. A directory that this process may not write to, and that nobody has used yet, has none.
fn identity(root: &Path, new: &str) -> io::Result<Option<String>> {
    if let Some(known) = linked(root)? {
        return Ok(Some(known));
    }
    match symlink(new, root.join(IDENTITY)).and_then(|()| Mounted.sync_directory(root)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            Ok(None)
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => linked(root),
    }
}

/// The identity that a directory has now.
fn linked(root: &Path) -> io::Result<Option<String>> {
    match fs::read_link(root.join(IDENTITY)) {
        Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that a path is a directory of the calling thread's user, which nobody else may use. A link is none.
fn check_private(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let is_own = metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0;
    let why = || format!("{}: not a directory of this user alone (chmod 700)", path.display());
    is_own.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, why()))
}

/// Writes a file under a temporary name, syncs it, renames it, and syncs the directory.
///
/// # Errors
/// When a step fails. The temporary file is removed then.
pub fn replace(
    files: &dyn FileSystem,
    folder: &Path,
    temporary: &str,
    name: &str,
    contents: &mut dyn Read,
) -> io::Result<()> {
    let path = folder.join(temporary);
    let mut write = || -> io::Result<()> {
        let mut file = files.create(&path)?;
        io::copy(contents, &mut file)?;
        file.flush()?;
        if !mutant::is(Mutant::RenamedUnsynced) {
            file.sync()?;
        }
        files.rename(&path, &folder.join(name))
    };
    if let Err(error) = write() {
        // The failure of the write is what is reported; a file that stays is ignored by its name.
        let _ = files.remove(&path);
        return Err(error);
    }
    if mutant::is(Mutant::NamesUnsynced) {
        return Ok(());
    }
    files.sync_directory(folder)
}

impl Pfs for Directory {
    fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
        let path = self.create_folder(folder)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        replace(&*self.files, &path, &format!("{TEMPORARY}{}-{number}", self.owner), name, contents)
    }

    fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let mut file = self.files.open(&self.root.join(folder).join(name), at)?;
        let mut read = vec![0; usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?];
        file.read_exact(&mut read)?;
        Ok(read)
    }

    fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        self.files.open(&self.root.join(folder).join(name), 0)?.take(SMALL_BYTES_MAX + 1).read_to_end(&mut read)?;
        if read.len() as u64 > SMALL_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
        }
        Ok(read)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        match self.files.names(&self.root.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.files.names(&self.root).is_ok() => {
                Ok(Vec::new())
            }
            names => names,
        }
    }

    fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_is_mounted_no_more_is_not_filled() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (mounted, root) = (scratch.path().join("mounted"), scratch.path().join("pfs"));
        fs::create_dir(&root).expect("a directory");
        let directory = Directory::open(&root).expect("a directory");
        let again = Directory::open(&root).expect("a directory");
        assert_eq!(again.identity(), directory.identity());
        directory.create("job-1/checkpoint-1", "part", &mut &b"bytes"[..]).expect("stored");
        fs::rename(&root, &mounted).expect("renamed");
        fs::create_dir(&root).expect("a directory");
        for other_is_used in [false, true] {
            let refused = directory.create("job-1/checkpoint-1", "part", &mut &b"bytes"[..]).expect_err("refused");
            assert!(refused.to_string().contains("is it mounted?"), "{refused}");
            assert!(!root.join("job-1").exists(), "nothing is left there");
            assert!(other_is_used || Directory::open(&root).expect("a directory").identity() != directory.identity());
        }
        fs::remove_dir_all(&root).expect("removed");
        fs::rename(&mounted, &root).expect("renamed");
        directory.create("job-1/checkpoint-2", "part", &mut &b"bytes"[..]).expect("stored");
    }

    #[test]
    fn a_private_folder_of_a_job_is_its_users_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let pfs = Directory::open(scratch.path()).expect("a directory").into_private();
        let create = |folder: &str| pfs.create(folder, "name", &mut &b"bytes"[..]);
        create("job-1/checkpoint-1").expect("a new folder");
        let job = scratch.path().join("job-1");
        assert_eq!(fs::metadata(&job).expect("it is there").mode() & 0o777, 0o700);
        fs::set_permissions(&job, fs::Permissions::from_mode(0o750)).expect("its owner may");
        let why = create("job-1/checkpoint-2").expect_err("others may read it").to_string();
        assert!(why.ends_with("not a directory of this user alone (chmod 700)"), "{why}");
        fs::set_permissions(&job, fs::Permissions::from_mode(0o700)).expect("its owner may");
        symlink(&job, scratch.path().join("job-2")).expect("a link");
        create("job-2/checkpoint-1").expect_err("a link");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&job, Some(12_345), None).expect("root may");
            create("job-1/checkpoint-1").expect_err("another user's");
        } else {
            entresol_skip::skipped!("root", "only root can give a directory away");
        }
        let open = Directory::open(scratch.path()).expect("a directory");
        open.create("job-1/checkpoint-1", "name", &mut &b"other"[..]).expect("without a key all are the same user");
    }
}
