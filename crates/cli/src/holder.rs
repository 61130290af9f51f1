//! A command that serves a cache under a holder: the command becomes the holder, which starts the command again as its
//! server.

use crate::arguments::OnOff;
use anyhow::{Context, Result};
use clap::Args;
use entresol_hold::{Program, Server, Settings};
use entresol_service::holder::Holder;
use entresol_service::restart::{Front, can_restart};
use entresol_service::values::{Limit, seconds_or_none};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// A new start after a failure
#[derive(Args, Clone)]
pub struct RestartArgs {
    /// Start the process that serves the cache again if it is killed, crashes or hangs. Programs that use the cache see a
    /// pause, and lose nothing that was answered [default: on with a cache, where the system can do that]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub restart: Option<OnOff>,
    /// Time without a sign of life after which that process counts as hung, and is killed and replaced, where it is
    /// started again; none: never
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds_or_none)]
    pub restart_after: Limit,
}

impl RestartArgs {
    /// True if the command is to be a holder. Where nothing was asked for, that is so with a cache, unless something is
    /// against it, which is then said.
    pub fn is_on(&self, front: Front, cached: bool, quiet: bool) -> bool {
        if let Some(asked) = self.restart {
            return asked.is_on();
        }
        let against = can_restart(front);
        if let Err(why) = &against
            && cached
            && !quiet
        {
            say!("entresol: --restart off: {why:#}");
        }
        cached && against.is_ok()
    }

    /// True if that was asked for.
    pub fn is_wanted(&self) -> bool {
        self.restart.is_some_and(OnOff::is_on)
    }

    /// Becomes the holder of servers with this process's program and arguments, until their end for good. This process
    /// has no other threads.
    pub fn hold(&self) -> Result<ExitCode> {
        let program = Program::this().context("this program")?;
        let settings = Settings { watchdog: self.restart_after.0, ..Settings::default() };
        Ok(entresol_hold::run(program, settings))
    }

    /// Time between two signs of life: several fit into the silence that counts as a hang.
    pub fn beat(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        self.restart_after.0.map_or(LONGEST, |limit| (limit / 8).min(LONGEST))
    }
}

/// Role of this process.
pub enum Role {
    /// It was the holder, which has ended with this code.
    Holder(ExitCode),
    /// It serves, alone or for a holder.
    Server(Option<Arc<Holder>>),
}

/// Takes the role of this process: a server if a holder started it, else the holder if `is_on` says so. This process
/// has no other threads.
///
/// # Errors
/// If the holder is gone, or this program cannot be found.
pub fn role(server: Option<Server>, arguments: &RestartArgs, is_on: impl FnOnce() -> bool) -> Result<Role> {
    Ok(match server {
        Some(server) => Role::Server(Some(Holder::new(server)?)),
        None if is_on() => Role::Holder(arguments.hold()?),
        None => Role::Server(None),
    })
}
