//! Policies that choose the destination of a checkpoint: `pfs`, `ldbb`, `cdbb` (004, sections 5.3.2 and 5.4.1) and
//! `chunked`, with options that every policy has.
//!
//! - `pfs`: nothing is buffered.
//! - `ldbb`: the buffer of the writer's node, then the PFS. The thesis's baseline.
//! - `cdbb`: the buffer of the writer's node, then the remote one with most free space, then the PFS.
//! - `chunked`: the order of `cdbb` for each chunk of an object, but remote buffers of other jobs' nodes first. A
//!   writer sends two chunks at a time, so that copies follow closely, and parts for the PFS beside them. By default
//!   each chunk is copied to a partner before the commit is answered, drains yield to foreground writes, and the oldest
//!   checkpoint drains first.
//!
//! Reading: the thesis's "remaining space is larger than the incoming data" admits an exact fit. The thesis does not
//! say whether an object may be divided over buffers; its MetaStore keeps an offset, so `object=split` is the default
//! and `object=whole` the option.

use crate::mutant::{self, Mutant};
use crate::protocol::{Lease, NodeId};
use crate::space::StatusStore;
use entresol_core::Size;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Most primaries of one parity: with the parity, groups of eight, as SCR's sets by default.
pub const STRIPE_MEMBERS_MAX: usize = 7;
/// Size of the chunks of `chunked` in bytes, unless another is given.
pub const CHUNK_BYTES: u64 = 256 << 20;

/// Parts of an object that `chunked` sends at the same time, unless another number is given.
pub const STREAMS: u32 = 2;

/// The rule of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The parallel file system alone.
    Pfs,
    /// The local buffer, then the PFS.
    Ldbb,
    /// The local buffer, then the emptiest remote one, then the PFS.
    Cdbb,
    /// As `Cdbb`, chunk by chunk and in parallel.
    Chunked,
}

/// Division of an object, or of a chunk, over buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splitting {
    /// Allowed.
    Split,
    /// Not allowed: a buffer takes all of it or nothing.
    Whole,
}

/// Protection of buffered bytes against the loss of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// Nothing.
    None,
    /// A copy on a second node.
    Partner,
    /// A parity of up to [`STRIPE_MEMBERS_MAX`] pieces of different nodes, on one more node.
    Xor,
}

/// Share of the links and the PFS that drains get beside writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPriority {
    /// As one more writer.
    Fair,
    /// Only what writers leave.
    Low,
}

/// Choice of the piece that a node drains next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOrder {
    /// In the order in which the pieces were stored.
    Fifo,
    /// The piece of the checkpoint that was opened first.
    Oldest,
}

/// The order among remote buffers with free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// The emptiest of all.
    Any,
    /// The emptiest of those on whose node no rank of the job has written; if those are full, the emptiest of all. The
    /// job's own ranks need the buffers of their nodes.
    Others,
}

/// A policy with its options. Its text is `NAME[:OPTION=VALUE]...`, such as `cdbb:object=whole:drain=low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The rule of placement.
    pub kind: Kind,
    /// `object=split|whole`.
    pub object: Splitting,
    /// `chunk=SIZE`: objects are cut into chunks of this many bytes, each placed separately.
    pub chunk_bytes: Option<u64>,
    /// `redundancy=none|partner|xor`.
    pub redundancy: Redundancy,
    /// `drain=fair|low`.
    pub drain: DrainPriority,
    /// `order=fifo|oldest`.
    pub order: DrainOrder,
    /// `remote=any|others`.
    pub remote: Remote,
    /// `streams=N|all`: number of parts of an object sent at the same time; `None` is one for each destination.
    pub streams: Option<u32>,
}

impl Policy {
    /// The names of all policies.
    pub const NAMES: [&'static str; 4] = ["pfs", "ldbb", "cdbb", "chunked"];

    /// A policy with its default options.
    pub const fn new(kind: Kind) -> Policy {
        let chunked = matches!(kind, Kind::Chunked);
        Policy {
            kind,
            object: Splitting::Split,
            chunk_bytes: if chunked { Some(CHUNK_BYTES) } else { None },
            redundancy: if chunked { Redundancy::Partner } else { Redundancy::None },
            drain: if chunked { DrainPriority::Low } else { DrainPriority::Fair },
            order: if chunked { DrainOrder::Oldest } else { DrainOrder::Fifo },
            remote: if chunked { Remote::Others } else { Remote::Any },
            streams: if chunked { Some(STREAMS) } else { Some(1) },
        }
    }
}

/// Reason why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("there is no burst-buffer policy '{0}'; there are: pfs, ldbb, cdbb, chunked")]
    UnknownPolicy(String),
    /// No policy has such an option.
    #[error("policy '{policy}' has no option '{option}'; it has: {known}")]
    UnknownOption {
        /// The policy.
        policy: &'static str,
        /// Option that was given.
        option: String,
        /// The options it has.
        known: &'static str,
    },
    /// The value of an option is invalid.
    #[error("policy '{policy}', option '{option}': '{value}' is not {expected}")]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The option.
        option: &'static str,
        /// Value that was given.
        value: String,
        /// Form that the value must have.
        expected: &'static str,
    },
}

const OPTIONS: &str = "object=split|whole, chunk=SIZE|none, redundancy=none|partner|xor, drain=fair|low, order=fifo|oldest, \
     remote=any|others, streams=N|all";

impl Kind {
    /// The name of the policy.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Pfs => "pfs",
            Kind::Ldbb => "ldbb",
            Kind::Cdbb => "cdbb",
            Kind::Chunked => "chunked",
        }
    }
}

/// The value of an option that has a word for each value.
fn word<T: Copy>(
    policy: &'static str,
    option: &'static str,
    given: &str,
    words: &[(&str, T)],
    expected: &'static str,
) -> Result<T, PolicyError> {
    let found = words.iter().find(|(word, _)| *word == given).map(|&(_, value)| value);
    found.ok_or_else(|| PolicyError::BadValue { policy, option, value: given.to_owned(), expected })
}

impl Policy {
    fn set(&mut self, option: &str, value: &str) -> Result<(), PolicyError> {
        let policy = self.kind.name();
        let unknown = |known| Err(PolicyError::UnknownOption { policy, option: option.to_owned(), known });
        if self.kind == Kind::Pfs {
            return unknown("none, as it buffers nothing");
        }
        match option {
            "object" => {
                let words = [("split", Splitting::Split), ("whole", Splitting::Whole)];
                self.object = word(policy, "object", value, &words, "split or whole")?;
            }
            "chunk" => {
                let bytes = match value.parse() {
                    Ok(Size::Bytes(bytes)) if bytes > 0 => Some(bytes),
                    _ if value == "none" => None,
                    _ => {
                        let expected = "a size above 0 with its unit, such as 64MiB, or none";
                        return Err(PolicyError::BadValue {
                            policy,
                            option: "chunk",
                            value: value.to_owned(),
                            expected,
                        });
                    }
                };
                self.chunk_bytes = bytes;
            }
            "redundancy" => {
                let words = [("none", Redundancy::None), ("partner", Redundancy::Partner), ("xor", Redundancy::Xor)];
                self.redundancy = word(policy, "redundancy", value, &words, "none, partner or xor")?;
            }
            "drain" => {
                let words = [("fair", DrainPriority::Fair), ("low", DrainPriority::Low)];
                self.drain = word(policy, "drain", value, &words, "fair or low")?;
            }
            "order" => {
                let words = [("fifo", DrainOrder::Fifo), ("oldest", DrainOrder::Oldest)];
                self.order = word(policy, "order", value, &words, "fifo or oldest")?;
            }
            "remote" => {
                let words = [("any", Remote::Any), ("others", Remote::Others)];
                self.remote = word(policy, "remote", value, &words, "any or others")?;
            }
            "streams" => {
                let expected = "a number above 0, or all";
                self.streams = match value.parse() {
                    Ok(streams) if streams > 0 => Some(streams),
                    _ => word(policy, "streams", value, &[("all", None)], expected)?,
                };
            }
            _ => return unknown(OPTIONS),
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut parts = text.trim().split(':');
        let name = parts.next().unwrap_or_default();
        let kinds = [Kind::Pfs, Kind::Ldbb, Kind::Cdbb, Kind::Chunked];
        let kind = kinds.into_iter().find(|kind| kind.name() == name);
        let mut policy = Policy::new(kind.ok_or_else(|| PolicyError::UnknownPolicy(name.to_owned()))?);
        for part in parts {
            let (option, value) = part.split_once('=').unwrap_or((part, ""));
            policy.set(option, value)?;
        }
        Ok(policy)
    }
}

/// The name, and the options that differ from the policy's defaults.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Policy::new(self.kind);
        f.write_str(self.kind.name())?;
        if self.object != usual.object {
            f.write_str(if self.object == Splitting::Split { ":object=split" } else { ":object=whole" })?;
        }
        if self.chunk_bytes != usual.chunk_bytes {
            match self.chunk_bytes {
                Some(bytes) => write!(f, ":chunk={}", Size::Bytes(bytes))?,
                None => f.write_str(":chunk=none")?,
            }
        }
        if self.redundancy != usual.redundancy {
            f.write_str(match self.redundancy {
                Redundancy::None => ":redundancy=none",
                Redundancy::Partner => ":redundancy=partner",
                Redundancy::Xor => ":redundancy=xor",
            })?;
        }
        if self.drain != usual.drain {
            f.write_str(if self.drain == DrainPriority::Fair { ":drain=fair" } else { ":drain=low" })?;
        }
        if self.order != usual.order {
            f.write_str(if self.order == DrainOrder::Fifo { ":order=fifo" } else { ":order=oldest" })?;
        }
        if self.remote != usual.remote {
            f.write_str(if self.remote == Remote::Any { ":remote=any" } else { ":remote=others" })?;
        }
        if self.streams != usual.streams {
            match self.streams {
                Some(streams) => write!(f, ":streams={streams}")?,
                None => f.write_str(":streams=all")?,
            }
        }
        Ok(())
    }
}

/// A parity that more pieces of its checkpoint may join.
#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    pub parity: Lease,
    pub node: NodeId,
    pub bytes: u64,
    pub members: Vec<NodeId>,
}

/// Protection of a chosen piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    None,
    Copy(NodeId),
    Parity(NodeId),
    /// An existing parity.
    Join(Lease),
}

/// The next piece of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub node: NodeId,
    pub bytes: u64,
    pub guard: Guard,
}

impl Policy {
    /// Chooses a node for the next `want` bytes of a writer on node `local`, or for as many of them as fit. `None`
    /// sends them to the PFS. `own` are the nodes on which ranks of the job have written.
    pub(crate) fn choose(
        &self,
        status: &StatusStore,
        stripes: &[Stripe],
        own: &BTreeSet<NodeId>,
        local: NodeId,
        want: u64,
    ) -> Option<Choice> {
        let fits = |choice: Choice| match self.object {
            Splitting::Split => choice.bytes > 0,
            Splitting::Whole => choice.bytes == want,
        };
        let at_home = || Some(self.at(status, stripes, own, local, want)).filter(|&choice| fits(choice));
        let away = || {
            let at = |node: Option<NodeId>| Some(self.at(status, stripes, own, node?, want)).filter(|&it| fits(it));
            let of_others = at(status.emptiest(|node| node != local && self.is_apart(own, node)));
            of_others.or_else(|| at(status.emptiest(|node| node != local)))
        };
        match self.kind {
            Kind::Pfs => None,
            Kind::Ldbb => at_home(),
            Kind::Cdbb | Kind::Chunked => at_home().or_else(away),
        }
    }

    fn is_apart(&self, own: &BTreeSet<NodeId>, node: NodeId) -> bool {
        self.remote == Remote::Any || !own.contains(&node)
    }

    /// Returns how many of `want` bytes the node `node` can take, with their protection.
    fn at(&self, status: &StatusStore, stripes: &[Stripe], own: &BTreeSet<NodeId>, node: NodeId, want: u64) -> Choice {
        let free = status.free(node).min(want);
        let partner = || match self.kind {
            Kind::Ldbb => status.neighbour(node),
            _ => {
                let has_room = |other| other != node && self.is_apart(own, other) && status.free(other) >= free;
                status.emptiest(has_room).or_else(|| status.emptiest(|other| other != node))
            }
        };
        let beside = |guard: fn(NodeId) -> Guard| match partner() {
            Some(other) => Choice { node, bytes: free.min(status.free(other)), guard: guard(other) },
            None => Choice { node, bytes: 0, guard: Guard::None },
        };
        match self.redundancy {
            Redundancy::None => Choice { node, bytes: free, guard: Guard::None },
            Redundancy::Partner => beside(Guard::Copy),
            Redundancy::Xor => {
                let joins = |stripe: &&Stripe| {
                    let is_there = status.is_present(stripe.node) || mutant::is(Mutant::AbsentJoined);
                    is_there && stripe.node != node && stripe.members.len() < STRIPE_MEMBERS_MAX && stripe.bytes >= free
                };
                match stripes.iter().filter(joins).find(|stripe| !stripe.members.contains(&node)) {
                    Some(stripe) => Choice { node, bytes: free, guard: Guard::Join(stripe.parity) },
                    None => beside(Guard::Parity),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_what_it_prints() {
        let chunked = "chunked:chunk=64MiB:redundancy=xor:order=fifo:remote=any:streams=all";
        for text in ["pfs", "ldbb", "cdbb:object=whole:drain=low", "cdbb:remote=others:streams=3", chunked] {
            let policy: Policy = text.parse().expect(text);
            assert_eq!(policy.to_string(), text);
        }
        let bare: Policy = "chunked:redundancy=partner:drain=low:chunk=256MiB".parse().expect("the defaults");
        assert_eq!(bare.to_string(), "chunked");
        let none: Policy = "chunked:chunk=none".parse().expect("no chunks");
        assert_eq!(none.chunk_bytes, None);
    }

    #[test]
    fn what_is_no_policy_says_what_is() {
        let error = |text: &str| text.parse::<Policy>().expect_err(text).to_string();
        assert_eq!(error("lru"), "there is no burst-buffer policy 'lru'; there are: pfs, ldbb, cdbb, chunked");
        assert!(error("cdbb:size=3").contains("has no option 'size'; it has: object=split|whole"));
        assert_eq!(error("cdbb:drain=no"), "policy 'cdbb', option 'drain': 'no' is not fair or low");
        assert!(error("cdbb:chunk=64").contains("a size above 0 with its unit"));
        assert!(error("cdbb:streams=0").contains("a number above 0, or all"));
        assert!(error("pfs:drain=low").contains("none, as it buffers nothing"));
    }

    fn status(free: &[u64]) -> StatusStore {
        let mut status = StatusStore::default();
        free.iter().enumerate().for_each(|(node, &bytes)| status.join(NodeId(node as u32), 0, bytes));
        status
    }

    /// The pieces of an object, as (node, bytes) until the PFS gets the rest.
    fn pieces(text: &str, free: &[u64], local: u32, bytes: u64) -> Vec<(u32, u64)> {
        let policy: Policy = text.parse().expect(text);
        let mut status = status(free);
        let mut left = bytes;
        let mut pieces = Vec::new();
        while let Some(choice) = policy.choose(&status, &[], &BTreeSet::new(), NodeId(local), left).filter(|_| left > 0)
        {
            status.take(choice.node, choice.bytes);
            if let Guard::Copy(node) | Guard::Parity(node) = choice.guard {
                status.take(node, choice.bytes);
            }
            pieces.push((choice.node.0, choice.bytes));
            left -= choice.bytes;
        }
        pieces
    }

    #[test]
    fn the_order_is_local_then_emptiest_then_pfs() {
        assert_eq!(pieces("pfs", &[10, 10], 0, 5), []);
        assert_eq!(pieces("ldbb", &[4, 10], 0, 6), [(0, 4)]);
        assert_eq!(pieces("ldbb:object=whole", &[4, 10], 0, 6), []);
        assert_eq!(pieces("cdbb", &[4, 3, 9], 0, 20), [(0, 4), (2, 9), (1, 3)]);
        assert_eq!(pieces("cdbb:object=whole", &[4, 3, 9], 0, 4), [(0, 4)], "an exact fit is one");
        assert_eq!(pieces("cdbb:object=whole", &[4, 3, 9], 0, 9), [(2, 9)]);
        assert_eq!(pieces("cdbb:object=whole", &[4, 3, 9], 0, 10), []);
    }

    /// Nodes 1 and 2 have writers of the same job: their buffers are kept for those until node 3 is full.
    #[test]
    fn buffers_of_other_jobs_come_first() {
        let own = BTreeSet::from([NodeId(0), NodeId(1), NodeId(2)]);
        let chosen = |text: &str, free: &[u64], want| {
            let choice = text.parse::<Policy>().expect(text).choose(&status(free), &[], &own, NodeId(0), want);
            choice.map(|choice| (choice.node.0, choice.guard))
        };
        assert_eq!(chosen("cdbb", &[0, 9, 9, 5], 4), Some((1, Guard::None)));
        assert_eq!(chosen("cdbb:remote=others", &[0, 9, 9, 5], 4), Some((3, Guard::None)));
        assert_eq!(chosen("cdbb:remote=others", &[0, 9, 9, 0], 4), Some((1, Guard::None)));
        assert_eq!(chosen("cdbb:remote=others", &[5, 9, 9, 5], 4), Some((0, Guard::None)), "its own node before all");
        assert_eq!(chosen("chunked", &[5, 9, 9, 5], 4), Some((0, Guard::Copy(NodeId(3)))));
        assert_eq!(chosen("chunked", &[5, 9, 9, 3], 4), Some((0, Guard::Copy(NodeId(1)))), "all of it or elsewhere");
    }

    #[test]
    fn a_copy_needs_room_on_two_nodes() {
        assert_eq!(pieces("cdbb:redundancy=partner", &[4, 3, 9], 0, 20), [(0, 4), (2, 3)]);
        assert_eq!(pieces("ldbb:redundancy=partner", &[4, 3, 9], 0, 20), [(0, 3)], "the neighbour has 3");
        assert_eq!(pieces("chunked", &[4], 0, 4), [], "a node alone cannot protect");
    }
}
