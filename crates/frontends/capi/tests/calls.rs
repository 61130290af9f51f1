//! Tests of the answers of each function, called as C would.

use entresol_capi::{
    Cache, Code, FormatOptions, OpenOptions, Stats, entresol_close, entresol_discard, entresol_drain, entresol_flush,
    entresol_format, entresol_get_stats, entresol_last_error, entresol_open, entresol_read, entresol_set_mode,
    entresol_set_policy, entresol_size_bytes, entresol_write,
};
use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr::{null, null_mut};

const BACKING: usize = 1_000_000;

fn text(path: &Path) -> CString {
    CString::new(path.to_str().expect("text")).expect("no zero")
}

fn last() -> String {
    // SAFETY: the pointer is a text, valid until the next failure of this thread.
    unsafe { CStr::from_ptr(entresol_last_error()) }.to_str().expect("text").to_owned()
}

#[track_caller]
fn is(code: Code, answer: c_int, says: &str) {
    assert_eq!(answer, code as c_int, "{}", last());
    if code != Code::Ok {
        assert!(last().contains(says), "'{says}' is not in: {}", last());
    }
}

struct Files {
    _scratch: tempfile::TempDir,
    cache: CString,
    backing: CString,
}

fn files() -> Files {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::fs::write(scratch.path().join("backing"), vec![0; BACKING]).expect("a file");
    let [cache, backing] = ["cache", "backing"].map(|name| text(&scratch.path().join(name)));
    Files { _scratch: scratch, cache, backing }
}

impl Files {
    fn format(&self, options: &FormatOptions) -> c_int {
        // SAFETY: texts and options are valid.
        unsafe { entresol_format(self.cache.as_ptr(), self.backing.as_ptr(), options) }
    }

    fn formatted(self) -> Self {
        is(Code::Ok, self.format(&FormatOptions { size_bytes: 1 << 20, ..FormatOptions::default() }), "");
        self
    }

    fn open(&self, policy: Option<&CStr>, mode: u32) -> (c_int, *mut Cache) {
        let policy = policy.map_or(null(), CStr::as_ptr);
        let options = OpenOptions { policy, memory_bytes: 0, cache_pages: 0, mode, reserved: 0 };
        let mut cache = null_mut();
        // SAFETY: texts and options are valid, and the cache may be written.
        let code = unsafe { entresol_open(self.cache.as_ptr(), self.backing.as_ptr(), &options, &mut cache) };
        (code, cache)
    }
}

fn read(cache: *const Cache, offset: u64, length: usize) -> (c_int, Vec<u8>) {
    let mut bytes = vec![9; length];
    // SAFETY: the cache is open or null, the bytes are valid.
    let code = unsafe { entresol_read(cache, offset, bytes.as_mut_ptr().cast(), length) };
    (code, bytes)
}

fn write(cache: *const Cache, offset: u64, bytes: &[u8], durable: bool) -> c_int {
    // SAFETY: the cache is open or null, the bytes are valid.
    unsafe { entresol_write(cache, offset, bytes.as_ptr().cast(), bytes.len(), durable.into()) }
}

fn stats(cache: *const Cache) -> Stats {
    let mut stats = Stats { struct_bytes: size_of::<Stats>() as u64, ..Stats::default() };
    // SAFETY: the cache is open, the counts may be written.
    is(Code::Ok, unsafe { entresol_get_stats(cache, &mut stats) }, "");
    stats
}

#[test]
fn an_older_copy_of_a_cache_and_a_second_cache_are_refused() {
    let files = files().formatted();
    let cache = Path::new(files.cache.to_str().expect("text")).to_owned();
    let life = |byte: u8| {
        let (code, cache) = files.open(None, 0);
        is(Code::Ok, code, "");
        is(Code::Ok, write(cache, 0, &[byte; 4096], true), "");
        // SAFETY: the cache is open, and not used after this.
        is(Code::Ok, unsafe { entresol_close(cache) }, "");
    };
    life(1);
    let old = std::fs::read(&cache).expect("a cache");
    life(2);
    let newest = std::fs::read(&cache).expect("a cache");
    std::fs::write(&cache, old).expect("a write");
    is(Code::NotCache, files.open(None, 0).0, "this cache is an older copy");
    std::fs::remove_file(&cache).expect("a cache");
    let options = FormatOptions { size_bytes: 1 << 20, ..FormatOptions::default() };
    is(Code::Exists, files.format(&options), "another cache has what it has not");
    assert!(!cache.exists());
    std::fs::write(&cache, newest).expect("a write");
    life(3);
}

#[test]
fn bytes_counts_modes_and_policies() {
    let files = files().formatted();
    let (code, cache) = files.open(None, 0);
    is(Code::Ok, code, "");
    // SAFETY: the cache is open until it is closed.
    unsafe {
        assert_eq!(entresol_size_bytes(cache), BACKING as u64);
        is(Code::Ok, write(cache, 5000, &[7; 10_000], true), "");
        assert_eq!(read(cache, 4999, 10_002), (0, [&[0][..], &[7; 10_000], &[0]].concat()));
        is(Code::Ok, entresol_read(cache, 0, null_mut(), 0), "");
        let before = stats(cache);
        assert_eq!((before.page_bytes, before.mode, before.failed, before.lost_pages), (4096, 0, 0, 0));
        assert!(before.writes == 3 && before.dirty_pages == 3 && before.cache_syncs > 0, "{before:?}");
        is(Code::Ok, entresol_set_policy(cache, c"lru".as_ptr()), "");
        assert_eq!(read(cache, 5000, 10_000).1, [7; 10_000]);
        assert_eq!(stats(cache).read_hits, before.read_hits + 3, "what was cached stayed");
        is(Code::Ok, entresol_set_mode(cache, 1), "");
        assert_eq!((stats(cache).dirty_pages, stats(cache).mode), (0, 1));
        is(Code::Ok, entresol_discard(cache, 0, 4096), "");
        is(Code::Ok, entresol_flush(cache), "");
        is(Code::Ok, entresol_drain(cache), "");
        is(Code::Ok, entresol_close(cache), "");
        is(Code::Ok, entresol_close(null_mut()), "");
    }
    let below = std::fs::read(files.backing.to_str().expect("text")).expect("the backing file");
    assert_eq!(below[5000..15_000], [7; 10_000]);
}

#[test]
fn what_is_wrong_is_told_by_a_code_and_a_line() {
    let files = files();
    is(Code::NotFound, files.open(None, 0).0, "cache: No such file");
    is(Code::Argument, files.format(&FormatOptions::default()), "size_bytes is 0");
    let of = |size_bytes, page_bytes| FormatOptions { size_bytes, page_bytes, force: 0 };
    is(Code::Argument, files.format(&of(1 << 20, 1000)), "power of two");
    is(Code::Argument, files.format(&of(1 << 12, 0)), "fewer than 8 segments");
    assert!(!Path::new(files.cache.to_str().expect("text")).exists(), "what was made is removed");
    let files = files.formatted();
    is(Code::Exists, files.format(&of(1 << 20, 0)), "is there already");
    is(Code::Ok, files.format(&FormatOptions { force: 1, ..FormatOptions::default() }), "");
    is(Code::Policy, files.open(Some(c"lur"), 0).0, "no policy 'lur'");
    is(Code::Policy, files.open(Some(c"min"), 0).0, "future");
    is(Code::Policy, files.open(Some(c"lru:colour=red"), 0).0, "no option 'colour'");
    is(Code::Argument, files.open(None, 4).0, "4 is no mode");
    let (code, cache) = files.open(Some(c"lru"), 3);
    is(Code::Ok, code, "");
    let (code, second) = files.open(Some(c"lru"), 3);
    is(Code::InUse, code, "in use");
    assert!(second.is_null());
    is(Code::ReadOnly, write(cache, 0, &[1], false), "read-only");
    is(Code::Argument, read(cache, BACKING as u64, 1).0, "1 bytes at 1000000");
    is(Code::Argument, write(cache, u64::MAX, &[1], false), "18446744073709551615");
    // SAFETY: null is refused; the cache is open.
    unsafe {
        is(Code::Argument, entresol_read(cache, 0, null_mut(), 1), "bytes is null");
        is(Code::Argument, entresol_write(cache, 0, null(), 1, 0), "bytes is null");
        is(Code::Argument, entresol_write(cache, 0, [1u8].as_ptr().cast(), usize::MAX, 0), "length");
        is(Code::Argument, entresol_get_stats(cache, null_mut()), "stats is null");
        is(Code::Argument, entresol_get_stats(cache, &mut Stats::default()), "struct_bytes");
        is(Code::Argument, entresol_set_mode(cache, 9), "9 is no mode");
        is(Code::Argument, entresol_set_policy(cache, null()), "policy is null");
        is(Code::Argument, entresol_flush(null()), "the cache is null");
        is(Code::Argument, entresol_open(null(), null(), null(), null_mut()), "opened is null");
        assert_eq!(entresol_size_bytes(null()), 0);
        let mut short = Stats { struct_bytes: 16, ..Stats::default() };
        is(Code::Ok, entresol_get_stats(cache, &mut short), "");
        assert_eq!((short.struct_bytes, short.page_bytes, short.mode), (16, 4096, 0), "no more than was asked for");
        is(Code::Ok, entresol_close(cache), "");
    }
    let other = std::thread::spawn(last).join().expect("no panic");
    assert_eq!(other, "", "each thread has its own line");
    std::fs::write(files.cache.to_str().expect("text"), vec![1; 1 << 20]).expect("noise");
    is(Code::NotCache, files.open(None, 0).0, "not an Entresol cache");
}

#[test]
fn a_cache_is_used_by_many_threads() {
    struct Shared(*mut Cache);
    // SAFETY: the header allows it.
    unsafe impl Sync for Shared {}
    let files = files().formatted();
    let shared = Shared(files.open(None, 0).1);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let shared = &shared;
            scope.spawn(move || {
                for page in (thread..200).step_by(4) {
                    is(Code::Ok, write(shared.0, page * 4096, &[page as u8; 4096], page % 50 == 0), "");
                    assert_eq!(read(shared.0, page * 4096, 4096).1, [page as u8; 4096]);
                }
            });
        }
    });
    // SAFETY: this is the last use of the cache.
    is(Code::Ok, unsafe { entresol_close(shared.0) }, "");
}

#[test]
fn a_cache_file_is_its_owners_alone_from_its_next_open_on() {
    use std::os::unix::fs::PermissionsExt;
    let files = files().formatted();
    let cache = files._scratch.path().join("cache");
    let mode = || std::fs::metadata(&cache).expect("a cache").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600, "a new one");
    std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o644)).expect("a mode");
    let (code, opened) = files.open(None, 0);
    is(Code::Ok, code, "");
    assert_eq!(mode(), 0o600, "one of an earlier release");
    // SAFETY: the cache was just opened.
    is(Code::Ok, unsafe { entresol_close(opened) }, "");
}
