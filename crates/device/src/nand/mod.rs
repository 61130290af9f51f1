//! NAND flash drives at event fidelity: queues per die and channel, a mechanical translation layer, cleaning at a pace.
//!
//! [`Ssd`] is the device, [`NandParameters`] what it is made of; [`Ftl`] alone gives write amplification without time.

mod buffer;
mod ftl;
mod gc;
mod geometry;
mod parameters;
mod readahead;
mod ssd;
mod timing;
mod translation;

pub use ftl::{Ftl, Pace, Work};
pub use gc::Cleaning;
pub use geometry::{Geometry, UNIT_BYTES};
pub use parameters::{Amplification, NandParameters, WafCurve};
pub use ssd::Ssd;
