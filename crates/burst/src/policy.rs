//! Where a checkpoint goes: `pfs`, `ldbb`, `cdbb` (004, sections 5.3.2 and 5.4.1) and `chunked`, with options that every policy has.
//!
//! - `pfs`: nothing is buffered.
//! - `ldbb`: the buffer of the writer's node, then the PFS. The thesis's baseline.
//! - `cdbb`: the buffer of the writer's node, then the remote one with most free space, then the PFS.
//! - `chunked`: the order of `cdbb` for each chunk of an object. A writer sends all of its extents at the same time, and by default
//!   each is copied to a partner before "committed" is said, drains stay below foreground writes, and the oldest checkpoint
//!   drains first.
//!
//! Reading: the thesis's "remaining space is larger than the incoming data" admits an exact fit. The thesis does not say whether an
//! object may be divided over buffers; its MetaStore keeps an offset, so `object=split` is the default and `object=whole` the option.

use crate::mutant::{self, Mutant};
use crate::protocol::{Lease, NodeId};
use crate::space::StatusStore;
use entresol_core::Size;
use std::fmt;
use std::str::FromStr;

/// Most primaries of one parity: with the parity, groups of eight, as SCR's sets by default.
pub const STRIPE_MEMBERS_MAX: usize = 7;
/// The chunk of `chunked` unless another is given.
pub const CHUNK_BYTES: u64 = 256 << 20;

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

/// May an object, or a chunk where there are such, be divided over buffers?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splitting {
    /// Yes.
    Split,
    /// No: a buffer takes all of it or nothing.
    Whole,
}

/// What protects buffered bytes from the loss of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// Nothing.
    None,
    /// A copy on a second node.
    Partner,
    /// A parity of up to [`STRIPE_MEMBERS_MAX`] pieces of different nodes, on one more node.
    Xor,
}

/// How drains share links and the PFS with writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPriority {
    /// As one more writer.
    Fair,
    /// Only what writers leave.
    Low,
}

/// Which piece a node drains next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOrder {
    /// In the order in which the pieces were stored.
    Fifo,
    /// Of the checkpoint that was opened first.
    Oldest,
}

/// A policy with its options. Its text is `NAME[:OPTION=VALUE]...`, such as `cdbb:object=whole:drain=low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The rule of placement.
    pub kind: Kind,
    /// `object=split|whole`.
    pub object: Splitting,
    /// `chunk=SIZE`: objects are cut into chunks of so many bytes, each placed by itself.
    pub chunk_bytes: Option<u64>,
    /// `redundancy=none|partner|xor`.
    pub redundancy: Redundancy,
    /// `drain=fair|low`.
    pub drain: DrainPriority,
    /// `order=fifo|oldest`.
    pub order: DrainOrder,
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
        }
    }

    /// Does a writer send all of its parts at the same time, or one after the other?
    pub const fn in_parallel(&self) -> bool {
        matches!(self.kind, Kind::Chunked)
    }
}

/// Why a text is no policy.
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
        /// What was given.
        option: String,
        /// The options it has.
        known: &'static str,
    },
    /// The value of an option makes no sense.
    #[error("policy '{policy}', option '{option}': '{value}' is not {expected}")]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
}

const OPTIONS: &str =
    "object=split|whole, chunk=SIZE|none, redundancy=none|partner|xor, drain=fair|low, order=fifo|oldest";

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

/// What protects a chosen piece.
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
    /// Where the next `want` bytes, or as many as have room, of a writer on node `local` go; `None`: to the PFS.
    pub(crate) fn choose(&self, status: &StatusStore, stripes: &[Stripe], local: NodeId, want: u64) -> Option<Choice> {
        let fits = |choice: Choice| match self.object {
            Splitting::Split => choice.bytes > 0,
            Splitting::Whole => choice.bytes == want,
        };
        let at_home = || Some(self.at(status, stripes, local, want)).filter(|&choice| fits(choice));
        let away = || {
            let remote = status.emptiest(|node| node != local)?;
            Some(self.at(status, stripes, remote, want)).filter(|&choice| fits(choice))
        };
        match self.kind {
            Kind::Pfs => None,
            Kind::Ldbb => at_home(),
            Kind::Cdbb | Kind::Chunked => at_home().or_else(away),
        }
    }

    /// How much of `want` node `node` can take, with what protects it.
    fn at(&self, status: &StatusStore, stripes: &[Stripe], node: NodeId, want: u64) -> Choice {
        let room = status.free(node).min(want);
        let partner = || match self.kind {
            Kind::Ldbb => status.neighbour(node),
            _ => status.emptiest(|other| other != node),
        };
        let beside = |guard: fn(NodeId) -> Guard| match partner() {
            Some(other) => Choice { node, bytes: room.min(status.free(other)), guard: guard(other) },
            None => Choice { node, bytes: 0, guard: Guard::None },
        };
        match self.redundancy {
            Redundancy::None => Choice { node, bytes: room, guard: Guard::None },
            Redundancy::Partner => beside(Guard::Copy),
            Redundancy::Xor => {
                let joins = |stripe: &&Stripe| {
                    let is_there = status.is_present(stripe.node) || mutant::is(Mutant::AbsentJoined);
                    is_there && stripe.node != node && stripe.members.len() < STRIPE_MEMBERS_MAX && stripe.bytes >= room
                };
                match stripes.iter().filter(joins).find(|stripe| !stripe.members.contains(&node)) {
                    Some(stripe) => Choice { node, bytes: room, guard: Guard::Join(stripe.parity) },
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
        for text in ["pfs", "ldbb", "cdbb:object=whole:drain=low", "chunked:chunk=64MiB:redundancy=xor:order=fifo"] {
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
        while let Some(choice) = policy.choose(&status, &[], NodeId(local), left).filter(|_| left > 0) {
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

    #[test]
    fn a_copy_needs_room_on_two_nodes() {
        assert_eq!(pieces("cdbb:redundancy=partner", &[4, 3, 9], 0, 20), [(0, 4), (2, 3)]);
        assert_eq!(pieces("ldbb:redundancy=partner", &[4, 3, 9], 0, 20), [(0, 3)], "the neighbour has 3");
        assert_eq!(pieces("chunked", &[4], 0, 4), [], "a node alone cannot protect");
    }
}
