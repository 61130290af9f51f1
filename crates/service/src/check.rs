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
use clap::Args;
use entresol_disk::{Caching, Disk};
use entresol_files::record::compare;
use entresol_files::{FilesDisk, Nowhere};
use entresol_fsck::{Bytes, Generations, State, Survey, SurveyError, Version, superblock, survey};
use entresol_store::{Doubtful, StoreError};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Damaged pages that are named one by one at most.
const NAMED_MAX: usize = 100;

/// Verify a cache that is not in use: superblocks, tables, every page, and clean pages against the backing store
///
/// Changes nothing without --repair. Exit code 0 if all is sound (or was made so without a loss), 1 if something is
/// damaged (or was lost), 2 if the check could not be completed.
#[derive(Args)]
pub struct CheckArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The file or block device that it caches, the directory of files, or the SQLite database
    #[arg(long, value_name = "FILE|DIR")]
    pub backing: PathBuf,
    /// The UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
    /// Repair the cache as far as possible. A damaged superblock is written again, and so is a damaged table whose copy
    /// is intact. A damaged clean page is dropped (the backing store has it). A damaged dirty page is marked as lost
    /// (reading it is an error until it is written again)
    #[arg(long)]
    pub repair: bool,
    /// With --repair: what to do with doubtful dirty pages. If a table and its copy are both damaged, the writes in it
    /// are not known, and older dirty pages may be out of date: keep them, or make them errors until they are written
    /// again. Both are listed. Other pages of that table are as the backing store has them
    #[arg(long, requires = "repair", value_name = "WHAT")]
    pub doubtful: Option<DoubtfulArg>,
}

/// Treatment of dirty pages that may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DoubtfulArg {
    /// The pages are kept
    Keep,
    /// The pages are errors until they are written again
    Lose,
}

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
pub fn repair(arguments: &CheckArgs) -> Result<String> {
    let name = || arguments.cache.display().to_string();
    let cache = hold(&arguments.cache, Caching::Buffered)?;
    let superblock = superblock(&HeldBytes(&cache)).map_err(|error| beyond_repair(&arguments.cache, error))?;
    let (backing, pages) = (superblock.backing, superblock.backing_pages);
    let repaired = match arguments.doubtful {
        None => entresol_store::repair(cache, backing, pages),
        Some(DoubtfulArg::Keep) => entresol_store::repair_past(cache, backing, pages, Doubtful::Keep),
        Some(DoubtfulArg::Lose) => entresol_store::repair_past(cache, backing, pages, Doubtful::Lose),
    };
    let repaired = match repaired {
        Ok(repaired) => repaired,
        Err(StoreError::Io(error)) => return Err(error).with_context(name),
        Err(error @ StoreError::Damaged { .. }) if arguments.doubtful.is_none() => {
            let advice = "`--doubtful keep` saves the readable pages, and keeps dirty pages that may be out of date; \
                          `--doubtful lose` makes errors of these; both list the lost pages";
            return Err(Damage(format!("{}: {error}; {advice}", name())).into());
        }
        Err(error) => return Err(beyond_repair(&arguments.cache, error)),
    };
    let mut text = "repaired: both superblocks are written again\n".to_owned();
    for byte in &repaired.tables {
        writeln!(text, "repaired: the table at byte {byte} is written again from its copy").expect("text grows");
    }
    for (byte, pages) in &repaired.unknown {
        let what = format!("is gone with its copy: the last writes of at most {pages} unknown pages are lost");
        writeln!(text, "lost: the table at byte {byte} {what}").expect("text grows");
    }
    let in_doubt = match arguments.doubtful {
        Some(DoubtfulArg::Keep) => "its last write is older than that table, and may be out of date; it is kept",
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
pub fn check(arguments: &CheckArgs) -> Result<Checked> {
    check_apart(&arguments.cache, &arguments.backing)?;
    let cache = ReadFile::open(&arguments.cache)?;
    if arguments.backing.is_dir() {
        let (backing, superblock) = super::files::backing_of(&arguments.cache, &cache, &arguments.backing)?;
        let (record, volume) = (backing.record(), backing.volume()?);
        compare(superblock.uuid, generations(&superblock), record, volume)
            .with_context(|| arguments.cache.display().to_string())?;
        let disk = backing.disk(superblock.geometry.page_bytes.into());
        let disk = disk.map_err(|error| super::directory::refusal(&arguments.backing, error))?;
        let page_bytes = u64::from(superblock.geometry.page_bytes);
        let found = survey(&cache, false).map_err(|error| refusal(&arguments.cache, error))?;
        let dirty = found.pages.iter().filter(|(_, version)| version.dirty).map(|(page, _)| page * page_bytes);
        let dirty: Vec<u64> = dirty.collect();
        let missing = disk.check_missing(dirty.iter().copied());
        missing.map_err(|error| super::directory::refusal(&arguments.backing, error))?;
        let conflicts = backing.conflicts(&disk, &dirty, page_bytes)?.into_iter().map(ConflictFigures::from);
        let conflicts = conflicts.map(|conflict| conflicts::said(&arguments.backing, &[conflict])).collect();
        return report(arguments, &cache, &Files(&disk), |at, dirty| disk.nowhere(at, dirty), conflicts);
    }
    let mut backing = ReadFile::open(&arguments.backing)?;
    let superblock = superblock(&cache).map_err(|error| refusal(&arguments.cache, error))?;
    let known_as = identity::check(&arguments.cache, &superblock, &arguments.backing, arguments.identity)?;
    let place = backing_record::place(&arguments.backing, known_as)?;
    backing_record::check(&arguments.cache, superblock.uuid, generations(&superblock), &*place)?;
    if is_database(&superblock) {
        // A page beyond the end of the database belongs to no file.
        let beyond = |at, _| (at >= backing.size_bytes()).then_some(Nowhere::Beyond);
        return report(arguments, &cache, &backing, beyond, Vec::new());
    }
    check_size(&arguments.backing, backing.size_bytes(), &superblock)?;
    if superblock.backing_bytes.div_ceil(superblock.geometry.page_bytes.into()) == superblock.backing_pages {
        // The cache has no pages of the part that was added, which begins inside the page of the old end.
        backing.size_bytes = superblock.backing_bytes;
    }
    report(arguments, &cache, &backing, |_, _| None, Vec::new())
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
    arguments: &CheckArgs,
    cache: &ReadFile,
    backing: &impl Bytes,
    nowhere: impl Fn(u64, bool) -> Option<Nowhere>,
    mut wrong: Vec<String>,
) -> Result<Checked> {
    let name = arguments.cache.display();
    let mut found = survey(cache, true).map_err(|error| refusal(&arguments.cache, error))?;
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
