//! Records that a reader of a foreign format yields, one at a time, before pages are split and numbered.

use crate::trace::ObjectKind;
use entresol_core::Op;
use std::path::{Path, PathBuf};

/// One line or record of a trace, in the units of the trace (see [`Unit`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An I/O or reference to a range.
    Io {
        /// Microseconds since the first record.
        time_us: u64,
        /// Read, whole write, or update. A write that covers only part of a page becomes an update of that page
        /// when it is split.
        op: Op,
        /// The stream it came from (process, initiator), 0 where the format has none.
        stream: u32,
        /// Number that the source declared with [`Record::Object`].
        object: u32,
        /// First byte within the object, or first page where the source counts pages.
        offset: u64,
        /// Length in bytes or pages. Zero is malformed.
        size: u64,
        /// Index of the next reference to the same block as the trace itself states it, where it does. The builder
        /// does not rely on it: a limit or a skipped line would make it wrong.
        next_use: Option<u32>,
    },
    /// Marks the page that this stream most recently referenced at this place as modified (pre-buffer traces).
    MarkDirty {
        /// The stream.
        stream: u32,
        /// The object.
        object: u32,
        /// First byte of the page, or the page where the source counts pages.
        offset: u64,
    },
    /// Declares an object number before its first use.
    Object {
        /// The number.
        object: u32,
        /// The name.
        name: String,
        /// Kind of the object, as far as the format knows it.
        kind: ObjectKind,
    },
    /// A query starts.
    QueryBegin {
        /// Microseconds since the first record.
        time_us: u64,
        /// Its label.
        label: String,
    },
    /// Ends the query that started last with this label, up to the parts that only the end carries.
    QueryEnd {
        /// Microseconds since the first record.
        time_us: u64,
        /// Its label.
        label: String,
    },
    /// A checkpoint, commit, flush, unlink or other event that is no reference. Only its count is kept, under this
    /// name.
    Other(&'static str),
}

/// Unit of the offsets and sizes of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, which the builder splits into pages.
    Bytes,
    /// Pages: block numbers of the literature, object ids, blocks of a buffer pool. No split applies.
    Pages,
}

/// Reads of one whole page each, as two columns of the same length.
#[derive(Debug, Default)]
pub struct PageReads {
    /// The pages.
    pub pages: Vec<u64>,
    /// Microseconds since the first record, never decreasing.
    pub times_us: Vec<u64>,
}

/// A stream of records.
pub trait Source {
    /// The next record, `None` at the end. After [`TraceError::Malformed`] for a single line or record the caller may
    /// continue reading; after any other error it may not.
    fn next(&mut self) -> Result<Option<Record>, TraceError>;

    /// Takes at most `most` of the next records as columns, in place of the contents of `reads`. A record is taken
    /// only if it lies whole in memory already, reads one page of the stream and object of the last I/O, and the
    /// source counts pages. Taking no record is always correct; [`Source::next`] then returns the next one. The reason
    /// is speed: taking a record one by one costs as much again as numbering its page.
    fn buffered_reads(&mut self, _most: usize, reads: &mut PageReads) {
        reads.pages.clear();
        reads.times_us.clear();
    }

    /// Number of requests that the source will yield, where known in advance: a hint for reservations.
    fn requests_expected(&self) -> Option<u64> {
        None
    }

    /// Unit of the offsets and sizes.
    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    /// The page size in bytes that the trace itself states.
    fn page_bytes(&self) -> Option<u32> {
        None
    }

    /// False when the times of the records mean nothing.
    fn has_time(&self) -> bool {
        true
    }

    /// True when [`Record::MarkDirty`] may occur.
    fn has_marks(&self) -> bool {
        false
    }

    /// Number of records that were older than the one before them; their time is that of the one before.
    fn clock_reversals(&self) -> u64 {
        0
    }

    /// Position of the last record in the source, for messages: `line 17`, `byte 4096`.
    fn place(&self) -> String;
}

/// Reason for which a trace cannot be read or written, with the position of the fault where there is one.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system, printed as part of this error's own text and so not its `source`, lest a chain print
        /// it twice.
        error: std::io::Error,
    },
    /// A line or record is malformed.
    #[error("{}: {place}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// `line 17` or `byte 4096`.
        place: String,
        /// The text found and the text expected.
        what: String,
    },
    /// Any other reason to refuse the whole file.
    #[error("{}: {what}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
}

impl TraceError {
    /// The system's error about a file.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        TraceError::Io { path: path.to_owned(), error }
    }

    /// A malformed line or record.
    pub fn malformed(path: &Path, place: impl Into<String>, what: impl Into<String>) -> Self {
        TraceError::Malformed { path: path.to_owned(), place: place.into(), what: what.into() }
    }

    /// A refusal of the whole file.
    pub fn refused(path: &Path, what: impl Into<String>) -> Self {
        TraceError::Refused { path: path.to_owned(), what: what.into() }
    }
}
