//! Names of the files of a checkpoint: symbolic links on the PFS, which are made only if they do not exist.
//!
//! `file-S-of-N-gG` in the folder of a checkpoint points to the name of the file in slot S of N. A name tries the slots
//! from its hash on and takes the first free one. Slots are never given back, so two mounts that create the same name
//! find the same slot. Each opening for writing makes the link of the next generation G: who makes it first has it.
//!
//! A file with a temporary name has no slot. Each opening of one makes a link `temporary-S-of-N-gG`, and has the numbers
//! for pieces that S and G stand for.

use crate::checksum::crc32c;
use crate::index::{Claim, FILES_MAX, GENERATIONS};
use crate::layout;
use crate::pfs::Directory;
use entresol_burst::{CheckpointId, JobId};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Longest name of a file in bytes.
const NAME_BYTES_MAX: usize = 255;

/// True if a file can have this name, as in a directory.
pub fn is_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..")
        && !bytes.iter().any(|byte| b"/\0".contains(byte))
        && bytes.len() <= NAME_BYTES_MAX
}

/// Names of the files of one checkpoint.
pub struct Names<'a> {
    pfs: &'a Directory,
    folder: String,
    files: u32,
}

impl Names<'_> {
    /// The names of a checkpoint of so many files.
    pub fn new(pfs: &Directory, job: JobId, checkpoint: CheckpointId, files: u32) -> Names<'_> {
        Names { pfs, folder: layout::folder(job, checkpoint), files }
    }

    fn link(&self, slot: u32, generation: u32) -> PathBuf {
        self.pfs.path(&self.folder).join(format!("file-{slot}-of-{}-g{generation}", self.files))
    }

    /// The slots in the order in which a name tries them.
    fn slots(&self, name: &OsStr) -> impl Iterator<Item = u32> + use<> {
        let (files, first) = (self.files, crc32c(name.as_bytes()));
        (0..files).map(move |step| ((u64::from(first) + u64::from(step)) % u64::from(files)) as u32)
    }

    /// The slot of a name; none if the name has none.
    ///
    /// # Errors
    /// When the PFS cannot be read.
    pub fn find(&self, name: &OsStr) -> io::Result<Option<u32>> {
        for slot in self.slots(name) {
            match target(&self.link(slot, 0))? {
                None => return Ok(None),
                Some(other) if other != name => {}
                Some(_) => return Ok(Some(slot)),
            }
        }
        Ok(None)
    }

    /// Begins the next generation of a name. It is durable when it is returned. None if all slots belong to other names,
    /// or the name has had all its generations.
    ///
    /// # Errors
    /// When the PFS fails.
    pub fn claim(&self, name: &OsStr) -> io::Result<Option<Claim>> {
        let folder = self.pfs.create_folder(&self.folder)?;
        for slot in self.slots(name) {
            let is_new = make(name, &self.link(slot, 0))?;
            if !is_new && target(&self.link(slot, 0))?.is_none_or(|other| other != name) {
                continue;
            }
            let generation = if is_new { Some(0) } else { self.next_generation(slot, name)? };
            self.pfs.sync_folder(&folder)?;
            let claim = |generation| Claim { files: self.files, slot, generation, is_temporary: false };
            return Ok(generation.map(claim));
        }
        Ok(None)
    }

    /// Takes numbers for the pieces of a file with a temporary name, which no other opening has. The claim is durable when
    /// it is returned. None if there are no more numbers.
    ///
    /// # Errors
    /// When the PFS fails.
    pub fn claim_temporary(&self, name: &OsStr) -> io::Result<Option<Claim>> {
        let folder = self.pfs.create_folder(&self.folder)?;
        for slot in self.slots(name) {
            for generation in 0..GENERATIONS {
                let link = folder.join(format!("temporary-{slot}-of-{}-g{generation}", self.files));
                if make(name, &link)? {
                    self.pfs.sync_folder(&folder)?;
                    return Ok(Some(Claim { files: self.files, slot, generation, is_temporary: true }));
                }
            }
        }
        Ok(None)
    }

    fn next_generation(&self, slot: u32, name: &OsStr) -> io::Result<Option<u32>> {
        for generation in 1..GENERATIONS {
            if make(name, &self.link(slot, generation))? {
                return Ok(Some(generation));
            }
        }
        Ok(None)
    }

    /// True if a file was not opened for writing again.
    ///
    /// # Errors
    /// When the PFS cannot be read.
    pub fn is_newest(&self, claim: Claim) -> io::Result<bool> {
        Ok(target(&self.link(claim.slot, claim.generation + 1))?.is_none())
    }

    /// The names by slot.
    ///
    /// # Errors
    /// When the PFS cannot be read.
    pub fn list(&self) -> io::Result<BTreeMap<u32, OsString>> {
        let mut names = BTreeMap::new();
        for slot in 0..self.files.min(FILES_MAX) {
            names.extend(target(&self.link(slot, 0))?.map(|name| (slot, name)));
        }
        Ok(names)
    }
}

/// Makes a link; false if it exists.
fn make(name: &OsStr, link: &Path) -> io::Result<bool> {
    match symlink(name, link) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn target(link: &Path) -> io::Result<Option<OsString>> {
    match fs::read_link(link) {
        Ok(name) => Ok(Some(name.into_os_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const JOB: JobId = JobId(1);
    const CHECKPOINT: CheckpointId = CheckpointId(2);

    #[test]
    fn mounts_that_create_names_at_the_same_time_agree_on_the_slots() {
        let scratch = tempfile::tempdir().expect("a directory");
        let files = 12;
        let claim_all = || {
            let pfs = Directory::open(scratch.path()).expect("a directory");
            let names = Names::new(&pfs, JOB, CHECKPOINT, files);
            let claim = |file: u32| names.claim(OsStr::new(&format!("file {file}"))).expect("the PFS works");
            (0..files).map(|file| claim(file).expect("a slot")).collect::<Vec<Claim>>()
        };
        let claims: Vec<Vec<Claim>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim_all)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        let pfs = Directory::open(scratch.path()).expect("a directory");
        let names = Names::new(&pfs, JOB, CHECKPOINT, files);
        for file in 0..files as usize {
            let of_file: Vec<Claim> = claims.iter().map(|of_mount| of_mount[file]).collect();
            assert!(of_file.iter().all(|claim| claim.slot == of_file[0].slot), "{of_file:?}");
            let generations: BTreeSet<u32> = of_file.iter().map(|claim| claim.generation).collect();
            assert_eq!(generations, (0..4).collect());
            let newest = of_file.iter().filter(|&&claim| names.is_newest(claim).expect("the PFS works"));
            assert_eq!(newest.map(|claim| claim.generation).collect::<Vec<_>>(), [3]);
            let name = format!("file {file}");
            assert_eq!(names.find(OsStr::new(&name)).expect("the PFS works"), Some(of_file[0].slot));
        }
        assert_eq!(names.list().expect("the PFS works").len(), files as usize);
        assert_eq!(names.claim(OsStr::new("one too many")).expect("the PFS works"), None);
        assert_eq!(names.find(OsStr::new("one too many")).expect("the PFS works"), None);
    }

    #[test]
    fn openings_of_temporary_names_share_no_numbers_and_take_no_slot() {
        let scratch = tempfile::tempdir().expect("a directory");
        let files = 2;
        let claim_all = |mount: u32| {
            let pfs = Directory::open(scratch.path()).expect("a directory");
            let names = Names::new(&pfs, JOB, CHECKPOINT, files);
            let name =
                |opening: u32| if opening.is_multiple_of(2) { "a.tmp".to_owned() } else { format!("{mount}.tmp") };
            let claim = |opening| names.claim_temporary(OsStr::new(&name(opening))).expect("the PFS works");
            (0..files * GENERATIONS / 4).map(|opening| claim(opening).expect("numbers")).collect::<Vec<Claim>>()
        };
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|mount| scope.spawn(move || claim_all(mount))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
        });
        let piece = |claim: &Claim| claim.piece(JOB, CHECKPOINT, 0).expect("a piece").rank;
        assert_eq!(claims.iter().map(piece).collect::<BTreeSet<u32>>().len(), (files * GENERATIONS) as usize);
        let pfs = Directory::open(scratch.path()).expect("a directory");
        let names = Names::new(&pfs, JOB, CHECKPOINT, files);
        assert_eq!(names.claim_temporary(OsStr::new("a.tmp")).expect("the PFS works"), None);
        assert!(names.list().expect("the PFS works").is_empty());
        assert!(
            (0..files).all(|file| names.claim(OsStr::new(&format!("file {file}"))).expect("the PFS works").is_some())
        );
    }
}
