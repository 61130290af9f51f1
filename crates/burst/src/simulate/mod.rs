//! The simulation: the coordinator and node stores of the live system, in virtual time.
//!
//! [`run`] drives them with programs over a fluid model, in which bytes are flows that share links and the parallel
//! file system fairly. Nothing is measured here, and messages take no time: the cost of a coordinator has to be
//! measured live.

mod bounds;
mod failures;
mod figures;
mod fluid;
mod model;
mod readings;
mod run;

pub use bounds::bound_s;
pub use failures::{Failures, Loss, losses};
pub use figures::{Fit, Published, fit, median, quantile};
pub use model::{BATCH_BYTES, Cluster, CopiesBy, Program, StreamOf, Workload};
pub use readings::{Reading, Sensitivity, Setup, sensitivity};
pub use run::{Buffered, Checkpoint, Destinations, Protection, Run, run, run_in_order};
