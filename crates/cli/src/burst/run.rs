//! `entresol burst run`: a program over a directory of checkpoints that is there while the program runs.

use super::daemons::memory;
use super::mount::unmount;
use super::writers::BufferArgs;
use crate::run::code;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_burst::{JobId, Kind, NodeId, Owner, Policy, Redundancy};
use entresol_burst_fuse::Mount;
use entresol_burst_live::client::{Client, Files};
use entresol_burst_live::pfs::Directory;
use entresol_burst_live::{Claims, CoordinatorDaemon, CoordinatorSettings, Credential, Key, NodeDaemon, NodeSettings};
use entresol_render::NumberFormat;
use entresol_service::run::run_command;
use entresol_service::values::duration;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks at the buffers.
const PAUSE: Duration = Duration::from_millis(100);
/// Variable in the program's environment with the directory of checkpoints.
const DIRECTORY: &str = "ENTRESOL_BURST_DIR";

/// Run a program that writes checkpoints into a burst buffer
///
/// Mounts the directory of `burst mount`, runs the program with its path in ENTRESOL_BURST_DIR, and ends when the
/// program has ended and its checkpoints are on the parallel file system (PFS). With --memory the burst buffer is the
/// command's own, for programs on one machine: a checkpoint is in this process alone until it is drained, and --pfs may
/// be any slow directory. The exit code is the program's, 128 and more if a signal ended it. It is 2 if bytes of a
/// checkpoint did not reach the PFS, or if a program that ended well left the newest checkpoint incomplete. Signals are
/// passed on.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("buffers").required(true).args(["coordinator", "memory"]))]
pub struct BurstRunArgs {
    #[command(flatten)]
    pub buffer: BufferArgs,
    /// Memory of a burst buffer of the command's own, such as 4GiB
    #[arg(long, value_name = "SIZE", value_parser = memory, conflicts_with_all = ["node", "node_address", "ticket"])]
    pub memory: Option<u64>,
    /// Number of files of a checkpoint, the same at every mount of the job
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub files: u32,
    /// Directory of the checkpoints, an existing one [default: a new one]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Longest time to wait for the PFS when the program has ended: 90s, 15m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub time: Duration,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Burst buffer of one command: a coordinator and one node, on the loopback. They have a key, as other users of the machine can
/// reach them too.
struct OwnBuffer {
    _node: NodeDaemon,
    coordinator: CoordinatorDaemon,
    ticket: Credential,
    _state: tempfile::TempDir,
}

impl OwnBuffer {
    fn start(capacity: u64, job: JobId, pfs: Arc<Directory>) -> Result<OwnBuffer> {
        let listen = "127.0.0.1:0".to_owned();
        // Nothing of this buffer outlives the process, so its epoch need not either.
        let state = tempfile::tempdir().context("a temporary directory")?;
        let file = state.path().join("key");
        Key::create(&file).context("a key")?;
        let key = Key::load(&file)?;
        let owner = Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
        let claims = Claims::new(job, owner, u64::from(u32::MAX)).context("this user")?;
        let ticket = Credential::Ticket(key.ticket(claims));
        let key = Some(key);
        let mut settings = CoordinatorSettings::new(&listen, state.path().to_owned());
        settings.key.clone_from(&key);
        // One node has no partner.
        settings.policy = Policy { redundancy: Redundancy::None, ..Policy::new(Kind::Chunked) };
        settings.nodes = Some(1);
        let coordinator = CoordinatorDaemon::start(&settings).context("the coordinator")?;
        let address = coordinator.address().to_string();
        let settings = NodeSettings {
            node: NodeId(0),
            listen,
            advertise: None,
            coordinator: address,
            capacity,
            key,
            drain_rate: None,
        };
        let node = NodeDaemon::start(&settings, pfs).context("the node")?;
        Ok(OwnBuffer { _node: node, coordinator, ticket, _state: state })
    }
}

/// Runs the program; returns the exit code to pass on.
pub fn run(arguments: &BurstRunArgs, quiet: bool) -> Result<ExitCode> {
    // Before there are threads, which would get the signals else.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]).context("signals")?;
    let credential = arguments.buffer.credential()?;
    let pfs = arguments.buffer.directory(credential.as_ref())?;
    let own = |capacity| OwnBuffer::start(capacity, arguments.buffer.job(), Arc::clone(&pfs));
    let own = arguments.memory.map(own).transpose()?;
    let credential = own.as_ref().map(|own| own.ticket.clone()).or(credential);
    let own_address = own.as_ref().map(|own| own.coordinator.address().to_string());
    let coordinator = own_address.as_deref().or(arguments.buffer.coordinator.as_deref());
    let client = || arguments.buffer.client_of(coordinator, Arc::clone(&pfs), credential.clone());
    let made;
    let at = match &arguments.at {
        Some(at) => at.as_path(),
        None => {
            made = tempfile::Builder::new().prefix("entresol-burst-").tempdir().context("a temporary directory")?;
            made.path()
        }
    };
    let at = at.canonicalize().with_context(|| at.display().to_string())?;
    let files = Files::new(client(), Arc::clone(&pfs), arguments.buffer.job(), arguments.files).context("--files")?;
    let mount = Mount::start(Arc::new(files), &at).context("the mount")?;
    if !quiet {
        let memory = arguments
            .memory
            .map_or(String::new(), |bytes| format!(" in {} of memory", NumberFormat::Bytes.short(bytes as f64)));
        say!("entresol: job {} at {}{memory}", arguments.buffer.job, at.display());
    }
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).env(DIRECTORY, &at);
    let ran = run_command(&mut command, &mut signals);
    // Files that are still open here are of processes from outside.
    let unmounted = unmount(&mount, || false);
    drop(mount);
    let status = ran.with_context(|| arguments.command[0].display().to_string())?;
    unmounted?;
    let client = client();
    let in_buffers = wait_for_pfs(&client, arguments)?;
    let left = client.drain(arguments.buffer.job(), None, Duration::ZERO).context("the end of the drain")?;
    if !left.is_empty() && (in_buffers || status.success()) {
        bail!("the program has ended ({status}); not durable: {}", left.join("; "));
    }
    // A program that failed may have left a checkpoint half written.
    left.iter().for_each(|left| say!("entresol: {left}"));
    Ok(ExitCode::from(code(status)))
}

/// Waits until no byte of the job is in buffers alone; true if some are when the time has passed.
fn wait_for_pfs(client: &Client, arguments: &BurstRunArgs) -> Result<bool> {
    let begun = Instant::now();
    loop {
        let (states, missing) = client.list(arguments.buffer.job()).context("the end of the drain")?;
        let in_buffers = !missing.is_empty() || states.iter().any(|state| state.undrained > 0);
        if !in_buffers || begun.elapsed() >= arguments.time {
            return Ok(in_buffers);
        }
        std::thread::sleep(PAUSE);
    }
}
