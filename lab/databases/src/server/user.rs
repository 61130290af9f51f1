//! The user that runs a server, because database servers refuse to run as root.

use crate::BenchError;
use rustix::fs::chown;
use rustix::process::{Gid, Uid};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The user of servers and of their files: this process's own, or one without rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    other: Option<(u32, u32)>,
}

impl Owner {
    /// The user of this process.
    pub fn own() -> Self {
        Self { other: None }
    }

    /// For root the user of this name, for other users they themselves.
    ///
    /// # Errors
    /// When root names a user that does not exist, or root itself.
    pub fn dropping(name: &str) -> Result<Self, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::own());
        }
        let passwd = Path::new("/etc/passwd");
        let text = std::fs::read_to_string(passwd).map_err(BenchError::at(passwd))?;
        let found = text.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then_some(())?;
            let mut numbers = fields.skip(1);
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        });
        let ids = found.filter(|&(user, _): &(u32, u32)| user != 0);
        Ok(Self { other: Some(ids.ok_or_else(|| BenchError::NoUser(name.to_owned()))?) })
    }

    /// Makes a command run as this user, with no groups but its own.
    pub fn applied<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some((user, group)) = self.other {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives a file or an empty directory to this user.
    ///
    /// # Errors
    /// The system's error.
    pub fn give(&self, path: &Path) -> Result<(), BenchError> {
        let Some((user, group)) = self.other else { return Ok(()) };
        let given = chown(path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        given.map_err(|error| BenchError::at(path)(error.into()))
    }

    /// Makes a directory that only this user may enter.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_directory(&self, path: &Path) -> Result<(), BenchError> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(path).map_err(BenchError::at(path))?;
        self.give(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_runs_no_server_as_itself_or_as_nobody_knows_whom() {
        if !rustix::process::geteuid().is_root() {
            entresol_skip::skipped!("root", "only root becomes another");
            return;
        }
        for name in ["root", "no-such-user"] {
            let error = Owner::dropping(name).expect_err("no user to run a server as");
            assert!(error.to_string().contains(name), "{error}");
        }
        let mut command = Command::new("id");
        Owner::dropping("nobody").expect("Debian has it").applied(command.arg("-u"));
        assert_ne!(command.output().expect("id").stdout, b"0\n");
    }
}
