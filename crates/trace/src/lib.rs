//! Streams of requests: formats, the converter to the native one, generators and statistics.

mod record;
mod trace;

pub use record::{Record, Source, TraceError};
pub use trace::{Column, Event, EventKind, Object, ObjectKind, OpByte, Trace};
