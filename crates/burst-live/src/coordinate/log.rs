//! The grant log: every event that a coordinator has applied, and its grants. A new [`Coordinator`] that is fed with it
//! gives the same destinations again.

use entresol_burst::{Answer, Coordinator, Epoch, Event, Grant, Policy, Share};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;

/// First line of the log of one start of a coordinator.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    policy: String,
    epoch: u32,
    lease_ns: u64,
    #[serde(default)]
    share: Share,
}

/// One applied event. `AllReported` is the end of the wait for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Applied {
    Event(Event),
    AllReported,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    now_ns: u64,
    applied: Applied,
    grants: Vec<Grant>,
}

/// Applies an event, or ends the wait for nodes. An event that is refused has no grants.
pub(crate) fn apply(
    coordinator: &mut Coordinator,
    now_ns: u64,
    applied: &Applied,
) -> Result<Answer, entresol_burst::Refused> {
    match applied {
        Applied::Event(event) => coordinator.apply(now_ns, event),
        Applied::AllReported => Ok(coordinator.all_reported()),
    }
}

/// A log that is being written. Each line is in the file when its event is answered; it is not synced.
pub(crate) struct GrantLog {
    file: BufWriter<File>,
}

impl GrantLog {
    /// Begins the log of one start. An existing file is replaced.
    pub fn create(path: &Path, policy: &Policy, epoch: Epoch, lease_ns: u64, share: Share) -> io::Result<GrantLog> {
        let mut log = GrantLog { file: BufWriter::new(File::create(path)?) };
        log.line(&Head { policy: policy.to_string(), epoch: epoch.0, lease_ns, share })?;
        Ok(log)
    }

    pub fn append(&mut self, now_ns: u64, applied: &Applied, grants: &[Grant]) -> io::Result<()> {
        self.line(&Line { now_ns, applied: applied.clone(), grants: grants.to_vec() })
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")?;
        self.file.flush()
    }
}

/// Reason why a log does not replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read.
    #[error("line {0}: {1}")]
    Unreadable(usize, io::Error),
    /// The replay gives other grants.
    #[error("line {line}: the log has the grants {logged:?}, the replay gives {replayed:?}")]
    Different {
        /// Number of the line.
        line: usize,
        /// Grants in the log.
        logged: Vec<Grant>,
        /// Grants of the replay.
        replayed: Vec<Grant>,
    },
}

/// Number of events and grants that a replay has compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Applied events.
    pub events: usize,
    /// Equal grants.
    pub grants: usize,
}

/// Feeds a log to a new coordinator and compares every grant. A last line that was cut by a crash is ignored.
///
/// # Errors
/// At the first line that cannot be read or has other grants.
pub fn replay(log: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut lines = log.split(b'\n').enumerate();
    let unreadable = |number: usize, why: &str| ReplayError::Unreadable(number + 1, io::Error::other(why.to_owned()));
    let (_, head) = lines.next().ok_or_else(|| unreadable(0, "an empty log"))?;
    let head = head.map_err(|error| ReplayError::Unreadable(1, error))?;
    let head: Head = serde_json::from_slice(&head).map_err(|error| unreadable(0, &error.to_string()))?;
    let policy: Policy =
        head.policy.parse().map_err(|error: entresol_burst::PolicyError| unreadable(0, &error.to_string()))?;
    let mut coordinator = Coordinator::new(policy, Epoch(head.epoch), head.lease_ns);
    coordinator.set_share(head.share);
    let mut replayed = Replayed::default();
    let mut damaged = None;
    for (number, line) in lines {
        let bytes = line.map_err(|error| ReplayError::Unreadable(number + 1, error))?;
        if let Some(error) = damaged.take() {
            return Err(error);
        }
        let line: Line = match serde_json::from_slice(&bytes) {
            Ok(line) => line,
            Err(error) => {
                damaged = Some(unreadable(number, &error.to_string()));
                continue;
            }
        };
        let answer = apply(&mut coordinator, line.now_ns, &line.applied).unwrap_or_default();
        if answer.grants != line.grants {
            return Err(ReplayError::Different { line: number + 1, logged: line.grants, replayed: answer.grants });
        }
        replayed.events += 1;
        replayed.grants += answer.grants.len();
    }
    Ok(replayed)
}
