//! Streams of requests: formats, the converter to the native one, generators and statistics.

pub mod generate;
mod record;

mod trace;

pub use generate::{GenerateSpec, PageReference, SpecError, generate};
pub use record::{Record, Source, TraceError};
pub use trace::{Column, Event, EventKind, Object, ObjectKind, OpByte, Trace};
