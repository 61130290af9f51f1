//! NAND flash drives.

mod ftl;
mod gc;
mod geometry;

pub use ftl::{Ftl, Pace, Work};
pub use gc::Cleaning;
pub use geometry::{Geometry, UNIT_BYTES};
