//! `entresol burst put`, `ls`, `restore` and `drain`: the commands of the programs that write checkpoints.

use super::access::{administrator, key_file, user};
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::Credential;
use entresol_burst_live::client::{CheckpointState, Client, ClientSettings, PATIENCE};
use entresol_burst_live::pfs::Directory;
use entresol_render::{Cell, Column, NumberFormat, Table, TextStyle};
use entresol_service::values::duration;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The burst buffer that a command uses.
#[derive(Args)]
pub struct BufferArgs {
    /// Address of the coordinator [default: none; bytes go to the PFS and come from there]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub coordinator: Option<String>,
    /// Address of a node to ask where the coordinator cannot be; may be given several times
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub node_address: Vec<String>,
    /// Number of the node on which this command runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub node: u32,
    /// Directory on the parallel file system (PFS)
    #[arg(long, value_name = "DIR")]
    pub pfs: PathBuf,
    /// Number of the job
    #[arg(long, value_name = "N")]
    pub job: u64,
    /// File with a ticket for the job, if the cluster has a key [default: $ENTRESOL_BURST_TICKET]
    #[arg(long, value_name = "FILE")]
    pub ticket: Option<PathBuf>,
}

/// The key of an administrator, for commands that read alone.
#[derive(Args)]
pub struct AdministratorArgs {
    /// File with the key of the cluster, for administrators, in place of a ticket [default: $ENTRESOL_BURST_KEY]
    #[arg(long, value_name = "FILE", conflicts_with = "ticket")]
    pub key: Option<PathBuf>,
}

impl BufferArgs {
    /// The directory on the PFS. With a ticket, the folder of the job is for its owner alone.
    pub fn directory(&self, credential: Option<&Credential>) -> Result<Arc<Directory>> {
        let pfs = Directory::open(&self.pfs).with_context(|| format!("--pfs {}", self.pfs.display()))?;
        Ok(Arc::new(if matches!(credential, Some(Credential::Ticket(_))) { pfs.into_private() } else { pfs }))
    }

    /// The credential of a user.
    pub fn credential(&self) -> Result<Option<Credential>> {
        user(self.ticket.as_deref(), self.job)
    }

    /// A client that reaches the PFS by this directory.
    pub fn client_at(&self, pfs: Arc<Directory>, credential: Option<Credential>) -> Client {
        self.client_of(self.coordinator.as_deref(), pfs, credential)
    }

    /// A client of a coordinator.
    pub fn client_of(&self, coordinator: Option<&str>, pfs: Arc<Directory>, credential: Option<Credential>) -> Client {
        let settings = ClientSettings {
            coordinator: coordinator.map(str::to_owned),
            nodes: self.node_address.clone(),
            node: NodeId(self.node),
            patience: PATIENCE,
            credential,
        };
        Client::new(settings, pfs)
    }

    /// The client of a user.
    fn client(&self) -> Result<Client> {
        self.client_with(self.credential()?)
    }

    /// The client of a user, or of an administrator. What is given on the command line goes before the environment, and a ticket
    /// before the key.
    fn client_or(&self, administrators: &AdministratorArgs) -> Result<Client> {
        if let Some(file) = &administrators.key {
            return self.client_with(administrator(Some(file))?);
        }
        match self.credential()? {
            Some(ticket) => self.client_with(Some(ticket)),
            None => self.client_with(administrator(key_file(None).as_deref())?),
        }
    }

    fn client_with(&self, credential: Option<Credential>) -> Result<Client> {
        Ok(self.client_at(self.directory(credential.as_ref())?, credential))
    }

    /// The job.
    pub fn job(&self) -> JobId {
        JobId(self.job)
    }
}

/// Store a file as one rank's part of a checkpoint
///
/// The command ends when the bytes are stored, and prints their safety: absorbed (in the memory of one node), replicated
/// (of two nodes) or durable (on the PFS), and the media. Where buffers have no space or do not answer, the bytes go to
/// the PFS.
#[derive(Args)]
pub struct PutArgs {
    #[command(flatten)]
    pub buffer: BufferArgs,
    /// Number of the checkpoint: a newer one has a higher number
    #[arg(long, value_name = "N")]
    pub checkpoint: u64,
    /// The rank, from 0
    #[arg(long, value_name = "N")]
    pub rank: u32,
    /// Number of ranks: the checkpoint is complete when all have stored their parts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,
    /// The file
    pub file: PathBuf,
}

/// List the checkpoints of a job
///
/// A complete checkpoint is absorbed, replicated or durable, as its weakest part is. One of which parts are missing is
/// incomplete.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub buffer: BufferArgs,
    #[command(flatten)]
    pub administrator: AdministratorArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Restore one rank's part of the newest complete checkpoint
///
/// Bytes come from the memory of this node, of other nodes, or from the PFS. The checksum of every chunk is compared,
/// and a chunk that is damaged in one source is taken from another.
#[derive(Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub buffer: BufferArgs,
    #[command(flatten)]
    pub administrator: AdministratorArgs,
    /// The checkpoint [default: the newest complete one]
    #[arg(long, value_name = "N")]
    pub checkpoint: Option<u64>,
    /// The rank, from 0
    #[arg(long, value_name = "N")]
    pub rank: u32,
    /// The file to write; an existing one is replaced when all bytes are there
    pub output: PathBuf,
}

/// Wait until the checkpoints of a job are durable on the PFS
///
/// The exit code is 0 if they are, and 2 if the time has passed; the command says what is left then.
#[derive(Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub buffer: BufferArgs,
    #[command(flatten)]
    pub administrator: AdministratorArgs,
    /// The checkpoint [default: all]
    #[arg(long, value_name = "N")]
    pub checkpoint: Option<u64>,
    /// Longest time to wait: 90s, 15m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub time: Duration,
}

/// Stores a file.
pub fn put(arguments: &PutArgs) -> Result<()> {
    let bytes = std::fs::read(&arguments.file).with_context(|| arguments.file.display().to_string())?;
    let checkpoint = CheckpointId(arguments.checkpoint);
    let object = Object { job: arguments.buffer.job(), checkpoint, rank: arguments.rank };
    let acknowledged = arguments.buffer.client()?.put(object, arguments.ranks, &bytes)?;
    for failure in &acknowledged.failures {
        say!("entresol: tried again: {failure}");
    }
    let mut by_media: BTreeMap<String, u64> = BTreeMap::new();
    for part in &acknowledged.parts {
        *by_media.entry(part.media.join(" and ")).or_default() += part.bytes;
    }
    let size = |bytes: u64| NumberFormat::Bytes.short(bytes as f64);
    let media: Vec<String> = by_media.iter().map(|(media, &bytes)| format!("{} in {media}", size(bytes))).collect();
    output::print(&format!("{}: {}\n", acknowledged.level.name(), media.join(", ")))
}

/// Lists the checkpoints of a job.
pub fn list(arguments: &ListArgs) -> Result<()> {
    let (states, warnings) = arguments.buffer.client_or(&arguments.administrator)?.list(arguments.buffer.job())?;
    if arguments.json {
        let states: Vec<_> = states.iter().map(state_json).collect();
        let printed = json!({"job": arguments.buffer.job, "checkpoints": states, "unreachable": warnings});
        return output::print(&(serde_json::to_string_pretty(&printed)? + "\n"));
    }
    warnings.iter().for_each(|warning| say!("entresol: {warning}"));
    let columns = [
        Column::number("checkpoint"),
        Column::text("state"),
        Column::number("ranks"),
        Column::number("size"),
        Column::number("undrained"),
    ];
    let mut table = Table::new("Checkpoints", columns);
    let size = |bytes: u64| Cell::short(bytes as f64, NumberFormat::Bytes);
    for state in &states {
        let ranks = format!("{} of {}", state.whole, state.ranks);
        let (number, name) = (state.checkpoint.0.to_string(), state.state.name());
        table.push([
            number.as_str().into(),
            name.into(),
            ranks.as_str().into(),
            size(state.bytes),
            size(state.undrained),
        ]);
    }
    output::print(&table.to_text(TextStyle::stdout()))
}

fn state_json(state: &CheckpointState) -> serde_json::Value {
    json!({
        "checkpoint": state.checkpoint.0,
        "state": state.state.name(),
        "ranks": state.ranks,
        "whole_ranks": state.whole,
        "bytes": state.bytes,
        "undrained_bytes": state.undrained,
    })
}

/// Restores one rank's part.
pub fn restore(arguments: &RestoreArgs, quiet: bool) -> Result<()> {
    let checkpoint = arguments.checkpoint.map(CheckpointId);
    let client = arguments.buffer.client_or(&arguments.administrator)?;
    let restored = client.restore(arguments.buffer.job(), checkpoint, arguments.rank)?;
    restored.warnings.iter().for_each(|warning| say!("entresol: {warning}"));
    output::write_file(&arguments.output, &restored.bytes)?;
    let mut sources: Vec<&str> = restored.chunks.iter().map(|chunk| chunk.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    match quiet {
        true => Ok(()),
        false => output::print(&format!("checkpoint {} from {}\n", restored.checkpoint.0, sources.join(", "))),
    }
}

/// Waits until all is durable.
pub fn drain(arguments: &DrainArgs) -> Result<()> {
    let client = arguments.buffer.client_or(&arguments.administrator)?;
    let left = client.drain(arguments.buffer.job(), arguments.checkpoint.map(CheckpointId), arguments.time)?;
    match left.is_empty() {
        true => Ok(()),
        false => bail!("not durable: {}", left.join("; ")),
    }
}
