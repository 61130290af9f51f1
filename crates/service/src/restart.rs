//! Conditions under which a server can be started again without an error to those whom it serves.

use anyhow::{Context, Result, bail};
use entresol_hold::Program;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::read_to_string;

/// Front-end of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A file system of the kernel's.
    Mount,
    /// Sockets, whose clients connect again.
    Sockets,
    /// A block device of the kernel's.
    Block,
}

/// Checks that a server of this kind can be started again on this system.
///
/// # Errors
/// The reason why it cannot.
pub fn can_restart(front: Front) -> Result<()> {
    match front {
        Front::Mount => kernel_is_since((6, 9), "send requests again")?,
        // Before, a kill in the middle of a recovery left a device that no other server could take over.
        Front::Block => kernel_is_since((6, 15), "recover a block device of a killed server whatever comes between")?,
        Front::Sockets => {}
    }
    Program::this().and_then(|program| program.open()).context("this program")?;
    memfd_create("probe", MemfdFlags::CLOEXEC).context("memory that outlives a process")?;
    Ok(())
}

/// Fails if this kernel is older than a release, the first that does what is said.
fn kernel_is_since((major, minor): (u32, u32), does: &str) -> Result<()> {
    let release = read_to_string("/proc/sys/kernel/osrelease").context("the release of this kernel")?;
    let release = release.trim();
    if numbers(release) < (major, minor) {
        bail!("Linux {release} does not {does} ({major}.{minor} does)");
    }
    Ok(())
}

/// The first two numbers of a release of Linux.
fn numbers(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_known_by_their_release() {
        for (release, expected) in [
            ("6.8.12-generic", (6, 8)),
            ("6.9.0", (6, 9)),
            ("6.18.3+deb14", (6, 18)),
            ("6.9-rc1", (6, 9)),
            ("7.0.0", (7, 0)),
            ("5.15.0", (5, 15)),
            ("", (0, 0)),
        ] {
            assert_eq!(numbers(release), expected, "{release}");
        }
        let refused = kernel_is_since((999, 0), "do that").expect_err("it is older");
        assert!(refused.to_string().ends_with("does not do that (999.0 does)"), "{refused}");
    }
}
