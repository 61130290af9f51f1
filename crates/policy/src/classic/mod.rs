//! The textbook: policies that need no adaptation and no knowledge of writes.

mod clock;
mod fifo;
mod lfu;
mod lfu_aging;
mod lru;
mod mru;
mod random;

pub use clock::Clock;
pub use fifo::Fifo;
pub use lfu::Lfu;
pub use lfu_aging::LfuAging;
pub use lru::Lru;
pub use mru::Mru;
pub use random::Random;
