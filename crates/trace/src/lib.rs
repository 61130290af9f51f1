//! Streams of requests: formats, the converter to the native one, generators and statistics.

pub mod generate;
mod record;
pub mod stat;
mod trace;

pub use generate::{GenerateSpec, PageReference, SpecError, generate};
pub use record::{Record, Source, TraceError};
pub use stat::{Stat, StatOptions, lru_miss_ratio_curve, peak_temporal_distance, stat};
pub use trace::{Column, Event, EventKind, Object, ObjectKind, OpByte, Trace};
