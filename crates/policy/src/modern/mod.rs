//! Policies of the last decade, made for large caches and many cores: little work on a hit, quick demotion of what is
//! used once.

mod s3_fifo;
mod sieve;
mod sketch;
mod w_tinylfu;

pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use w_tinylfu::WTinyLfu;
