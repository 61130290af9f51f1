//! Advice from a trace: which hierarchy to buy, and which tables and indexes to keep on the fast device.

pub mod cost;
pub mod hierarchy;
pub mod knapsack;
pub mod money;
pub mod placement;
