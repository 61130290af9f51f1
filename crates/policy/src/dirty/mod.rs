//! Main-memory caches of one tier that treat clean and dirty pages differently.

mod h_arc;

pub use h_arc::HArc;
