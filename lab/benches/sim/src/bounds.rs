//! Bounds for each policy: its speed, its memory, and the agreement of its misses with libCacheSim's.

/// Agreement expected between libCacheSim's misses and ours.
#[derive(Clone, Copy, Debug)]
pub enum Agreement {
    /// Equal in every miss.
    Equal,
    /// Within this many per cent.
    Within(f64),
    /// Different, because of another reading of the paper or another algorithm; the text is the reason.
    Differs(&'static str),
}

/// libCacheSim's version of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PeerPolicy {
    /// Class of the Python package.
    pub class: &'static str,
    /// Name in the oracle file.
    pub oracle: &'static str,
    /// Agreement expected between its misses and ours.
    pub agreement: Agreement,
}

/// Least speed in million requests per second of processor time.
const SPEED: &[(&str, f64)] = &[
    ("fifo", 60.0),
    ("clock", 60.0),
    ("sieve", 60.0),
    ("lru", 40.0),
    ("arc", 20.0),
    ("2q", 20.0),
    ("s3-fifo", 20.0),
    ("cflru", 20.0),
    ("lru-wsr", 20.0),
    ("h-arc", 10.0),
    ("expcache", 10.0),
    ("io-cache", 10.0),
    ("hibachi", 10.0),
    ("heuristicdb", 10.0),
    ("face-gsc", 10.0),
    ("lirs", 10.0),
    ("w-tinylfu", 10.0),
    ("lecar", 10.0),
    ("mq", 10.0),
    ("cacheus", 5.0),
    ("min", 8.0),
];

/// The twenty policies of the sweep: those with a bound on their speed, except Belady.
pub fn sweep_policies() -> impl Iterator<Item = &'static str> {
    SPEED.iter().map(|&(name, _)| name).filter(|&name| name != "min")
}

/// Processor minutes that twenty policies at twenty sizes over ten million requests may take.
pub const SWEEP_MINUTES: f64 = 6.0;
/// Least speed of three tiers with writes, in million requests per second of processor time.
pub const THREE_TIERS: f64 = 5.0;
/// Least factor by which a single run from a file must be faster than libCacheSim's.
pub const ONE_OFF: f64 = 4.0;
/// Bytes of state per page held by a list policy, its handle included.
pub const RESIDENT_BYTES: f64 = 16.0;
/// Bytes of state per ghost.
pub const GHOST_BYTES: f64 = 8.0;

/// Policies that keep only lists: the bound on bytes per page applies to these.
const LISTS: &[&str] = &[
    "fifo",
    "clock",
    "lru",
    "mru",
    "random",
    "2q",
    "mq",
    "arc",
    "car",
    "lirs",
    "clock-pro",
    "s3-fifo",
    "sieve",
    "cflru",
    "lru-wsr",
    "ad-lru",
    "lru-dram",
    "h-arc",
];
/// List policies that remember pages they no longer hold.
const GHOSTS: &[&str] = &["2q", "mq", "arc", "car", "lirs", "clock-pro", "s3-fifo", "h-arc"];

/// The bound on a policy's speed, if there is one.
pub fn speed(policy: &str) -> Option<f64> {
    SPEED.iter().find(|(name, _)| *name == policy).map(|&(_, bound)| bound)
}

/// True if the policy's bytes per held page are bounded.
pub fn is_list(policy: &str) -> bool {
    LISTS.contains(&policy)
}

/// True if the policy's bytes per ghost are bounded.
pub fn has_ghosts(policy: &str) -> bool {
    GHOSTS.contains(&policy)
}

/// libCacheSim's version of a policy, if it has one.
pub fn peer(policy: &str) -> Option<PeerPolicy> {
    use Agreement::{Differs, Equal, Within};
    let (class, oracle, agreement) = match policy {
        "lru" => ("LRU", "lru", Equal),
        "fifo" => ("FIFO", "fifo", Equal),
        "clock" => ("Clock", "clock", Equal),
        "sieve" => ("Sieve", "sieve", Equal),
        "lfu" => ("LFU", "lfu", Equal),
        "min" => ("Belady", "belady", Equal),
        "arc" => ("ARC", "arc", Within(0.5)),
        "2q" => ("TwoQ", "2q", Within(0.5)),
        "lirs" => ("LIRS", "lirs", Within(0.5)),
        "s3-fifo" => ("S3FIFO", "s3fifo", Differs("its main queue fills first: `warm-up=main`")),
        "w-tinylfu" => ("WTinyLFU", "wtinylfu", Differs("another sketch, no doorkeeper")),
        "mq" => ("MQ", "mq", Differs("its life time is 10,000 requests: `lifetime=10000`")),
        "lru-2" => ("LRUK", "lru-k", Differs("it forgets evicted pages: `history=0p`")),
        "clock-pro" => ("ClockPro", "clockpro", Differs("it misses as LRU does")),
        "lecar" => ("LeCaR", "lecar", Differs("not as in the paper")),
        "cacheus" => ("Cacheus", "cacheus", Differs("not as in the paper")),
        "random" => ("Random", "random", Differs("other random numbers")),
        _ => return None,
    };
    Some(PeerPolicy { class, oracle, agreement })
}
