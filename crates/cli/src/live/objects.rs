//! Accounts of the objects in a cache: of each file of a directory, or of the one store that a block device is.

use entresol_engine::cache::ObjectCounts;
use entresol_report::{Cell, Column, NumberFormat, Table, TextStyle};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Rows that are printed; JSON has all.
const SHOWN_MAX: usize = 20;

/// What an account without a path is called.
const REST: &str = "(no file now)";

/// The account of one object, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectFigures {
    /// Number by which policies know it.
    pub object: u32,
    /// The file, relative to its directory; the backing store itself where it is one; empty for what is of no file now.
    pub path: String,
    pub size_bytes: u64,
    pub reads: u64,
    pub read_hits_memory: u64,
    pub read_hits_device: u64,
    pub writes: u64,
    pub write_hits_memory: u64,
    pub write_hits_device: u64,
    /// Writes that replaced what was dirty in the cache, which never goes below.
    pub absorbed_writes: u64,
    pub write_backs: u64,
    /// Pages that the policy holds now.
    pub resident_memory: u64,
    pub resident_device: u64,
}

impl ObjectFigures {
    /// The account of an object.
    pub fn new(object: u32, path: String, size_bytes: u64, counts: ObjectCounts) -> Self {
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
        }
    }

    /// What was counted since an earlier reading; what is held is as it is now.
    fn since(&self, before: &ObjectFigures) -> ObjectFigures {
        let less = |of: fn(&ObjectFigures) -> u64| of(self).saturating_sub(of(before));
        ObjectFigures {
            reads: less(|o| o.reads),
            read_hits_memory: less(|o| o.read_hits_memory),
            read_hits_device: less(|o| o.read_hits_device),
            writes: less(|o| o.writes),
            write_hits_memory: less(|o| o.write_hits_memory),
            write_hits_device: less(|o| o.write_hits_device),
            absorbed_writes: less(|o| o.absorbed_writes),
            write_backs: less(|o| o.write_backs),
            ..self.clone()
        }
    }

    fn requests(&self) -> u64 {
        self.reads + self.writes
    }
}

/// The objects with the most requests, a line each; with an earlier reading, of the time between. What `names` knows a path by
/// stands in its place.
pub fn table(now: &[ObjectFigures], before: &[ObjectFigures], names: &HashMap<String, String>) -> String {
    let earlier: HashMap<(u32, &str), &ObjectFigures> =
        before.iter().map(|object| ((object.object, object.path.as_str()), object)).collect();
    let since = |object: &ObjectFigures| match earlier.get(&(object.object, object.path.as_str())) {
        Some(before) => object.since(before),
        None => object.clone(),
    };
    let mut objects: Vec<ObjectFigures> = now.iter().map(since).collect();
    objects.sort_by(|a, b| b.requests().cmp(&a.requests()).then_with(|| a.path.cmp(&b.path)));
    let numbers = ["size", "in memory", "in cache", "reads", "hits", "writes", "hits", "absorbed", "written back"];
    let columns = [Column::text("object")].into_iter().chain(numbers.map(Column::number));
    let mut table = Table::new("objects", columns);
    for object in objects.iter().take(SHOWN_MAX) {
        let path = if object.path.is_empty() { REST } else { &object.path };
        let bytes = Cell::short(object.size_bytes as f64, NumberFormat::Bytes);
        let share = |hits: u64, all: u64| match all {
            0 => Cell::missing(),
            _ => Cell::percent(hits as f64 / all as f64, 2),
        };
        let row = [
            names.get(path).map_or(path, String::as_str).into(),
            if object.path.is_empty() { Cell::missing() } else { bytes },
            object.resident_memory.into(),
            object.resident_device.into(),
            object.reads.into(),
            share(object.read_hits_memory + object.read_hits_device, object.reads),
            object.writes.into(),
            share(object.write_hits_memory + object.write_hits_device, object.writes),
            object.absorbed_writes.into(),
            object.write_backs.into(),
        ];
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
        let now = [object(1, "a", 104), object(2, "b", 30), object(0, "", 1)];
        let names = HashMap::from([("a".to_owned(), "public.accounts".to_owned())]);
        let text = table(&now, &before, &names);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("b ") < at("public.accounts") && at("public.accounts") < at(REST), "{text}");
        assert!(text.contains(" 20 ") && !text.contains("104"), "{text}");
        let many: Vec<ObjectFigures> = (0..30).map(|number| object(number, &format!("f{number}"), 1)).collect();
        assert!(table(&many, &[], &names).contains("... and 10 more"));
    }
}
