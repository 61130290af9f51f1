//! Turns records into a [`Trace`]: splits them into page requests, numbers pages, and counts the records left out.
//!
//! [`Split`] describes the three page-splitting rules.

use crate::numbering::{Numbered, Numbering};
use crate::parse::Bad;
use crate::record::{PageReads, Record, Unit};
use crate::thin::{Part, Thinner};
use crate::trace::{Column, Event, EventKind, Object, ObjectKind, OpByte, Trace};
use entresol_core::{Address, ObjectId, Op};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The longest single I/O, in bytes: longer ones count as damage.
pub const IO_BYTES_MAX: u64 = 1 << 30;
/// The longest single reference of a source that counts pages, in pages.
pub const IO_PAGES_MAX: u64 = 1 << 18;
/// Requests beyond this are refused: an index of a request is a u32, and the last one means "never".
pub const REQUESTS_MAX: u64 = u32::MAX as u64 - 1;
/// The most queries that may run at once.
const QUERIES_MAX: usize = 1024;
/// The cache block at whose end [`Split::Fan`] cuts an I/O, in bytes.
const FAN_BLOCK_BYTES: u64 = 256 << 10;

/// Rule by which an I/O of bytes becomes requests of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Every aligned page that the byte range touches. A page that a write covers in part is updated.
    #[default]
    Touch,
    /// The ExpCache simulator's rule: ceil(size / page) pages at byte offset + page * i, not aligned: two I/Os at offsets
    /// that differ by less than a page reference different pages. All pages count as whole.
    Exp,
    /// The H-ARC simulator's rule: ceil(size / page) pages from floor(offset / page) on, cut at the end of the 256-KiB
    /// cache block that the I/O starts in. All pages count as whole.
    Fan,
}

impl Split {
    /// Every rule.
    pub const ALL: [Split; 3] = [Split::Touch, Split::Exp, Split::Fan];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Split::Touch => "touch",
            Split::Exp => "exp",
            Split::Fan => "fan",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Split {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Split::ALL.into_iter().find(|split| split.name() == name);
        found.ok_or_else(|| format!("unknown splitting rule `{name}`; known are touch, exp, fan"))
    }
}

/// Options that a builder needs before the first record.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Page size in bytes, a power of two from 64 B to 16 MiB.
    pub page_bytes: u32,
    /// Splitting rule; without effect on a source that counts pages.
    pub split: Split,
    /// Unit of the offsets and sizes in the records.
    pub unit: Unit,
    /// Keep requests to logs.
    pub keep_logs: bool,
    /// Stop after this many page requests.
    pub limit: Option<u64>,
    /// Keep times.
    pub times: bool,
    /// [`Record::MarkDirty`] may occur.
    pub marks: bool,
}

/// Counts of the records kept, altered and left out while building.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// I/Os or references that became requests.
    pub ios: u64,
    /// Page requests that read.
    pub reads: u64,
    /// Page requests that write, updates included, as the records say; dirty marks do not change this.
    pub writes: u64,
    /// Of these, writes of part of a page.
    pub updates: u64,
    /// I/Os to logs that were left out.
    pub log_ios: u64,
    /// Their bytes (pages, where the source counts pages).
    pub log_size: u64,
    /// Pages that the `fan` rule cut off.
    pub pages_cut: u64,
    /// Dirty marks on a page that their stream had referenced.
    pub marks: u64,
    /// Dirty marks on a page that their stream had not referenced (before the recording began): left out.
    pub marks_unmatched: u64,
    /// Ends of queries that had not begun: left out.
    pub query_ends_unmatched: u64,
    /// Queries that never ended.
    pub queries_unended: u64,
    /// Records other than references, by kind.
    pub others: BTreeMap<&'static str, u64>,
}

struct Declared {
    name: String,
    kind: ObjectKind,
    /// Index in the trace, once a request to it is kept.
    index: Option<u32>,
}

struct Query {
    number: u32,
    label: String,
    /// Position of its begin among the events.
    event: usize,
    objects: Vec<u32>,
}

/// Key of a sequence of requests: stream, object, and true for writes.
///
/// The recorders of our database traces use the same key, so shares of sequential requests can be compared.
type Course = (u32, u32, bool);

/// Builds a trace record by record.
pub struct TraceBuilder {
    options: BuildOptions,
    page_shift: u32,
    pages: Numbering,
    /// Requests that were taken out.
    drained: u64,
    ops: Vec<u8>,
    times_us: Vec<u64>,
    objects: Vec<Object>,
    declared: HashMap<u32, Declared>,
    /// The object of the last I/O: number of the source, index in the trace.
    last_object: Option<(u32, u32)>,
    events: Vec<Event>,
    running: Vec<Query>,
    queries: u32,
    /// Last page of each course but the current one.
    courses: HashMap<Course, u64>,
    /// Course and page of the last request.
    course: Option<(Course, u64)>,
    stream: u32,
    /// Time of the last I/O.
    now_us: u64,
    /// Last request of each stream to each page, for dirty marks.
    references: HashMap<(u32, u32), u32>,
    counts: Counts,
}

impl TraceBuilder {
    /// An empty trace.
    ///
    /// # Errors
    /// When the page size is no power of two from 64 B to 16 MiB.
    pub fn new(options: BuildOptions) -> Result<Self, String> {
        let page_bytes = options.page_bytes;
        if !page_bytes.is_power_of_two() || !(64..=16 << 20).contains(&page_bytes) {
            return Err(format!("the page size must be a power of two from 64 B to 16 MiB, not {page_bytes} B"));
        }
        Ok(TraceBuilder {
            page_shift: page_bytes.trailing_zeros(),
            options,
            pages: Numbering::new(),
            drained: 0,
            ops: Vec::new(),
            times_us: Vec::new(),
            objects: Vec::new(),
            declared: HashMap::new(),
            last_object: None,
            events: Vec::new(),
            running: Vec::new(),
            queries: 0,
            courses: HashMap::new(),
            course: None,
            stream: 0,
            now_us: 0,
            references: HashMap::new(),
            counts: Counts::default(),
        })
    }

    /// Adds a record. False when the limit is reached: no further record is taken.
    ///
    /// # Errors
    /// When the record is wrong; the caller may skip it and push the next one.
    pub fn push(&mut self, record: Record) -> Result<bool, Bad> {
        match record {
            Record::Io { time_us, op, stream, object, offset, size, .. } => {
                return self.push_io(time_us, stream, op, object, offset, size);
            }
            Record::MarkDirty { stream, object, offset } => self.mark_dirty(stream, object, offset),
            Record::Object { object, name, kind } => {
                self.declared.insert(object, Declared { name, kind, index: None });
                self.last_object = None;
            }
            Record::QueryBegin { label, .. } => self.query_begin(label)?,
            Record::QueryEnd { label, .. } => self.query_end(&label),
            Record::Other(what) => *self.counts.others.entry(what).or_default() += 1,
        }
        Ok(!self.is_full())
    }

    /// Adds a [`Record::Io`] by its fields.
    ///
    /// # Errors
    /// See [`TraceBuilder::push`].
    #[inline]
    pub fn push_io(
        &mut self,
        time_us: u64,
        stream: u32,
        op: Op,
        object: u32,
        offset: u64,
        size: u64,
    ) -> Result<bool, Bad> {
        self.check(offset, size)?;
        if let Some(object) = self.index_of(object, size)? {
            self.stream = stream;
            self.now_us = self.now_us.max(time_us);
            self.io(op, object, offset, size)?;
        }
        Ok(!self.is_full())
    }

    /// Returns the number of reads that [`TraceBuilder::push_reads`] would take now.
    pub fn room_for_reads(&mut self) -> usize {
        if self.options.unit != Unit::Pages || self.options.marks || self.last_object.is_none() {
            return 0;
        }
        let limit = self.options.limit.map_or(u64::MAX, |limit| limit - self.drained);
        let requests = limit.min(REQUESTS_MAX) - self.pages.len() as u64;
        usize::try_from(requests).unwrap_or(usize::MAX).min(self.pages.space())
    }

    /// Adds reads of the stream and object of the last I/O, at most [`TraceBuilder::room_for_reads`]. The result is
    /// that of one [`TraceBuilder::push_io`] for each, only faster.
    pub fn push_reads(&mut self, reads: &PageReads) {
        let Some(&last) = reads.pages.last() else { return };
        let (_, object) = self.last_object.expect("there is room for reads after an I/O");
        debug_assert!(reads.times_us.is_sorted() && reads.times_us.len() == reads.pages.len());
        self.counts.ios += reads.pages.len() as u64;
        self.counts.reads += reads.pages.len() as u64;
        let mut before = self.follow((self.stream, object, false), last);
        self.ops.extend(reads.pages.iter().map(|&page| {
            let sequential = before.is_some_and(|before| before.checked_add(1) == Some(page));
            before = Some(page);
            OpByte::new(Op::Read, sequential, true).0
        }));
        self.pages.push_all(object, &reads.pages);
        self.now_us = self.now_us.max(reads.times_us.last().copied().unwrap_or(0));
        if self.options.times {
            self.times_us.extend_from_slice(&reads.times_us);
        }
    }

    /// Reserves memory for this many more requests. Memory of requests that do not come is not touched.
    pub fn reserve(&mut self, requests: u64) {
        let requests = requests.min(self.options.limit.unwrap_or(u64::MAX)).min(REQUESTS_MAX) as usize;
        self.pages.reserve(requests);
        // As in the numbering, the reservation is only a hint.
        let _ = self.ops.try_reserve_exact(requests);
        if self.options.times {
            let _ = self.times_us.try_reserve_exact(requests);
        }
    }

    /// True when the limit is reached.
    pub fn is_full(&self) -> bool {
        self.requests() >= self.options.limit.unwrap_or(u64::MAX)
    }

    /// Requests so far.
    fn requests(&self) -> u64 {
        self.drained + self.pages.len() as u64
    }

    /// Requests that were not taken out. Those of a trace with dirty marks cannot be: a mark changes an earlier one.
    pub(crate) fn drainable(&self) -> usize {
        if self.options.marks { 0 } else { self.pages.len() }
    }

    /// Takes the requests out, to a sample.
    pub(crate) fn drain(&mut self, into: &mut Thinner) {
        let pages = self.pages.drain();
        self.drained += pages.len() as u64;
        let part = Part {
            pages: &pages,
            ops: &self.ops,
            times_us: self.options.times.then_some(&self.times_us[..]),
            events: &self.events,
        };
        into.take(&part, |page| {
            let (object, block) = self.pages.address(page);
            Address { object: ObjectId(object), block }
        });
        self.ops.clear();
        self.times_us.clear();
    }

    /// The trace, with the counts of its records. Its provenance is empty.
    ///
    /// # Errors
    /// When no request was kept.
    pub fn finish(mut self) -> Result<(Trace, Counts), String> {
        if self.requests() == 0 {
            return Err("holds no request".to_owned());
        }
        self.counts.queries_unended = self.running.len() as u64;
        for query in std::mem::take(&mut self.running) {
            self.close(query);
        }
        let Numbered { pages, page_object, page_block } = self.pages.finish()?;
        for (&object, &block) in page_object.iter().zip(&page_block) {
            let extent = &mut self.objects[object as usize].pages;
            *extent = (*extent).max(block.saturating_add(1));
        }
        let trace = Trace {
            page_bytes: self.options.page_bytes,
            pages: Column::Owned(pages),
            ops: Column::Owned(self.ops),
            times_us: self.options.times.then_some(Column::Owned(self.times_us)),
            next_use: None,
            page_object: Column::Owned(page_object),
            page_block: Column::Owned(page_block),
            objects: self.objects,
            events: self.events,
            provenance: String::new(),
        };
        Ok((trace, self.counts))
    }

    /// Refuses an offset and size that no I/O can have.
    fn check(&self, offset: u64, size: u64) -> Result<(), Bad> {
        let (unit, size_max) = match self.options.unit {
            Unit::Bytes => ("bytes", IO_BYTES_MAX),
            Unit::Pages => ("pages", IO_PAGES_MAX),
        };
        if size == 0 {
            return Err("the length is 0".into());
        }
        if size > size_max {
            return Err(format!("a length of {size} {unit} is beyond any I/O (at most {size_max})").into());
        }
        if offset.checked_add(size - 1).is_none() {
            return Err(format!("offset {offset} + length {size} is beyond 2^64 {unit}").into());
        }
        Ok(())
    }

    /// The index in the trace of an object; `None` when it is a log that is left out, which is counted.
    #[inline]
    fn index_of(&mut self, number: u32, size: u64) -> Result<Option<u32>, Bad> {
        if let Some((last, index)) = self.last_object
            && last == number
        {
            return Ok(Some(index));
        }
        let declared = self.declared.get_mut(&number);
        let declared = declared.ok_or_else(|| Bad::from(format!("object {number} was not declared")))?;
        if declared.kind == ObjectKind::Log && !self.options.keep_logs {
            self.counts.log_ios += 1;
            self.counts.log_size += size;
            return Ok(None);
        }
        let index = match declared.index {
            Some(index) => index,
            None => {
                let index = self.objects.len() as u32;
                let asked_bytes = (self.options.unit == Unit::Bytes).then_some(0);
                let (name, kind) = (declared.name.clone(), declared.kind);
                self.objects.push(Object { name, kind, pages: 0, asked_bytes });
                declared.index = Some(index);
                index
            }
        };
        for query in &mut self.running {
            if let Err(at) = query.objects.binary_search(&index) {
                query.objects.insert(at, index);
            }
        }
        self.last_object = Some((number, index));
        Ok(Some(index))
    }

    /// Sets the latest page of a course and returns the one before it.
    #[inline]
    fn follow(&mut self, course: Course, place: u64) -> Option<u64> {
        match &mut self.course {
            Some((current, last)) if *current == course => Some(std::mem::replace(last, place)),
            other => {
                if let Some((finished, last)) = other.replace((course, place)) {
                    self.courses.insert(finished, last);
                }
                self.courses.get(&course).copied()
            }
        }
    }

    #[inline]
    fn io(&mut self, op: Op, object: u32, offset: u64, size: u64) -> Result<(), Bad> {
        self.counts.ios += 1;
        if let Some(bytes) = &mut self.objects[object as usize].asked_bytes {
            *bytes += size;
        }
        let page = u64::from(self.options.page_bytes);
        let shift = self.page_shift;
        match (self.options.unit, self.options.split) {
            (Unit::Pages, _) => self.run([op; 3], object, offset, size - 1),
            (Unit::Bytes, Split::Touch) => {
                let last_byte = offset + (size - 1);
                let (first, last) = (offset >> shift, last_byte >> shift);
                let whole_head = offset & (page - 1) == 0;
                let whole_tail = last_byte & (page - 1) == page - 1;
                let part = if op == Op::Write { Op::Update } else { op };
                let head = if whole_head && (first != last || whole_tail) { op } else { part };
                let tail = if whole_tail { op } else { part };
                self.run([head, op, tail], object, first, last - first)
            }
            (Unit::Bytes, Split::Fan) => {
                let (first, count) = (offset >> shift, size.div_ceil(page));
                let block = (FAN_BLOCK_BYTES >> shift).max(1);
                let kept = count.min(block - first % block);
                self.counts.pages_cut += count - kept;
                self.run([op; 3], object, first, kept - 1)
            }
            (Unit::Bytes, Split::Exp) => {
                // The last page may begin beyond any address when the I/O ends near 2^64.
                let more = (size - 1) >> shift;
                for i in 0..=more {
                    let place = offset + (i << shift);
                    self.request(op, object, place, place >> shift, page, i == 0)?;
                }
                Ok(())
            }
        }
    }

    /// Requests to the pages `first ..= first + more`; operations of the first, the inner and the last page.
    #[inline]
    fn run(&mut self, ops: [Op; 3], object: u32, first: u64, more: u64) -> Result<(), Bad> {
        for i in 0..=more {
            let op = if i == 0 {
                ops[0]
            } else if i == more {
                ops[2]
            } else {
                ops[1]
            };
            self.request(op, object, first + i, first + i, 1, i == 0)?;
        }
        Ok(())
    }

    /// Adds one page request. `place` identifies the page within its object; `step` is the distance to the next place.
    #[inline]
    fn request(&mut self, op: Op, object: u32, place: u64, block: u64, step: u64, first: bool) -> Result<(), Bad> {
        if self.is_full() {
            return Ok(());
        }
        if self.pages.len() as u64 >= REQUESTS_MAX {
            return Err(format!("more than {REQUESTS_MAX} page requests; use a limit").into());
        }
        self.pages.push(object, place, block).map_err(Bad::from)?;
        let before = self.follow((self.stream, object, op.is_write()), place);
        let sequential = before.is_some_and(|last| last.checked_add(step) == Some(place));
        match op {
            Op::Read => self.counts.reads += 1,
            Op::Write => self.counts.writes += 1,
            Op::Update => {
                self.counts.writes += 1;
                self.counts.updates += 1;
            }
        }
        if self.options.marks
            && let Some(page) = self.pages.last_page()
        {
            self.references.insert((self.stream, page), self.pages.len() as u32 - 1);
        }
        self.ops.push(OpByte::new(op, sequential, first).0);
        if self.options.times {
            self.times_us.push(self.now_us);
        }
        Ok(())
    }

    fn mark_dirty(&mut self, stream: u32, object: u32, offset: u64) {
        let index = self.declared.get(&object).and_then(|declared| declared.index);
        let place = match self.options.unit {
            Unit::Pages => offset,
            Unit::Bytes if self.options.split == Split::Exp => offset,
            Unit::Bytes => offset >> self.page_shift,
        };
        let page = index.and_then(|index| self.pages.get(index, place));
        let Some(&at) = page.and_then(|page| self.references.get(&(stream, page))) else {
            self.counts.marks_unmatched += 1;
            return;
        };
        self.counts.marks += 1;
        let byte = &mut self.ops[at as usize];
        let flags = OpByte(*byte);
        if flags.op() == Op::Read {
            *byte = OpByte::new(Op::Update, flags.sequential(), flags.first()).0;
        }
    }

    fn query_begin(&mut self, label: String) -> Result<(), Bad> {
        if self.running.len() >= QUERIES_MAX {
            return Err(format!("more than {QUERIES_MAX} queries run at once").into());
        }
        let (number, event) = (self.queries, self.events.len());
        self.queries += 1;
        let kind = EventKind::QueryBegin { query: number, label: label.clone(), objects: Vec::new() };
        self.events.push(Event { at: self.requests(), kind });
        self.running.push(Query { number, label, event, objects: Vec::new() });
        // The next reference must be noted even if it goes to the same object as the last.
        self.last_object = None;
        Ok(())
    }

    /// A label at the end may carry more parts than at the begin: `q9#4:slate:rows=175` ends `q9#4:slate`.
    fn query_end(&mut self, label: &str) {
        let ends = |query: &Query| {
            label.strip_prefix(query.label.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        let Some(at) = self.running.iter().rposition(ends) else {
            self.counts.query_ends_unmatched += 1;
            return;
        };
        let query = self.running.remove(at);
        let kind = EventKind::QueryEnd { query: query.number };
        self.events.push(Event { at: self.requests(), kind });
        self.close(query);
    }

    /// Writes the objects that a query referenced into the event of its begin.
    fn close(&mut self, query: Query) {
        if let EventKind::QueryBegin { objects, .. } = &mut self.events[query.event].kind {
            *objects = query.objects;
        }
    }
}
