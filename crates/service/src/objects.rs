//! Accounts of the objects in a cache: of each file of a directory, or of the whole backing store if that is a file or
//! device.

use entresol_cache::ObjectCounts;
use entresol_render::{Cell, Column, NumberFormat, Table, TextStyle};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Most rows that are printed; JSON has all.
const SHOWN_MAX: usize = 20;

/// Label of an account without a path.
pub(crate) const REST: &str = "(no file now)";

/// The account of one object, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectFigures {
    /// Number by which policies know the object.
    pub object: u32,
    /// The file, relative to its directory; for a file or device its own name; empty for pages of no existing file.
    pub path: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Reads found in memory.
    pub read_hits_memory: u64,
    /// Reads found on the cache device.
    pub read_hits_device: u64,
    /// Writes, whole or partial.
    pub writes: u64,
    /// Writes whose page was in memory.
    pub write_hits_memory: u64,
    /// Writes whose page was on the cache device.
    pub write_hits_device: u64,
    /// Writes that replaced a dirty page in the cache, whose earlier contents are never written back.
    pub absorbed_writes: u64,
    /// Pages that the policy wrote back; none but in write-back mode.
    pub write_backs: u64,
    /// Pages that the policy holds in memory.
    pub resident_memory: u64,
    /// Pages that the policy holds on the cache device.
    pub resident_device: u64,
    /// Pages that are newer in the cache than in the backing store.
    #[serde(default)]
    pub dirty: u64,
    /// Use of the object as the policy has classified it, in a word; none if the policy does not classify or does not
    /// know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Name that the database gives the file; `kind` is the kind of thing it names, such as a table.
    ///
    /// The client that asks for figures finds out both, not the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind of the object that the name stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl ObjectFigures {
    /// The account of an object.
    pub(crate) fn new(object: u32, path: String, size_bytes: u64, counts: ObjectCounts) -> Self {
        let ObjectCounts { reads, read_hits, writes, write_hits, absorbed, write_backs, resident } = counts;
        ObjectFigures {
            object,
            path,
            size_bytes,
            reads,
            read_hits_memory: read_hits.memory,
            read_hits_device: read_hits.device,
            writes,
            write_hits_memory: write_hits.memory,
            write_hits_device: write_hits.device,
            absorbed_writes: absorbed,
            write_backs,
            resident_memory: resident.memory,
            resident_device: resident.device,
            ..ObjectFigures::default()
        }
    }

    /// Counters of the account, which only grow; current amounts are not among them.
    fn counters(&mut self) -> [&mut u64; 8] {
        let ObjectFigures { reads, read_hits_memory, read_hits_device, writes, .. } = self;
        let ObjectFigures { write_hits_memory, write_hits_device, absorbed_writes, write_backs, .. } = self;
        [
            reads,
            read_hits_memory,
            read_hits_device,
            writes,
            write_hits_memory,
            write_hits_device,
            absorbed_writes,
            write_backs,
        ]
    }

    /// Current amounts: size of the file in bytes, resident and dirty pages.
    fn held(&mut self) -> [&mut u64; 4] {
        [&mut self.size_bytes, &mut self.resident_memory, &mut self.resident_device, &mut self.dirty]
    }

    /// The counts since an earlier reading, with the current amounts.
    pub(crate) fn since(&self, before: &ObjectFigures) -> ObjectFigures {
        let (mut since, mut before) = (self.clone(), before.clone());
        for (now, before) in since.counters().into_iter().zip(before.counters()) {
            *now = now.saturating_sub(*before);
        }
        since
    }

    /// Adds the counters of another account.
    pub(crate) fn count(&mut self, other: &ObjectFigures) {
        let mut other = other.clone();
        self.counters().into_iter().zip(other.counters()).for_each(|(sum, more)| *sum += *more);
    }

    /// Adds the current amounts of another account.
    pub(crate) fn hold(&mut self, other: &ObjectFigures) {
        let mut other = other.clone();
        self.held().into_iter().zip(other.held()).for_each(|(sum, more)| *sum += *more);
    }

    /// Reads and writes.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Reads found in some tier.
    pub fn read_hits(&self) -> u64 {
        self.read_hits_memory + self.read_hits_device
    }

    /// Writes whose page was in some tier.
    pub fn write_hits(&self) -> u64 {
        self.write_hits_memory + self.write_hits_device
    }

    /// The database's name for the object, else its path.
    pub fn label(&self) -> &str {
        match &self.name {
            Some(name) => name,
            None if self.path.is_empty() => REST,
            None => &self.path,
        }
    }
}

/// The accounts with the most requests first; files that share a name are summed. With an earlier reading, the counts
/// of the time between.
pub fn busiest(now: &[ObjectFigures], before: &[ObjectFigures]) -> Vec<ObjectFigures> {
    let earlier: HashMap<(u32, &str), &ObjectFigures> =
        before.iter().map(|object| ((object.object, object.path.as_str()), object)).collect();
    let mut sums: Vec<ObjectFigures> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for object in now {
        let since = match earlier.get(&(object.object, object.path.as_str())) {
            Some(before) => object.since(before),
            None => object.clone(),
        };
        let place = *places.entry(object.label()).or_insert(sums.len());
        match sums.get_mut(place) {
            None => sums.push(since),
            Some(sum) => {
                sum.count(&since);
                sum.hold(&since);
                // Segments and partitions are classified separately, so that verdicts may differ.
                match (&mut sum.verdict, since.verdict) {
                    (Some(words), Some(word)) if !words.split('/').any(|other| other == word) => {
                        *words += &format!("/{word}");
                    }
                    (none @ None, word) => *none = word,
                    _ => {}
                }
            }
        }
    }
    sums.sort_by(|a, b| b.requests().cmp(&a.requests()).then_with(|| a.label().cmp(b.label())));
    sums
}

/// A table of the objects with the most requests; with an earlier reading, for the time between.
pub(crate) fn table(now: &[ObjectFigures], before: &[ObjectFigures]) -> String {
    let objects = busiest(now, before);
    let some = |of: fn(&ObjectFigures) -> bool| objects.iter().any(of);
    let (kinds, verdicts) = (some(|o| o.kind.is_some()), some(|o| o.verdict.is_some()));
    let word = |word: &Option<String>| word.clone().map_or(Cell::missing(), Cell::from);
    let numbers =
        ["size", "in memory", "in cache", "dirty", "reads", "hits", "writes", "hits", "absorbed", "written back"];
    let columns = [Column::text("object")].into_iter();
    let columns = columns.chain(kinds.then(|| Column::text("what"))).chain(verdicts.then(|| Column::text("found")));
    let mut table = Table::new("objects", columns.chain(numbers.map(Column::number)));
    for object in objects.iter().take(SHOWN_MAX) {
        let bytes = Cell::short(object.size_bytes as f64, NumberFormat::Bytes);
        let share = |hits: u64, all: u64| match all {
            0 => Cell::missing(),
            _ => Cell::percent(hits as f64 / all as f64, 2),
        };
        let mut row: Vec<Cell> = vec![object.label().into()];
        row.extend(kinds.then(|| word(&object.kind)));
        row.extend(verdicts.then(|| word(&object.verdict)));
        row.extend([
            if object.path.is_empty() { Cell::missing() } else { bytes },
            object.resident_memory.into(),
            object.resident_device.into(),
            object.dirty.into(),
            object.reads.into(),
            share(object.read_hits(), object.reads),
            object.writes.into(),
            share(object.write_hits(), object.writes),
            object.absorbed_writes.into(),
            object.write_backs.into(),
        ]);
        table.push(row);
    }
    let mut text = table.to_text(TextStyle::stdout());
    if objects.len() > SHOWN_MAX {
        text += &format!("... and {} more; --json has all\n", objects.len() - SHOWN_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u32, path: &str, reads: u64) -> ObjectFigures {
        ObjectFigures {
            object: number,
            path: path.to_owned(),
            reads,
            read_hits_device: reads / 2,
            ..Default::default()
        }
    }

    #[test]
    fn the_busiest_come_first_and_by_their_names() {
        let before = [object(1, "a", 100), object(2, "b", 10)];
        let mut now = [object(1, "a", 104), object(2, "b", 30), object(0, "", 1)];
        now[0].name = Some("public.accounts".to_owned());
        let text = table(&now, &before);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("b ") < at("public.accounts") && at("public.accounts") < at(REST), "{text}");
        assert!(text.contains(" 20 ") && !text.contains("104"), "{text}");
        let many: Vec<ObjectFigures> = (0..30).map(|number| object(number, &format!("f{number}"), 1)).collect();
        assert!(table(&many, &[]).contains("... and 10 more"));
    }

    #[test]
    fn files_of_one_name_are_one_account() {
        let named = |number, path, reads, verdict: Option<&str>| ObjectFigures {
            name: Some("shop.public.orders".to_owned()),
            verdict: verdict.map(str::to_owned),
            dirty: 3,
            resident_device: 7,
            ..object(number, path, reads)
        };
        let now = [named(1, "5/7", 10, Some("random")), object(2, "5/8", 15), named(3, "5/7.1", 8, Some("sequential"))];
        let before = [named(3, "5/7.1", 2, None)];
        let busiest = busiest(&now, &before);
        let first = &busiest[0];
        assert_eq!((busiest.len(), first.label(), busiest[1].label()), (2, "shop.public.orders", "5/8"));
        assert_eq!((first.reads, first.read_hits_device, first.dirty, first.resident_device), (16, 8, 6, 14));
        assert_eq!(first.verdict.as_deref(), Some("random/sequential"));
    }
}
