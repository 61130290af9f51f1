//! Tables and indexes of the TPC-C-like generator: how many rows fit a page, where a row is, which pages an index
//! descent reads. Row lengths and cardinalities are those of clause 1.2 and 1.3 of the TPC-C specification.

/// Warehouses have this many districts.
pub(super) const DISTRICTS: u64 = 10;
/// Customers of a district.
pub(super) const CUSTOMERS: u64 = 3000;
/// Items, the same for all warehouses; each has a row of stock in each.
pub(super) const ITEMS: u64 = 100_000;
/// Orders of a district when the run starts.
pub(super) const ORDERS: u64 = 3000;
/// Of these, the oldest that are delivered; the others are rows of `new_order`.
pub(super) const DELIVERED: u64 = 2100;
/// Lines of an order that the load made: the mean of the specification's 5 to 15.
pub(super) const LOADED_LINES: u64 = 10;

/// Page header, row header with its line pointer, index entry overhead, in bytes: those of PostgreSQL.
const PAGE_HEADER: u64 = 24;
const ROW_OVERHEAD: u64 = 28;
const ENTRY_OVERHEAD: u64 = 12;
/// Leaves of an index are filled to this per cent.
const FILL_PERCENT: u64 = 90;

/// A table: rows in the order of insertion, appended at the end.
pub(super) struct Heap {
    pub object: u32,
    rows_per_page: u64,
    pub rows: u64,
}

impl Heap {
    pub fn new(object: u32, row_bytes: u64, rows: u64, page_bytes: u64) -> Self {
        let rows_per_page = ((page_bytes - PAGE_HEADER) / (row_bytes + ROW_OVERHEAD)).max(1);
        Heap { object, rows_per_page, rows }
    }

    /// The page of a row.
    pub fn block(&self, row: u64) -> u64 {
        debug_assert!(row < self.rows, "row {row} of {}", self.rows);
        row / self.rows_per_page
    }

    /// Appends a row; true when it starts a page.
    pub fn append(&mut self) -> (u64, bool) {
        let row = self.rows;
        self.rows += 1;
        (row, row.is_multiple_of(self.rows_per_page))
    }
}

/// A B+tree of at most three levels: the root in block 0, then space for the inner pages, then the leaves.
///
/// Keys are grouped, one group a district (or a single group); within a group they are ordinals. Groups that grow get
/// their new leaves at the end of the file, as a tree that splits its rightmost leaf does.
pub(super) struct Tree {
    pub object: u32,
    per_leaf: u64,
    /// Keys that the load gave each group, and the leaves they fill.
    group_leaves: u64,
    first_leaf: u64,
    leaves: u64,
    /// Leaves that each group got later; empty for a tree that does not grow.
    later: Vec<Vec<u32>>,
}

impl Tree {
    /// A tree over `groups` groups of `group_keys` keys; `grows` when keys will be appended to the groups.
    pub fn new(object: u32, key_bytes: u64, groups: u64, group_keys: u64, grows: bool, page_bytes: u64) -> Self {
        let per_leaf = ((page_bytes - PAGE_HEADER) * FILL_PERCENT / 100 / (key_bytes + ENTRY_OVERHEAD)).max(2);
        let group_leaves = group_keys.div_ceil(per_leaf);
        let leaves = groups * group_leaves;
        // A tree that grows may double its leaves before inner pages are shared by more leaves than fit.
        let inner = (leaves * if grows { 2 } else { 1 }).div_ceil(per_leaf);
        let first_leaf = if leaves == 1 && !grows { 0 } else { 1 + inner };
        let later = if grows { vec![Vec::new(); groups as usize] } else { Vec::new() };
        Tree { object, per_leaf, group_leaves, first_leaf, leaves, later }
    }

    /// The leaf of a key.
    pub fn leaf(&self, group: u64, ordinal: u64) -> u64 {
        let at = ordinal / self.per_leaf;
        let leaf = match at.checked_sub(self.group_leaves) {
            None => group * self.group_leaves + at,
            Some(beyond) => u64::from(self.later[group as usize][beyond as usize]),
        };
        self.first_leaf + leaf
    }

    /// The pages above a leaf, root first.
    pub fn above(&self, leaf: u64) -> impl Iterator<Item = u64> + use<> {
        let inner_pages = self.first_leaf.saturating_sub(1);
        let root = (inner_pages > 0).then_some(0);
        let inner = (inner_pages > 1).then(|| 1 + ((leaf - self.first_leaf) / self.per_leaf).min(inner_pages - 1));
        root.into_iter().chain(inner)
    }

    /// Adds a key at the end of a group; true when that took a new leaf.
    pub fn append(&mut self, group: u64, ordinal: u64) -> bool {
        let later = &mut self.later[group as usize];
        if ordinal / self.per_leaf < self.group_leaves + later.len() as u64 {
            return false;
        }
        later.push(self.leaves as u32);
        self.leaves += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_counts_are_near_those_of_a_real_database() {
        // PostgreSQL 15 with 20 warehouses: 5,453 pages of stock_pkey, 1,295 of item and 2,363 of customer_pkey
        // were referenced in a recorded run.
        let stock_pkey = Tree::new(0, 8, 1, 20 * ITEMS, false, 8192);
        assert!((5000..6000).contains(&stock_pkey.leaf(0, 20 * ITEMS - 1)));
        let item = Heap::new(0, 82, ITEMS, 8192);
        assert!((1200..1500).contains(&item.block(ITEMS - 1)));
        let customer_pkey = Tree::new(0, 16, 1, 20 * DISTRICTS * CUSTOMERS, false, 8192);
        assert!((2000..2600).contains(&customer_pkey.leaf(0, 20 * DISTRICTS * CUSTOMERS - 1)));
    }

    #[test]
    fn growing_groups_share_no_leaf() {
        let mut tree = Tree::new(0, 16, 2, 200, true, 4096);
        let mut owner = std::collections::HashMap::new();
        for ordinal in 0..2000 {
            for group in 0..2 {
                if ordinal >= 200 {
                    tree.append(group, ordinal);
                }
                let leaf = tree.leaf(group, ordinal);
                assert!(tree.above(leaf).all(|page| page < leaf));
                assert_eq!(*owner.entry(leaf).or_insert(group), group, "leaf {leaf}");
            }
        }
    }
}
