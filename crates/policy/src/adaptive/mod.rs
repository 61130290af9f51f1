//! Policies that weigh recency against frequency, by history, queues or reuse distance.

mod arc;
mod car;
mod clock_pro;
mod lirs;
mod lru_k;
mod mq;
mod places;
mod two_q;

pub use arc::Arc;
pub use car::Car;
pub use clock_pro::ClockPro;
pub use lirs::Lirs;
pub use lru_k::Lru2;
pub use mq::Mq;
pub use two_q::TwoQ;
