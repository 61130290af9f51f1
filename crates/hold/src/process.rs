//! The program of a server, and a process that runs it.

use crate::notify::VARIABLES;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;

/// The environment variable with the number of the socket to the holder.
pub const SOCKET: &str = "ENTRESOL_HOLDER";
/// The environment variable that is `1` for a standby.
pub const STANDBY: &str = "ENTRESOL_STANDBY";

/// A program, as a server of which it is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// Path of its executable, which is not looked up in `PATH`. It is opened at the start and at each upgrade.
    pub path: PathBuf,
    /// Name that it is called by: its argument 0.
    pub name: OsString,
    /// Its other arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This process's program and arguments.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn this() -> io::Result<Self> {
        let path = std::env::current_exe()?;
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| path.clone().into());
        Ok(Program { path, name, arguments: arguments.collect() })
    }

    /// The executable that is at the path now.
    pub fn open(&self) -> io::Result<Image> {
        Ok(Rc::new(open(&self.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Starts a process of this program, whose executable is `image`, with at most `files` open files. Its socket is
    /// returned with it.
    pub fn spawn(&self, image: &Image, is_standby: bool, files: Rlimit) -> io::Result<(Child, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()));
        command.arg0(&self.name).args(&self.arguments).process_group(0);
        for name in [STANDBY].iter().chain(&VARIABLES) {
            command.env_remove(name);
        }
        command.env(SOCKET, theirs.as_raw_fd().to_string());
        if is_standby {
            command.env(STANDBY, "1");
        }
        let prepare = move || {
            fcntl_setfd(&theirs, FdFlags::empty())?;
            Ok(setrlimit(Resource::Nofile, files)?)
        };
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        let child = unsafe { command.pre_exec(prepare) }.spawn()?;
        Ok((child, ours))
    }
}

/// An executable, by a descriptor that stays the same file when another one is put at its path.
pub type Image = Rc<OwnedFd>;
