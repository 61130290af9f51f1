//! State of the simulated file system, and the part of it that a crash leaves.

use entresol_core::Random;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that are written as a whole or not at all.
pub(super) const BLOCK: usize = 512;
pub(super) const ROOT: u64 = 2;

type Bytes = [u8; BLOCK];

/// Calls that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Reads.
    Read,
    /// Writes, and changes of size or allocation.
    Write,
    /// `fsync`, `fdatasync` and `syncfs`. Bytes that were to be made durable are dropped, as Linux drops them.
    Sync,
    /// Changes of names.
    Name,
}

/// A file or directory, by its metadata.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// Moment of creation, different for each node.
    pub made: u64,
    /// Names in it, if it is a directory.
    pub names: Option<BTreeMap<String, u64>>,
    pub size: u64,
    /// Block that stores each block-sized part of the file, by the part's number; a hole where there is none.
    pub blocks: BTreeMap<u64, u64>,
    pub modified: (i64, i64),
    pub changed: (i64, i64),
}

/// The metadata of all nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Metadata {
    pub nodes: BTreeMap<u64, Node>,
}

/// A step of a record.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Make {
        inode: u64,
        made: u64,
        directory: bool,
    },
    Enter {
        directory: u64,
        name: String,
        inode: u64,
    },
    Leave {
        directory: u64,
        name: String,
        inode: u64,
    },
    Size {
        inode: u64,
        size: u64,
    },
    /// Stores a block of a file here from now on, or makes it a hole.
    Map {
        inode: u64,
        at: u64,
        block: Option<u64>,
    },
    Times {
        inode: u64,
        modified: (i64, i64),
        changed: (i64, i64),
    },
    Free {
        inode: u64,
    },
}

impl Step {
    /// True if a sync of this node has to wait for the step. `data_only` leaves out steps that are not needed to read
    /// the bytes.
    fn is_of(&self, of: u64, data_only: bool) -> bool {
        match self {
            Step::Make { inode, .. } | Step::Size { inode, .. } | Step::Map { inode, .. } => *inode == of,
            Step::Enter { directory, inode, .. } | Step::Leave { directory, inode, .. } => {
                *directory == of || (*inode == of && !data_only)
            }
            Step::Times { inode, .. } | Step::Free { inode } => *inode == of && !data_only,
        }
    }
}

impl Metadata {
    pub fn links(&self, inode: u64) -> usize {
        let directories = self.nodes.values().filter_map(|node| node.names.as_ref());
        directories.flat_map(BTreeMap::values).filter(|&&named| named == inode).count()
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Make { inode, made, directory } => {
                let node = Node { made: *made, names: directory.then(BTreeMap::new), ..Node::default() };
                self.nodes.insert(*inode, node);
            }
            Step::Enter { directory, name, inode } => {
                self.names(*directory).insert(name.clone(), *inode);
            }
            Step::Leave { directory, name, .. } => {
                self.names(*directory).remove(name);
            }
            Step::Size { inode, size } => self.node(*inode).size = *size,
            Step::Map { inode, at, block } => {
                let blocks = &mut self.node(*inode).blocks;
                match block {
                    Some(block) => blocks.insert(*at, *block),
                    None => blocks.remove(at),
                };
            }
            Step::Times { inode, modified, changed } => {
                let node = self.node(*inode);
                (node.modified, node.changed) = (*modified, *changed);
            }
            Step::Free { inode } => drop(self.nodes.remove(inode)),
        }
    }

    fn node(&mut self, inode: u64) -> &mut Node {
        self.nodes.get_mut(&inode).expect("steps come in order")
    }

    fn names(&mut self, directory: u64) -> &mut BTreeMap<String, u64> {
        self.node(directory).names.as_mut().expect("a directory")
    }
}

/// The bytes of a block.
#[derive(Debug, Clone)]
struct Block {
    /// Contents that a read sees.
    live: Box<Bytes>,
    /// Contents that a crash leaves at least; none for a new block whose bytes are not durable yet.
    stable: Option<Box<Bytes>>,
    /// Versions since the stable one.
    unsynced: Vec<Bytes>,
}

impl Block {
    fn settle(&mut self) {
        self.stable = Some(self.live.clone());
        self.unsynced.clear();
    }

    /// Drops the unsynced bytes after a failed sync.
    fn drop_unsynced(&mut self) {
        if !self.unsynced.is_empty() {
            self.live = self.stable.clone().unwrap_or_else(|| Box::new([0; BLOCK]));
            self.unsynced.clear();
        }
    }

    /// Zeroes a part, in every version.
    fn clear(&mut self, part: std::ops::Range<usize>) {
        let stored = self.stable.iter_mut().chain([&mut self.live]).map(|bytes| &mut **bytes);
        let versions = self.unsynced.iter_mut().chain(stored);
        versions.for_each(|bytes| bytes[part.clone()].fill(0));
    }
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub live: Metadata,
    stable: Metadata,
    journal: Vec<Vec<Step>>,
    blocks: BTreeMap<u64, Block>,
    next_block: u64,
    /// Number of open handles of each node.
    pub open: BTreeMap<u64, usize>,
    /// Number of crashes and kills. Handles from before one are of no use.
    pub epoch: u64,
    clock: u64,
    pub ordered: bool,
    pub random: Random,
    /// The call that fails, after so many of its kind.
    pub fault: Option<(Call, u64, Errno)>,
    /// True if every record and sync is printed.
    traced: bool,
    /// Number of calls that were made to fail.
    pub failed: u64,
    /// Number of `fsync`s of each node; those of data alone (`fdatasync`) are not counted.
    pub whole_syncs: BTreeMap<u64, u64>,
}

impl State {
    pub fn new(seed: u64, ordered: bool) -> Self {
        let mut state = State {
            live: Metadata::default(),
            stable: Metadata::default(),
            journal: Vec::new(),
            blocks: BTreeMap::new(),
            next_block: 0,
            open: BTreeMap::new(),
            epoch: 0,
            clock: 1,
            ordered,
            random: Random::new(seed),
            fault: None,
            traced: std::env::var_os("ENTRESOL_FILE_CRASH_TRACE").is_some(),
            failed: 0,
            whole_syncs: BTreeMap::new(),
        };
        state.record(vec![Step::Make { inode: ROOT, made: 1, directory: true }]);
        state.sync_all();
        state
    }

    /// Lets so many nanoseconds of the file system's time pass.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.clock += nanoseconds;
    }

    /// A moment later than all before.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn record(&mut self, steps: Vec<Step>) {
        if self.traced {
            println!("    {:?}", steps.iter().filter(|step| !matches!(step, Step::Map { .. })).collect::<Vec<_>>());
        }
        steps.iter().for_each(|step| self.live.apply(step));
        self.journal.push(steps);
    }

    /// Returns the error if the call is to fail, and counts the call.
    pub fn fails(&mut self, call: Call) -> Option<Errno> {
        let (kind, left, error) = self.fault.as_mut()?;
        if *kind != call {
            return None;
        }
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let error = *error;
        self.fault = None;
        self.failed += 1;
        Some(error)
    }

    /// A step that sets the times of a change of bytes to now.
    fn touch(&mut self, inode: u64) -> Step {
        let now = (0, self.tick() as i64);
        Step::Times { inode, modified: now, changed: now }
    }

    /// Metadata of a node, which must exist.
    pub fn node(&self, inode: u64) -> &Node {
        &self.live.nodes[&inode]
    }

    pub fn look_up(&self, directory: u64, name: &str) -> Result<u64, Errno> {
        let names = self.node(directory).names.as_ref().ok_or(Errno::NOTDIR)?;
        names.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Makes a file or a directory with a name. Numbers are reused as soon as possible.
    pub fn make(&mut self, directory: u64, name: &str, is_directory: bool) -> u64 {
        let inode = (ROOT..).find(|inode| !self.live.nodes.contains_key(inode)).expect("some number");
        let made = self.tick();
        let made = Step::Make { inode, made, directory: is_directory };
        let entered = Step::Enter { directory, name: name.to_owned(), inode };
        let touched = self.touch(inode);
        self.record(vec![made, entered, touched]);
        inode
    }

    pub fn link(&mut self, inode: u64, directory: u64, name: &str) {
        let entered = Step::Enter { directory, name: name.to_owned(), inode };
        let steps = vec![entered, self.changed(inode)];
        self.record(steps);
    }

    /// A step that sets the time of a change of attributes to now.
    fn changed(&mut self, inode: u64) -> Step {
        Step::Times { inode, modified: self.node(inode).modified, changed: (0, self.tick() as i64) }
    }

    pub fn unlink(&mut self, directory: u64, name: &str) -> Result<(), Errno> {
        let inode = self.look_up(directory, name)?;
        let left = Step::Leave { directory, name: name.to_owned(), inode };
        let steps = vec![left, self.changed(inode)];
        self.record(steps);
        self.free(inode);
        Ok(())
    }

    /// Moves a name. The node that had the new name loses it.
    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str)) -> Result<(), Errno> {
        let inode = self.look_up(from.0, from.1)?;
        let replaced = self.look_up(to.0, to.1).ok();
        if replaced == Some(inode) {
            return Ok(());
        }
        let mut steps = Vec::new();
        if let Some(replaced) = replaced {
            steps.push(Step::Leave { directory: to.0, name: to.1.to_owned(), inode: replaced });
            steps.push(self.changed(replaced));
        }
        steps.push(Step::Leave { directory: from.0, name: from.1.to_owned(), inode });
        steps.push(Step::Enter { directory: to.0, name: to.1.to_owned(), inode });
        steps.push(self.changed(inode));
        self.record(steps);
        replaced.into_iter().for_each(|replaced| self.free(replaced));
        Ok(())
    }

    pub fn exchange(&mut self, one: (u64, &str), other: (u64, &str)) -> Result<(), Errno> {
        let (first, second) = (self.look_up(one.0, one.1)?, self.look_up(other.0, other.1)?);
        let enter = |(directory, name): (u64, &str), inode| Step::Enter { directory, name: name.to_owned(), inode };
        let steps = vec![enter(one, second), enter(other, first), self.changed(first), self.changed(second)];
        self.record(steps);
        Ok(())
    }

    /// Frees a node without names and handles.
    pub fn free(&mut self, inode: u64) {
        let is_open = self.open.get(&inode).is_some_and(|&handles| handles > 0);
        if inode != ROOT && !is_open && self.live.nodes.contains_key(&inode) && self.live.links(inode) == 0 {
            self.record(vec![Step::Free { inode }]);
        }
    }

    fn new_block(&mut self, stable: Option<Bytes>) -> u64 {
        self.next_block += 1;
        let live = Box::new(stable.unwrap_or([0; BLOCK]));
        self.blocks.insert(self.next_block, Block { live, stable: stable.map(Box::new), unsynced: Vec::new() });
        self.next_block
    }

    pub fn read(&self, inode: u64, offset: u64, bytes: &mut [u8]) -> usize {
        let node = self.node(inode);
        let count = node.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let (block, from) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let len = (count - done).min(BLOCK - from);
            match node.blocks.get(&block) {
                Some(block) => bytes[done..done + len].copy_from_slice(&self.blocks[block].live[from..from + len]),
                None => bytes[done..done + len].fill(0),
            }
            done += len;
        }
        count
    }

    pub fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) {
        let mut steps = Vec::new();
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, from) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let len = (bytes.len() - done).min(BLOCK - from);
            let block = self.node(inode).blocks.get(&number).copied().unwrap_or_else(|| {
                let block = self.new_block(None);
                steps.push(Step::Map { inode, at: number, block: Some(block) });
                block
            });
            let block = self.blocks.get_mut(&block).expect("a block that is mapped");
            block.live[from..from + len].copy_from_slice(&bytes[done..done + len]);
            block.unsynced.push(*block.live);
            done += len;
        }
        let end = offset + bytes.len() as u64;
        if self.traced {
            println!("    write {inode}: {offset}..{end} {:?}", &bytes[..bytes.len().min(8)]);
        }
        if end > self.node(inode).size {
            steps.push(Step::Size { inode, size: end });
        }
        steps.push(self.touch(inode));
        self.record(steps);
    }

    /// Makes a range holes or zeros. Parts of blocks are stored in new blocks, so that the record alone decides.
    fn clear(&mut self, inode: u64, offset: u64, end: u64, steps: &mut Vec<Step>) {
        let block_bytes = BLOCK as u64;
        let touched: Vec<(u64, u64)> = self
            .node(inode)
            .blocks
            .range(offset / block_bytes..end.div_ceil(block_bytes))
            .map(|(&at, &b)| (at, b))
            .collect();
        for (at, block) in touched {
            let (from, to) = (offset.max(at * block_bytes), end.min((at + 1) * block_bytes));
            if to - from == block_bytes {
                steps.push(Step::Map { inode, at, block: None });
                continue;
            }
            let mut copy = self.blocks[&block].clone();
            copy.clear((from - at * block_bytes) as usize..(to - at * block_bytes) as usize);
            self.next_block += 1;
            self.blocks.insert(self.next_block, copy);
            steps.push(Step::Map { inode, at, block: Some(self.next_block) });
        }
    }

    pub fn resize(&mut self, inode: u64, size: u64) {
        let before = self.node(inode).size;
        let mut steps = Vec::new();
        if size < before {
            self.clear(inode, size, u64::MAX - u64::MAX % BLOCK as u64, &mut steps);
        }
        steps.push(Step::Size { inode, size });
        steps.push(self.touch(inode));
        self.record(steps);
    }

    /// Gives holes of a range blocks of zeros, and lengthens the file unless `keep`.
    pub fn reserve(&mut self, inode: u64, offset: u64, end: u64, keep: bool) {
        let mut steps = Vec::new();
        for at in offset / BLOCK as u64..end.div_ceil(BLOCK as u64) {
            if !self.node(inode).blocks.contains_key(&at) {
                let block = self.new_block(Some([0; BLOCK]));
                steps.push(Step::Map { inode, at, block: Some(block) });
            }
        }
        if !keep && end > self.node(inode).size {
            steps.push(Step::Size { inode, size: end });
        }
        steps.push(self.touch(inode));
        self.record(steps);
    }

    /// Makes a range zeros: without blocks if `punch`; and lengthens the file unless `keep`.
    pub fn void(&mut self, inode: u64, offset: u64, end: u64, punch: bool, keep: bool) {
        let mut steps = Vec::new();
        self.clear(inode, offset, end, &mut steps);
        steps.push(self.touch(inode));
        self.record(steps);
        if !punch {
            self.reserve(inode, offset, end, keep);
        }
    }

    pub fn set_modified(&mut self, inode: u64, modified: Option<(i64, i64)>) {
        let now = (0, self.tick() as i64);
        self.record(vec![Step::Times { inode, modified: modified.unwrap_or(now), changed: now }]);
    }

    /// Commits so many records. In ordered mode the bytes of the blocks that they give to files become durable first.
    fn commit(&mut self, records: usize) {
        for step in self.journal.drain(..records).flatten() {
            if let (Step::Map { block: Some(block), .. }, true) = (&step, self.ordered)
                && let Some(block) = self.blocks.get_mut(block).filter(|block| block.stable.is_none())
            {
                block.settle();
            }
            self.stable.apply(&step);
        }
    }

    /// `fsync` or `fdatasync` of a file or directory.
    pub fn sync(&mut self, inode: u64, data_only: bool) {
        if self.traced {
            println!("    sync {inode}, data only: {data_only}");
        }
        *self.whole_syncs.entry(inode).or_default() += u64::from(!data_only);
        let blocks: Vec<u64> = self.node(inode).blocks.values().copied().collect();
        blocks.iter().for_each(|block| self.blocks.get_mut(block).expect("a block").settle());
        let last = self.journal.iter().rposition(|steps| steps.iter().any(|step| step.is_of(inode, data_only)));
        // At times later records are in the same transaction.
        let more = self.random.chance(0.3);
        let records = last.map_or(0, |last| last + 1);
        self.commit(if more && records > 0 { self.journal.len() } else { records });
    }

    /// `syncfs`.
    pub fn sync_all(&mut self) {
        self.blocks.values_mut().for_each(Block::settle);
        self.commit(self.journal.len());
    }

    /// Drops the unsynced bytes of this node, or of all, after a failed sync.
    pub fn drop_unsynced(&mut self, inode: Option<u64>) {
        let blocks: BTreeSet<u64> = match inode {
            Some(inode) => self.node(inode).blocks.values().copied().collect(),
            None => self.blocks.keys().copied().collect(),
        };
        blocks.iter().for_each(|block| self.blocks.get_mut(block).expect("a block").drop_unsynced());
    }

    /// Drops all handles, and the files that have no name with them.
    pub fn let_go(&mut self) {
        self.epoch += 1;
        self.fault = None;
        self.open.clear();
        let nodes: Vec<u64> = self.live.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|inode| self.free(inode));
    }

    /// Cuts the power. The seed decides the remains.
    pub fn crash(&mut self, seed: u64) {
        self.random = Random::new(seed);
        let records = self.journal.len();
        let kept = match self.random.below(4) {
            0 => 0,
            1 => records,
            _ => self.random.below(records as u64 + 1) as usize,
        };
        self.commit(kept);
        self.journal.clear();
        let kind = self.random.below(3);
        let mapped: BTreeSet<u64> = self.stable.nodes.values().flat_map(|node| node.blocks.values().copied()).collect();
        self.blocks.retain(|block, _| mapped.contains(block));
        for block in self.blocks.values_mut() {
            let random = &mut self.random;
            // A new block without a sync has zeros.
            let least = block.stable.take().unwrap_or_else(|| Box::new([0; BLOCK]));
            let versions = block.unsynced.len() as u64;
            let left = match kind {
                0 => None,
                1 => versions.checked_sub(1),
                _ => random.below(versions + 1).checked_sub(1),
            };
            block.live = left.map_or(least, |version| Box::new(block.unsynced[version as usize]));
            block.settle();
        }
        // Bytes beyond the end count as not written: a file system ensures that when the file grows.
        for node in self.stable.nodes.values() {
            for (&at, block) in node.blocks.range(node.size / BLOCK as u64..) {
                let inside = node.size.saturating_sub(at * BLOCK as u64) as usize;
                let block = self.blocks.get_mut(block).expect("a block that is mapped");
                block.live[inside.min(BLOCK)..].fill(0);
                block.settle();
            }
        }
        self.live = self.stable.clone();
        self.let_go();
        self.commit(self.journal.len());
    }
}
