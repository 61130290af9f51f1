//! What a reader of a foreign format yields, one at a time, before pages are split and numbered.

use entresol_core::Op;
use std::path::PathBuf;

/// One line or record of a trace, in the units of the trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An I/O or reference to a byte range.
    Io {
        /// Microseconds since the first record.
        time_us: u64,
        /// Read, whole write, or update. A write that covers only part of a page becomes an update of that page
        /// when it is split.
        op: Op,
        /// The stream it came from (process, initiator), 0 where the format has none.
        stream: u32,
        /// Index into the names that the source declares with [`Record::Object`].
        object: u32,
        /// First byte within the object.
        offset: u64,
        /// Length in bytes.
        size: u64,
        /// Index of the next reference to the same block as the trace itself states it, where it does.
        next_use: Option<u32>,
    },
    /// The page that this stream most recently referenced at this place was modified (pre-buffer traces).
    MarkDirty {
        /// The stream.
        stream: u32,
        /// The object.
        object: u32,
        /// First byte of the page.
        offset: u64,
    },
    /// Declares the name of an object number before its first use.
    Object {
        /// The number.
        object: u32,
        /// The name.
        name: String,
    },
    /// A query starts.
    QueryBegin {
        /// Microseconds since the first record.
        time_us: u64,
        /// Its label.
        label: String,
    },
    /// The query that started last with this label, up to the parts that only the end carries, ends.
    QueryEnd {
        /// Microseconds since the first record.
        time_us: u64,
        /// Its label.
        label: String,
    },
    /// A checkpoint, commit, flush or other event that is no reference: kept only as a count.
    Other,
}

/// A stream of records.
pub trait Source {
    /// The next record, `None` at the end. After an error of a single line the source may be read on.
    fn next(&mut self) -> Result<Option<Record>, TraceError>;
}

/// What is wrong with a trace, and where.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line or record is malformed.
    #[error("{}: {place}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// `line 17` or `byte 4096`.
        place: String,
        /// What was found and what was expected.
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
