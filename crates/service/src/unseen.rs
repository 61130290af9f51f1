//! Processes whose files this user may not see, as far as they could write to a backing store.
//!
//! An ordinary user sees the open files of its own processes alone. `/proc/PID/status` shows to everybody the users and
//! groups of the other processes, and so whether these could write there at all. Root always could; its servers are
//! found by their `postmaster.pid` and their locks, which everybody can see.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Processes that are named at most; the others are counted.
const NAMED_MAX: usize = 3;

/// User and groups of a process, from its `status`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Identity {
    user: u32,
    groups: Vec<u32>,
}

impl Identity {
    fn parse(status: &str) -> Option<Self> {
        let numbers = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
        };
        // Real, effective, saved and file-system IDs; the last of them counts here.
        let (users, group) = (numbers("Uid:")?, numbers("Gid:")?);
        let groups = [numbers("Groups:").unwrap_or_default(), group.last().copied().into_iter().collect()].concat();
        Some(Identity { user: *users.last()?, groups })
    }

    /// True if the process may write a file or a directory with these attributes.
    ///
    /// Always false for root, which could always write and is judged elsewhere.
    fn may_write(&self, found: &Metadata) -> bool {
        let bit = if found.uid() == self.user {
            0o200
        } else if self.groups.contains(&found.gid()) {
            0o020
        } else {
            0o002
        };
        self.user != 0 && found.mode() & bit != 0
    }
}

/// True if this process, whose files may not be seen, could write to a file with these attributes.
///
/// False for a process that has ended.
pub fn could_write(process: u32, found: &Metadata) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.ok().and_then(|status| Identity::parse(&status)).is_some_and(|identity| identity.may_write(found))
}

/// Why no processes of others can be seen at all; none if they can, or if others could not write with these attributes.
pub fn blindness(found: &Metadata) -> Option<&'static str> {
    let others = found.mode() & 0o022 != 0 || found.uid() != rustix::process::geteuid().as_raw();
    hidden().filter(|_| others)
}

/// Why no processes of others can be seen at all; none if they can.
pub fn hidden() -> Option<&'static str> {
    if !Path::new("/proc/self/fd").exists() {
        Some("there is no /proc here")
    } else if !Path::new("/proc/1").exists() {
        Some("/proc hides processes of other users (hidepid)")
    } else {
        None
    }
}

/// A list of processes by number and name.
pub fn list(processes: &[u32], named: impl Fn(u32) -> String) -> String {
    let first = processes.iter().take(NAMED_MAX).map(|&process| format!("process {process}{}", named(process)));
    let mut parts: Vec<String> = first.collect();
    if let Some(more) = processes.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_the_identity_of_its_file_system() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t9 10 \n";
        assert_eq!(Identity::parse(status), Some(Identity { user: 4, groups: vec![9, 10, 8] }));
        assert_eq!(Identity::parse("Name:\tx\n"), None);
    }

    #[test]
    fn who_may_write_is_the_owner_the_group_or_others_by_the_first_that_fits() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().expect("a file");
        let found = |mode| {
            fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).expect("a mode");
            fs::metadata(file.path()).expect("its attributes")
        };
        let (owner, group) = (found(0o600).uid(), found(0o600).gid());
        let of = |user, groups: &[u32]| Identity { user, groups: groups.to_vec() };
        let other = of(owner + 7, &[group + 7]);
        assert!(other.may_write(&found(0o602)) && !other.may_write(&found(0o660)));
        let member = of(owner + 7, &[group + 7, group]);
        assert!(member.may_write(&found(0o620)) && !member.may_write(&found(0o602)));
        assert!(!of(0, &[0]).may_write(&found(0o666)), "of root nothing is said");
        if owner != 0 {
            assert!(of(owner, &[]).may_write(&found(0o200)) && !of(owner, &[]).may_write(&found(0o062)));
        }
    }

    #[test]
    fn a_few_processes_are_named_and_more_are_counted() {
        let named = |process| format!(" (p{process})");
        assert_eq!(list(&[1, 2], named), "process 1 (p1), process 2 (p2)");
        assert_eq!(list(&[1, 2, 3, 4, 5], named), "process 1 (p1), process 2 (p2), process 3 (p3), 2 more");
    }
}
