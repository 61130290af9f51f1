//! Descriptions of pages that could not be written to the backing store: how many, and of which files.

use super::backing_store::Below;
use super::open_cache::OpenCache;
use super::words::{counted, drain_command};
use anyhow::anyhow;
use entresol_cache::Refused;
use entresol_files::CachedFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Files that are named at most; the others are counted.
const NAMED_MAX: usize = 5;

/// Counts pages of the cache by file, the file with most pages first. For a file or device as backing store:
/// its byte ranges.
pub fn by_file(held: &OpenCache, pages: &[u64]) -> String {
    let Below::Files(files) = &held.below else {
        let ranges = ranges(pages, u64::from(held.geometry.page_bytes));
        return format!("{} of {}{ranges}", counted(pages.len(), "page"), held.backing.display());
    };
    list(counts(held, files, pages).into_iter().map(|(path, count)| (path.display().to_string(), count)).collect())
}

fn counts(held: &OpenCache, files: &CachedFiles, pages: &[u64]) -> BTreeMap<PathBuf, usize> {
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for path in within(held, files.named(pages).into_iter().map(|(path, _)| path)) {
        *counts.entry(path).or_default() += 1;
    }
    counts
}

/// Makes absolute paths relative to the backing directory.
fn within(held: &OpenCache, paths: impl Iterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    let root = held.backing.canonicalize().unwrap_or_else(|_| held.backing.clone());
    paths.map(move |path| path.strip_prefix(&root).map(PathBuf::from).unwrap_or(path))
}

/// Byte ranges of pages, which must be in ascending order.
fn ranges(pages: &[u64], page_bytes: u64) -> String {
    let Some(first) = pages.first() else { return String::new() };
    let runs: Vec<&[u64]> = pages.chunk_by(|one, next| one + 1 == *next).collect();
    let bytes = |run: &&[u64]| format!("{}-{}", run[0] * page_bytes, (run[run.len() - 1] + 1) * page_bytes - 1);
    let mut named: Vec<String> = runs.iter().take(NAMED_MAX).map(bytes).collect();
    if runs.len() > NAMED_MAX {
        named.push(counted(runs.len() - NAMED_MAX, "other range"));
    }
    format!(", first: page {first}, bytes {}", named.join(", "))
}

/// Describes the pages that the backing store has refused: how many, why, and of which files.
pub fn refused(held: &OpenCache, refused: &Refused) -> String {
    let why = refused.error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
    let pages = counted(refused.pages.len(), "page");
    format!("{pages} could not be written below{why}: {}", of_failures(held, &refused.pages))
}

/// Counts pages by file, limited to files whose I/O has failed. The other files were refused only because
/// they share a sync.
fn of_failures(held: &OpenCache, pages: &[u64]) -> String {
    let Below::Files(files) = &held.below else { return by_file(held, pages) };
    let failed: BTreeSet<PathBuf> = within(held, files.failures().into_iter()).collect();
    let (failed, others): (Vec<_>, Vec<_>) =
        counts(held, files, pages).into_iter().partition(|(path, _)| failed.contains(path));
    if failed.is_empty() || others.is_empty() {
        return by_file(held, pages);
    }
    let others: usize = others.iter().map(|(_, count)| count).sum();
    let named = list(failed.into_iter().map(|(path, count)| (path.display().to_string(), count)).collect());
    format!("{named}; not known to be durable for their failure: {} of other files", counted(others, "page"))
}

impl OpenCache {
    /// The error of a drain that failed, naming the pages that could not be written. Writes all others and
    /// closes the cache.
    pub(super) fn undrained(&self, error: io::Error) -> anyhow::Error {
        if let Below::Files(files) = &self.below {
            // Clears the recorded failures: a write that failed before may succeed now.
            drop(files.failures());
        }
        let name = self.path.display();
        let said = match self.cache.drain_past_refused() {
            Ok(found) if !found.pages.is_empty() => {
                let what = refused(self, &found);
                anyhow!("{name}: {what}; they are dirty in the cache, and {}", advice(&self.path, &self.backing))
            }
            Ok(_) => anyhow::Error::new(error).context(format!("{name}: the drain")),
            // The cache device has failed too, so that its pages cannot be listed.
            Err(of_cache) => anyhow::Error::new(error).context(format!("{name}: {of_cache}; before that")),
        };
        // A close that fails leaves the cache as a kill does.
        let _as_after_a_kill = self.close();
        said
    }
}

/// Advice for a user whose pages are refused.
pub fn advice(cache: &Path, backing: &Path) -> String {
    format!("`{}` writes them once the cause is mended", drain_command(cache, backing))
}

/// Files and their numbers of pages in words, the file with most pages first.
pub fn list(mut counts: Vec<(String, usize)>) -> String {
    // A stable sort: files with equally many pages stay in order of name, as they came.
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let more = counts.split_off(counts.len().min(NAMED_MAX));
    let mut parts: Vec<String> =
        counts.into_iter().map(|(name, count)| format!("{} of {name}", counted(count, "page"))).collect();
    if !more.is_empty() {
        let pages = more.iter().map(|(_, count)| count).sum();
        parts.push(format!("{} of {}", counted(pages, "page"), counted(more.len(), "other file")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_most_pages_are_named_and_the_rest_is_counted() {
        let counts = (1..=7).map(|n| (format!("f{n}"), n)).collect();
        assert_eq!(
            list(counts),
            "7 pages of f7, 6 pages of f6, 5 pages of f5, 4 pages of f4, 3 pages of f3, 3 pages of 2 other files"
        );
        assert_eq!(list(vec![("a".into(), 1), ("b".into(), 1)]), "1 page of a, 1 page of b");
        assert_eq!(
            list((0..6).map(|n| (format!("{n}"), 1)).collect()).split(", ").last(),
            Some("1 page of 1 other file")
        );
    }

    #[test]
    fn bytes_are_told_in_ranges() {
        assert_eq!(ranges(&[768, 769, 800], 4096), ", first: page 768, bytes 3145728-3153919, 3276800-3280895");
        let apart: Vec<u64> = (0..7).map(|n| n * 2).collect();
        assert!(ranges(&apart, 1024).ends_with("8192-9215, 2 other ranges"), "{}", ranges(&apart, 1024));
    }
}
