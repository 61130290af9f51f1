//! A flash or NVM cache as the second level under a database's buffer pool.

mod face;
mod heuristicdb;
mod lc;
mod pool;
mod pooled;
mod table_placement;
mod tac;

pub use face::{Face, FaceGsc};
pub use heuristicdb::HeuristicDb;
pub use lc::Lc;
pub use pooled::{Pooled, divided};
pub use table_placement::TablePlacement;
pub use tac::Tac;
