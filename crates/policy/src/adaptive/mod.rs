//! Policies that weigh recency against frequency, by history, queues or reuse distance.

mod arc;
mod car;
mod places;
mod two_q;

pub use arc::Arc;
pub use car::Car;
pub use two_q::TwoQ;
