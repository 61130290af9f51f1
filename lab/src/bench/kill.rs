//! Kills under load: committed transactions must be found afterwards, and the database's own checker must find no
//! fault.

use super::daemon::OpenFigures;
use super::mounted::Mounted;
use super::tpcc::{Bench, Victim};
use super::variant::Variant;
use super::witness::Findings;
use anyhow::{Context, Result, bail};
use entresol_bench::drive::{self, Ran, Watch, acknowledged};
use entresol_bench::server::Server;
use entresol_bench::tpcc::Ledger;
use entresol_cli::shared as output;
use entresol_core::Random;
use entresol_render::{Cell, Column, Progress, Table, TextStyle, Tone, Unit};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Result of a kill.
#[derive(Serialize)]
struct Killed {
    variant: String,
    round: u32,
    /// Seconds of load before the kill.
    after_s: f64,
    /// Orders, payments and deliveries in this round whose commit was acknowledged to clients.
    acknowledged: [u64; 3],
    in_doubt: usize,
    /// Figures of the cache's open after the kill; none if the cache was not killed.
    opened: Option<OpenFigures>,
    /// Seconds from the start of the server until it answered.
    ready_s: f64,
    faults: Vec<String>,
    /// Findings of the witness since the variant began, if there is one.
    witness: Option<String>,
}

/// Numbers of clients in a round, which no other round uses.
pub const CLIENTS_A_ROUND: u64 = 1000;

/// Runs the rounds on every variant and prints the verdict.
pub fn run(bench: &mut Bench, victim: Victim, rounds: u32) -> Result<()> {
    let total = u64::from(rounds) * bench.testbed.variants.len() as u64;
    let bar = Progress::start("killing", Some(total), Unit::Items("rounds"), bench.testbed.quiet);
    let mut all = Vec::new();
    for variant in bench.testbed.variants.clone() {
        let mut killed = bench.rounds(victim, rounds, &variant, &bar)?;
        bench.testbed.place.clear()?;
        all.append(&mut killed);
    }
    drop(bar);
    output::print(&text(bench.testbed.server.name(), &all))?;
    if let Some(path) = &bench.arguments.run.testbed.json {
        output::write_file(path, (serde_json::to_string_pretty(&all)? + "\n").as_bytes())?;
    }
    match all.iter().find(|killed| !killed.faults.is_empty()) {
        Some(killed) => bail!("{}, round {}: {}", killed.variant, killed.round, killed.faults.join("; ")),
        None => Ok(()),
    }
}

/// Longest time that clients may take to connect.
const CONNECTED_WITHIN: Duration = Duration::from_secs(60);
/// Longest time that clients may take to notice a kill before they are ended.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// Time that a recovery is watched.
const RECOVERED_WITHIN: Duration = Duration::from_secs(4);

/// Waits for `time`, or until `over` is true.
pub fn pause(time: Duration, over: &dyn Fn() -> bool) {
    let started = Instant::now();
    while started.elapsed() < time && !over() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Bench<'_> {
    fn rounds(&mut self, victim: Victim, rounds: u32, variant: &Variant, bar: &Progress) -> Result<Vec<Killed>> {
        let mut random = Random::new(Random::mix(self.arguments.run.testbed.seed ^ 0x6b));
        let (mut ledger, mut killed) = (Ledger::default(), Vec::new());
        let (mut mounted, _) = self.testbed.start(variant)?;
        for round in 1..=rounds {
            let note = |doing: &str| bar.note(format!("{}, round {round}: {doing}", variant.name()));
            note("load");
            let after = Duration::from_millis(500 + random.below(2500));
            let (run, volatile) = (self.testbed.place.run().to_owned(), self.testbed.devices.volatile.is_some());
            let early = move || {
                let Findings { early, doubtful, .. } =
                    if volatile { Findings::read(&run) } else { Findings::default() };
                early.len() + doubtful.len()
            };
            let before = early();
            let first_client = u64::from(round) * CLIENTS_A_ROUND;
            let wait = |_: &dyn Server, over: &dyn Fn() -> bool| {
                pause(after, &|| over() || early() > before);
                Ok(())
            };
            let struck = self.strike(victim, &mut mounted, first_client, wait);
            let (ran, ()) = struck.with_context(|| format!("{}, round {round}", variant.name()))?;
            if self.testbed.ended.load(Relaxed) {
                bail!("interrupted");
            }
            note("recovery");
            let mut opened = None;
            if victim != Victim::Server {
                drop(mounted);
                if volatile {
                    note("recovery, killed");
                    self.kill_in_recovery(variant, &early)?;
                    // What is left is only read.
                    self.testbed.devices.volatile = None;
                }
                let (again, found) = self.testbed.devices.mount(&self.testbed.place, variant)?;
                mounted = again;
                opened = Some(found.opened);
            }
            let started = Instant::now();
            self.testbed.start_server()?;
            let ready_s = started.elapsed().as_secs_f64();
            note("checks");
            mounted.ask("hurry")?;
            let (acknowledged, in_doubt) = (acknowledged(&ran.ledger), ran.ledger.in_doubt.len());
            ledger.append(ran.ledger);
            let mut faults = self.faults(&ledger)?;
            faults.extend(self.testbed.server.check()?);
            let found = self.testbed.findings();
            let witness = found.as_ref().map(Findings::line);
            found.unwrap_or_default().explain(&mut faults);
            mounted.ask("pace")?;
            let (variant, after_s) = (variant.name().to_owned(), after.as_secs_f64());
            killed.push(Killed { variant, round, after_s, acknowledged, in_doubt, opened, ready_s, faults, witness });
            bar.advance(1);
            if killed.last().is_some_and(|killed| !killed.faults.is_empty()) {
                break;
            }
        }
        self.testbed.server.stop()?;
        mounted.close()?;
        Ok(killed)
    }

    /// Starts the database again, and kills both processes at the first checkpoint that is too early, or after a while.
    fn kill_in_recovery(&mut self, variant: &Variant, early: &(dyn Fn() -> usize + Sync)) -> Result<()> {
        let (mut mounted, _) = self.testbed.devices.mount(&self.testbed.place, variant)?;
        let (before, over) = (early(), AtomicBool::new(false));
        let server = &mut self.testbed.server;
        let started = std::thread::scope(|scope| {
            scope.spawn(|| {
                pause(RECOVERED_WITHIN, &|| early() > before);
                over.store(true, Relaxed);
            });
            server.start(&over)
        });
        mounted.kill();
        self.testbed.server.kill();
        if early() > before { Ok(()) } else { started.context("recovery") }
    }

    /// Runs the load, kills, and returns the results of the clients up to their notice of it. Once all clients are at
    /// work, `until` passes the time until the kill. Its argument is true if the load is over before.
    pub fn strike<T>(
        &mut self,
        victim: Victim,
        mounted: &mut Mounted,
        first_client: u64,
        until: impl FnOnce(&dyn Server, &dyn Fn() -> bool) -> Result<T>,
    ) -> Result<(Ran, T)> {
        let plan = self.plan(first_client, Duration::ZERO, Duration::from_secs(3600));
        // A separate watch: ending the clients after the kill must not end the benchmark.
        let watch = Watch::default();
        let database = self.testbed.server.database();
        std::thread::scope(|scope| {
            let clients = scope.spawn(|| drive::run(&*database, &plan, &watch));
            let finished = || clients.is_finished();
            let ended = || finished() || self.testbed.ended.load(Relaxed);
            // The kill comes once all clients are connected and at work.
            pause(CONNECTED_WITHIN, &|| ended() || watch.counting.load(Relaxed));
            let passed = until(&*self.testbed.server, &ended);
            if !clients.is_finished() {
                watch.crash.store(true, Relaxed);
                if victim != Victim::Server {
                    mounted.kill();
                }
                if victim != Victim::Daemon {
                    self.testbed.server.kill();
                }
                pause(NOTICED_WITHIN, &finished);
                watch.ended.store(true, Relaxed);
                self.testbed.server.kill();
            }
            let ran = clients.join().expect("clients do not panic")?;
            Ok((ran, passed?))
        })
    }
}

fn text(server: &str, all: &[Killed]) -> String {
    let columns = [
        Column::text("cache"),
        Column::number("round"),
        Column::number("killed after s"),
        Column::number("orders told"),
        Column::number("payments told"),
        Column::number("deliveries told"),
        Column::number("in doubt"),
        Column::number("dirty pages found"),
        Column::number("cache open ms"),
        Column::number("server ready s"),
        Column::text("verdict"),
    ];
    let mut table = Table::new(format!("{server}, killed under load"), columns);
    for killed in all {
        let opened = killed.opened.as_ref();
        table.push([
            Cell::from(killed.variant.as_str()),
            u64::from(killed.round).into(),
            Cell::fixed(killed.after_s, 2),
            killed.acknowledged[0].into(),
            killed.acknowledged[1].into(),
            killed.acknowledged[2].into(),
            (killed.in_doubt as u64).into(),
            opened.map_or_else(Cell::missing, |opened| opened.dirty_pages.into()),
            opened.map_or_else(Cell::missing, |opened| Cell::fixed(opened.seconds * 1e3, 1)),
            Cell::fixed(killed.ready_s, 2),
            match killed.faults.first() {
                None => Cell::from("sound").tone(Tone::Good),
                Some(fault) => Cell::from(fault.as_str()).tone(Tone::Bad),
            },
        ]);
    }
    let acknowledged: u64 = all.iter().flat_map(|killed| killed.acknowledged).sum();
    let sound = all.iter().filter(|killed| killed.faults.is_empty()).count();
    let of_variant = |one: &Killed, next: &Killed| one.variant == next.variant;
    let last = all.chunk_by(of_variant).filter_map(<[Killed]>::last);
    let witness: String =
        last.filter_map(|killed| Some(format!("{}: {}\n", killed.variant, killed.witness.as_ref()?))).collect();
    format!(
        "{}\n{witness}{sound} of {} rounds sound: {acknowledged} commits that clients were told of are there, conditions 1 to 10 and 12 hold, \
         and the database's own checker found nothing.\n",
        table.to_text(TextStyle::stdout()),
        all.len()
    )
}
