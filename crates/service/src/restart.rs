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
}

/// Checks that a server of this kind can be started again on this system.
///
/// # Errors
/// The reason why it cannot.
pub fn can_restart(front: Front) -> Result<()> {
    if front == Front::Mount {
        kernel_sends_again()?;
    }
    Program::this().and_then(|program| program.open()).context("this program")?;
    memfd_create("probe", MemfdFlags::CLOEXEC).context("memory that outlives a process")?;
    Ok(())
}

/// Fails if this kernel does not send a mount's requests again.
fn kernel_sends_again() -> Result<()> {
    let release = read_to_string("/proc/sys/kernel/osrelease").context("the release of this kernel")?;
    let release = release.trim();
    if !sends_again(release) {
        bail!("Linux {release} does not send requests again (6.9 does)");
    }
    Ok(())
}

/// True for the release of a Linux that sends the requests of a killed server again.
fn sends_again(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_send_requests_again_are_known_by_their_release() {
        for (release, expected) in [
            ("6.8.12-generic", false),
            ("6.9.0", true),
            ("6.18.3+deb14", true),
            ("6.9-rc1", true),
            ("7.0.0", true),
            ("5.15.0", false),
            ("", false),
        ] {
            assert_eq!(sends_again(release), expected, "{release}");
        }
    }
}
