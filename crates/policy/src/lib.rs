//! Cache policies: every replacement, admission and migration policy, each a pure state machine.
//!
//! A [`Policy`] receives a request and answers with [`Movement`](entresol_core::Movement)s through a [`Driver`]. The
//! movements say which pages to keep and which to move. A policy does no I/O, reads no clock, starts no thread and
//! allocates nothing per request, so the simulator and the engine can drive the same object. `docs/policy-interface.md`
//! gives the reasons for the shape of the traits.
//!
//! One file per policy, one folder per family. [`catalogue`] lists them all and builds one by name.
#![forbid(unsafe_code)]

mod candidate;
pub mod catalogue;
pub mod check;
mod counts;
mod info;
mod interface;
mod list;
mod log;
pub mod miniature;
mod mode;
mod mutant;
mod options;
pub mod parts;
mod ranked;
mod reclaim;
mod state;
mod streams;
mod wear;

pub mod adaptive;
pub mod choice;
pub mod classic;
pub mod dirty;
pub mod extension;
pub mod hybrid;
pub mod learned;
pub mod migration;
pub mod modern;
pub mod offline;
pub mod run;
pub mod writebuffer;

pub use counts::{Counts, MAX_TIERS, TierCounts};
pub use info::{Config, Info, OptionInfo, Tunable};
pub use interface::{Choice, ChoiceCandidate, Driver, PageState, Policy, Switch, TierSet};
pub use log::{Log, LogLayout};
pub use mode::Mode;
#[cfg(feature = "mutants")]
pub use mutant::leave_out;
pub use options::{BuildError, Options};
pub use ranked::Ranked;
pub use reclaim::{COMPARED, Reclaim, Victim, Worn};
pub use state::Learned;
pub use streams::Streams;
pub use wear::{Wear, WearError};
