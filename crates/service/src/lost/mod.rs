//! Starts whose cache is lost, blank or not the expected one: the look at it, the decision, and the action.

mod command;
mod decide;
mod look;
mod signature;

pub use decide::IfLost;
pub(crate) use look::{dirty_pages, dirty_pages_at};

use super::chosen::Kept;
use super::hold::{HeldBytes, hold};
use super::identity::{Identity, random};
use super::log::{Level, Log, LogFormat};
use super::translation;
use anyhow::{Context, Result, anyhow, bail};
use decide::{Action, Mark, Way, decide};
use entresol_cache::{BlockCache, CacheError, Mode};
use entresol_disk::{Caching, Disk, FileDisk, take_room};
use entresol_files::Backing;
use entresol_files::record::{CacheKind, Choices, Record, RecordPlace, read_record};
use entresol_store::{Generation, Geometry, StoreError};
use look::{Look, look};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A cache that was opened, or the backing store without it.
pub enum Opened<T> {
    /// The cache, open.
    Cached(T),
    /// The backing store alone; its cache is out of date from now on.
    Bypassed(Bypass),
}

impl<T> Opened<T> {
    /// The cache, for a command that needs one and has no option to bypass it.
    pub(crate) fn cached(self) -> Result<T> {
        match self {
            Opened::Cached(held) => Ok(held),
            Opened::Bypassed(bypass) => bail!("the cache {}", bypass.why),
        }
    }
}

/// A backing store that is served without its cache.
pub struct Bypass {
    /// The reason, in words.
    why: String,
    /// True if every write is refused.
    pub read_only: bool,
}

impl Bypass {
    /// Reports the bypass; returns the log for further events.
    pub fn tell(&self, cache: &Path, format: LogFormat, quiet: bool) -> Log {
        let log = Log::new(cache.display().to_string(), format, quiet);
        log.event(Level::Warning, "cache-bypassed", &self.why, Value::Null);
        log
    }
}

/// Outcome for a start: the cache to use, or none.
pub(crate) enum Settled {
    /// The cache at the path, as it was found.
    Found,
    /// A cache that was made there, and the reason in words.
    Recreated(String),
    /// No cache, and the reason.
    Bypassed(String),
}

impl Settled {
    /// The message that the cache was recreated; none for a cache that was found.
    ///
    /// # Errors
    /// The backing store without a cache, to be served in this mode.
    pub(crate) fn or_bypass(self, mode: Mode) -> Result<Option<String>, Bypass> {
        match self {
            Settled::Found => Ok(None),
            Settled::Recreated(said) => Ok(Some(said)),
            Settled::Bypassed(why) => Err(Bypass { why, read_only: mode == Mode::ReadOnly }),
        }
    }
}

/// A backing store, as the recovery from a lost cache uses it.
pub(crate) trait Without {
    /// The record of its cache.
    fn record(&self) -> Result<Option<Record>>;
    /// The btrfs subvolume that it lies in.
    fn volume(&self) -> Result<Option<[u8; 16]>>;
    /// Makes this the record, durably.
    fn note(&mut self, record: Record) -> Result<()>;
    /// Makes an empty cache for it, as the record describes.
    fn make(&self, store: &FileDisk, geometry: Geometry, record: &Record) -> Result<()>;
}

/// A file or block device as backing store.
pub(crate) struct Store<'a> {
    pub(crate) place: &'a dyn RecordPlace,
    pub(crate) disk: &'a FileDisk,
    pub(crate) identity: Identity,
}

impl Without for Store<'_> {
    fn record(&self) -> Result<Option<Record>> {
        Ok(read_record(self.place)?)
    }

    fn volume(&self) -> Result<Option<[u8; 16]>> {
        Ok(self.place.volume()?)
    }

    fn note(&mut self, record: Record) -> Result<()> {
        self.place.write(&record).with_context(|| format!("the record of the cache, {}", self.place.name()))
    }

    fn make(&self, store: &FileDisk, geometry: Geometry, record: &Record) -> Result<()> {
        Ok(BlockCache::format_of(store, geometry, self.disk, record.cache, self.identity, record.generation)?)
    }
}

impl Without for Backing {
    fn record(&self) -> Result<Option<Record>> {
        Ok(Backing::record(self).cloned())
    }

    fn volume(&self) -> Result<Option<[u8; 16]>> {
        Ok(Backing::volume(self)?)
    }

    fn note(&mut self, record: Record) -> Result<()> {
        Ok(self.note_record(record)?)
    }

    fn make(&self, store: &FileDisk, geometry: Geometry, record: &Record) -> Result<()> {
        Ok(self.make_cache(store, geometry, record)?)
    }
}

/// A start that may find its cache lost.
pub(crate) struct Start<'a> {
    pub(crate) cache: &'a Path,
    pub(crate) backing: &'a Path,
    /// The backing store's identity, as a superblock names it.
    pub(crate) identity: Identity,
    /// The identity that the command line gave for a block device.
    pub(crate) given: Option<Identity>,
    pub(crate) asked: Option<IfLost>,
    /// True if the cache is opened whatever its record says, as far as possible.
    pub(crate) overruled: bool,
}

impl Start<'_> {
    /// Policy and mode given to `format`.
    ///
    /// # Errors
    /// If the record cannot be read, unless `overruled`.
    pub(crate) fn kept(&self, below: &dyn Without) -> Result<Kept> {
        match below.record() {
            Err(_) if self.overruled => Ok(Kept::default()),
            record => Ok(Kept::of(record?.as_ref())),
        }
    }

    /// Looks at the place of the cache, decides and acts. `damage` is why an attempt to open an existing cache failed.
    ///
    /// # Errors
    /// A refusal that names the contents found and the command to go on. Nothing is changed then.
    pub(crate) fn settle(&self, below: &mut dyn Without, damage: Option<&str>) -> Result<Settled> {
        if self.overruled {
            return Ok(Settled::Found);
        }
        let record = below.record()?;
        let found = match damage {
            Some(why) => Look::Damaged(why.to_owned()),
            None => {
                let backing = look::Below { path: self.backing, identity: self.identity };
                look(self.cache, backing, record.as_ref(), below.volume()?)?
            }
        };
        let mark = match &record {
            None => Mark::NoRecord,
            Some(Record { complete: true, .. }) => Mark::Complete,
            Some(_) => Mark::Incomplete,
        };
        let (name, said) = (self.cache.display(), found.words(self.backing));
        match (decide(&found, mark, self.asked), record) {
            (Action::Open, _) => Ok(Settled::Found),
            (Action::Refuse(way), record) => {
                let choices = record.and_then(|record| record.choices);
                Err(self.refusal(&found, mark, way, choices.as_ref()))
            }
            (Action::Recreate, Some(record)) => {
                self.recreate(below, &found, record).with_context(|| format!("{name}: making it anew"))?;
                let lost = match mark {
                    Mark::Complete => "nothing was lost with it",
                    _ => "pages that it alone had are lost, as --if-lost recreate accepts",
                };
                Ok(Settled::Recreated(format!("{said}; it was made anew, and is empty: {lost}")))
            }
            (Action::Bypass, Some(record)) => {
                let generation = next(record.generation)?;
                // The raised generation makes the cache an older one, which cannot come back unnoticed.
                below.note(Record { generation, ..record })?;
                let backing = self.backing.display();
                Ok(Settled::Bypassed(format!(
                    "{said}; {backing} is served without a cache, and this one is out of date from now on"
                )))
            }
            (Action::Recreate | Action::Bypass, None) => unreachable!("without a record nothing is done"),
        }
    }

    /// Makes the cache anew with the choices of `format`. The record is durable first. After a crash in between, the
    /// record names a cache that does not exist, and any old cache is out of date.
    fn recreate(&self, below: &mut dyn Without, found: &Look, record: Record) -> Result<()> {
        let choices = record.choices.clone();
        let store = self.space(found, choices.as_ref())?;
        let known = geometry(&store, choices.as_ref())?;
        let geometry = known.with_context(|| {
            let format = command::format(self.cache, self.backing, self.given, None, found.is_something());
            format!("its settings are not known: make it by `{format}`")
        })?;
        let record = Record { cache: random()?, generation: next(record.generation)?, complete: true, ..record };
        below.note(record.clone())?;
        below.make(&store, geometry, &record)
    }

    /// The file or device of the cache, at its earlier size.
    fn space(&self, found: &Look, choices: Option<&Choices>) -> Result<FileDisk> {
        if let Some(choices) = choices.filter(|choices| choices.kind == CacheKind::File) {
            let missing = matches!(found, Look::Missing(_));
            let file = OpenOptions::new().write(true).create_new(missing).mode(0o600).open(self.cache)?;
            if file.metadata()?.is_file() {
                // A process that uses the file is noticed here, before the file changes.
                let held = hold(self.cache, Caching::Buffered)?;
                if Disk::size_bytes(&held) < choices.size_bytes {
                    drop(held);
                    let made = take_room(&file, choices.size_bytes);
                    made.inspect_err(|_| drop(missing.then(|| std::fs::remove_file(self.cache))))?;
                }
            }
        }
        hold(self.cache, Caching::Buffered)
    }

    fn refusal(&self, found: &Look, mark: Mark, way: Way, choices: Option<&Choices>) -> anyhow::Error {
        let (name, said, backing) = (self.cache.display(), found.words(self.backing), self.backing.display());
        let state = match mark {
            Mark::Complete => format!("{backing} is complete without it"),
            Mark::Incomplete => format!("{backing} is not complete without what only the cache has"),
            Mark::NoRecord => format!("{backing} has no record of a cache"),
        };
        let words: Vec<_> = std::env::args_os().collect();
        let again = |if_lost| command::again(&words, if_lost);
        let format = |force| command::format(self.cache, self.backing, self.given, choices, force);
        let (command, without) = match way {
            Way::Recreate => {
                let force = found.is_something() || mark == Mark::Incomplete;
                (again(IfLost::Recreate).unwrap_or_else(|| format(force)), None)
            }
            Way::Bypass => (again(IfLost::Bypass).unwrap_or_else(|| format(true)), None),
            Way::Format { force } => (format(force || mark == Mark::Incomplete), again(IfLost::Bypass)),
            Way::First { force } => (format(force), None),
            Way::None => return anyhow!("{name}: {said}"),
        };
        let how = match (mark, way) {
            (Mark::Incomplete, _) => "to lose that",
            (_, Way::Bypass) => "to go without it",
            _ => "to make it anew",
        };
        let without = without.map_or(String::new(), |command| format!("; to go without it: {command}"));
        anyhow!("{name}: {said}; {state}; {how}: {command}{without}")
    }
}

/// The generation after this one, with a random nonce.
fn next(generation: Generation) -> Result<Generation> {
    let nonce = u64::from_le_bytes(random()?[..8].try_into().expect("eight bytes"));
    Ok(Generation { number: generation.number + 1, nonce })
}

/// Geometry of a recreated cache: the earlier one if it fits; none if it is not known.
fn geometry(store: &FileDisk, choices: Option<&Choices>) -> Result<Option<Geometry>> {
    let size = Disk::size_bytes(store);
    // A cache of an earlier release left its geometry in the superblock alone.
    let before = choices.map(|choices| choices.geometry);
    let before =
        before.or_else(|| entresol_fsck::superblock(&HeldBytes(store)).ok().map(|found| translation::geometry(&found)));
    match before {
        Some(geometry) if geometry.size_bytes() <= size => Ok(Some(geometry)),
        Some(Geometry { page_bytes, layout, .. }) => {
            let geometry = Geometry::for_device(size, page_bytes, layout)?;
            geometry.check()?;
            Ok(Some(geometry))
        }
        None => Ok(None),
    }
}

/// The reason why a cache could not be opened if it is damaged or incomplete; none for any other error.
pub(crate) fn damage(error: &anyhow::Error) -> Option<String> {
    let store = match error.downcast_ref::<CacheError>()? {
        CacheError::Store(store) => store,
        _ => return None,
    };
    use StoreError::{Damaged, Retired, Shrunk, Superblocks};
    matches!(store, Superblocks | Shrunk { .. } | Retired | Damaged { .. }).then(|| store.to_string())
}

/// Opens; if the cache is damaged, opens once more with the reason.
pub(crate) fn twice<T>(open: impl Fn(Option<&str>) -> Result<Opened<T>>) -> Result<Opened<T>> {
    match open(None) {
        Err(error) => match damage(&error) {
            Some(why) => open(Some(&why)),
            None => Err(error),
        },
        opened => opened,
    }
}

/// The error for a backing store that cannot be opened, with the number of pages that only its cache has.
pub fn without_backing(cache: &Path, error: anyhow::Error) -> anyhow::Error {
    let missing = error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound);
    match dirty_pages_at(cache) {
        dirty @ 1.. if missing => error.context(format!(
            "the backing store, of which {} holds {dirty} dirty pages, is not there (is its file system mounted?)",
            cache.display()
        )),
        _ => error,
    }
}
