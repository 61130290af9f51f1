//! Requests that a killed server left without an outcome: the directory tells whether they were carried out.

use crate::keep::{Kept, of_node};
use crate::mutant::{Mutant, is};
use crate::nodes::{ROOT, path_of};
use crate::table::{Change, Former, Image, Place};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// The directory as it is, by the names of the table.
struct Found<'a> {
    root: BorrowedFd<'a>,
    kept: &'a Kept,
    image: &'a Image,
}

impl Found<'_> {
    /// Opens a node with `O_PATH`. Another file at its name is ESTALE.
    fn open(&self, number: u64) -> rustix::io::Result<OwnedFd> {
        if number == ROOT {
            return rustix::io::fcntl_dupfd_cloexec(self.root, 0);
        }
        let node = self.image.nodes.get(&number).ok_or(Errno::STALE)?;
        if let Some(place) = self.kept.get(&of_node(number)).filter(|_| node.kept) {
            return rustix::io::fcntl_dupfd_cloexec(place, 0);
        }
        let path = node.place.as_ref().and_then(|place| path_of(self.image, place)).ok_or(Errno::STALE)?;
        let (flags, mut at) = (OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, None);
        for name in &path {
            let next = match &at {
                None => rustix::fs::openat(self.root, name, flags, Mode::empty())?,
                Some(at) => rustix::fs::openat(at, name, flags, Mode::empty())?,
            };
            at = Some(next);
        }
        let at = at.ok_or(Errno::STALE)?;
        if rustix::fs::fstat(&at)?.st_ino == number { Ok(at) } else { Err(Errno::STALE) }
    }

    /// Number of the file at a place; 0 for none.
    fn number_at(&self, (parent, name): &Place) -> rustix::io::Result<u64> {
        let parent = self.open(*parent)?;
        match rustix::fs::statat(&parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(stat.st_ino),
            Err(Errno::NOENT) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn has_attribute(&self, number: u64, name: &[u8]) -> rustix::io::Result<bool> {
        let place = self.open(number)?;
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        match rustix::fs::getxattr_query(path, OsStr::from_bytes(name)) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True if a change was made. While a request is under way, the kernel lets no other change these names.
    fn was_made(&self, change: &Change) -> rustix::io::Result<bool> {
        Ok(match change {
            Change::Make { at, before } => *before == 0 && self.number_at(at)? != 0,
            Change::Remove { at, before } => *before != 0 && self.number_at(at)? != *before,
            Change::Rename { from, to, moved, replaced, .. } => {
                *moved != 0 && moved != replaced && self.number_at(to)? == *moved && self.number_at(from)? != *moved
            }
            Change::Attribute { node, name, set, before } => {
                *before != *set && self.has_attribute(*node, name)? == *set
            }
        })
    }
}

/// Finds out which requests without an outcome were carried out, and enters that.
pub(super) fn settle(former: &mut Former, root: BorrowedFd<'_>, kept: &Kept) {
    let open = |image: &Image| {
        let open = image.requests.iter().filter(|(_, entered)| entered.outcome.is_none());
        open.map(|(&unique, entered)| (unique, entered.change.clone())).collect::<Vec<_>>()
    };
    // A directory that was renamed may be the place of another change: names that are known now lead to it.
    loop {
        let image = &former.image;
        let found = Found { root, kept, image };
        let made = open(image).into_iter().filter(|(_, change)| found.was_made(change) == Ok(true));
        let made: Vec<u64> = made.map(|(unique, _)| unique).collect();
        if made.is_empty() || is(Mutant::NotCompared) {
            return;
        }
        made.into_iter().for_each(|unique| former.carried_out(unique));
    }
}
