//! The textbook: policies that need no adaptation and no knowledge of writes.

mod lru;

pub use lru::Lru;
