//! Calls to the PFS in the name of a piece's owner.

use entresol_burst::Owner;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::io;

/// True if this process may act for every user.
pub(super) fn may_act_for_others() -> bool {
    geteuid().is_root()
}

/// The effective user and group of this thread, as long as the value lives: the file system then decides by the owner's rights
/// and quota. The real and saved ones stay root's, which is the way back.
pub(super) struct Acting {
    _private: (),
}

impl Acting {
    /// Acts for an owner. The thread keeps no supplementary groups, also afterwards.
    ///
    /// # Errors
    /// When the owner's numbers are those for "no change", or the system refuses; the thread is root's then.
    pub fn of(owner: Owner) -> io::Result<Acting> {
        if owner.uid == u32::MAX || owner.gid == u32::MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a user or group without a number"));
        }
        set_thread_groups(&[])?;
        // The group first: only root may change it.
        let acting = Acting { _private: () };
        set_thread_res_gid(None, Gid::from_raw(owner.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(owner.uid), None)?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let is_back =
            set_thread_res_uid(None, Uid::ROOT, None).and_then(|()| set_thread_res_gid(None, Gid::ROOT, None));
        if is_back.is_err() {
            // A thread of a user must not go on as a thread of the daemon.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getegid;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_belong_to_the_owner_and_the_thread_to_root_again() {
        if !may_act_for_others() {
            return entresol_skip::skipped!("root", "only root can be another user");
        }
        let work = || {
            let scratch = tempfile::tempdir().expect("a directory");
            let path = |name: &str| scratch.path().join(name);
            let owner = Owner { uid: 12_345, gid: 54_321 };
            let acting = Acting::of(owner).expect("root may");
            assert!(std::fs::write(path("refused"), b"").is_err(), "the directory is root's");
            drop(acting);
            rustix::fs::chmod(scratch.path(), 0o777.into()).expect("root may");
            let acting = Acting::of(owner).expect("root may");
            std::fs::write(path("file"), b"").expect("everybody may");
            assert!(rustix::process::getgroups().expect("groups").is_empty());
            drop(acting);
            let metadata = std::fs::metadata(path("file")).expect("it is there");
            assert_eq!((metadata.uid(), metadata.gid()), (12_345, 54_321));
            assert!(geteuid().is_root() && getegid().is_root());
            assert!(Acting::of(Owner { uid: u32::MAX, gid: 0 }).is_err() && geteuid().is_root());
        };
        // The groups of other tests' threads stay.
        std::thread::spawn(work).join().expect("it ends");
    }
}
