//! Drives policies over traces.
//!
//! A *cell* is one policy, or a stack of them, at one size over one trace. [`run_cell`] drives one cell, [`sweep()`]
//! many over all cores. [`lru_curve`] gives all sizes of LRU in one pass, [`Sample`] a quick estimate for any policy.

mod addresses;
mod cell;
mod curve;
mod layer;
mod parallel;
mod row;
mod sample;
mod spec;
mod sweep;
mod timed;

pub use addresses::Addresses;
pub use cell::{CellError, CellOptions, run_cell};
pub use curve::{CurvePoint, lru_curve};
pub use entresol_policy::{Counts, LogLayout, Mode, TierCounts};
pub use layer::{Layer, LayerRequest, PageCounts};
pub use parallel::in_parallel;
pub use row::{Interval, LayerRow, PartRow, Row, TierRow};
pub use sample::{CACHE_PAGES_MIN, Estimate, SAMPLED_PAGES_MIN, Sample, SampleError, sample_trace};
pub use spec::{LayerSpec, PolicySpec, SpecError, parse_policies, parse_stack};
pub use sweep::{Cell, Progress, Skipped, SweepOutcome, sweep};
pub use timed::{
    Behind, DeviceRow, Hierarchy, LatencyRow, NamedDevice, TimedError, TimedOptions, TimedRow, Tuning, Work, prices,
    run_timed,
};
