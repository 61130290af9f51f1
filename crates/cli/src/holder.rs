//! A command that serves a cache under a holder: the command becomes the holder, which starts the command again as its
//! server.

use anyhow::{Context, Result};
use clap::Args;
use entresol_hold::{Program, Server, Settings};
use entresol_service::holder::Holder;
use entresol_service::values::OnOff;
use std::process::ExitCode;
use std::sync::Arc;

/// A new start after a failure
#[derive(Args)]
pub struct RestartArgs {
    /// Start the server again if it is killed, crashes or hangs. Programs that use the cache see a pause, and lose
    /// nothing that was answered
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "off")]
    pub restart: OnOff,
}

/// Role of this process.
pub enum Role {
    /// It was the holder, which has ended with this code.
    Holder(ExitCode),
    /// It serves, alone or for a holder.
    Server(Option<Arc<Holder>>),
}

/// Takes the role of this process: a server if a holder started it, else the holder if one is asked for. This process
/// has no other threads.
///
/// # Errors
/// If the holder is gone, or this program cannot be found.
pub fn role(server: Option<Server>, arguments: &RestartArgs) -> Result<Role> {
    Ok(match server {
        Some(server) => Role::Server(Some(Holder::new(server)?)),
        None if arguments.restart == OnOff::On => {
            let program = Program::this().context("this program")?;
            Role::Holder(entresol_hold::run(program, Settings::default()))
        }
        None => Role::Server(None),
    })
}
