//! `entresol probe`: measures a file system, a block device or a device model.

mod report;

use crate::journal::Journal;
use crate::output;
use crate::trace_source;
use crate::trace_source::ReadArgs;
use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgGroup, Args, ValueEnum};
use entresol_device::profile::{self, Profile};
use entresol_probe::{
    Document, Engine, Environment, Experiment, Measured, ModelTarget, Noise, Outcome, RealOptions, RealTarget,
    Replayed, SCHEMA, Session, Setup, Target, TargetError, Use,
};
use entresol_render::{Progress, Unit};
use entresol_service::values::bytes;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit code of a run that the user stopped, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// Bytes measured of a model without a capacity of its own, unless a size is given.
const MODEL_BYTES: u64 = 1 << 30;
/// Share of the I/Os and of the time of each measured point that `--quick` keeps.
const QUICK: f64 = 0.1;
/// Most bytes of a directory or a device that `--quick` measures, unless a size is given.
const QUICK_BYTES: u64 = 1 << 30;

/// Measure a file system, a block device or a device model, and write its profile
///
/// In a directory the probe measures a nameless file of its own, which disappears however the probe ends. A block
/// device loses its contents, and is touched only if its serial number is given. The results form a device profile for
/// `simulate --tiers`: give the file of --json or --profile instead of a profile's name.
#[derive(Args)]
#[command(group = ArgGroup::new("target").required(true).args(["directory", "device", "model"]))]
pub struct ProbeArgs {
    /// Directory on the file system to measure
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Block device to measure, whose contents are destroyed
    #[arg(long, value_name = "BLOCKDEV", requires = "destroy")]
    pub device: Option<PathBuf>,
    /// The serial number of the device, to confirm the choice; for a loop device the path of its file
    #[arg(long, value_name = "SERIAL", requires = "device")]
    pub destroy: Option<String>,
    /// Profile of a device model to measure in virtual time: a name or a file
    #[arg(long, value_name = "PROFILE")]
    pub model: Option<String>,
    /// Experiments, separated by commas, or all; the experiments that they depend on run first
    #[arg(long, short, value_delimiter = ',', default_value = "all", value_name = "LIST")]
    pub experiments: Vec<String>,
    /// Print the planned reads, writes, longest duration and wear, and run nothing
    #[arg(long)]
    pub plan: bool,
    /// Bytes to measure [default: of a directory a tenth of the free space rounded down to a power of two, at most 4
    /// GiB; of a device all; of a model 1 GiB or its capacity]
    #[arg(long, short, value_name = "SIZE", value_parser = bytes)]
    pub size: Option<u64>,
    /// Take a tenth of the time for each measured point, and at most 1 GiB unless --size is given
    #[arg(long)]
    pub quick: bool,
    /// Continue through the page cache if the file system has no direct I/O
    #[arg(long, conflicts_with = "model")]
    pub buffered: bool,
    /// Interface for I/O to the kernel
    #[arg(long, default_value = "auto", value_name = "WAY", conflicts_with = "model")]
    pub io: Io,
    /// Trace that the experiment `replay` replays [default: a synthetic mix]
    #[arg(long, value_name = "TRACE")]
    pub trace: Option<PathBuf>,
    /// Bytes a second that the cache will write, day and night, for the advice on lifetime
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "endurance")]
    pub write_rate: Option<u64>,
    /// Bytes that may be written to the medium before it wears out, such as 150TB, for the advice on lifetime
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "write_rate")]
    pub endurance: Option<u64>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Continue an interrupted probe with the same arguments
    #[arg(long, requires = "json", conflicts_with = "plan")]
    pub resume: bool,
    /// Write all measurements and the profile to this file
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub json: Option<PathBuf>,
    /// Write a report with charts to this file: one page, readable without a network
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub html: Option<PathBuf>,
    /// Write the profile alone to this file, as TOML
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub profile: Option<PathBuf>,
}

/// Interface that carries I/O to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// io_uring if the kernel supports it, else threads
    Auto,
    /// io_uring
    Uring,
    /// A thread for each outstanding I/O
    Threads,
}

/// True if the user stopped the run.
pub fn is_interruption(error: &anyhow::Error) -> bool {
    matches!(error.root_cause().downcast_ref(), Some(TargetError::Interrupted))
}

/// Target of the measurement, as the command line names it.
enum Place<'a> {
    Directory(&'a Path),
    Device(&'a Path, &'a str),
    Model(Box<Profile>),
}

impl<'a> Place<'a> {
    fn of(arguments: &'a ProbeArgs) -> Result<Self> {
        match (&arguments.directory, &arguments.device, &arguments.destroy, &arguments.model) {
            (Some(directory), None, _, None) => Ok(Place::Directory(directory)),
            (None, Some(device), Some(serial), None) => Ok(Place::Device(device, serial)),
            (None, None, _, Some(model)) => Ok(Place::Model(Box::new(profile::load(model)?))),
            _ => bail!("a directory, --device with --destroy, or --model is needed"),
        }
    }

    /// Bytes that are measured, and bytes over which writes spread.
    fn size(&self, arguments: &ProbeArgs) -> Result<(u64, u64)> {
        let quick = |all: u64| arguments.size.or((arguments.quick && all > QUICK_BYTES).then_some(QUICK_BYTES));
        match self {
            Place::Directory(directory) => {
                let all = RealTarget::size_in_directory(directory, arguments.size)?;
                let bytes = RealTarget::size_in_directory(directory, quick(all))?;
                Ok((bytes, bytes))
            }
            Place::Device(device, serial) => {
                let (_, all) = RealTarget::size_of_device(device, serial, arguments.size)?;
                Ok((RealTarget::size_of_device(device, serial, quick(all))?.0, all))
            }
            Place::Model(profile) => {
                let device = profile.build(arguments.size.unwrap_or(1), arguments.seed)?;
                // A device with a capacity of its own is measured as it is.
                let own = device.capacity_bytes();
                let all = if own > arguments.size.unwrap_or(1) { own } else { arguments.size.unwrap_or(MODEL_BYTES) };
                Ok((arguments.size.unwrap_or(all), all))
            }
        }
    }

    /// Opens the target; also returns its description.
    fn open(
        &self,
        size: u64,
        arguments: &ProbeArgs,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<(Box<dyn Target>, Measured)> {
        let options = RealOptions {
            size: Some(size),
            buffered: arguments.buffered,
            engine: match arguments.io {
                Io::Auto => Engine::Auto,
                Io::Uring => Engine::Uring,
                Io::Threads => Engine::Threads,
            },
            interrupted: interrupted.clone(),
        };
        let real = match self {
            Place::Directory(directory) => RealTarget::in_directory(directory, &options)?,
            Place::Device(device, serial) => RealTarget::block_device(device, serial, &options)?,
            Place::Model(profile) => {
                let target = ModelTarget::of_profile(profile, size, arguments.seed)?;
                let measured = Measured::of(&target, Vec::new());
                return Ok((Box::new(target), measured));
            }
        };
        let measured = Measured::of(&real, real.caveats());
        Ok((Box::new(real), measured))
    }

    fn is_model(&self) -> bool {
        matches!(self, Place::Model(_))
    }
}

/// Runs the command.
pub fn run(arguments: &ProbeArgs, quiet: bool) -> Result<()> {
    let experiments = entresol_probe::selection(arguments.experiments.iter().map(|name| name.trim()))?;
    let place = Place::of(arguments)?;
    let (size, wears) = place.size(arguments)?;
    let setup = setup(arguments, size, quiet)?;
    if arguments.plan {
        return output::print(&report::plan(&experiments, &setup, wears, place.is_model()));
    }
    let outputs = [&arguments.json, &arguments.html, &arguments.profile];
    outputs.into_iter().flatten().try_for_each(|path| output::check_writable(path))?;
    let (document, journal) = measure(arguments, &place, &experiments, &setup, quiet)?;
    write(arguments, &document)?;
    // Removed only now, so that results that could not be written are not lost.
    journal.finish()?;
    output::print(&report::text(&document))?;
    write_profile(arguments, &document)
}

fn setup(arguments: &ProbeArgs, size: u64, quiet: bool) -> Result<Setup> {
    let mut setup = Setup::new(size);
    if arguments.quick {
        setup = Setup { overwrites: 1.0, ..setup.scaled(QUICK) };
    }
    if let Some(path) = &arguments.trace {
        setup.trace = Some(replayed(path, size, quiet)?);
    }
    Ok(setup)
}

/// The requests of a trace as I/Os on the first `size` bytes: pages keep their number, modulo the size.
fn replayed(path: &Path, size: u64, quiet: bool) -> Result<Vec<Replayed>> {
    let read = ReadArgs {
        format: None,
        page_size: None,
        split: Default::default(),
        skip_bad: 0,
        keep_logs: false,
        limit: None,
    };
    let trace = trace_source::open(path, &read, false, quiet)?.trace;
    let page = u64::from(trace.page_bytes);
    let pages = size / page;
    if pages == 0 {
        bail!("{}: its pages of {page} B are larger than the {size} B measured", path.display());
    }
    let requests = (0..trace.len()).map(|at| trace.request(at));
    let io = |request: entresol_core::Request| Replayed {
        offset: u64::from(request.page.0) % pages * page,
        bytes: trace.page_bytes,
        is_write: request.op.is_write(),
    };
    Ok(requests.map(io).collect())
}

/// Settings that must be equal for one probe to continue another, as JSON text.
fn fingerprint(arguments: &ProbeArgs, setup: &Setup) -> Result<String> {
    let target = (&arguments.directory, &arguments.device, &arguments.model);
    let bare = Setup { trace: None, ..setup.clone() };
    let ways = (arguments.buffered, format!("{:?}", arguments.io));
    let version = env!("CARGO_PKG_VERSION");
    Ok(serde_json::to_string(&("probe", version, SCHEMA, target, &arguments.trace, bare, ways, arguments.seed))?)
}

fn measure(
    arguments: &ProbeArgs,
    place: &Place<'_>,
    experiments: &[&'static Experiment],
    setup: &Setup,
    quiet: bool,
) -> Result<(Document, Journal<Outcome>)> {
    let fingerprint = fingerprint(arguments, setup)?;
    let mut journal = match arguments.resume {
        true => Journal::open(arguments.json.as_deref(), &fingerprint)?,
        false => Journal::anew(arguments.json.as_deref(), &fingerprint),
    };
    if let (true, 0, Some(path)) = (arguments.resume, journal.len(), journal.path()) {
        bail!(
            "{}: there is no interrupted probe of the same target, size, seed and version to continue",
            path.display()
        );
    }
    let interrupted = on_signal()?;
    let (target, measured) = place.open(setup.working_set_bytes, arguments, &interrupted)?;
    let mut ready = Some(target);
    let reopen = || place.open(setup.working_set_bytes, arguments, &interrupted).map(|(target, _)| target);
    // A target that was opened before and is refused now has changed; the reason is reported like any other.
    let refused = |error: anyhow::Error| TargetError::Refused {
        target: measured.description.clone(),
        what: format!("{error:#}"),
    };
    let open = Box::new(|| ready.take().map_or_else(|| reopen().map_err(refused), Ok));
    let mut session = Session::new(open, setup.clone(), arguments.seed, place.is_model(), interrupted.clone());

    let bar = Bar::new(experiments, setup, quiet);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (done, experiment) in experiments.iter().enumerate() {
        bar.begin(experiment);
        let outcome = match journal.take(experiment.name) {
            Some(outcome) => outcome,
            None => {
                let measured = session.measure(experiment, &mut |seconds| bar.pass(seconds));
                let outcome = measured.map_err(|error| left(error, done, experiments.len(), journal.path()))?;
                journal.keep(experiment.name, &outcome)?;
                outcome
            }
        };
        bar.end(done, experiments, setup);
        outcomes.push(outcome);
    }
    drop(session);
    Ok((document(arguments, place, setup, measured, outcomes), journal))
}

/// The error of an interruption, with the way to continue; any other error unchanged.
fn left(error: TargetError, done: usize, all: usize, journal: Option<&Path>) -> anyhow::Error {
    if !matches!(error, TargetError::Interrupted) {
        return error.into();
    }
    let kept = match journal {
        Some(path) if done > 0 => format!("kept in {}, --resume goes on", path.display()),
        _ => "nothing is kept".to_owned(),
    };
    anyhow!(error).context(format!("{done} of {all} experiments were done; {kept}"))
}

/// A flag set by the first SIGINT or SIGTERM; the second one ends the program.
fn on_signal() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .context("watching for signals")?;
    }
    Ok(interrupted)
}

fn document(
    arguments: &ProbeArgs,
    place: &Place<'_>,
    setup: &Setup,
    target: Measured,
    experiments: Vec<Outcome>,
) -> Document {
    let noise = experiments.iter().fold(Noise::none(), |all, outcome| all.and(&outcome.noise));
    let mut document = Document {
        schema: SCHEMA.to_owned(),
        program: format!("entresol {}", env!("CARGO_PKG_VERSION")),
        target,
        environment: (!place.is_model()).then(Environment::here),
        setup: Setup { trace: None, ..setup.clone() },
        seed: arguments.seed,
        noise,
        experiments,
        advice: Vec::new(),
        profile: None,
        no_profile: None,
    };
    let findings = document.findings();
    let usage = Use {
        write_mb_s: arguments.write_rate.map(|bytes| bytes as f64 / 1e6),
        endurance_bytes: arguments.endurance.map(|bytes| bytes as f64),
    };
    document.advice = entresol_probe::advise(&findings, usage);
    let named = arguments.profile.as_ref().or(arguments.json.as_ref()).and_then(|path| path.file_stem());
    let name = named.map_or_else(|| "probed".to_owned(), |stem| stem.to_string_lossy().into_owned());
    match entresol_probe::fit::to_profile(&name, &findings) {
        Ok(profile) => document.profile = Some(serde_json::to_value(profile).expect("texts and finite numbers")),
        Err(reason) => document.no_profile = Some(reason),
    }
    document
}

fn write(arguments: &ProbeArgs, document: &Document) -> Result<()> {
    output::write_asked(&arguments.json, || Ok(document.to_json()))?;
    output::write_asked(&arguments.html, || Ok(report::page(document).to_html()))
}

/// Writes the profile. Runs last, because the measurements may not suffice for one.
fn write_profile(arguments: &ProbeArgs, document: &Document) -> Result<()> {
    let Some(path) = &arguments.profile else { return Ok(()) };
    if let Some(reason) = &document.no_profile {
        bail!("{}: there is no profile to write: {reason}", path.display());
    }
    let profile = Profile::from_json(&path.display().to_string(), &document.to_json())?;
    output::write_file(path, profile.to_toml().as_bytes())
}

/// Progress in seconds of the target's clock, at most the planned duration.
struct Bar {
    progress: Progress,
    passed: std::cell::Cell<f64>,
}

impl Bar {
    fn new(experiments: &[&Experiment], setup: &Setup, quiet: bool) -> Self {
        let total = entresol_probe::cost(experiments, setup).seconds.ceil() as u64;
        let progress = Progress::start("probe", Some(total.max(1)), Unit::Items("s"), quiet);
        Bar { progress, passed: std::cell::Cell::new(0.0) }
    }

    fn begin(&self, experiment: &Experiment) {
        self.progress.note(format!("{}: {}", experiment.name, experiment.about));
    }

    fn pass(&self, seconds: f64) {
        self.reach(self.passed.get() + seconds);
    }

    /// Moves the bar to the planned end of an experiment that took less than planned, or was done before.
    fn end(&self, done: usize, experiments: &[&Experiment], setup: &Setup) {
        self.reach(entresol_probe::cost(&experiments[..=done], setup).seconds);
    }

    fn reach(&self, seconds: f64) {
        let before = self.passed.get();
        if seconds > before {
            self.progress.advance(seconds as u64 - before as u64);
            self.passed.set(seconds);
        }
    }
}
