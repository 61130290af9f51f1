//! Current names of files and directories with closed descriptors: a rename of a directory moves all that is in it.

use super::Holder;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::Weak;

/// Parent of entries that have none: the root, and entries whose names are gone.
const NONE: usize = usize::MAX;
const ROOT: usize = 0;

struct Entry {
    parent: usize,
    name: OsString,
    children: BTreeMap<OsString, usize>,
    /// Number of tickets for this entry.
    tickets: usize,
    holders: Vec<Weak<dyn Holder>>,
}

impl Entry {
    fn new(parent: usize, name: &OsStr) -> Self {
        Entry { parent, name: name.to_owned(), children: BTreeMap::new(), tickets: 0, holders: Vec::new() }
    }
}

/// The names, from the root down. An entry exists as long as there is a ticket for it or for an entry below it.
pub(super) struct Tree {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

impl Tree {
    pub fn new() -> Self {
        Tree { entries: vec![Some(Entry::new(NONE, OsStr::new("")))], free: Vec::new() }
    }

    fn entry(&self, at: usize) -> &Entry {
        self.entries[at].as_ref().expect("an entry with a ticket, or above one")
    }

    fn entry_mut(&mut self, at: usize) -> &mut Entry {
        self.entries[at].as_mut().expect("an entry with a ticket, or above one")
    }

    /// The entry at a path below the root.
    fn find(&self, path: &Path) -> Option<usize> {
        path.components().try_fold(ROOT, |at, part| match part {
            Component::Normal(name) => self.entry(at).children.get(name).copied(),
            _ => None,
        })
    }

    /// Like `find`, but makes missing entries; none for a path that does not lead downwards.
    fn intern(&mut self, path: &Path) -> Option<usize> {
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        let mut at = ROOT;
        for name in path {
            at = match self.entry(at).children.get(name) {
                Some(&next) => next,
                None => {
                    let next = self.free.pop().unwrap_or(self.entries.len());
                    if next == self.entries.len() {
                        self.entries.push(None);
                    }
                    self.entries[next] = Some(Entry::new(at, name));
                    self.entry_mut(at).children.insert(name.to_owned(), next);
                    next
                }
            };
        }
        Some(at)
    }

    /// Takes a ticket for a path.
    pub fn take(&mut self, path: &Path, holder: Weak<dyn Holder>) -> Option<usize> {
        let at = self.intern(path).filter(|&at| at != ROOT)?;
        let entry = self.entry_mut(at);
        entry.holders.retain(|holder| holder.strong_count() > 0);
        entry.tickets += 1;
        entry.holders.push(holder);
        Some(at)
    }

    /// Returns a ticket.
    pub fn give_back(&mut self, at: usize) {
        self.entry_mut(at).tickets -= 1;
        self.prune(at);
    }

    /// Removes unused entries, from an entry upwards.
    fn prune(&mut self, mut at: usize) {
        while at != ROOT && at != NONE {
            let Entry { parent, tickets, children, .. } = self.entry(at);
            if *tickets > 0 || !children.is_empty() {
                return;
            }
            let parent = *parent;
            self.detach(at);
            self.entries[at] = None;
            self.free.push(at);
            at = parent;
        }
    }

    fn detach(&mut self, at: usize) {
        let Entry { parent, name, .. } = self.entry_mut(at);
        let (parent, name) = (std::mem::replace(parent, NONE), std::mem::take(name));
        if parent != NONE {
            self.entry_mut(parent).children.remove(&name);
        }
    }

    /// The path of an entry below the root; none once its name, or one above it, is gone.
    pub fn path(&self, mut at: usize) -> Option<PathBuf> {
        let mut names = Vec::new();
        while at != ROOT {
            if at == NONE {
                return None;
            }
            let Entry { parent, name, .. } = self.entry(at);
            names.push(name);
            at = *parent;
        }
        Some(names.into_iter().rev().collect())
    }

    /// The holders of files found by the name at a path.
    pub fn holders(&self, path: &Path) -> Vec<Weak<dyn Holder>> {
        self.find(path).map_or_else(Vec::new, |at| self.entry(at).holders.clone())
    }

    /// The holders of the entry at a path and of all entries below it.
    pub fn holders_below(&self, path: &Path) -> Vec<Weak<dyn Holder>> {
        let mut left: Vec<usize> = self.find(path).into_iter().collect();
        let mut found = Vec::new();
        while let Some(at) = left.pop() {
            let Entry { holders, children, .. } = self.entry(at);
            found.extend(holders.iter().cloned());
            left.extend(children.values());
        }
        found
    }

    /// Removes a name.
    pub fn remove(&mut self, path: &Path) {
        if let Some(at) = self.find(path).filter(|&at| at != ROOT) {
            self.lose(at);
        }
    }

    fn lose(&mut self, at: usize) {
        let parent = self.entry(at).parent;
        self.detach(at);
        let unused = self.entry(at).tickets == 0 && self.entry(at).children.is_empty();
        if unused {
            self.entries[at] = None;
            self.free.push(at);
        }
        self.prune(parent);
    }

    fn attach(&mut self, at: usize, path: &Path) {
        let (Some(parent), Some(name)) = (path.parent().and_then(|parent| self.intern(parent)), path.file_name())
        else {
            return;
        };
        self.entry_mut(parent).children.insert(name.to_owned(), at);
        let entry = self.entry_mut(at);
        (entry.parent, entry.name) = (parent, name.to_owned());
    }

    /// Moves the entry of a name to another name; an entry that had that name has lost it.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        let at = self.find(from);
        if at.is_some() && at == self.find(to) {
            return;
        }
        self.remove(to);
        // `remove` cannot have pruned this entry or its parents: this entry, or one below it, has a ticket.
        let Some(at) = at.filter(|&at| at != ROOT) else { return };
        let before = self.entry(at).parent;
        self.detach(at);
        self.attach(at, to);
        self.prune(before);
    }

    /// Exchanges two names.
    pub fn exchange(&mut self, one: &Path, other: &Path) {
        let [first, second] = [one, other].map(|path| self.find(path).filter(|&at| at != ROOT));
        if first == second {
            return;
        }
        let parents = [first, second].map(|at| at.map_or(NONE, |at| self.entry(at).parent));
        [first, second].into_iter().flatten().for_each(|at| self.detach(at));
        for (at, path) in [(first, other), (second, one)] {
            if let Some(at) = at {
                self.attach(at, path);
            }
        }
        parents.into_iter().filter(|&parent| parent != NONE).for_each(|parent| self.prune(parent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::HashMap;
    use std::sync::Arc;

    struct Nobody;

    impl Holder for Nobody {
        fn let_go(&self) -> bool {
            false
        }

        fn hold_again(&self) {}

        fn was_used(&self) -> bool {
            false
        }
    }

    #[test]
    fn names_follow_their_files_through_random_renames() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut tree, mut model) = (Tree::new(), HashMap::<usize, Option<PathBuf>>::new());
            let nobody: Weak<dyn Holder> = Arc::downgrade(&(Arc::new(Nobody) as Arc<dyn Holder>));
            let path = |random: &mut Random| -> PathBuf {
                (0..1 + random.below(3)).map(|_| ["a", "b", "c"][random.below(3) as usize]).collect()
            };
            for step in 0..200 {
                let (one, other) = (path(&mut random), path(&mut random));
                let nested = one.starts_with(&other) || other.starts_with(&one);
                let moved = |at: &Path, from: &Path, to: &Path| {
                    at.strip_prefix(from)
                        .ok()
                        .map(|rest| if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) })
                };
                match random.below(5) {
                    0 | 1 => {
                        let ticket = tree.take(&one, nobody.clone()).expect("a path");
                        if let Some(before) = model.insert(ticket, Some(one.clone())) {
                            assert_eq!(before, Some(one));
                            tree.give_back(ticket);
                        }
                    }
                    2 if !nested => {
                        tree.rename(&one, &other);
                        for place in model.values_mut() {
                            let Some(at) = place.clone() else { continue };
                            match moved(&at, &one, &other) {
                                Some(to) => *place = Some(to),
                                None if at.starts_with(&other) => *place = None,
                                None => {}
                            }
                        }
                    }
                    3 if !nested => {
                        tree.exchange(&one, &other);
                        for place in model.values_mut() {
                            let Some(at) = place.clone() else { continue };
                            let to = moved(&at, &one, &other).or_else(|| moved(&at, &other, &one));
                            *place = Some(to.unwrap_or(at));
                        }
                    }
                    4 => {
                        let Some(&ticket) = model.keys().min() else { continue };
                        model.remove(&ticket);
                        tree.give_back(ticket);
                    }
                    _ => {}
                }
                for (&ticket, place) in &model {
                    assert_eq!(&tree.path(ticket), place, "seed {seed}, step {step}");
                }
            }
            model.keys().copied().collect::<Vec<_>>().into_iter().for_each(|ticket| tree.give_back(ticket));
            let left = tree.entries.iter().flatten().count();
            assert!(left <= 1 + 200, "seed {seed}: {left} entries");
            assert!(tree.entry(ROOT).children.is_empty(), "seed {seed}: nothing is left under the root");
        }
    }
}
