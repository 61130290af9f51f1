//! Pages that could not be written below, in words: how many of which files.

use super::held::{Below, Held};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Files that are named; of the others their number is said.
const NAMED_MAX: usize = 5;

/// Counts pages of the cache by file, those with the most first.
pub fn by_file(held: &Held, pages: &[u64]) -> String {
    let Below::Files(files) = &held.below else {
        let first = pages.first().map_or_else(String::new, |page| format!(", first: page {page}"));
        return format!("{} of {}{first}", counted(pages.len(), "page"), held.backing.display());
    };
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let root = held.backing.canonicalize().unwrap_or_else(|_| held.backing.clone());
    for (path, _) in files.named(pages) {
        *counts.entry(path.strip_prefix(&root).map(PathBuf::from).unwrap_or(path)).or_default() += 1;
    }
    list(counts.into_iter().map(|(path, count)| (path.display().to_string(), count)).collect())
}

fn list(mut counts: Vec<(String, usize)>) -> String {
    // Of as many pages by name, as they came.
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

/// A number of things: 1 page, 2 pages.
pub fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
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
}
