//! The check of a cache: compares its contents with their checksums and with the backing store, and repairs it.

use super::backing_record;
use super::conflicts::{self, ConflictFigures};
use super::hold::{Damage, HeldBytes, ReadFile, check_apart, hold};
use super::identity::{self, Identity};
use super::open_cache::Dropped;
use super::serve::{check_size, is_database};
use super::translation::generations;
use super::words::counted;
use anyhow::{Context, Result};
use entresol_disk::{Caching, Disk};
use entresol_files::record::compare;
use entresol_files::{FilesDisk, Nowhere};
use entresol_fsck::{Bytes, Generations, State, Survey, SurveyError, Version, superblock, survey};
use entresol_store::{Doubtful, StoreError};
use std::fmt::Write as _;
use std::path::Path;

/// Damaged pages that are named one by one at most.
const NAMED_MAX: usize = 100;

/// A check that was completed.
pub struct Checked {
    /// Contents of the cache and its faults, for the user.
    pub text: String,
    /// The outcome, or the error for what is damaged.
    pub outcome: Result<Sound>,
}

/// The outcome for a cache that has lost nothing.
pub enum Sound {
    /// Nothing is damaged.
    All,
    /// Some tables are damaged, but their copies are intact.
    BySomeCopies,
}

/// Repairs a cache whose backing store has passed the check as far as possible; describes the repairs.
/// `doubtful` is the treatment of dirty pages that may be out of date; none refuses a cache with such pages.
pub fn repair(path: &Path, doubtful: Option<Doubtful>) -> Result<String> {
    let name = || path.display().to_string();
    let cache = hold(path, Caching::Buffered)?;
    let superblock = superblock(&HeldBytes(&cache)).map_err(|error| beyond_repair(path, error))?;
    let (backing, pages) = (superblock.backing, superblock.backing_pages);
    let repaired = match doubtful {
        None => entresol_store::repair(cache, backing, pages),
        Some(doubtful) => entresol_store::repair_past(cache, backing, pages, doubtful),
    };
    let repaired = match repaired {
        Ok(repaired) => repaired,
        Err(StoreError::Io(error)) => return Err(error).with_context(name),
        Err(error @ StoreError::Damaged { .. }) if doubtful.is_none() => {
            let advice = "`--doubtful keep` saves the readable pages, and keeps dirty pages that may be out of date; \
                          `--doubtful lose` makes errors of these; both list the lost pages";
            return Err(Damage(format!("{}: {error}; {advice}", name())).into());
        }
        Err(error) => return Err(beyond_repair(path, error)),
    };
    let mut text = "repaired: both superblocks are written again\n".to_owned();
    for byte in &repaired.tables {
        writeln!(text, "repaired: the table at byte {byte} is written again from its copy").expect("text grows");
    }
    for (byte, pages) in &repaired.unknown {
        let what = format!("is gone with its copy: the last writes of at most {pages} unknown pages are lost");
        writeln!(text, "lost: the table at byte {byte} {what}").expect("text grows");
    }
    let in_doubt = match doubtful {
        Some(Doubtful::Keep) => "its last write is older than that table, and may be out of date; it is kept",
        _ => {
            "its last write is older than that table, and may be out of date; it is an error until it is written again"
        }
    };
    for (pages, what) in [
        (&repaired.doubtful, in_doubt),
        (&repaired.gone, "its damaged clean copy is forgotten; the backing store has it"),
        (&repaired.lost, "its last write is lost; it is an error until it is written again"),
    ] {
        for page in pages {
            writeln!(text, "repaired: page {page}: {what}").expect("text grows");
        }
    }
    Ok(text)
}

/// The error for damage that cannot be repaired.
fn beyond_repair(path: &Path, error: impl std::fmt::Display) -> anyhow::Error {
    let advice = "this cannot be repaired: its durable writes are unknown; format the cache again";
    Damage(format!("{}: {error}; {advice}", path.display())).into()
}

/// Checks a cache that is not in use.
///
/// # Errors
/// If the check could not be completed, or ended at damage before the contents were known.
pub fn check(path: &Path, backing: &Path, identity: Option<Identity>) -> Result<Checked> {
    check_apart(path, backing)?;
    let cache = ReadFile::open(path)?;
    if backing.is_dir() {
        let (mapped, superblock) = super::files::backing_of(path, &cache, backing)?;
        let (record, volume) = (mapped.record(), mapped.volume()?);
        compare(superblock.uuid, generations(&superblock), record, volume)
            .with_context(|| path.display().to_string())?;
        let disk = mapped.disk(superblock.geometry.page_bytes.into());
        let disk = disk.map_err(|error| super::directory::refusal(backing, error))?;
        let page_bytes = u64::from(superblock.geometry.page_bytes);
        let found = survey(&cache, false).map_err(|error| refusal(path, error))?;
        let dirty = found.pages.iter().filter(|(_, version)| version.dirty).map(|(page, _)| page * page_bytes);
        let dirty: Vec<u64> = dirty.collect();
        let missing = disk.check_missing(dirty.iter().copied());
        missing.map_err(|error| super::directory::refusal(backing, error))?;
        let conflicts = mapped.conflicts(&disk, &dirty, page_bytes)?.into_iter().map(ConflictFigures::from);
        let conflicts = conflicts.map(|conflict| conflicts::said(backing, &[conflict])).collect();
        return report(path, &cache, &Files(&disk), |at, dirty| disk.nowhere(at, dirty), conflicts);
    }
    let mut below = ReadFile::open(backing)?;
    let superblock = superblock(&cache).map_err(|error| refusal(path, error))?;
    let known_as = identity::check(path, &superblock, backing, identity)?;
    let place = backing_record::place(backing, known_as)?;
    backing_record::check(path, superblock.uuid, generations(&superblock), &*place)?;
    if is_database(&superblock) {
        // A page beyond the end of the database belongs to no file.
        let beyond = |at, _| (at >= below.size_bytes()).then_some(Nowhere::Beyond);
        return report(path, &cache, &below, beyond, Vec::new());
    }
    check_size(backing, below.size_bytes(), &superblock)?;
    if superblock.backing_bytes.div_ceil(superblock.geometry.page_bytes.into()) == superblock.backing_pages {
        // The cache has no pages of the part that was added, which begins inside the page of the old end.
        below.size_bytes = superblock.backing_bytes;
    }
    report(path, &cache, &below, |_, _| None, Vec::new())
}

/// The files of a directory as the backing store of the cache.
struct Files<'a>(&'a FilesDisk);

impl Bytes for Files<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(at, bytes)
    }
}

/// Reads everything and describes the result, skipping pages for which `nowhere` gives a reason. `wrong` has earlier
/// findings.
fn report(
    path: &Path,
    cache: &ReadFile,
    backing: &impl Bytes,
    nowhere: impl Fn(u64, bool) -> Option<Nowhere>,
    mut wrong: Vec<String>,
) -> Result<Checked> {
    let name = path.display();
    let mut found = survey(cache, true).map_err(|error| refusal(path, error))?;
    let page_bytes = u64::from(found.superblock.geometry.page_bytes);
    let mut dropped = Dropped::default();
    found.pages.retain(|page, version| {
        let nowhere = nowhere(page * page_bytes, version.dirty);
        match nowhere.filter(|_| version.dirty && !version.lost) {
            Some(Nowhere::Removed) => dropped.removed += 1,
            Some(Nowhere::Beyond) => dropped.beyond += 1,
            Some(Nowhere::Outdated) | None => {}
        }
        nowhere.is_none()
    });
    wrong.extend(wrong_pages(&found, cache, backing)?);
    let named: Vec<&str> = wrong.iter().take(NAMED_MAX).map(String::as_str).collect();
    let mut text = summary(&found, dropped);
    named.iter().for_each(|line| writeln!(text, "{line}").expect("text grows"));
    if wrong.len() > NAMED_MAX {
        writeln!(text, "... and {} more", wrong.len() - NAMED_MAX).expect("text grows");
    }
    let outcome = match wrong.first() {
        None if found.tables_copied.is_empty() => Ok(Sound::All),
        None => Ok(Sound::BySomeCopies),
        Some(first) => {
            let number = wrong.len();
            let text = format!("{name}: {number} finding{}, first: {first}", if number == 1 { "" } else { "s" });
            Err(Damage(text).into())
        }
    };
    Ok(Checked { text, outcome })
}

/// The error for a store that cannot be read to its end: damage, unless it never was a cache or the device failed.
pub(super) fn refusal(path: &Path, error: SurveyError) -> anyhow::Error {
    match error {
        SurveyError::Damaged { .. } | SurveyError::Superblocks | SurveyError::Short { .. } => {
            Damage(format!("{}: {error}", path.display())).into()
        }
        other => anyhow::Error::new(other).context(path.display().to_string()),
    }
}

fn summary(found: &Survey, dropped: Dropped) -> String {
    let dirty = found.count(|version| version.dirty && !version.lost);
    let lost = found.count(|version| version.lost);
    let mut text = format!(
        "{} of 2 superblocks, {} tables, {} pages: {dirty} dirty, {} clean, {lost} lost; {} obsolete versions, {} of them \
         damaged\n",
        found.superblock.valid,
        found.batches,
        found.pages.len(),
        found.pages.len() as u64 - dirty - lost,
        found.versions - (found.pages.len() as u64 - lost),
        found.obsolete_damaged,
    );
    if dropped != Dropped::default() {
        let all = counted((dirty + dropped.removed + dropped.beyond) as usize, "dirty page");
        writeln!(text, "{all} found, {dirty} of them to be written{}", dropped.said()).expect("text grows");
    }
    let Generations { settled, pending } = found.superblock.generations;
    if settled.number > 0 {
        let pending = pending.map_or(String::new(), |pending| format!(", {} begun", pending.number));
        writeln!(text, "generation {}{pending}", settled.number).expect("text grows");
    }
    for byte in &found.tables_copied {
        let what = "is damaged; a copy of it says the same, so nothing is lost; --repair or later writes replace it";
        writeln!(text, "the table at byte {byte} {what}").expect("text grows");
    }
    text
}

/// A line for each fault, in the order of the pages.
fn wrong_pages(found: &Survey, cache: &ReadFile, backing: &impl Bytes) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    if found.superblock.valid < 2 {
        wrong.push("one superblock is damaged; the next open writes it again".to_owned());
    }
    if found.superblock.state == State::Retired {
        wrong.push("the cache was retired when its device failed; its pages may be out of date".to_owned());
    }
    let mut pages: Vec<(u64, Version)> = found.pages.iter().map(|(&page, &version)| (page, version)).collect();
    pages.sort_unstable_by_key(|&(page, _)| page);
    let page_bytes = u64::from(found.superblock.geometry.page_bytes);
    for (page, version) in pages {
        let Version { byte, dirty, lost, sound } = version;
        if lost {
            wrong.push(format!("page {page}: its only copy was lost before; it is an error until it is written again"));
        } else if !sound {
            let cost = if dirty { "the only copy of its last write" } else { "a clean copy, which costs nothing" };
            wrong.push(format!("page {page}: its bytes at byte {byte} do not agree with their CRC: {cost}"));
        } else if !dirty {
            let inside = page_bytes.min(backing.size_bytes() - page * page_bytes) as usize;
            let (mut copy, mut below) = (vec![0; inside], vec![0; inside]);
            cache.read_at(byte, &mut copy)?;
            backing.read_at(page * page_bytes, &mut below)?;
            if copy != below {
                wrong.push(format!(
                    "page {page}: the clean copy at byte {byte} differs from the backing store: was that written to \
                     without the cache?"
                ));
            }
        }
    }
    Ok(wrong)
}
