//! A flash or NVM cache as the second level under a database's buffer pool.

mod face;
mod pool;

pub use face::{Face, FaceGsc};
