//! The description of a policy, and the sizes that it is built for.

/// Sizes and seed that a policy is built for.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of handles: every [`Page`](entresol_core::Page) is below it.
    pub pages: usize,
    /// Number of objects: every [`ObjectId`](entresol_core::ObjectId) is below it.
    pub objects: usize,
    /// Capacity of each tier in pages, as many as [`Info::tiers`] names.
    pub tiers: Vec<usize>,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Seed of random choices.
    pub seed: u64,
    /// The most frequent distance between two references to one page, in requests, where the driver knows it.
    /// Only MQ asks for it.
    pub peak_temporal_distance: Option<u32>,
}

impl Config {
    /// A configuration of one tier, for tests and examples.
    pub fn single(pages: usize, capacity: usize) -> Self {
        Config { pages, objects: 1, tiers: vec![capacity], page_bytes: 4096, seed: 42, peak_temporal_distance: None }
    }

    /// A configuration of two tiers, for tests and examples.
    pub fn two_tiers(pages: usize, top: usize, second: usize) -> Self {
        Config { tiers: vec![top, second], ..Config::single(pages, 0) }
    }
}

/// An option of a policy.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// The option's name on the command line.
    pub name: &'static str,
    /// Value of the option when it is not given.
    pub default: &'static str,
    /// Effect of the option, its unit and range, its source.
    pub help: &'static str,
}

/// A numeric option that may be changed between two requests.
#[derive(Clone, Copy, Debug)]
pub struct Tunable {
    /// Name of the option.
    pub option: &'static str,
    /// Values worth trying, in the option's unit, ascending and spaced by effect. The first and the last are the
    /// option's range.
    pub levels: &'static [f64],
}

/// Description of a policy: its name, source, options, tiers and needs.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Name of the policy on the command line.
    pub name: &'static str,
    /// Family: the folder of the policy's file.
    pub family: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// The paper: authors, title, venue, year.
    pub paper: &'static str,
    /// Options of the policy.
    pub options: &'static [OptionInfo],
    /// Options that may be changed while the policy runs.
    pub tunables: &'static [Tunable],
    /// Names of the tiers, fastest first: one for a plain cache.
    pub tiers: &'static [&'static str],
    /// Smallest capacity of each tier, in pages.
    pub min_pages: &'static [usize],
    /// Share of a total size that goes to the top tier when only a total is given. 0 for one tier.
    pub top_share: f64,
    /// True if the policy treats clean and dirty pages differently.
    pub write_aware: bool,
    /// True if the policy uses [`Driver::next_use`](crate::Driver::next_use).
    pub future: bool,
    /// True if the policy uses addresses or neighbours.
    pub addresses: bool,
    /// True if the policy looks for runs or blocks of neighbouring pages. A sample then consists of groups of
    /// neighbours, because single pages would show it none.
    pub neighbours: bool,
    /// True if the policy uses [`Driver::now_us`](crate::Driver::now_us).
    pub clock: bool,
    /// True if the last tier is written as a log: frames are taken in order, round the ring.
    pub log: bool,
    /// True if the LRU stack property holds: a larger cache contains a smaller one, so one pass serves all sizes.
    pub stack: bool,
    /// True if the policy's pages can be compared: [`Policy::ranked`](crate::Policy::ranked) returns it.
    pub ranked: bool,
    /// Pages known at once with the default options, residents and others, per page of the tiers. A live cache provides
    /// that many handles.
    pub known_per_page: usize,
    /// Option that bounds the pages known outside the tiers, where the default (`0`) means all of them. A live cache
    /// sets it.
    pub known_bound: Option<&'static str>,
    /// Options, `NAME=VALUE`, that a live cache forces: incremental versions of steps that take no time in the
    /// simulator.
    pub live: &'static [&'static str],
    /// Option, `NAME=VALUE`, for a driver that sends each write to the backing store at once, unless its user says
    /// another value ([`Options::for_through`](crate::Options::for_through)).
    pub through: Option<&'static str>,
    /// Options for the simulator only: a live cache, which does better, accepts no value but their defaults.
    pub simulated: &'static [&'static str],
}

impl Info {
    /// A plain cache that needs nothing special: the base that policies override fields of.
    pub const PLAIN: Info = Info {
        name: "",
        family: "",
        summary: "",
        paper: "",
        options: &[],
        tunables: &[],
        tiers: &["cache"],
        min_pages: &[1],
        top_share: 0.0,
        write_aware: false,
        future: false,
        addresses: false,
        neighbours: false,
        clock: false,
        log: false,
        stack: false,
        ranked: false,
        known_per_page: 3,
        known_bound: None,
        live: &[],
        through: None,
        simulated: &[],
    };
}
