//! Advice from a trace: which tables and indexes to keep on the fast device.

pub mod cost;
pub mod knapsack;
pub mod placement;
