//! Writes a native trace request by request, for streams that are longer than memory. Columns with an entry per
//! request go to unnamed files beside the trace; columns with an entry per page stay in memory (76 bytes a distinct
//! page at most).

use super::write::write;
use crate::builder::REQUESTS_MAX;
use crate::page_map::{PAGES_MAX, PageMap};
use crate::record::TraceError;
use crate::trace::{Column, Mapped, Object, ObjectKind, OpByte, Trace};
use memmap2::Mmap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A trace that is being written. No file appears under its name before [`finish`](Spool::finish), nor at all if the
/// spool is dropped or its process killed.
pub struct Spool {
    path: PathBuf,
    page_bytes: u32,
    requests: u64,
    pages: BufWriter<File>,
    ops: BufWriter<File>,
    times_us: BufWriter<File>,
    now_us: u64,
    numbers: PageMap,
    page_object: Vec<u32>,
    page_block: Vec<u64>,
    objects: Vec<Object>,
}

/// A file that is removed with its last descriptor.
fn unnamed(path: &Path, which: &str) -> Result<BufWriter<File>, TraceError> {
    let name = path.file_name().ok_or_else(|| TraceError::refused(path, "names no file"))?.to_string_lossy();
    let name = path.with_file_name(format!(".{name}.{}.{which}", std::process::id()));
    let open = || {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name)?;
        fs::remove_file(&name)?;
        Ok(BufWriter::with_capacity(1 << 16, file))
    };
    open().map_err(|error| TraceError::io(&name, error))
}

impl Spool {
    /// Begins a trace that will be at `path`, of pages of `page_bytes` bytes, a power of two.
    ///
    /// # Errors
    /// When a file cannot be created there.
    pub fn create(path: &Path, page_bytes: u32) -> Result<Self, TraceError> {
        if !page_bytes.is_power_of_two() {
            return Err(TraceError::refused(path, format!("pages of {page_bytes} B are no power of two")));
        }
        if path.is_dir() {
            return Err(TraceError::refused(path, "is a directory"));
        }
        Ok(Spool {
            path: path.to_owned(),
            page_bytes,
            requests: 0,
            pages: unnamed(path, "pages")?,
            ops: unnamed(path, "ops")?,
            times_us: unnamed(path, "times")?,
            now_us: 0,
            numbers: PageMap::new(),
            page_object: Vec::new(),
            page_block: Vec::new(),
            objects: Vec::new(),
        })
    }

    /// Declares an object and returns its number.
    pub fn object(&mut self, name: &str, kind: ObjectKind) -> u32 {
        self.objects.push(Object { name: name.to_owned(), kind, pages: 0, asked_bytes: None });
        self.objects.len() as u32 - 1
    }

    /// Page requests so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Distinct pages so far.
    pub fn footprint(&self) -> u64 {
        self.page_block.len() as u64
    }

    /// Adds a request to page `block` of an object. A time older than the one before is raised to it.
    ///
    /// # Errors
    /// When a file cannot be written, or the trace has as many requests or pages as the format allows.
    ///
    /// # Panics
    /// When the object was not declared.
    pub fn push(&mut self, time_us: u64, object: u32, block: u64, op: OpByte) -> Result<(), TraceError> {
        assert!((object as usize) < self.objects.len(), "object {object} was not declared");
        if self.requests >= REQUESTS_MAX {
            return Err(TraceError::refused(&self.path, format!("more than {REQUESTS_MAX} page requests")));
        }
        let Some((page, new)) = self.numbers.number(object, block) else {
            return Err(TraceError::refused(&self.path, format!("more than {PAGES_MAX} distinct pages")));
        };
        if new {
            self.page_object.push(object);
            self.page_block.push(block);
            let extent = &mut self.objects[object as usize].pages;
            *extent = (*extent).max(block.saturating_add(1));
        }
        self.now_us = self.now_us.max(time_us);
        self.requests += 1;
        let written = self.pages.write_all(&page.to_le_bytes()).and_then(|()| self.ops.write_all(&[op.0]));
        let written = written.and_then(|()| self.times_us.write_all(&self.now_us.to_le_bytes()));
        written.map_err(|error| TraceError::io(&self.path, error))
    }

    /// Puts the trace under its name, complete or not at all.
    ///
    /// # Errors
    /// When there was no request, or as [`write`](super::write).
    pub fn finish(self, provenance: String) -> Result<(), TraceError> {
        let Spool { path, page_bytes, pages, ops, times_us, page_object, page_block, objects, .. } = self;
        if self.requests == 0 {
            return Err(TraceError::refused(&path, "there was no request to write"));
        }
        let io = |error| TraceError::io(&path, error);
        let trace = Trace {
            page_bytes,
            pages: mapped(pages).map_err(io)?,
            ops: mapped(ops).map_err(io)?,
            times_us: Some(mapped(times_us).map_err(io)?),
            next_use: None,
            page_object: Column::Owned(page_object),
            page_block: Column::Owned(page_block),
            objects,
            events: Vec::new(),
            provenance,
        };
        write(&trace, &path)
    }
}

/// Maps the entries that were written to a file as a column.
fn mapped<T: FromBytes + Immutable + KnownLayout>(written: BufWriter<File>) -> io::Result<Column<T>> {
    let file = written.into_inner().map_err(io::IntoInnerError::into_error)?;
    // SAFETY: the file has no name and this was its only descriptor: nobody else can change it.
    let map = Arc::new(unsafe { Mmap::map(&file) }?);
    let slice = <[T]>::ref_from_bytes(&map[..]).expect("whole entries, from the start of a memory page on");
    // SAFETY: a map stays where it is until it is dropped, and the Arc is kept as the owner.
    Ok(Column::Mapped(unsafe { Mapped::new(slice, Arc::<Mmap>::clone(&map), |_, _, _| ()) }))
}
