//! Arguments that several commands share.

mod cache;
mod device;
mod files;
mod keyword;
mod names;
mod timeout;

pub use cache::{CacheArgs, DIRTY_AGE};
pub use device::DeviceArgs;
pub use files::{FileArgs, HintArgs};
pub use keyword::{OnOff, keyword, word};
pub use names::NameArgs;
pub use timeout::TimeoutArg;
