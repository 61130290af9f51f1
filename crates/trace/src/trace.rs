//! A trace ready to be driven: pages numbered densely in order of first appearance, one column per attribute.

use entresol_core::{Address, ObjectId, Op, Page, Request};
use std::ops::Deref;
use std::sync::Arc;

/// A column of a trace: owned, or borrowed from a mapped file.
pub enum Column<T: 'static> {
    /// In memory.
    Owned(Vec<T>),
    /// A part of a mapped file that the second field keeps alive.
    Mapped(&'static [T], Arc<dyn std::any::Any + Send + Sync>),
}

impl<T> Deref for Column<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Column::Owned(vec) => vec,
            Column::Mapped(slice, _) => slice,
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

    /// The request continues a sequential run.
    #[inline(always)]
    pub const fn sequential(self) -> bool {
        self.0 & Self::SEQUENTIAL != 0
    }

    /// The request is the first page of an I/O of the original trace.
    #[inline(always)]
    pub const fn first(self) -> bool {
        self.0 & Self::FIRST != 0
    }
}

/// What kind of file an object is, as far as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A table, an index, a volume: anything whose pages a cache may hold.
    Data,
    /// Write-ahead log, redo log, commit log: left out of a trace unless asked for.
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
}

/// Something that happens between requests.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// Number of requests before it.
    pub at: u64,
    /// What happens.
    pub kind: EventKind,
}

/// What happens between requests.
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
/// Shapes: `pages`, `ops`, and `times_us`, `next_use` where present, have one entry per page request; `addresses`
/// has one entry per distinct page, indexed by page id, in order of first appearance.
pub struct Trace {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Page of each request.
    pub pages: Column<u32>,
    /// Operation of each request, see [`OpByte`].
    pub ops: Column<u8>,
    /// Time of each request in microseconds since the first one.
    pub times_us: Option<Column<u64>>,
    /// Index of the next request to the same page, `NEVER` where there is none.
    pub next_use: Option<Column<u32>>,
    /// Object of each page.
    pub page_object: Column<u32>,
    /// Block of each page within its object, in pages.
    pub page_block: Column<u64>,
    /// The objects.
    pub objects: Vec<Object>,
    /// What happens between requests, ascending in `at`.
    pub events: Vec<Event>,
    /// Where it came from: the file and how it was read, one line for reports.
    pub provenance: String,
}

impl Trace {
    /// Number of page requests.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// True when there is no request.
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

    /// Where a page lives.
    #[inline(always)]
    pub fn address(&self, page: Page) -> Address {
        Address { object: ObjectId(self.page_object[page.index()]), block: self.page_block[page.index()] }
    }
}
