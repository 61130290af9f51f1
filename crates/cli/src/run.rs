//! `entresol run`: runs a command that alone sees a directory through a cache.

use crate::arguments::{CacheArgs, FileArgs, HintArgs, OnOff};
use crate::holder::{RestartArgs, Role, role};
use crate::output::announce;
use anyhow::Result;
use clap::Args;
use entresol_hold::Server;
use entresol_service::mount::{DirectoryCache, FrontOptions};
use entresol_service::restart::Front;
use entresol_service::run::{RunOptions, is_holder, run_beside, run_over, serve};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};

/// Run a command that sees a directory through a cache
///
/// The directory is mounted over itself, in a namespace of the command's own. The command and its children see the
/// cached files at their usual place. All other processes see the files as they are, which no program should change
/// meanwhile. When the command and all processes that it left behind have ended, the cache is closed and the mount is
/// gone. The exit code is the command's, 128 and more if a signal ended it.
///
/// Signals are passed on. Without the right to mount this needs user namespaces, in which the command has the same
/// user.
#[derive(Args)]
pub struct RunArgs {
    /// The directory that the command sees through the cache
    #[arg(long, value_name = "DIR")]
    pub backing: PathBuf,
    /// The cache, which `entresol format` has made for the directory
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    #[command(flatten)]
    pub cached: CacheArgs,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub hints: HintArgs,
    /// Threads for requests that have to wait
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
    /// Use the kernel's page cache above the mount, as for any file system. The page cache answers reads of pages that
    /// it holds and reads ahead; the cache sees the rest. Files opened with O_DIRECT bypass the page cache
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub page_cache: OnOff,
    /// Let the kernel itself read and write files that bypass the cache. Needs Linux 6.9 and CAP_SYS_ADMIN. Otherwise
    /// this process reads and writes them
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub passthrough: OnOff,
    #[command(flatten)]
    pub restart: RestartArgs,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the command; returns the exit code to pass on. `server` is this process's end of a holder.
pub fn run(arguments: &RunArgs, server: Option<Server>, quiet: bool) -> Result<ExitCode> {
    if server.is_some() || is_holder() {
        return match role(server, &arguments.restart, || true)? {
            Role::Holder(code) => Ok(code),
            Role::Server(holder) => {
                serve(arguments.options(), holder.as_ref(), &announce, quiet).map(|()| ExitCode::SUCCESS)
            }
        };
    }
    let options = arguments.options();
    let is_on = arguments.restart.is_on(Front::Mount, true, quiet);
    let status = if is_on { run_beside(&options, quiet) } else { run_over(options, quiet) };
    status.map(|status| ExitCode::from(code(status)))
}

/// Exit code to pass on: 128 and more if a signal ended the command.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.map_or(u8::MAX, |code| code as u8)
}

impl RunArgs {
    fn options(&self) -> RunOptions {
        let (workers, page_cache) = (Some(self.workers), Some(self.page_cache.is_on()));
        RunOptions {
            backing: self.backing.clone(),
            cache: DirectoryCache {
                path: self.cache.clone(),
                options: self.cached.options(),
                files: self.files.options(),
                hints: self.hints.sources(),
            },
            front: FrontOptions { workers, page_cache, passthrough: self.passthrough.is_on() },
            beat: self.restart.beat(),
            command: self.command.clone(),
        }
    }
}
