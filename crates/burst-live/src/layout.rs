//! Files of a checkpoint on the PFS, and the rule by which a checkpoint is complete.
//!
//! `job-J/checkpoint-C/` has for each part of each object a file with its bytes, and beside it `NAME.json` with their
//! checksums. The name of a part has all that decides about completeness, so that a listing of the folder is enough:
//! `part-rR-ofN-aA-oO-bB-tT` is of rank R of N and of attempt A, and has B bytes of T from offset O on. The checksums are
//! durable before the part. `manifest.json` comes last.
//!
//! An attempt at an object is *whole* when its parts cover the object. A checkpoint is *complete* when every rank has a
//! whole attempt; the newest whole attempt of each rank counts.

use crate::checksum::{CHUNK_BYTES, chunk_length, chunks, crc32c};
use crate::index::{self, FILES, Index, PIECE};
use crate::message::{About, Part};
use crate::mutant::{self, Mutant};
use crate::pfs::Pfs;
use entresol_burst::{CheckpointId, JobId, Object};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

const MANIFEST: &str = "manifest.json";

/// Folder of a checkpoint.
pub fn folder(job: JobId, checkpoint: CheckpointId) -> String {
    format!("job-{}/checkpoint-{}", job.0, checkpoint.0)
}

/// File name of a part.
pub fn name(part: &Part) -> String {
    let About { ranks, total, attempt } = part.about;
    format!("part-r{}-of{ranks}-a{attempt}-o{}-b{}-t{total}", part.object.rank, part.offset, part.bytes)
}

/// The part that a file name is of.
fn parse(job: JobId, checkpoint: CheckpointId, text: &str) -> Option<Part> {
    let mut fields = text.strip_prefix("part-")?.split('-');
    let mut field = |prefix: &str| fields.next()?.strip_prefix(prefix)?.parse::<u64>().ok();
    let rank = u32::try_from(field("r")?).ok()?;
    let ranks = u32::try_from(field("of")?).ok()?;
    let (attempt, offset, bytes, total) = (field("a")?, field("o")?, field("b")?, field("t")?);
    let part = Part { object: Object { job, checkpoint, rank }, about: About { ranks, total, attempt }, offset, bytes };
    // A sidecar or another file does not print as its part.
    (name(&part) == text && is_sound(&part)).then_some(part)
}

/// True if a part lies within its object, and its rank within the checkpoint.
pub fn is_sound(part: &Part) -> bool {
    let within = part.offset.checked_add(part.bytes).is_some_and(|end| end <= part.about.total);
    within && part.object.rank < part.about.ranks && (part.bytes > 0 || part.about.total == 0)
}

/// Checksums of a part, in the file beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Length of the chunks in bytes.
    pub chunk_bytes: u64,
    /// CRC-32C of each chunk.
    pub crcs: Vec<u32>,
}

/// The last file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The job.
    pub job: u64,
    /// The checkpoint.
    pub checkpoint: u64,
    /// Number of ranks.
    pub ranks: u32,
    /// The object of each rank, in order; of files, their indexes.
    pub objects: Vec<ManifestObject>,
    /// The pieces of the files, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<ManifestObject>,
}

/// The object of one rank in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestObject {
    /// The rank.
    pub rank: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// The attempt of the parts.
    pub attempt: u64,
    /// The parts, by offset.
    pub parts: Vec<ManifestPart>,
}

/// One file in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPart {
    /// Offset in the object of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Name of the file.
    pub file: String,
    /// Length of the chunks in bytes.
    pub chunk_bytes: u64,
    /// CRC-32C of each chunk.
    pub crcs: Vec<u32>,
}

/// Writes a part: checksums first, then the bytes. Both are durable afterwards.
///
/// # Errors
/// When the PFS fails.
pub fn write_part(pfs: &dyn Pfs, part: &Part, crcs: &[u32], contents: &mut dyn Read) -> io::Result<()> {
    let folder = folder(part.object.job, part.object.checkpoint);
    let name = name(part);
    let sidecar = Sidecar { chunk_bytes: crate::CHUNK_BYTES, crcs: crcs.to_vec() };
    let checksums = serde_json::to_vec(&sidecar)?;
    if mutant::is(Mutant::ChecksumsLate) {
        pfs.create(&folder, &name, contents)?;
        return pfs.create(&folder, &format!("{name}.json"), &mut &checksums[..]);
    }
    pfs.create(&folder, &format!("{name}.json"), &mut &checksums[..])?;
    pfs.create(&folder, &name, contents)
}

/// The checksums of a part on the PFS.
///
/// # Errors
/// When they are missing or do not fit the part.
pub fn sidecar(pfs: &dyn Pfs, part: &Part) -> io::Result<Sidecar> {
    let folder = folder(part.object.job, part.object.checkpoint);
    let sidecar: Sidecar = serde_json::from_slice(&pfs.read_small(&folder, &format!("{}.json", name(part)))?)?;
    let fits =
        sidecar.chunk_bytes == crate::CHUNK_BYTES && sidecar.crcs.len() as u64 == crate::checksum::chunks(part.bytes);
    if fits { Ok(sidecar) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "checksums of another part")) }
}

/// The parts of a checkpoint on the PFS.
///
/// # Errors
/// When its folder cannot be read.
pub fn parts(pfs: &dyn Pfs, job: JobId, checkpoint: CheckpointId) -> io::Result<Vec<Part>> {
    let names = pfs.list(&folder(job, checkpoint))?;
    Ok(names.iter().filter_map(|name| parse(job, checkpoint, name)).collect())
}

/// The checkpoints of a job that have a folder on the PFS.
///
/// # Errors
/// When the job's folder cannot be read.
pub fn checkpoints(pfs: &dyn Pfs, job: JobId) -> io::Result<BTreeSet<CheckpointId>> {
    let names = pfs.list(&format!("job-{}", job.0))?;
    let number = |name: &String| name.strip_prefix("checkpoint-")?.parse().ok().map(CheckpointId);
    Ok(names.iter().filter_map(number).collect())
}

/// True if parts cover an object.
fn are_whole(parts: &[Part]) -> bool {
    let mut spans: Vec<(u64, u64)> = parts.iter().map(|part| (part.offset, part.offset + part.bytes)).collect();
    spans.sort_unstable();
    let covered = spans.iter().try_fold(0, |end, &(from, to)| (from <= end).then_some(end.max(to)));
    parts.first().is_some_and(|part| covered == Some(part.about.total))
}

/// The newest whole attempt of each rank that has one.
fn newest_whole(parts: &[Part]) -> BTreeMap<u32, About> {
    let mut attempts: BTreeMap<(u32, u64, u64), Vec<Part>> = BTreeMap::new();
    for part in parts {
        attempts.entry((part.object.rank, part.about.attempt, part.about.total)).or_default().push(*part);
    }
    // In order of attempts, so that the newest stays.
    let whole = attempts.into_iter().filter(|(_, parts)| are_whole(parts));
    whole.map(|((rank, ..), parts)| (rank, parts[0].about)).collect()
}

/// State of the objects of one checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Number of ranks, or of files; 0 if there are no parts.
    pub ranks: u32,
    /// True if the checkpoint consists of files: its objects are their indexes ([`crate::index`]).
    pub is_files: bool,
    /// The newest whole attempt of each rank that has one; of files, the newest index of each.
    pub whole: BTreeMap<u32, About>,
    /// The newest whole attempt of each piece of a file.
    pub pieces: BTreeMap<u32, About>,
}

impl Census {
    /// State of a checkpoint of which these parts exist, wherever they are. Of several numbers of ranks that of the
    /// newest attempt counts.
    pub fn of(parts: &[Part]) -> Census {
        let (pieces, objects): (Vec<Part>, Vec<Part>) = parts.iter().partition(|part| part.about.ranks == PIECE);
        let pieces = newest_whole(&pieces);
        let Some(newest) = objects.iter().max_by_key(|part| part.about.attempt) else {
            return Census { pieces, ..Census::default() };
        };
        let kind = newest.about.ranks;
        let of_kind: Vec<Part> = objects.iter().filter(|part| part.about.ranks == kind).copied().collect();
        let ranks = kind & !FILES;
        let is_files = kind & FILES != 0 && ranks > 0;
        let mut whole = newest_whole(&of_kind);
        if is_files {
            // In their order, so that the newest stays.
            let mut indexes: Vec<u32> = whole.keys().copied().collect();
            indexes.sort_unstable_by_key(|&rank| index::order(ranks, rank));
            let newest: BTreeMap<u32, u32> = indexes.iter().map(|&rank| (index::slot(ranks, rank), rank)).collect();
            whole.retain(|&rank, _| newest[&index::slot(ranks, rank)] == rank);
        }
        Census { ranks, is_files, whole, pieces }
    }

    /// True if every rank, or file, has a whole attempt. The pieces of the files are another matter.
    pub fn is_complete(&self) -> bool {
        self.ranks > 0 && self.whole.len() == self.ranks as usize
    }
}

/// The manifest of a checkpoint, if there is one.
///
/// # Errors
/// When it cannot be read.
pub fn manifest(pfs: &dyn Pfs, job: JobId, checkpoint: CheckpointId) -> io::Result<Option<Manifest>> {
    match pfs.read_small(&folder(job, checkpoint), MANIFEST) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if these parts, which are on the PFS, make the checkpoint complete, and its manifest names the newest attempts.
///
/// # Errors
/// When the PFS fails.
pub fn is_durable(pfs: &dyn Pfs, job: JobId, checkpoint: CheckpointId, parts: &[Part]) -> io::Result<bool> {
    let census = Census::of(parts);
    Ok(census.is_complete() && manifest(pfs, job, checkpoint)?.is_some_and(|manifest| names(&manifest, &census)))
}

fn names(manifest: &Manifest, census: &Census) -> bool {
    let same = |object: &ManifestObject| census.whole.get(&object.rank).is_some_and(|it| it.attempt == object.attempt);
    manifest.ranks == census.ranks && manifest.objects.len() == census.whole.len() && manifest.objects.iter().all(same)
}

/// Writes the manifest if all ranks are whole on the PFS and it does not say so yet. Returns true if the checkpoint is
/// durable. Several processes may do it at the same time: each has seen durable parts alone.
///
/// # Errors
/// When the PFS fails; to be repeated then.
pub fn finish(pfs: &dyn Pfs, job: JobId, checkpoint: CheckpointId) -> io::Result<bool> {
    let all = parts(pfs, job, checkpoint)?;
    let census = Census::of(&all);
    if !census.is_complete() && !mutant::is(Mutant::ManifestEarly) {
        return Ok(false);
    }
    // A manifest that cannot be read is written again.
    if let Ok(Some(manifest)) = manifest(pfs, job, checkpoint)
        && names(&manifest, &census)
    {
        return Ok(true);
    }
    let needed = if census.is_files { pieces_on_pfs(pfs, &all, &census)? } else { Some(BTreeSet::new()) };
    let Some(needed) = needed else { return Ok(false) };
    let objects = census.whole.iter().map(|(&rank, about)| manifest_object(pfs, &all, rank, about));
    let pieces = needed.iter().map(|rank| manifest_object(pfs, &all, *rank, &census.pieces[rank]));
    let manifest = Manifest {
        job: job.0,
        checkpoint: checkpoint.0,
        ranks: census.ranks,
        objects: objects.collect::<io::Result<_>>()?,
        pieces: pieces.collect::<io::Result<_>>()?,
    };
    pfs.create(&folder(job, checkpoint), MANIFEST, &mut &serde_json::to_vec_pretty(&manifest)?[..])?;
    Ok(true)
}

/// Ranks of the pieces of all files of a checkpoint on the PFS; none if a piece is missing there.
fn pieces_on_pfs(pfs: &dyn Pfs, all: &[Part], census: &Census) -> io::Result<Option<BTreeSet<u32>>> {
    let mut ranks = BTreeSet::new();
    for (&rank, about) in &census.whole {
        let Some(own) = Index::parse(&read_on_pfs(pfs, all, rank, about)?)?.pieces(&census.pieces) else {
            return Ok(None);
        };
        ranks.extend(own);
    }
    Ok(Some(ranks))
}

/// The bytes of a small object on the PFS, with its checksums compared.
fn read_on_pfs(pfs: &dyn Pfs, all: &[Part], rank: u32, about: &About) -> io::Result<Vec<u8>> {
    let mut own: Vec<&Part> = all.iter().filter(|part| part.object.rank == rank && part.about == *about).collect();
    own.sort_unstable_by_key(|part| part.offset);
    let mut bytes = Vec::new();
    for part in own.into_iter().filter(|part| part.bytes > 0) {
        let sidecar = sidecar(pfs, part)?;
        let folder = folder(part.object.job, part.object.checkpoint);
        for (chunk, &crc) in (0..chunks(part.bytes)).zip(&sidecar.crcs) {
            let length = chunk_length(part.bytes, chunk);
            let read = pfs.read(&folder, &name(part), chunk * CHUNK_BYTES, length)?;
            if crc32c(&read) != crc {
                let why = format!("{}: chunk {chunk} has another checksum", name(part));
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            bytes.extend(read);
        }
    }
    Ok(bytes)
}

fn manifest_object(pfs: &dyn Pfs, all: &[Part], rank: u32, about: &About) -> io::Result<ManifestObject> {
    let mut own: Vec<&Part> = all.iter().filter(|part| part.object.rank == rank && part.about == *about).collect();
    own.sort_unstable_by_key(|part| (part.offset, part.bytes));
    let parts: io::Result<Vec<ManifestPart>> = own.into_iter().map(|part| manifest_part(pfs, part)).collect();
    Ok(ManifestObject { rank, bytes: about.total, attempt: about.attempt, parts: parts? })
}

fn manifest_part(pfs: &dyn Pfs, part: &Part) -> io::Result<ManifestPart> {
    let Sidecar { chunk_bytes, crcs } = sidecar(pfs, part)?;
    Ok(ManifestPart { offset: part.offset, bytes: part.bytes, file: name(part), chunk_bytes, crcs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pfs::Directory;
    use entresol_core::Random;

    const JOB: JobId = JobId(1);
    const CHECKPOINT: CheckpointId = CheckpointId(2);

    fn part(rank: u32, ranks: u32, attempt: u64, offset: u64, bytes: u64, total: u64) -> Part {
        let object = Object { job: JOB, checkpoint: CHECKPOINT, rank };
        Part { object, about: About { ranks, total, attempt }, offset, bytes }
    }

    fn write(pfs: &dyn Pfs, part: &Part) {
        let bytes = vec![part.about.attempt as u8; part.bytes as usize];
        write_part(pfs, part, &crate::checksum::of_chunks(&bytes), &mut &bytes[..]).expect("a part");
    }

    #[test]
    fn a_name_is_of_one_part_and_other_names_are_of_none() {
        let mut random = Random::new(3);
        for _ in 0..1000 {
            let total = random.below(1 << 40) + 1;
            let offset = random.below(total);
            let bytes = 1 + random.below(total - offset);
            let part = part(random.below(5) as u32, 5, random.next_u64(), offset, bytes, total);
            assert_eq!(parse(JOB, CHECKPOINT, &name(&part)), Some(part));
        }
        let good = name(&part(0, 1, 5, 0, 3, 3));
        assert_eq!(good, "part-r0-of1-a5-o0-b3-t3");
        let beyond = name(&part(0, 1, 5, 1, 3, 3));
        let others =
            [format!("{good}.json"), format!(".tmp-{good}"), good.replace("r0", "r00"), good.replace("r0", "r1")];
        for other in others.iter().chain([&beyond, &String::new(), &MANIFEST.to_owned()]) {
            assert_eq!(parse(JOB, CHECKPOINT, other), None, "{other}");
        }
        assert_eq!(parse(JOB, CHECKPOINT, "part-r0-of1-a5-o18446744073709551615-b2-t3"), None);
    }

    #[test]
    fn the_newest_whole_attempt_counts_and_attempts_are_not_mixed() {
        let halves = |attempt| [part(0, 1, attempt, 0, 5, 10), part(0, 1, attempt, 5, 5, 10)];
        let mixed = [halves(1)[0], halves(2)[1]];
        assert!(!Census::of(&mixed).is_complete());
        let older = [halves(1)[0], halves(1)[1], halves(2)[1]];
        assert_eq!(Census::of(&older).whole[&0].attempt, 1);
        let both = [halves(1), halves(2)].concat();
        assert_eq!(Census::of(&both).whole[&0].attempt, 2);
        let gap = [part(0, 1, 1, 0, 4, 10), part(0, 1, 1, 5, 5, 10)];
        assert!(!Census::of(&gap).is_complete());
        assert!(Census::of(&[part(0, 1, 1, 0, 0, 0)]).is_complete(), "an empty object is whole");
        assert!(!Census::of(&[]).is_complete());
        assert!(!Census::of(&[part(1, 2, 1, 0, 1, 1)]).is_complete(), "a rank is missing");
    }

    #[test]
    fn of_files_the_newest_generation_counts_and_pieces_are_no_ranks() {
        let files = 2;
        let index = |slot: u32, generation, attempt| {
            let rank = slot + files * generation;
            part(rank, FILES | files, attempt, 0, 9, 9)
        };
        let piece = part(700, PIECE, 99, 0, 5, 5);
        // A later index of a generation counts, but not of an earlier one.
        let later = |generation: u32, number: u32, attempt| {
            let rank = files * (index::GENERATIONS * (number + 1) + generation);
            part(rank, FILES | files, attempt, 0, 9, 9)
        };
        let census = Census::of(&[index(0, 0, 1), later(0, 3, 9), index(0, 1, 2), later(0, 4, 8)]);
        assert_eq!(census.whole.keys().copied().collect::<Vec<_>>(), [2]);
        let census = Census::of(&[index(0, 1, 1), later(1, 3, 2), later(1, 2, 9)]);
        assert_eq!(census.whole.keys().copied().collect::<Vec<_>>(), [later(1, 3, 0).object.rank]);
        let census = Census::of(&[index(0, 0, 1), index(0, 2, 3), index(0, 1, 7), piece]);
        assert_eq!(census.whole.keys().copied().collect::<Vec<_>>(), [4]);
        assert!(census.is_files && census.pieces.contains_key(&700) && !census.is_complete());
        assert!(Census::of(&[index(0, 0, 1), index(1, 1, 1)]).is_complete());
        assert!(!Census::of(&[piece]).is_complete() && !Census::of(&[part(0, FILES, 1, 0, 1, 1)]).is_complete());
    }

    #[test]
    fn the_manifest_of_files_waits_for_their_pieces() {
        let scratch = tempfile::tempdir().expect("a directory");
        let pfs = Directory::open(scratch.path()).expect("a directory");
        let mut of_file = index::Index::default();
        of_file.insert(index::Span { offset: 3, bytes: 5, piece: 900, at: 1 });
        let bytes = of_file.to_bytes();
        let part_of_index = part(0, FILES | 1, 5, 0, bytes.len() as u64, bytes.len() as u64);
        let crcs = crate::checksum::of_chunks(&bytes);
        write_part(&pfs, &part_of_index, &crcs, &mut &bytes[..]).expect("a part");
        let finished = || finish(&pfs, JOB, CHECKPOINT).expect("the PFS works");
        assert!(!finished());
        write(&pfs, &part(900, PIECE, 4, 0, 5, 5));
        assert!(!finished(), "the piece is too short");
        write(&pfs, &part(900, PIECE, 6, 0, 6, 6));
        let all = parts(&pfs, JOB, CHECKPOINT).expect("the PFS works");
        assert!(finished() && is_durable(&pfs, JOB, CHECKPOINT, &all).expect("the PFS works"));
        let manifest = manifest(&pfs, JOB, CHECKPOINT).expect("a manifest").expect("it is there");
        assert_eq!((manifest.ranks, manifest.objects.len(), manifest.pieces.len()), (1, 1, 1));
        assert_eq!((manifest.pieces[0].rank, manifest.pieces[0].attempt), (900, 6));
    }

    #[test]
    fn the_manifest_comes_when_the_last_rank_is_whole_and_follows_a_newer_attempt() {
        let scratch = tempfile::tempdir().expect("a directory");
        let pfs = Directory::open(scratch.path()).expect("a directory");
        let finished = || finish(&pfs, JOB, CHECKPOINT).expect("the PFS works");
        let all = || parts(&pfs, JOB, CHECKPOINT).expect("the PFS works");
        let durable = || is_durable(&pfs, JOB, CHECKPOINT, &all()).expect("the PFS works");
        assert!(!finished() && !durable());
        write(&pfs, &part(0, 2, 7, 0, 9, 9));
        write(&pfs, &part(1, 2, 7, 4, 4, 8));
        assert!(!finished() && manifest(&pfs, JOB, CHECKPOINT).expect("none").is_none());
        write(&pfs, &part(1, 2, 7, 0, 4, 8));
        assert!(!durable() && finished() && durable());
        let first = manifest(&pfs, JOB, CHECKPOINT).expect("a manifest").expect("it is there");
        assert_eq!(first.objects.iter().map(|object| object.parts.len()).collect::<Vec<_>>(), [1, 2]);
        write(&pfs, &part(0, 2, 8, 0, 9, 9));
        assert!(!durable() && finished() && durable());
        let second = manifest(&pfs, JOB, CHECKPOINT).expect("a manifest").expect("it is there");
        assert_eq!((second.objects[0].attempt, second.objects[1].attempt), (8, 7));
        // A damaged manifest is written again.
        std::fs::write(scratch.path().join(folder(JOB, CHECKPOINT)).join(MANIFEST), b"{").expect("a file");
        assert!(finished() && durable());
        assert_eq!(checkpoints(&pfs, JOB).expect("a listing"), BTreeSet::from([CHECKPOINT]));
    }
}
