//! `StatusStore` (004, section 5.3.2): the free space of every node, by which destinations are chosen.

use crate::mutant::{self, Mutant};
use crate::protocol::{Extent, NodeId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Free bytes of one buffer as disjoint extents; adjacent ones are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeList {
    extents: BTreeMap<u64, u64>,
    bytes: u64,
}

impl FreeList {
    fn of(capacity: u64) -> Self {
        let extents = if capacity == 0 { BTreeMap::new() } else { BTreeMap::from([(0, capacity)]) };
        FreeList { extents, bytes: capacity }
    }

    /// Takes the `bytes` free bytes with the lowest addresses.
    ///
    /// # Panics
    /// When fewer bytes are free.
    fn take(&mut self, bytes: u64) -> Vec<Extent> {
        assert!(bytes <= self.bytes, "{bytes} bytes of {} free ones", self.bytes);
        let mut taken = Vec::new();
        let mut missing = bytes;
        while missing > 0 {
            let (&offset, &length) = self.extents.first_key_value().expect("as many bytes are free");
            let part = length.min(missing);
            taken.push(Extent { offset, bytes: part });
            if mutant::is(Mutant::ReserveForgotten) {
                return taken;
            }
            self.extents.remove(&offset);
            if part < length {
                self.extents.insert(offset + part, length - part);
            }
            missing -= part;
        }
        self.bytes -= bytes;
        taken
    }

    /// Takes exactly this extent; false when a part of it is not free.
    fn take_exactly(&mut self, extent: Extent) -> bool {
        let Some((&offset, &length)) = self.extents.range(..=extent.offset).next_back() else { return false };
        if offset + length < extent.end() {
            return false;
        }
        self.extents.remove(&offset);
        if offset < extent.offset {
            self.extents.insert(offset, extent.offset - offset);
        }
        if extent.end() < offset + length {
            self.extents.insert(extent.end(), offset + length - extent.end());
        }
        self.bytes -= extent.bytes;
        true
    }

    fn put(&mut self, extent: Extent) {
        let (mut offset, mut bytes) = (extent.offset, extent.bytes);
        if let Some((&before, &length)) = self.extents.range(..offset).next_back()
            && before + length == offset
        {
            self.extents.remove(&before);
            (offset, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.extents.remove(&extent.end()) {
            bytes += length;
        }
        self.extents.insert(offset, bytes);
        self.bytes += extent.bytes;
    }
}

/// One node as the coordinator knows it.
#[derive(Clone, Debug)]
struct Space {
    capacity: u64,
    incarnation: u64,
    free: FreeList,
    /// True if the node is connected; nothing is granted from an absent node.
    present: bool,
}

/// The free space of every node that has reported.
#[derive(Clone, Debug, Default)]
pub struct StatusStore {
    nodes: BTreeMap<NodeId, Space>,
    /// Present nodes with free space, the emptiest last; among equals the lowest number last.
    by_free: BTreeSet<(u64, Reverse<NodeId>)>,
    /// Size of all buffers in bytes.
    capacity: u64,
}

impl StatusStore {
    /// True if the node is connected.
    pub fn is_present(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|space| space.present)
    }

    /// Nodes that have reported in this epoch, connected or not.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// Bytes of a node that can be granted now.
    pub fn free(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).filter(|space| space.present).map_or(0, |space| space.free.bytes)
    }

    /// Bytes of a node that no reservation holds, and its capacity.
    pub fn space(&self, node: NodeId) -> Option<(u64, u64)> {
        self.nodes.get(&node).map(|space| (space.free.bytes, space.capacity))
    }

    /// Size in bytes of the buffers of all nodes that have reported in this epoch, connected or not.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The connected node with most free space among those that `allowed` admits; among equals the lowest number.
    pub fn emptiest(&self, allowed: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        self.by_free.iter().rev().map(|&(_, Reverse(node))| node).find(|&node| allowed(node))
    }

    /// The next connected node in the ring of numbers: the fixed partner of a node where the coordinator chooses none.
    pub fn neighbour(&self, node: NodeId) -> Option<NodeId> {
        let after = self.nodes.range((std::ops::Bound::Excluded(node), std::ops::Bound::Unbounded));
        let ring = after.chain(self.nodes.range(..node));
        ring.filter(|(_, space)| space.present).map(|(&node, _)| node).next()
    }

    pub(crate) fn incarnation(&self, node: NodeId) -> Option<u64> {
        self.nodes.get(&node).map(|space| space.incarnation)
    }

    /// Adds a node with all of its space free.
    pub(crate) fn join(&mut self, node: NodeId, incarnation: u64, capacity: u64) {
        self.depart(node);
        let free = FreeList::of(capacity);
        let earlier = self.nodes.insert(node, Space { capacity, incarnation, free, present: false });
        self.capacity = self.capacity - earlier.map_or(0, |space| space.capacity) + capacity;
        self.arrive(node, incarnation);
    }

    pub(crate) fn arrive(&mut self, node: NodeId, incarnation: u64) {
        let space = self.nodes.get_mut(&node).expect("it has joined");
        space.present = true;
        space.incarnation = incarnation;
        self.by_free.insert((space.free.bytes, Reverse(node)));
    }

    pub(crate) fn depart(&mut self, node: NodeId) {
        if mutant::is(Mutant::AbsentGranted) {
            return;
        }
        if let Some(space) = self.nodes.get_mut(&node) {
            space.present = false;
            self.by_free.remove(&(space.free.bytes, Reverse(node)));
        }
    }

    fn change<R>(&mut self, node: NodeId, change: impl FnOnce(&mut FreeList) -> R) -> R {
        let space = self.nodes.get_mut(&node).expect("the node of a reservation has joined");
        self.by_free.remove(&(space.free.bytes, Reverse(node)));
        let result = change(&mut space.free);
        if space.present {
            self.by_free.insert((space.free.bytes, Reverse(node)));
        }
        result
    }

    pub(crate) fn take(&mut self, node: NodeId, bytes: u64) -> Vec<Extent> {
        self.change(node, |free| free.take(bytes))
    }

    pub(crate) fn take_exactly(&mut self, node: NodeId, extent: Extent) -> bool {
        self.change(node, |free| free.take_exactly(extent))
    }

    pub(crate) fn put(&mut self, node: NodeId, extents: &[Extent]) {
        self.change(node, |free| extents.iter().for_each(|&extent| free.put(extent)));
    }

    /// The free extents of a node.
    pub(crate) fn free_extents(&self, node: NodeId) -> Vec<Extent> {
        let extents = self.nodes.get(&node).map(|space| &space.free.extents);
        extents.into_iter().flatten().map(|(&offset, &bytes)| Extent { offset, bytes }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_that_is_given_back_merges() {
        let mut list = FreeList::of(100);
        let (a, b, c) = (list.take(10), list.take(20), list.take(70));
        assert_eq!((list.bytes, list.extents.len()), (0, 0));
        list.put(a[0]);
        list.put(c[0]);
        assert_eq!(list.take(30), [Extent { offset: 0, bytes: 10 }, Extent { offset: 30, bytes: 20 }]);
        list.put(Extent { offset: 0, bytes: 10 });
        list.put(Extent { offset: 30, bytes: 20 });
        list.put(b[0]);
        assert_eq!(list, FreeList::of(100));
        assert!(list.take_exactly(Extent { offset: 40, bytes: 20 }));
        assert!(!list.take_exactly(Extent { offset: 30, bytes: 20 }), "its last bytes are taken");
    }

    #[test]
    fn the_emptiest_node_is_the_lowest_of_equals_and_present() {
        let mut store = StatusStore::default();
        for node in 0..4 {
            store.join(NodeId(node), 0, 100);
        }
        assert_eq!(store.emptiest(|_| true), Some(NodeId(0)));
        store.take(NodeId(0), 1);
        assert_eq!(store.emptiest(|_| true), Some(NodeId(1)));
        store.depart(NodeId(1));
        assert_eq!(store.emptiest(|node| node != NodeId(2)), Some(NodeId(3)));
        assert_eq!(store.neighbour(NodeId(3)), Some(NodeId(0)));
        assert_eq!(store.neighbour(NodeId(0)), Some(NodeId(2)), "node 1 is away");
    }
}
