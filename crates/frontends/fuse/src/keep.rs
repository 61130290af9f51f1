//! The holder's side of a take-over, as this crate sees it: descriptors by name, which outlive the process.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The kernel's device, by which the mount lives on.
pub(crate) const DEVICE: &str = "fuse.device";
/// The backing directory, which the mount may cover.
pub(crate) const BACKING: &str = "fuse.backing";
/// The descriptor with the lock on the backing directory.
pub(crate) const LOCK: &str = "fuse.lock";
/// The two files of the table.
pub(crate) const TABLES: [&str; 2] = ["fuse.table-a", "fuse.table-b"];

/// Name of a node's descriptor, before the node's number.
const NODE: &str = "fuse.node.";

/// Name of a node's descriptor.
pub(crate) fn of_node(number: u64) -> String {
    format!("{NODE}{number}")
}

/// A process that holds descriptors by name for the next server of a mount. Calls take effect in their order.
pub trait Keep: Send + Sync + std::fmt::Debug {
    /// Holds a descriptor. One that had the name before is closed.
    ///
    /// # Errors
    /// The error that prevents it.
    fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Closes the descriptor of this name, if there is one.
    fn forget(&self, name: &str);
}

/// Descriptors of a former server of a mount, by the names that it gave to its [`Keep`].
#[derive(Debug, Default)]
pub struct Kept(HashMap<String, OwnedFd>);

impl FromIterator<(String, OwnedFd)> for Kept {
    fn from_iter<I: IntoIterator<Item = (String, OwnedFd)>>(kept: I) -> Self {
        Self(kept.into_iter().collect())
    }
}

impl Kept {
    /// The descriptor of a name.
    pub(crate) fn get(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.get(name).map(AsFd::as_fd)
    }

    /// Numbers of the nodes whose descriptors are there.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().filter_map(|name| name.strip_prefix(NODE)?.parse().ok())
    }

    /// Takes the descriptor of a name.
    pub(crate) fn take(&mut self, name: &str) -> Option<OwnedFd> {
        self.0.remove(name)
    }
}

/// State of a mount's survival: the next server can take it over when this process is killed.
#[derive(Debug)]
pub enum Surviving {
    /// Off: the options name no holder.
    Unwanted,
    /// On: the holder has all that a next server needs.
    Kept,
    /// Off although the options name a holder, for this reason. The mount ends with this process.
    Refused(io::Error),
}
