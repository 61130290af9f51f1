//! A served cache as its control socket sees it: figures to ask for, settings to change.

use super::accounts::Accounts;
use super::backing_record::Paired;
use super::backing_store::Below;
use super::cache_file::{CacheFile, Change};
use super::cache_options::LOW_BY_HIGH;
use super::config::{above_bytes, one_policy};
use super::control::{Controlled, Recorder};
use super::doubt::{self, Doubt};
use super::figures::{Figures, HintFigures, RestartFigures, State};
use super::holder::Holder;
use super::keyword::Keyword;
use super::log::{Level, Log};
use super::memory;
use super::observed::{self, Observed, ObservedBlock};
use super::open_cache::OpenCache;
use super::places::PlacesOf;
use super::reserving::Reserving;
use super::resolve;
use super::settings::Settings;
use super::writers::Writers;
use crate::values::{Limit, bytes_or_none, percent, seconds_or_none};
use anyhow::{Context, Result, anyhow, bail};
use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheStats, Mode};
use entresol_core::Size;
use entresol_files::{CachedFiles, FileLayer, Keep};
use entresol_hints::Hints;
use entresol_hold::Start;
use entresol_policy::Wear;
use entresol_sim::PolicySpec;
use entresol_store::Geometry;
use serde_json::json;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Settings that a running cache takes, and their values.
const SETTINGS: &[(&str, &str)] = &[
    ("mode", "write-back, write-through, write-around or read-only"),
    ("policy", "NAME or NAME:OPTION=VALUE:... as `entresol policies` lists them"),
    ("cache-size", "a size such as 50%, 10GiB or 2000p, at most the capacity"),
    ("device-size", "a size in bytes such as 20GiB, larger than now: the cache takes up so much of its file or device"),
    ("dirty-high", "the share of its pages that may be dirty, such as 50%; 100% is no limit"),
    ("dirty-low", "the share down to which they are written below when they are more, such as 40%"),
    ("dirty-age", "the time for which a page may differ from the backing store, such as 1h, or none"),
    (
        "sequential-cutoff",
        "the bytes of a sequential stream after which its rest bypasses the cache, such as 4MiB; 0 bypasses nothing",
    ),
    ("wear", "a bound such as 1DWPD, 200GB (a day), amplification=1.8 or unbounded, with the layout segments"),
    ("dram", "a size such as 64MiB; 0 is no memory above the cache, for a policy of one tier"),
    ("place", "a table, an index or a file of the directory, with a policy that places tables"),
    ("unplace", "one that was placed"),
    ("place-rate", "bytes a second that placing may fetch, such as 100MiB; 0B is no limit"),
];

/// Longest wait for the accounts of objects.
const ACCOUNTS_MAX: Duration = Duration::from_secs(2);

/// A served cache.
pub struct Running {
    cache: Arc<BlockCache>,
    calls: Arc<Observed>,
    file: Arc<CacheFile>,
    below: Below,
    pair: Arc<dyn Paired>,
    backing: PathBuf,
    accounts: Accounts,
    page_bytes: u32,
    /// The geometry at the open; the cache may have grown since.
    geometry: Geometry,
    places: PlacesOf,
    started: Instant,
    log: Log,
    seen: OnceLock<Seen>,
    writers: OnceLock<Writers>,
    holder: Option<Holder>,
    /// Why a new server could not go on with what this one serves, if that is so.
    ends_with_us: OnceLock<String>,
    /// Time for which nobody served before this server did, once that is known.
    pause: OnceLock<Duration>,
    doubt: Option<Arc<Doubt>>,
    /// Settings that the cache does not know as they were given.
    given: Mutex<Given>,
}

/// Settings that the cache does not know as they were given.
#[derive(Default)]
struct Given {
    sequential_cutoff: u64,
    place_rate: Option<u64>,
    placed: Vec<String>,
}

/// State that only a mounted cache of files has.
struct Seen {
    mountpoint: String,
    hints: Option<Arc<Hints>>,
}

/// A setting after parsing.
enum Setting {
    Mode(Mode),
    Policy(PolicySpec),
    CacheSize(Size),
    DeviceSize(u64),
    DirtyHigh(f64),
    DirtyLow(f64),
    DirtyAge(Limit),
    SequentialCutoff(u64),
    Wear(Wear),
    Dram(Size),
    Place(String),
    Unplace(String),
    PlaceRate(u64),
}

impl Running {
    /// For an open cache.
    pub(crate) fn new(held: &OpenCache, file: Arc<CacheFile>, log: Log) -> Self {
        let (cache, calls) = (Arc::clone(&held.cache), Arc::new(Observed::default()));
        let below = held.below.clone();
        let backing = held.backing.clone();
        let accounts = Accounts::new(cache.clone(), below.clone(), backing.clone());
        let (page_bytes, places) = (held.geometry.page_bytes, held.places());
        let (started, seen, writers, pause) = (Instant::now(), OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (pair, geometry) = (held.pair.clone(), held.geometry);
        let (holder, doubt) = (held.inherited.holder.clone(), held.inherited.doubt.clone());
        let given = Mutex::new(Given { sequential_cutoff: held.sequential_cutoff, ..Given::default() });
        let running = Running {
            cache,
            calls,
            file,
            below,
            pair,
            backing,
            accounts,
            page_bytes,
            geometry,
            places,
            started,
            log,
            seen,
            writers,
            holder,
            ends_with_us: OnceLock::new(),
            pause,
            doubt,
            given,
        };
        running.place_again(held.inherited.settings.as_ref());
        running
    }

    /// Refuses upgrades from now on: what is served ends with this process, for this reason.
    pub(crate) fn ends_with_us(&self, why: String) {
        // The front-end begins once.
        let _ = self.ends_with_us.set(why);
    }

    /// Places what was placed while a former server ran.
    fn place_again(&self, settings: Option<&Settings>) {
        let Some(Settings { place_rate, placed, .. }) = settings else { return };
        let rate = place_rate.iter().map(|&bytes| Setting::PlaceRate(bytes));
        for setting in rate.chain(placed.iter().cloned().map(Setting::Place)) {
            if let Err(error) = self.apply(setting) {
                let message = format!("a setting of the former server is forgotten: {error:#}");
                self.log.event(Level::Warning, "set", &message, json!({ "error": format!("{error:#}") }));
            }
        }
    }

    /// The settings as they are.
    fn settings(&self) -> Result<Settings> {
        let CacheConfig { tiers, dirty_age, mode, wear, .. } = self.cache.config();
        let (policy, mode, dirty_limits) = (self.policy(), mode.keyword().to_owned(), self.cache.dirty_limits()?);
        let wear = Some(wear.to_string());
        let given = self.given();
        let (sequential_cutoff, place_rate, placed) = (given.sequential_cutoff, given.place_rate, given.placed.clone());
        Ok(Settings { mode, policy, tiers, dirty_limits, dirty_age, wear, sequential_cutoff, place_rate, placed })
    }

    fn given(&self) -> std::sync::MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the settings outlive this process, so that they are promised only then.
    fn keep_settings(&self) -> Result<()> {
        let Some(holder) = &self.holder else { return Ok(()) };
        self.settings()?.keep(holder).context("it is changed, but a later server would not know")
    }

    /// The cache as a front-end for a block serves it.
    pub fn block(&self) -> Arc<dyn Block> {
        let block = Arc::clone(&self.cache) as Arc<dyn Block>;
        let block = match self.cache.config().mode {
            Mode::ReadOnly => block,
            _ => {
                let is_inherited = self.holder.as_ref().is_some_and(|holder| !holder.is_first());
                let pair = Arc::clone(&self.pair);
                Reserving::over(block, &self.backing, self.page_bytes, is_inherited, move || pair.precede())
            }
        };
        doubt::block(Arc::new(ObservedBlock::new(block, Arc::clone(&self.calls))), self.doubt.clone())
    }

    /// Files over the cache as a front-end serves them.
    pub fn files(&self, files: Arc<dyn FileLayer>) -> Arc<dyn FileLayer> {
        doubt::files(observed::files(files, Arc::clone(&self.calls)), self.doubt.clone(), true)
    }

    /// Sets the mountpoint and the receiver of messages about queries.
    pub fn seen_at(&self, mountpoint: &Path, hints: Option<Arc<Hints>>) {
        let mountpoint = mountpoint.to_string_lossy().into_owned();
        // A cache is mounted once.
        let _ = self.seen.set(Seen { mountpoint, hints });
    }

    /// Sets the time for which nobody served before this server did.
    pub fn paused(&self, pause: Duration) {
        // A process begins to serve once.
        let _ = self.pause.set(pause);
    }

    /// Proves that the cache's lock is free, or will soon be: waits for it. No device is waited for under that lock.
    pub fn prove_alive(&self) {
        // A cache that has stopped after a fault answers too.
        let _ = self.cache.stats();
    }

    fn restarts(&self) -> Option<RestartFigures> {
        let Start { crashes, hangs, upgrades, .. } = self.holder.as_ref()?.server().start();
        let last_pause_ms = self.pause.get().map(|pause| pause.as_secs_f64() * 1e3);
        Some(RestartFigures { crashes, hangs, upgrades, last_pause_ms })
    }

    /// Sets the list of processes seen to write to the backing store without the cache.
    pub(crate) fn written_by(&self, writers: Writers) {
        let _ = self.writers.set(writers);
    }

    fn apply(&self, setting: Setting) -> Result<String> {
        match setting {
            Setting::Mode(mode) => {
                let before = self.cache.stats()?;
                self.pair.set_mode(mode).with_context(|| match self.cache.config().mode == mode {
                    false => "mode, unchanged",
                    true => "the mode is changed, but its record still says that the cache may not be lost",
                })?;
                self.pair.note_used(mode).context("the mode is changed, but the next start will not know")?;
                let written = self.cache.stats()?.write_back.below_pages - before.write_back.below_pages;
                let drained = before.mode == Mode::WriteBack && mode != Mode::WriteBack;
                let drained =
                    if drained { format!(", {written} pages were written below first") } else { String::new() };
                Ok(format!("mode is {}{drained}", mode.keyword()))
            }
            Setting::Policy(spec) => {
                let tiers = self.cache.config().tiers_under(spec.info);
                self.change(&spec, &tiers).context("policy")
            }
            Setting::CacheSize(size) => {
                let CacheConfig { policy, options, mut tiers, .. } = self.cache.config();
                *tiers.last_mut().expect("a policy has a tier") =
                    size.pages(self.page_bytes, self.cache.room_pages()) as usize;
                self.change(&PolicySpec { info: policy, options }, &tiers).context("cache-size")
            }
            Setting::DeviceSize(bytes) => {
                let grown = self.geometry.grown_to(bytes);
                if let Ok(grown) = &grown {
                    let CacheConfig { tiers, .. } = self.cache.config();
                    memory::check(grown, above_bytes(&tiers, self.page_bytes)).context("device-size")?;
                }
                let space = self.cache.grow(bytes).context("device-size")?;
                self.pair.note_grown(grown?).with_context(|| {
                    format!("device-size: the cache has room for {space} pages; one made anew gets the old size")
                })?;
                Ok(format!("the cache has room for {space} pages; cache-size=100% gives the policy all of it"))
            }
            Setting::DirtyHigh(high) => {
                let (before, low) = self.cache.dirty_limits()?;
                // A lower limit that was derived from the old upper limit is derived from the new one.
                let followed = (low - before * LOW_BY_HIGH).abs() < 1e-9;
                let low = if low < high && !followed { low } else { high * LOW_BY_HIGH };
                self.limit_dirty(high, low).context("dirty-high")
            }
            Setting::DirtyLow(low) => self.limit_dirty(self.cache.dirty_limits()?.0, low).context("dirty-low"),
            Setting::DirtyAge(Limit(bound)) => {
                self.cache.set_dirty_age(bound).context("dirty-age")?;
                Ok(match bound {
                    Some(bound) => format!("dirty pages are written below before they are {} s old", bound.as_secs()),
                    None => "dirty pages may be of any age".to_owned(),
                })
            }
            Setting::SequentialCutoff(bytes) => {
                self.cache.set_sequential_cutoff(bytes).context("sequential-cutoff")?;
                self.given().sequential_cutoff = bytes;
                let which = if bytes == 0 { "no pages".to_owned() } else { format!("pages after {bytes} bytes") };
                Ok(format!("{which} of a sequential stream bypass the cache"))
            }
            Setting::Wear(wear) => {
                self.cache.set_wear(wear).context("wear")?;
                Ok(match wear {
                    Wear::Unbounded => "any number of pages may be written to the cache".to_owned(),
                    bound => format!("{bound} bounds the pages written to the cache from now on"),
                })
            }
            Setting::Dram(size) => {
                let CacheConfig { policy, options, tiers, .. } = self.cache.config();
                let space = *tiers.last().expect("a policy has a tier") as u64;
                let tiers = entresol_cache::tiers(policy, space, Some(size.pages(self.page_bytes, space)));
                memory::check(&self.geometry, above_bytes(&tiers, self.page_bytes)).context("dram")?;
                self.change(&PolicySpec { info: policy, options }, &tiers).context("dram")
            }
            Setting::Place(path) => self.place(&path).context("place"),
            Setting::Unplace(path) => self.unplace(&path).context("unplace"),
            Setting::PlaceRate(bytes) => {
                self.placing().context("place-rate")?.set_place_rate(bytes);
                self.given().place_rate = Some(bytes);
                let limit = if bytes == 0 { "has no limit".to_owned() } else { format!("is {bytes} bytes a second") };
                Ok(format!("the rate of placing {limit}"))
            }
        }
    }

    /// The files, if the policy places objects; else an error.
    fn placing(&self) -> Result<&CachedFiles> {
        let Below::Files(files) = &self.below else { bail!("a backing file or device has no tables") };
        if !self.cache.places_objects() {
            bail!("policy '{}' places no tables; table-placement does", self.cache.config().policy.name);
        }
        Ok(files)
    }

    fn place(&self, path: &str) -> Result<String> {
        match self.placing()?.place(Path::new(path))? {
            Some(true) => {
                let mut given = self.given();
                given.placed.retain(|placed| placed != path);
                given.placed.push(path.to_owned());
                Ok(format!("{path} is fetched into the cache, and stays"))
            }
            Some(false) => bail!("{path} does not fit into the cache beside the other placed files"),
            None => bail!("the cache never had a page of {path}"),
        }
    }

    fn unplace(&self, path: &str) -> Result<String> {
        match self.placing()?.unplace(Path::new(path))? {
            true => {
                self.given().placed.retain(|placed| placed != path);
                Ok(format!("{path} leaves the cache"))
            }
            false => bail!("the cache never had a page of {path}"),
        }
    }

    /// Sets the limits of dirty pages; describes them.
    fn limit_dirty(&self, high: f64, low: f64) -> Result<String> {
        self.cache.set_dirty_limits(high, low)?;
        if high >= 1.0 {
            return Ok("any number of pages may be dirty".to_owned());
        }
        let (high, low) = (100.0 * high, 100.0 * low);
        Ok(format!("above {high:.1} % dirty pages the coldest are written below, until no more than {low:.1} % are"))
    }

    /// Sets another policy or other tiers; describes them.
    fn change(&self, spec: &PolicySpec, tiers: &[usize]) -> Result<String> {
        self.cache.set_policy(spec.info, &spec.options, tiers)?;
        let tiers: Vec<String> = tiers.iter().map(usize::to_string).collect();
        Ok(format!("policy is {}, of {} pages; cached pages stayed", self.policy(), tiers.join(" over ")))
    }

    /// The policy, with the options that were given.
    fn policy(&self) -> String {
        let CacheConfig { policy, options, .. } = self.cache.config();
        match options.summary() {
            none if none.is_empty() => policy.name.to_owned(),
            given => format!("{}:{given}", policy.name),
        }
    }
}

fn parse((setting, value): &(String, String)) -> Result<Setting> {
    let possible = SETTINGS.iter().find(|(known, _)| known == setting).map(|(_, values)| values);
    let Some(possible) = possible else {
        let known: Vec<String> = SETTINGS.iter().map(|(name, values)| format!("{name} ({values})")).collect();
        bail!("'{setting}' is not a setting of a running cache; settings: {}", known.join("; "));
    };
    let size = || value.parse::<Size>().map_err(|error| anyhow!("{setting}: {error}"));
    let share = || percent(value).map_err(|error| anyhow!("{setting}: '{value}': {error}"));
    Ok(match setting.as_str() {
        "mode" => {
            let mode = Mode::named(value);
            Setting::Mode(mode.with_context(|| format!("mode: '{value}' is not {possible}"))?)
        }
        "policy" => Setting::Policy(one_policy(value).context("policy")?),
        "cache-size" => Setting::CacheSize(size()?),
        "device-size" => match bytes_or_none(value) {
            Ok(bytes) if bytes > 0 => Setting::DeviceSize(bytes),
            _ => bail!("device-size: '{value}' is not {possible}"),
        },
        "place" => Setting::Place(value.clone()),
        "unplace" => Setting::Unplace(value.clone()),
        "place-rate" => match bytes_or_none(value) {
            Ok(bytes) => Setting::PlaceRate(bytes),
            Err(_) => bail!("place-rate: '{value}' is not {possible}"),
        },
        "dirty-high" => Setting::DirtyHigh(share()?),
        "dirty-low" => Setting::DirtyLow(share()?),
        "dirty-age" => {
            Setting::DirtyAge(seconds_or_none(value).map_err(|error| anyhow!("dirty-age: '{value}': {error}"))?)
        }
        "sequential-cutoff" => {
            let bytes = bytes_or_none(value).map_err(|error| anyhow!("sequential-cutoff: '{value}': {error}"));
            Setting::SequentialCutoff(bytes?)
        }
        "wear" => Setting::Wear(value.parse().map_err(|error| anyhow!("wear: {error}"))?),
        _ => Setting::Dram(size()?),
    })
}

/// Pages of each tier that the policy may keep: in the store as many as a log below the policy leaves.
fn held_tiers(tiers: &[usize], stats: &CacheStats) -> Vec<u64> {
    let mut held: Vec<u64> = tiers.iter().map(|&pages| pages as u64).collect();
    if let (Some(&(most, _)), Some(last)) = (stats.log.as_ref(), held.last_mut()) {
        *last = (*last).min(most);
    }
    held
}

impl Controlled for Running {
    fn stats(&self) -> Result<serde_json::Value> {
        let stats = self.cache.stats()?;
        let seen = self.seen.get();
        let accounts = self.accounts.within(ACCOUNTS_MAX)?;
        let late = accounts.is_none();
        let (objects, conflicts) = accounts.unwrap_or_default();
        let hints = seen.and_then(|seen| seen.hints.as_ref());
        let state = State {
            open_s: self.started.elapsed().as_secs_f64(),
            policy: self.policy(),
            mode: stats.mode.keyword().to_owned(),
            tiers_pages: held_tiers(&self.cache.config().tiers, &stats),
            room_pages: self.cache.room_pages(),
            lost_pages: self.cache.lost_pages()?.len() as u64,
            cache_file: self.file.look().filter(|change| change.is_loss()).map(Change::said).map(str::to_owned),
            restarts: self.restarts(),
            policy_gauges: self.cache.policy_gauges()?,
            policy_choice: self.cache.policy_choice()?,
            devices: self.cache.devices(),
            objects,
            conflicts,
            directory_sync_errors: match &self.below {
                Below::Store => 0,
                Below::Files(files) => files.failed_directory_syncs().0,
            },
            accounts_late: late,
            writers: self.writers.get().map(Writers::seen).unwrap_or_default(),
            mountpoint: seen.map(|seen| seen.mountpoint.clone()),
            hints: hints.map(|hints| HintFigures::new(hints.counts(), hints.running())),
            doubt: self.doubt.as_ref().map(|doubt| doubt.figures()),
        };
        Ok(serde_json::to_value(Figures::new(state, &stats, self.calls.figures()))?)
    }

    fn resolve(&self, path: &str, keep: Keep) -> Result<String> {
        let Below::Files(files) = &self.below else { bail!("a backing file or device has no files in it") };
        let pages = files.resolve(Path::new(path), keep).with_context(|| path.to_owned())?;
        let line = resolve::done(path, keep, pages);
        self.log.event(Level::Info, "resolve", &line, json!({ "path": path, "pages": pages }));
        Ok(line)
    }

    fn record(&self) -> Result<Recorder> {
        let recording = self.cache.record().context("another recording of it is running")?;
        Ok(Recorder {
            recording,
            places: self.places.places(),
            page_bytes: self.page_bytes,
            policy: self.policy(),
            mode: self.cache.stats()?.mode.keyword().to_owned(),
        })
    }

    fn upgrade(&self, report: Option<BorrowedFd>) -> Result<()> {
        let Some(holder) = &self.holder else {
            bail!("no upgrade: it was started without --restart on, so that its end would be that of its users' files")
        };
        if let Some(why) = self.ends_with_us.get() {
            bail!("no upgrade: the mount would end, in spite of --restart on: {why}");
        }
        match report {
            Some(report) => holder.server().upgrade(Some(report)).context("no upgrade"),
            None => Ok(()),
        }
    }

    fn set(&self, settings: &[(String, String)]) -> Result<Vec<String>> {
        // All settings are parsed before the first is applied.
        let settings = settings.iter().map(parse).collect::<Result<Vec<_>>>()?;
        let mut done = Vec::new();
        for setting in settings {
            match self.apply(setting).and_then(|line| self.keep_settings().map(|()| line)) {
                Ok(line) => {
                    let now = json!({ "policy": self.policy(), "mode": self.cache.config().mode.keyword() });
                    self.log.event(Level::Info, "set", &line, now);
                    done.push(line);
                }
                Err(error) if done.is_empty() => return Err(error),
                Err(error) => return Err(error.context(format!("done before: {}", done.join("; ")))),
            }
        }
        Ok(done)
    }

    fn progress(&self) -> u64 {
        self.cache.stats().map_or(0, |stats| stats.write_back.below_pages)
    }
}
