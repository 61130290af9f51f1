//! The oracle of files: their allowed contents, from a plain model of the promises of POSIX and a journalling
//! file system.
//!
//! A file is a row of atoms. Of each atom the model knows the versions that a read may give now, and those that a
//! crash may leave. A crash may leave the version at the last acknowledged sync, and any later one.

use entresol_core::Random;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are written together; sizes are multiples of this.
pub const ATOM: u64 = 128;
/// Most atoms of a file.
pub const ATOMS_MAX: u64 = 320;

/// Version 0 is zeros.
type Version = u32;

/// An atom of a file.
#[derive(Clone, Debug)]
struct Atom {
    /// Versions that a crash may leave, in order.
    after_crash: Vec<Version>,
    /// Index of the first version allowed if, after the crash, the file has the name that it took from another.
    after_rename: usize,
    /// Versions that a read may give: one, or several after a failed change.
    now: Vec<Version>,
}

impl Atom {
    fn settle(&mut self, version: Version) {
        (self.after_crash, self.now, self.after_rename) = (vec![version], vec![version], 0);
    }

    fn synced(&mut self) {
        self.after_crash.clone_from(&self.now);
        self.after_rename = 0;
    }

    fn may_be(&mut self, version: Version) {
        if !self.after_crash[self.after_rename..].contains(&version) {
            self.after_crash.push(version);
        }
        if !self.now.contains(&version) {
            self.now.push(version);
        }
    }

    /// Notes that the file takes the name of another with its present contents.
    fn renamed(&mut self) {
        self.after_rename = self.after_crash.len();
        self.after_crash.extend(&self.now);
    }
}

/// Model of a file.
#[derive(Clone, Debug)]
struct Model {
    atoms: Vec<Atom>,
    /// Sizes that a crash may leave, in atoms.
    sizes: Vec<u64>,
    size: u64,
    /// True if the file was written since the last sync.
    written: bool,
    /// The name taken from another file since the last sync, and the index of the first of `sizes` since then.
    renamed: Option<(Name, usize)>,
}

/// A change that is about to be made.
#[derive(Clone)]
pub struct Change {
    made: u64,
    atoms: Range<u64>,
    version: Version,
}

/// A name: the number of its directory in the test, and the text.
pub type Name = (usize, String);

/// All files, by the moment when each was made.
#[derive(Clone, Default)]
pub struct Oracle {
    files: BTreeMap<u64, Arc<Model>>,
    /// Files that each name may lead to after a crash, by the moment when each was made. The name leads to the last
    /// one now.
    names: BTreeMap<Name, Vec<Option<u64>>>,
    /// The name of a file that was being made when the power went.
    may_be_made: Option<Name>,
    next: Version,
}

fn fill(made: u64, atom: u64, version: Version, bytes: &mut [u8]) {
    if version == 0 {
        return bytes.fill(0);
    }
    bytes[..4].copy_from_slice(&version.to_le_bytes());
    let pattern = Random::mix(made << 40 ^ atom << 32 ^ u64::from(version)).to_le_bytes();
    bytes[4..].chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
}

/// The version that an atom of a file holds; none if its bytes are no version of the file.
fn version_of(made: u64, atom: u64, bytes: &[u8]) -> Option<Version> {
    let version = Version::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    let mut expected = [0; ATOM as usize];
    fill(made, atom, version, &mut expected);
    (expected == *bytes).then_some(version)
}

impl Oracle {
    /// A file system without files.
    pub fn new() -> Self {
        Self { files: BTreeMap::new(), names: BTreeMap::new(), may_be_made: None, next: 1 }
    }

    fn model(&mut self, made: u64) -> &mut Model {
        // Clones of the oracle share the models of files that have not changed since.
        Arc::make_mut(self.files.entry(made).or_insert_with(|| {
            let zeros = Atom { after_crash: vec![0], now: vec![0], after_rename: 0 };
            let atoms = vec![zeros; ATOMS_MAX as usize];
            Arc::new(Model { atoms, sizes: vec![0], size: 0, written: false, renamed: None })
        }))
    }

    /// Size in atoms.
    pub fn size(&mut self, made: u64) -> u64 {
        if !self.files.contains_key(&made) {
            self.model(made);
        }
        self.files[&made].size
    }

    fn change(&mut self, made: u64, atoms: Range<u64>, version: Version) -> Change {
        let touched = &mut self.model(made).atoms[atoms.start as usize..atoms.end as usize];
        touched.iter_mut().for_each(|atom| atom.may_be(version));
        Change { made, atoms, version }
    }

    /// Notes that a range is about to be written, and returns its bytes.
    pub fn write(&mut self, made: u64, atoms: Range<u64>) -> (Change, Vec<u8>) {
        let version = self.next;
        self.next += 1;
        let mut bytes = vec![0; ((atoms.end - atoms.start) * ATOM) as usize];
        for (atom, chunk) in atoms.clone().zip(bytes.chunks_mut(ATOM as usize)) {
            fill(made, atom, version, chunk);
        }
        let size = self.size(made).max(atoms.end);
        self.model(made).written = true;
        self.may_be_sized(made, size);
        (self.change(made, atoms, version), bytes)
    }

    /// Notes that a range is about to become zeros.
    pub fn clear(&mut self, made: u64, atoms: Range<u64>) -> Change {
        self.change(made, atoms.start.min(ATOMS_MAX)..atoms.end.min(ATOMS_MAX), 0)
    }

    /// Notes that the size is about to change.
    pub fn may_be_sized(&mut self, made: u64, size: u64) {
        self.model(made).sizes.push(size);
    }

    /// Notes that an earlier change is about to be made once more, and that the file may end at `end` then.
    pub fn announce(&mut self, change: &Change, end: Option<u64>) {
        self.change(change.made, change.atoms.clone(), change.version);
        if let Some(end) = end {
            let size = self.size(change.made).max(end);
            self.model(change.made).written = true;
            self.may_be_sized(change.made, size);
        }
    }

    /// Notes that a change was made.
    pub fn done(&mut self, change: &Change) {
        let (atoms, version) = (change.atoms.clone(), change.version);
        for atom in &mut self.model(change.made).atoms[atoms.start as usize..atoms.end as usize] {
            atom.now = vec![version];
        }
    }

    /// Notes the present size. Bytes beyond it read as zeros when the file grows again.
    pub fn sized(&mut self, made: u64, size: u64) {
        let model = self.model(made);
        model.size = size;
        let since = model.renamed.as_ref().map_or(0, |(_, since)| *since);
        if !model.sizes[since..].contains(&size) {
            model.sizes.push(size);
        }
    }

    /// Notes that the file was renamed over another. A program that does so without a sync finds the old bytes or the
    /// new ones. For a file without unsynced writes the journal ensures that.
    pub fn replaces(&mut self, made: u64, name: &Name) {
        let model = self.model(made);
        if model.written {
            model.atoms.iter_mut().for_each(Atom::renamed);
            model.renamed = Some((name.clone(), model.sizes.len()));
            model.sizes.push(model.size);
        }
    }

    /// Notes an acknowledged sync.
    pub fn synced(&mut self, made: u64) {
        let model = self.model(made);
        (model.written, model.renamed) = (false, None);
        model.atoms.iter_mut().for_each(Atom::synced);
        model.sizes = vec![model.size];
    }

    /// Checks bytes read from an atom on, without a crash in between. Of several possible versions, the one found is
    /// the only one from now on.
    pub fn check(&mut self, made: u64, from: u64, bytes: &[u8]) -> Result<(), String> {
        let size = self.size(made);
        for (at, chunk) in (from..).zip(bytes.chunks(ATOM as usize)) {
            let now = &self.files[&made].atoms[at as usize].now;
            let found = version_of(made, at, chunk);
            match found.filter(|version| now.contains(version)) {
                Some(_) if now.len() == 1 => {}
                Some(version) => self.model(made).atoms[at as usize].now = vec![version],
                None => {
                    let wanted = now;
                    return Err(format!(
                        "file {made}, atom {at} of {size}: version {found:?} is read instead of {wanted:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks all contents of a file after a crash, and makes them its contents from now on. After a kill alone
    /// (`power_lost` is false) unsynced changes may still be lost later.
    pub fn check_after_crash(&mut self, made: u64, bytes: &[u8], power_lost: bool) -> Result<(), String> {
        let size = bytes.len() as u64 / ATOM;
        let renamed = self.model(made).renamed.take().filter(|(name, _)| self.at(name) == Some(made));
        let model = self.model(made);
        if let Some((_, sizes)) = renamed {
            drop(model.sizes.drain(..sizes));
            model.atoms.iter_mut().for_each(|atom| drop(atom.after_crash.drain(..atom.after_rename)));
        }
        model.atoms.iter_mut().for_each(|atom| atom.after_rename = 0);
        if !model.sizes.contains(&size) || !(bytes.len() as u64).is_multiple_of(ATOM) {
            return Err(format!("file {made} has {} bytes, allowed were atoms {:?}", bytes.len(), model.sizes));
        }
        for at in 0..size {
            let chunk = &bytes[(at * ATOM) as usize..((at + 1) * ATOM) as usize];
            let found = version_of(made, at, chunk);
            let atom = &mut model.atoms[at as usize];
            match found.filter(|version| atom.after_crash.contains(version)) {
                Some(version) if power_lost => atom.settle(version),
                Some(version) => atom.now = vec![version],
                None => {
                    let allowed = &atom.after_crash;
                    return Err(format!(
                        "file {made}, atom {at} of {size}: version {found:?} ({:?}) after a crash, allowed were {allowed:?}",
                        &chunk[..8]
                    ));
                }
            }
        }
        for atom in &mut model.atoms[size as usize..] {
            if power_lost {
                atom.settle(0);
            } else {
                atom.may_be(0);
                atom.now = vec![0];
            }
        }
        model.size = size;
        if power_lost {
            (model.sizes, model.written) = (vec![size], false);
        }
        Ok(())
    }

    /// Checks all contents of a file after a kill of the process alone, and makes them its contents from now on. A
    /// request may have been under way: `other` is the model without it where this one has it, or the other way round.
    pub fn check_after_kill(&mut self, made: u64, bytes: &[u8], other: &mut Oracle) -> Result<(), String> {
        let size = bytes.len() as u64 / ATOM;
        self.size(made);
        other.size(made);
        let (one, two) = (self.files[&made].clone(), other.files[&made].clone());
        let announced = one.sizes.last().into_iter().chain(two.sizes.last());
        if ![one.size, two.size].iter().chain(announced).any(|&allowed| allowed * ATOM == bytes.len() as u64) {
            let allowed = [one.size, two.size];
            return Err(format!("file {made} has {} bytes after a kill, allowed were atoms {allowed:?}", bytes.len()));
        }
        let zeros = (size..ATOMS_MAX).map(|at| (at, Some(0), true));
        let chunks = (0..).zip(bytes.chunks(ATOM as usize)).map(|(at, chunk)| (at, version_of(made, at, chunk), false));
        for (at, found, is_beyond) in chunks.chain(zeros) {
            let [atom, before] = [&one, &two].map(|model| &model.atoms[at as usize]);
            let is_allowed =
                |version: &Version| is_beyond || atom.now.contains(version) || before.now.contains(version);
            let Some(version) = found.filter(is_allowed) else {
                let allowed = [&atom.now, &before.now];
                return Err(format!(
                    "file {made}, atom {at} of {size}: version {found:?} after a kill, allowed were {allowed:?}"
                ));
            };
            if atom.now != [version] {
                let atom = &mut self.model(made).atoms[at as usize];
                atom.may_be(version);
                atom.now = vec![version];
            }
        }
        if one.size != size {
            self.sized(made, size);
        }
        Ok(())
    }

    /// File that a name leads to, by the moment when it was made; none if there is none.
    pub fn at(&self, name: &Name) -> Option<u64> {
        self.names.get(name).and_then(|led| *led.last().expect("never empty"))
    }

    /// Notes that a name may lead to another file from now on, or to none.
    pub fn leads(&mut self, name: &Name, to: Option<u64>) {
        self.names.entry(name.clone()).or_insert_with(|| vec![None]).push(to);
    }

    /// Notes that a file was being made with this name.
    pub fn may_be_made(&mut self, name: &Name) {
        self.may_be_made = Some(name.clone());
    }

    /// Notes an acknowledged sync of a directory.
    pub fn directory_synced(&mut self, directory: usize) {
        for (_, led) in self.names.iter_mut().filter(|(name, _)| name.0 == directory) {
            led.drain(..led.len() - 1);
        }
    }

    /// Checks the file that a name leads to after a crash.
    pub fn check_name(&mut self, name: &Name, found: Option<u64>, power_lost: bool) -> Result<(), String> {
        let is_new = found.is_some_and(|made| !self.files.contains_key(&made));
        let may_be_new = is_new && self.may_be_made.as_ref() == Some(name);
        let led = self.names.entry(name.clone()).or_insert_with(|| vec![None]);
        if !led.contains(&found) && !may_be_new {
            return Err(format!("{name:?} leads to {found:?} after a crash, allowed were {led:?}"));
        }
        if power_lost {
            *led = vec![found];
        } else {
            led.push(found);
        }
        Ok(())
    }
}
