//! A trace ready to be driven: pages numbered densely in order of first appearance, one column per attribute.

use entresol_core::{Address, NEVER, ObjectId, Op, Page, Request};
use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// A column of a trace: owned, or borrowed from a mapped file.
pub enum Column<T: 'static> {
    /// In memory.
    Owned(Vec<T>),
    /// A part of a mapped file.
    Mapped(Mapped<T>),
}

/// A slice and the owner of its memory.
pub struct Mapped<T: 'static> {
    /// Valid as long as `owner`; never handed out for longer than `self` is borrowed.
    slice: &'static [T],
    owner: Owner,
    release: Release,
}

/// Owner of a slice's memory.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;
/// Function that gives memory of an owner back to the system, from an address on and so many bytes. The next use of it
/// finds the same contents.
pub(crate) type Release = fn(&Owner, usize, usize);

impl<T> Mapped<T> {
    /// Keeps `slice` together with its owner.
    ///
    /// # Safety
    /// The memory of `slice` must stay where it is, and unchanged, until `owner` is dropped.
    pub(crate) unsafe fn new(slice: &[T], owner: Owner, release: Release) -> Self {
        // SAFETY: the caller promises that the memory is valid as long as `owner`, which is kept beside the slice, and
        // the slice is private: it leaves only through `Deref`, bound to a borrow of `self`.
        let slice: &'static [T] = unsafe { std::slice::from_raw_parts(slice.as_ptr(), slice.len()) };
        Mapped { slice, owner, release }
    }
}

impl<T> Column<T> {
    /// Keeps the first `len` entries.
    fn truncate(&mut self, len: usize) {
        match self {
            Column::Owned(vec) => vec.truncate(len),
            Column::Mapped(mapped) => mapped.slice = &mapped.slice[..len.min(mapped.slice.len())],
        }
    }
}

impl<T> Column<T> {
    /// Gives the memory of these entries back to the system, if they are mapped from a native file.
    pub(crate) fn release(&self, range: std::ops::Range<usize>) {
        if let Column::Mapped(mapped) = self {
            let part = &mapped.slice[range];
            (mapped.release)(&mapped.owner, part.as_ptr().addr(), size_of_val(part));
        }
    }
}

impl<T> Deref for Column<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Column::Owned(vec) => vec,
            Column::Mapped(mapped) => mapped.slice,
        }
    }
}

/// Operation and flags of one page request in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct OpByte(pub u8);

impl OpByte {
    const OP: u8 = 0b0011;
    const SEQUENTIAL: u8 = 0b0100;
    const FIRST: u8 = 0b1000;

    /// Packs an operation; `sequential` when it continues a run of its stream, `first` when it is the first page
    /// of its I/O.
    pub const fn new(op: Op, sequential: bool, first: bool) -> Self {
        OpByte(op as u8 | (sequential as u8 * Self::SEQUENTIAL) | (first as u8 * Self::FIRST))
    }

    /// The operation.
    #[inline(always)]
    pub const fn op(self) -> Op {
        match self.0 & Self::OP {
            0 => Op::Read,
            1 => Op::Write,
            _ => Op::Update,
        }
    }

    /// True when every bit is one that [`OpByte::new`] may set.
    pub const fn is_valid(self) -> bool {
        self.0 & !(Self::OP | Self::SEQUENTIAL | Self::FIRST) == 0 && self.0 & Self::OP <= 2
    }

    /// True if the request continues a sequential run.
    #[inline(always)]
    pub const fn sequential(self) -> bool {
        self.0 & Self::SEQUENTIAL != 0
    }

    /// True if the request is the first page of an I/O of the original trace.
    #[inline(always)]
    pub const fn first(self) -> bool {
        self.0 & Self::FIRST != 0
    }
}

/// Kind of an object's file, as far as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A table, an index, a volume: anything whose pages a cache may hold.
    Data,
    /// Write-ahead or redo log: left out of a trace unless asked for.
    Log,
    /// A temporary or spill file.
    Temporary,
}

/// A table, index, file or volume.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Object {
    /// Its name in the trace.
    pub name: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Highest block referenced, plus one: the size of the object as far as the trace shows it, in pages.
    pub pages: u64,
    /// Bytes that all its I/Os ask for; none where the source counts pages, or requests of it were left out since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
}

impl Object {
    /// The object of a trace with a part of its requests only.
    #[must_use]
    pub fn of_part(&self) -> Object {
        Object { asked_bytes: None, ..self.clone() }
    }
}

/// An event between requests.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// Number of requests before it.
    pub at: u64,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an event between requests.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A query starts.
    QueryBegin {
        /// Its number, counted from 0 in order of starts.
        query: u32,
        /// Its label.
        label: String,
        /// The objects that are referenced between its begin and its end, ascending.
        objects: Vec<u32>,
    },
    /// A query ends.
    QueryEnd {
        /// Its number.
        query: u32,
    },
}

/// A trace ready to be driven.
///
/// Shapes: `pages`, `ops`, and `times_us`, `next_use` where present, have one entry per page request. `page_object`
/// and `page_block` have one entry per distinct page, indexed by page id, in order of first appearance.
pub struct Trace {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Page of each request.
    pub pages: Column<u32>,
    /// Operation of each request, see [`OpByte`].
    pub ops: Column<u8>,
    /// Time of each request in microseconds since the first record, never decreasing.
    pub times_us: Option<Column<u64>>,
    /// Index of the next request to the same page, `NEVER` where there is none.
    pub next_use: Option<Column<u32>>,
    /// Object of each page.
    pub page_object: Column<u32>,
    /// Block of each page within its object, in pages.
    pub page_block: Column<u64>,
    /// The objects.
    pub objects: Vec<Object>,
    /// Events between requests, ascending in `at`.
    pub events: Vec<Event>,
    /// Provenance of the trace: the file and how it was read, one line for reports.
    pub provenance: String,
}

impl Trace {
    /// Number of page requests.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// True when the trace has no request.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Number of distinct pages.
    pub fn footprint(&self) -> usize {
        self.page_object.len()
    }

    /// The i-th request.
    #[inline(always)]
    pub fn request(&self, i: usize) -> Request {
        let op = OpByte(self.ops[i]);
        Request { page: Page(self.pages[i]), op: op.op(), sequential: op.sequential() }
    }

    /// Address of a page in the backing store.
    #[inline(always)]
    pub fn address(&self, page: Page) -> Address {
        Address { object: ObjectId(self.page_object[page.index()]), block: self.page_block[page.index()] }
    }

    /// Fills in `next_use` by one pass backwards.
    ///
    /// # Panics
    /// When there are more than `u32::MAX - 1` requests, which no loader lets through.
    pub fn compute_next_use(&mut self) {
        assert!(self.len() < NEVER as usize, "indices of requests fit u32");
        let mut coming = vec![NEVER; self.footprint()];
        let mut next_use = vec![NEVER; self.len()];
        for (i, &page) in self.pages.iter().enumerate().rev() {
            next_use[i] = std::mem::replace(&mut coming[page as usize], i as u32);
        }
        self.next_use = Some(Column::Owned(next_use));
    }

    /// Keeps the first `requests` requests, the pages they reference and the events among them. Objects stay, without
    /// the bytes that were asked for. A next use beyond the end becomes `NEVER`.
    pub fn truncate(&mut self, requests: usize) {
        if requests >= self.len() {
            return;
        }
        self.pages.truncate(requests);
        self.ops.truncate(requests);
        if let Some(times) = &mut self.times_us {
            times.truncate(requests);
        }
        // Pages are numbered in order of first appearance, so those that remain are the first ones.
        let footprint = self.pages.iter().max().map_or(0, |&page| page as usize + 1);
        self.page_object.truncate(footprint);
        self.page_block.truncate(footprint);
        self.events.retain(|event| event.at <= requests as u64);
        self.objects.iter_mut().for_each(|object| object.asked_bytes = None);
        if self.next_use.take().is_some() {
            self.compute_next_use();
        }
    }
}
