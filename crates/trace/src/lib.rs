//! Streams of requests: formats, the converter to the native one, generators and statistics.

mod builder;
mod formats;
pub mod generate;
mod input;
mod join;
mod load;
pub mod native;
mod numbering;
mod page_map;
mod parse;
mod record;
pub mod stat;
mod text;
mod thin;
mod trace;
mod written;

pub use builder::{BuildOptions, Counts, IO_BYTES_MAX, IO_PAGES_MAX, REQUESTS_MAX, Split, TraceBuilder};
pub use formats::{Detection, Format, Meta, detect, source};
pub use generate::{GenerateSpec, PageReference, SpecError, generate};
pub use input::{Compression, HEAD_BYTES, Input};
pub use join::JoinError;
pub use load::{
    LoadOptions, LoadReport, Loaded, LoadedSample, PAGE_BYTES_DEFAULT, build, convert, head, load, load_sample,
};
pub use parse::Bad;
pub use record::{PageReads, Record, Source, TraceError, Unit};
pub use stat::{Stat, StatOptions, lru_miss_ratio_curve, peak_temporal_distance, stat};
pub use thin::{Octave, Population, Sampled};
pub use trace::{Column, Event, EventKind, Mapped, Object, ObjectKind, OpByte, Trace};
