//! The state that the table's records add up to.

use super::record::{Bad, Change, Facts, Open, Place, Record, Remembered};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Lookups of which it is known which request counted them: more than can be unanswered at a time.
const COUNTED_MAX: usize = 256;

/// A request that must not be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entered {
    pub change: Change,
    /// Number of its error, 0 for none; `None` while it is carried out.
    pub outcome: Option<i32>,
}

/// The state of a mount that outlives its server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    pub facts: Option<Facts>,
    /// By number; without the root.
    pub nodes: HashMap<u64, Remembered>,
    pub handles: BTreeMap<u64, Open>,
    pub next_handle: u64,
    /// By the number of the request.
    pub requests: BTreeMap<u64, Entered>,
    /// Number of a request, and of the node whose lookups it counted; the newest last.
    pub counted: VecDeque<(u64, u64)>,
    /// Numbers of nodes, and the ids of their backing files in the kernel. The highest of a node is that of its handles.
    pub backings: BTreeSet<(u64, u32)>,
    pub next_backing: u32,
}

impl Image {
    /// True if the request counted a lookup of the node.
    pub fn has_counted(&self, unique: u64, number: u64) -> bool {
        self.counted.contains(&(unique, number))
    }

    fn node(&mut self, number: u64) -> Result<&mut Remembered, Bad> {
        self.nodes.get_mut(&number).ok_or(Bad("a record of an unknown node"))
    }

    /// Applies a record.
    ///
    /// # Errors
    /// [`Bad`] if it does not fit; nothing has changed then.
    pub fn apply(&mut self, record: Record) -> Result<(), Bad> {
        match record {
            Record::Mounted(facts) => self.facts = Some(facts),
            Record::NextHandle(next) => self.next_handle = self.next_handle.max(next),
            Record::Node(number, node) => {
                self.nodes.insert(number, node);
            }
            Record::Named(number, place) => self.node(number)?.place = Some(place),
            Record::Counted { number, unique, added } => {
                let node = self.node(number)?;
                node.lookups = node.lookups.saturating_add(added.into());
                self.counted.push_back((unique, number));
                if self.counted.len() > COUNTED_MAX {
                    self.counted.pop_front();
                }
            }
            Record::Forgotten { number, count, unique } => {
                let node = self.node(number)?;
                node.lookups = node.lookups.saturating_sub(count);
                let gone = node.lookups == 0;
                if gone {
                    self.nodes.remove(&number);
                }
                if gone || unique != 0 {
                    self.counted.retain(|&(by, of)| by != unique && (of != number || !gone));
                }
            }
            Record::Kept(number) => self.node(number)?.kept = true,
            Record::Opened(handle, open) => {
                let next = handle.checked_add(1).ok_or(Bad("a handle's number is too large"))?;
                self.handles.insert(handle, open);
                self.next_handle = self.next_handle.max(next);
            }
            Record::Closed(handle) => {
                self.handles.remove(&handle).ok_or(Bad("an unknown handle is closed"))?;
            }
            Record::Began(unique, change) => {
                self.requests.insert(unique, Entered { change, outcome: None });
            }
            Record::Ended { unique, errno } => {
                let entered = self.requests.get_mut(&unique).ok_or(Bad("an unknown request has ended"))?;
                entered.outcome = Some(errno);
                if errno == 0 {
                    let change = entered.change.clone();
                    self.named_anew(&change);
                }
            }
            Record::Answered(unique) => {
                self.requests.remove(&unique).ok_or(Bad("an unknown request is answered"))?;
            }
            Record::NextBacking(next) => self.next_backing = self.next_backing.max(next),
            Record::Registered { node, id } => {
                let next = id.checked_add(1).ok_or(Bad("a backing id is too large"))?;
                self.backings.insert((node, id));
                self.next_backing = self.next_backing.max(next);
                self.nodes.entry(node).and_modify(|node| node.passed = true);
            }
            Record::Unregistered { node, id } => {
                let known = self.backings.remove(&(node, id));
                known.then_some(()).ok_or(Bad("an unknown backing id is closed"))?;
            }
            Record::Passed(number) => self.node(number)?.passed = true,
        }
        Ok(())
    }

    /// Updates the names of nodes after a change.
    fn named_anew(&mut self, change: &Change) {
        let mut moved = |number: &u64, from: &Place, to: Option<&Place>| {
            if let Some(node) = self.nodes.get_mut(number).filter(|node| node.place.as_ref() == Some(from)) {
                node.place = to.cloned();
            }
        };
        match change {
            Change::Make { .. } | Change::Attribute { .. } => {}
            Change::Remove { at, before } => moved(before, at, None),
            // Both are names of one file, and stay.
            Change::Rename { moved: one, replaced, .. } if one == replaced => {}
            Change::Rename { from, to, moved: one, replaced, exchange } => {
                moved(replaced, to, exchange.then_some(from));
                moved(one, from, Some(to));
            }
        }
    }

    /// Path of a place below the root, as names; none if it does not lead there.
    pub fn path<'a>(&'a self, place: &'a Place, root: u64) -> Option<Vec<&'a [u8]>> {
        let (mut parent, mut names) = (place.0, vec![&*place.1]);
        while parent != root {
            let (above, name) = self.nodes.get(&parent)?.place.as_ref()?;
            names.push(name);
            parent = *above;
            // A circle is longer than all that there is.
            if names.len() > self.nodes.len() + 1 {
                return None;
            }
        }
        names.reverse();
        Some(names)
    }

    /// Records that make this state.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let facts = self.facts.iter().cloned().map(Record::Mounted);
        // Before the nodes, whose names are as they are after these requests and later ones.
        let requests = self.requests.iter().flat_map(|(&unique, entered)| {
            let ended = entered.outcome.map(|errno| Record::Ended { unique, errno });
            std::iter::once(Record::Began(unique, entered.change.clone())).chain(ended)
        });
        let nodes = self.nodes.iter().map(|(number, node)| Record::Node(*number, node.clone()));
        let counted = self.counted.iter().map(|&(unique, number)| Record::Counted { number, unique, added: false });
        let next = std::iter::once(Record::NextHandle(self.next_handle));
        let handles = self.handles.iter().map(|(&handle, &open)| Record::Opened(handle, open));
        let passed = self.nodes.iter().filter(|(_, node)| node.passed).map(|(&number, _)| Record::Passed(number));
        let backings = self.backings.iter().map(|&(node, id)| Record::Registered { node, id });
        let next_backing = std::iter::once(Record::NextBacking(self.next_backing));
        // Before the nodes: one may be new since its id was registered.
        let nodes = backings.chain(next_backing).chain(nodes).chain(passed);
        facts.chain(requests).chain(nodes).chain(counted).chain(next).chain(handles)
    }
}
