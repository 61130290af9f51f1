//! Turns references to places (object, block) into a [`Trace`]: numbers pages in order of first appearance.

use crate::{Column, Event, EventKind, Object, ObjectKind, OpByte, Trace};
use entresol_core::{Op, Random};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One reference to one page, by object and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageReference {
    /// Index into the names of the objects.
    pub object: u32,
    /// Block within the object, in pages.
    pub block: u64,
    /// Operation on the page.
    pub op: Op,
    /// True if the reference continues a sequential run of its stream.
    pub sequential: bool,
    /// True if the reference is the first page of its I/O.
    pub first: bool,
}

impl Trace {
    /// A trace without times and events from references in memory.
    ///
    /// `objects` are the names that [`PageReference::object`] indexes; all of them become objects of the trace, in
    /// this order, whether referenced or not.
    ///
    /// # Panics
    /// When a reference names an object that does not exist, or there are 2^32 - 1 references or more.
    pub fn from_references(
        page_bytes: u32,
        objects: &[&str],
        references: impl IntoIterator<Item = PageReference>,
    ) -> Trace {
        let mut collector = Collector::new(page_bytes, 0);
        for name in objects {
            collector.object(name);
        }
        for reference in references {
            assert!((reference.object as usize) < objects.len(), "a reference to object {}", reference.object);
            let byte = OpByte::new(reference.op, reference.sequential, reference.first);
            collector.reference(reference.object, reference.block, reference.block, byte);
        }
        Trace { times_us: None, ..collector.finish("references in memory".to_owned()) }
    }
}

/// Hashes one or two words with the finaliser of splitmix64: fast, and the keys are no secret.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = Random::mix(self.0 ^ word);
    }
}

/// Keys of one chunk of the directory.
const CHUNK: u64 = 1024;
const UNKNOWN: u32 = u32::MAX;

/// From (object, key) to page id: arrays for chunks of neighbouring keys, found by hash. Keys are dense where they
/// occur, so an array entry costs 4 bytes a page, and only the few chunks are hashed.
#[derive(Default)]
struct Directory {
    chunks: HashMap<(u32, u64), u32, BuildHasherDefault<WordHasher>>,
    ids: Vec<[u32; CHUNK as usize]>,
}

impl Directory {
    fn entry(&mut self, object: u32, key: u64) -> &mut u32 {
        let chunk = *self.chunks.entry((object, key / CHUNK)).or_insert_with(|| {
            self.ids.push([UNKNOWN; CHUNK as usize]);
            self.ids.len() as u32 - 1
        });
        &mut self.ids[chunk as usize][(key % CHUNK) as usize]
    }
}

/// Collects requests.
pub(super) struct Collector {
    page_bytes: u32,
    pages: Vec<u32>,
    ops: Vec<u8>,
    times_us: Vec<u64>,
    page_object: Vec<u32>,
    page_block: Vec<u64>,
    objects: Vec<Object>,
    names: HashMap<String, u32>,
    directory: Directory,
    events: Vec<Event>,
    queries: u32,
    clock_us: u64,
}

/// A query that has begun: the position of its begin event, and the objects referenced since.
pub(super) struct OpenQuery {
    event: usize,
    number: u32,
    objects: Vec<u32>,
}

impl OpenQuery {
    /// Notes that the query referenced an object.
    pub fn uses(&mut self, object: u32) {
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
    }
}

impl Collector {
    pub fn new(page_bytes: u32, requests: usize) -> Self {
        Collector {
            page_bytes,
            pages: Vec::with_capacity(requests),
            ops: Vec::with_capacity(requests),
            times_us: Vec::with_capacity(requests),
            page_object: Vec::new(),
            page_block: Vec::new(),
            objects: Vec::new(),
            names: HashMap::new(),
            directory: Directory::default(),
            events: Vec::new(),
            queries: 0,
            clock_us: 0,
        }
    }

    /// Requests so far.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Lets time pass after the last request.
    pub fn advance(&mut self, us: u64) {
        self.clock_us += us;
    }

    /// The number of the object of this name, which is new or known.
    pub fn object(&mut self, name: &str) -> u32 {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let number = self.objects.len() as u32;
        self.objects.push(Object { name: name.to_owned(), kind: ObjectKind::Data, pages: 0, asked_bytes: None });
        self.names.insert(name.to_owned(), number);
        number
    }

    /// Adds a request. `key` stands for the page in the directory: one to one with `block` within an object, and
    /// dense where blocks are not.
    #[inline]
    pub fn reference(&mut self, object: u32, key: u64, block: u64, byte: OpByte) {
        let entry = self.directory.entry(object, key);
        if *entry == UNKNOWN {
            *entry = self.page_object.len() as u32;
            self.page_object.push(object);
            self.page_block.push(block);
            let known = &mut self.objects[object as usize].pages;
            *known = (*known).max(block.saturating_add(1));
        }
        let page = *entry;
        assert!(self.pages.len() < UNKNOWN as usize, "more requests than 32 bits can number");
        self.pages.push(page);
        self.ops.push(byte.0);
        self.times_us.push(self.clock_us);
    }

    /// Begins a query before the next request.
    pub fn begin_query(&mut self, label: String) -> OpenQuery {
        let number = self.queries;
        self.queries += 1;
        let kind = EventKind::QueryBegin { query: number, label, objects: Vec::new() };
        self.events.push(Event { at: self.len(), kind });
        OpenQuery { event: self.events.len() - 1, number, objects: Vec::new() }
    }

    /// Ends a query after the last request.
    pub fn end_query(&mut self, mut query: OpenQuery) {
        query.objects.sort_unstable();
        if let EventKind::QueryBegin { objects, .. } = &mut self.events[query.event].kind {
            *objects = query.objects;
        }
        self.events.push(Event { at: self.len(), kind: EventKind::QueryEnd { query: query.number } });
    }

    pub fn finish(self, provenance: String) -> Trace {
        Trace {
            page_bytes: self.page_bytes,
            pages: Column::Owned(self.pages),
            ops: Column::Owned(self.ops),
            times_us: Some(Column::Owned(self.times_us)),
            next_use: None,
            page_object: Column::Owned(self.page_object),
            page_block: Column::Owned(self.page_block),
            objects: self.objects,
            events: self.events,
            provenance,
        }
    }
}
