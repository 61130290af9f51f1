//! Caches between two paths.

use crate::call::{Failure, Result, argument};
use crate::code::Code;
use crate::{Cache, FormatOptions};
use entresol_cache::{BlockCache, CacheConfig, Mode, Objects};
use entresol_disk::{Caching, Disk, FileDisk, file_identity, patiently, take_room};
use entresol_files::record::{LastWrite, Record, StorePair, place_of, read_record};
use entresol_policy::{Info, Options, catalogue};
use entresol_store::{Geometry, Layout};
use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Settings of an open cache.
pub(crate) struct How {
    /// None: that of the cache's layout.
    pub policy: Option<(&'static Info, Options)>,
    pub memory_bytes: u64,
    pub cache_pages: u64,
    pub mode: Mode,
}

pub(crate) fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// A policy that a caller names.
pub(crate) fn policy_of(text: &CStr) -> Result<(&'static Info, Options)> {
    policy(text.to_str().map_err(|_| argument("policy is not UTF-8"))?)
}

/// A policy and its options: `NAME` or `NAME:OPTION=VALUE:...`.
fn policy(text: &str) -> Result<(&'static Info, Options)> {
    let mut parts = text.split(':');
    let wrong = |error: entresol_policy::BuildError| Failure(Code::Policy, error.to_string());
    let info = catalogue::info(parts.next().unwrap_or_default()).map_err(wrong)?;
    Ok((info, Options::parse(info, parts).map_err(wrong)?))
}

fn named(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| {
        let Failure(code, text) = error.into();
        Failure(code, format!("{}: {text}", path.display()))
    }
}

fn hold(path: &Path) -> Result<FileDisk> {
    patiently(|| FileDisk::open(path, Caching::Buffered)).map_err(named(path))
}

/// Locks the cache and the backing store, which must be two files. Also returns the backing store's identity.
fn hold_both(cache: &Path, backing: &Path) -> Result<(FileDisk, FileDisk, [u8; 16])> {
    let number = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).map_err(named(path));
    if number(cache)? == number(backing)? {
        return Err(argument("one file is given as the cache and as the backing store"));
    }
    let identity = file_identity(backing).map_err(named(backing))?;
    Ok((hold(cache)?, hold(backing)?, identity))
}

pub(crate) fn format(cache: &Path, backing: &Path, options: FormatOptions) -> Result<()> {
    let made = !cache.exists();
    if !made && options.force == 0 {
        return Err(Failure(Code::Exists, format!("{}: is there already; force overwrites it", cache.display())));
    }
    if made {
        if options.size_bytes == 0 {
            return Err(argument("size_bytes is 0, and there is no file whose size could be taken"));
        }
        // `create_new`: no other user's file may appear in between and be taken for the new one.
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(cache);
        let new = new.map_err(named(cache))?;
        let space = take_room(&new, options.size_bytes).map_err(named(cache));
        space.inspect_err(|_| drop(std::fs::remove_file(cache)))?;
    }
    let done = format_there(cache, backing, options);
    if done.is_err() && made {
        // The first error is reported, not one of removing the file.
        let _ = std::fs::remove_file(cache);
    }
    done
}

fn format_there(cache: &Path, backing: &Path, options: FormatOptions) -> Result<()> {
    let (held, below, identity) = hold_both(cache, backing)?;
    if below.size_bytes() == 0 {
        return Err(argument("the backing store is empty"));
    }
    let page_bytes = if options.page_bytes == 0 { 4096 } else { options.page_bytes };
    Geometry { page_bytes, segment_pages: 4, segments: 8, layout: Layout::Log }.check()?;
    let size = if options.size_bytes == 0 { held.size_bytes() } else { options.size_bytes };
    let geometry = Geometry::for_device(size, page_bytes, Layout::default())?;
    if size > held.size_bytes() {
        OpenOptions::new().write(true).open(cache).and_then(|file| take_room(&file, size)).map_err(named(cache))?;
    }
    // A disk keeps the size that it had when it was opened, so the cache is opened again.
    drop(held);
    let held = hold(cache)?;
    let mut uuid = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut uuid))?;
    let place = place_of(backing, identity).map_err(named(backing))?;
    if options.force == 0 && read_record(&*place)?.is_some_and(|record| !record.complete) {
        let text = format!("{}: another cache has what it has not; force loses that", backing.display());
        return Err(Failure(Code::Exists, text));
    }
    let record = Record::first(uuid, place.volume()?, None);
    BlockCache::format_of(&held, geometry, &below, uuid, identity, record.generation)?;
    Ok(place.write(&record).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place.name())))?)
}

pub(crate) fn open(cache: &Path, backing: &Path, how: How) -> Result<Cache> {
    let (held, below, identity) = hold_both(cache, backing)?;
    let geometry = entresol_store::geometry(&held)?;
    let pages = if how.cache_pages == 0 { geometry.capacity_pages() } else { how.cache_pages };
    let default = || entresol_cache::default_policy(geometry.layout);
    let (info, options) = how.policy.map_or_else(|| policy(default()), Ok)?;
    let memory = (how.memory_bytes > 0).then(|| how.memory_bytes / u64::from(geometry.page_bytes));
    let tiers = entresol_cache::tiers(info, pages, memory);
    let config = CacheConfig { options, mode: how.mode, ..CacheConfig::new(info, &tiers) };
    let last_write = LastWrite::of(place_of(backing, identity).map_err(named(backing))?);
    let opening = BlockCache::find(held, last_write.over(below), identity, &config, Objects::new(1))?;
    let pair = StorePair::start_in_program(opening, last_write, cache)?;
    // An earlier release may have left the file open to others. There is no one to report this to here.
    let _before = File::open(cache).ok().and_then(entresol_files::close_to_others);
    Ok(Cache { cache: pair.cache().clone(), pair })
}
