//! The block cache for programs in C. `include/entresol.h` is the documentation; one test compares the two, and another
//! compiles and runs `examples/copy.c`.

mod call;
mod code;
mod error;
mod files;

pub use code::Code;

use call::{Result, argument, call, text};
use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheStats, Mode, counters};
use entresol_files::record::StorePair;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// An open cache: `entresol_cache` of the header.
pub struct Cache {
    cache: Arc<BlockCache>,
    /// The cache with the record of its backing store.
    pair: StorePair,
}

/// Settings of a new cache: `entresol_format_options` of the header.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct FormatOptions {
    /// Size of the cache in bytes; 0 for the file's size.
    pub size_bytes: u64,
    /// Bytes of a page; 0 for 4096.
    pub page_bytes: u32,
    /// Not 0 to overwrite existing contents.
    pub force: u32,
}

/// Settings of an open cache: `entresol_open_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOptions {
    /// The policy; null for that of the layout: reuse over a cache that `entresol_format` makes, else face-gsc.
    pub policy: *const c_char,
    /// Memory of an upper tier in bytes; 0 for the policy's share.
    pub memory_bytes: u64,
    /// Pages of the lower tier; 0 for all that fit.
    pub cache_pages: u64,
    /// A number of `mode`.
    pub mode: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Counts and state: `entresol_stats` of the header, which explains the fields.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct Stats {
    pub struct_bytes: u64,
    pub page_bytes: u64,
    pub reads: u64,
    pub read_hits: u64,
    pub writes: u64,
    pub write_hits: u64,
    pub fetches: u64,
    pub admissions: u64,
    pub write_backs: u64,
    pub bypasses: u64,
    pub dirty_pages: u64,
    pub lost_pages: u64,
    pub cache_writes: u64,
    pub cache_written_bytes: u64,
    pub cache_syncs: u64,
    pub backing_reads: u64,
    pub backing_writes: u64,
    pub backing_written_pages: u64,
    pub backing_syncs: u64,
    pub mode: u32,
    pub failed: u32,
}

fn mode(number: u32) -> Result<Mode> {
    match number {
        0 => Ok(Mode::WriteBack),
        1 => Ok(Mode::WriteThrough),
        2 => Ok(Mode::WriteAround),
        3 => Ok(Mode::ReadOnly),
        other => Err(argument(&format!("{other} is no mode; they are 0 to 3"))),
    }
}

fn mode_number(mode: Mode) -> u32 {
    match mode {
        Mode::WriteBack => 0,
        Mode::WriteThrough => 1,
        Mode::WriteAround => 2,
        Mode::ReadOnly => 3,
    }
}

/// The cache behind a pointer.
///
/// # Safety
/// `cache` is null or came from [`entresol_open`] and was not closed.
unsafe fn open<'a>(cache: *const Cache) -> Result<&'a Cache> {
    // SAFETY: as the caller promises.
    unsafe { cache.as_ref() }.ok_or_else(|| argument("the cache is null"))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn entresol_api_version() -> u32 {
    1
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn entresol_last_error() -> *const c_char {
    call::last()
}

/// See the header.
///
/// # Safety
/// Texts end in zero; `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_format(
    cache: *const c_char,
    backing: *const c_char,
    options: *const FormatOptions,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises, for all three.
        let (cache, backing, options) =
            unsafe { (text(cache, "cache")?, text(backing, "backing")?, options.as_ref().copied()) };
        files::format(files::path(cache), files::path(backing), options.unwrap_or_default())
    })
}

/// See the header.
///
/// # Safety
/// Texts end in zero; `options` is null or points to options; `opened` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_open(
    cache: *const c_char,
    backing: *const c_char,
    options: *const OpenOptions,
    opened: *mut *mut Cache,
) -> c_int {
    call(|| {
        if opened.is_null() {
            return Err(argument("opened is null"));
        }
        // SAFETY: `opened` may be written, as the caller promises.
        unsafe { opened.write(std::ptr::null_mut()) };
        // SAFETY: as the caller promises.
        let (cache, backing, options) = unsafe { (text(cache, "cache")?, text(backing, "backing")?, options.as_ref()) };
        let (memory_bytes, cache_pages, number, reserved) =
            options.map_or((0, 0, 0, 0), |o| (o.memory_bytes, o.cache_pages, o.mode, o.reserved));
        if reserved != 0 {
            return Err(argument("reserved is not 0"));
        }
        let policy = match options.map(|options| options.policy).filter(|policy| !policy.is_null()) {
            // SAFETY: as the caller promises.
            Some(policy) => Some(files::policy_of(unsafe { text(policy, "policy")? })?),
            None => None,
        };
        let how = files::How { policy, memory_bytes, cache_pages, mode: mode(number)? };
        let cache = files::open(files::path(cache), files::path(backing), how)?;
        // SAFETY: `opened` may be written, as the caller promises.
        unsafe { opened.write(Box::into_raw(Box::new(cache))) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `cache` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_size_bytes(cache: *const Cache) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { open(cache) }.map_or(0, |cache| cache.cache.size_bytes())
}

/// See the header.
///
/// # Safety
/// `cache` is null or open; `bytes` may be written for `length` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_read(cache: *const Cache, offset: u64, bytes: *mut c_void, length: usize) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let cache = unsafe { open(cache) }?;
        // SAFETY: `bytes` may be written, as the caller promises.
        let bytes = unsafe { call::bytes_mut(bytes, length) }?;
        Ok(cache.cache.read(offset, bytes)?)
    })
}

/// See the header.
///
/// # Safety
/// `cache` is null or open; `bytes` may be read for `length` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_write(
    cache: *const Cache,
    offset: u64,
    bytes: *const c_void,
    length: usize,
    durable: c_int,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let cache = unsafe { open(cache) }?;
        // SAFETY: `bytes` may be read, as the caller promises.
        let bytes = unsafe { call::bytes(bytes, length) }?;
        Ok(cache.cache.write(offset, bytes, durable != 0)?)
    })
}

/// See the header.
///
/// # Safety
/// `cache` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_flush(cache: *const Cache) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let cache = unsafe { open(cache) }?;
        cache.cache.flush()?;
        // A generation that could not be raised is tried again later. The flush holds without it.
        let _older_copies_are_told_later = cache.pair.raise_if_due();
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `cache` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_discard(cache: *const Cache, offset: u64, length: u64) -> c_int {
    // SAFETY: as the caller promises.
    call(|| Ok(unsafe { open(cache) }?.cache.discard(offset, length)?))
}

/// See the header.
///
/// # Safety
/// `cache` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_set_mode(cache: *const Cache, number: u32) -> c_int {
    // SAFETY: as the caller promises.
    call(|| Ok(unsafe { open(cache) }?.pair.set_mode(mode(number)?)?))
}

/// See the header.
///
/// # Safety
/// `cache` is null or open; `policy` ends in zero, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_set_policy(cache: *const Cache, policy: *const c_char) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (cache, policy) = unsafe { (open(cache)?, text(policy, "policy")?) };
        let (info, options) = files::policy_of(policy)?;
        let tiers = cache.cache.config().tiers_under(info);
        Ok(cache.cache.set_policy(info, &options, &tiers)?)
    })
}

/// See the header.
///
/// # Safety
/// `cache` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_drain(cache: *const Cache) -> c_int {
    // SAFETY: as the caller promises.
    call(|| Ok(unsafe { open(cache) }?.cache.drain()?))
}

/// See the header.
///
/// # Safety
/// `cache` is null or open; `stats` is null or may be written for as many bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_get_stats(cache: *const Cache, stats: *mut Stats) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let cache = unsafe { open(cache) }?;
        if stats.is_null() {
            return Err(argument("stats is null"));
        }
        // SAFETY: the first field exists, as the caller promises.
        let space = unsafe { stats.cast::<u64>().read() };
        if space < size_of::<u64>() as u64 {
            return Err(argument("struct_bytes is not set"));
        }
        let length = (space as usize).min(size_of::<Stats>());
        let lost_pages = cache.cache.lost_pages()?.len() as u64;
        let filled = Stats { struct_bytes: length as u64, ..Stats::new(&cache.cache.stats()?, lost_pages) };
        // SAFETY: `length` bytes may be written, as the caller promises, and the source has as many.
        unsafe { std::ptr::from_ref(&filled).cast::<u8>().copy_to_nonoverlapping(stats.cast::<u8>(), length) };
        Ok(())
    })
}

/// Makes [`Stats::new`]: the counters from their declarations, and the state.
macro_rules! stats {
    ($($(#[$_doc:meta])* $_group:ident: $_type:ident {
        $($(#[$_meta:meta])* $_key:ident: $_value:ty = $of:expr, $_text:literal
            $(, c($field:ident))? $(, metric($($_metric:tt)*))?;)*
    } {})*) => {
        impl Stats {
            fn new(stats: &CacheStats, lost_pages: u64) -> Self {
                fn count(stats: &CacheStats, of: fn(&CacheStats) -> u64) -> u64 {
                    of(stats)
                }
                Stats {
                    struct_bytes: 0,
                    page_bytes: stats.page_bytes.into(),
                    dirty_pages: stats.dirty_pages,
                    lost_pages,
                    mode: mode_number(stats.mode),
                    failed: u32::from(stats.failed.is_some()),
                    $($($($field: count(stats, $of),)?)*)*
                }
            }
        }
    };
}

counters!(stats {} {} {});

/// See the header.
///
/// # Safety
/// `cache` is null or open, and no other call with it is under way or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_close(cache: *mut Cache) -> c_int {
    call(|| {
        if cache.is_null() {
            return Ok(());
        }
        // SAFETY: the pointer came from `Box::into_raw`, and this is its last use, as the caller promises.
        let cache = unsafe { Box::from_raw(cache) };
        cache.pair.close()?;
        // Without it the policy learns anew, and there is no one to report that to.
        let _kept = cache.pair.keep_learned_if_paid();
        Ok(())
    })
}
