//! The clock of leases.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970. Clocks of different hosts should agree to well within a lease; safety does not depend on it,
/// because a node's buffer changes its owner by the node's own answer alone.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
