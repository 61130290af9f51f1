//! Scenarios about reading and writing: edges, positions, flags of open files, holes, mappings, copies.

use super::record::Record;
use super::scenario::{Scenario, anybody, scenarios};
use super::sys::{self, Map, call};
use std::os::fd::{AsRawFd, OwnedFd};

/// A pattern in which each byte depends on its offset.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i / 251 + i % 251) as u8).collect()
}

fn opened(seen: &Record, name: &str, flags: i32) -> OwnedFd {
    sys::open(&seen.path(name), flags, 0o644).unwrap_or_else(|errno| panic!("{name}: {}", sys::name(errno)))
}

/// A file `f` of these bytes, open and with all rights.
fn with(seen: &Record, bytes: &[u8]) -> OwnedFd {
    sys::make(&seen.path("f"), bytes)
}

/// A file with data at these pages of 4 KiB and holes before and between.
fn sparse(seen: &Record, pages: &[i64], size: i64) -> OwnedFd {
    let file = with(seen, b"");
    sys::set_size(&file, size).expect("a size");
    for page in pages {
        sys::pwrite(&file, &pattern(4096), page * 4096).expect("a page");
    }
    file
}

fn edges() -> Vec<Scenario> {
    scenarios!(anybody about "bytes";
        "reads at the end" => |seen| {
            let file = with(seen, &pattern(5000));
            for (offset, count) in [(0, 0), (4990, 5), (4990, 100), (5000, 1), (5001, 1), (1 << 40, 1), (i64::MAX, 1), (-1, 1)] {
                seen.note(&format!("pread of {count} at {offset}"), sys::pread(&file, count, offset));
            }
        };
        "writes beyond the end" => |seen| {
            let file = with(seen, b"begin");
            seen.note("pwrite", sys::pwrite(&file, b"far", 10_000));
            seen.note("pwrite of nothing far out", sys::pwrite(&file, b"", 100_000));
            seen.note("pwrite before 0", sys::pwrite(&file, b"x", -1));
            seen.note("pwrite at the largest offset", sys::pwrite(&file, b"x", i64::MAX));
            seen.look("f");
            seen.read("f");
        };
        "writes across the end" => |seen| {
            let file = with(seen, &pattern(4096));
            seen.note("pwrite", sys::pwrite(&file, &[7; 8192], 4000));
            seen.note("pwrite of a byte", sys::pwrite(&file, b"!", 12_191));
            seen.look("f");
            seen.read("f");
        };
        "positions" => |seen| {
            let file = with(seen, &pattern(300));
            for (offset, whence) in [(10, libc::SEEK_SET), (5, libc::SEEK_CUR), (-20, libc::SEEK_CUR), (-10, libc::SEEK_END), (10, libc::SEEK_END),
                (-301, libc::SEEK_END), (-1, libc::SEEK_SET), (0, 17), (1 << 40, libc::SEEK_SET)] {
                seen.note(&format!("lseek {offset} from {whence}"), sys::seek(&file, offset, whence));
                seen.note("position", sys::seek(&file, 0, libc::SEEK_CUR));
            }
            seen.note("write there", sys::seek(&file, 290, libc::SEEK_SET).and_then(|_| sys::write(&file, &[1; 20])));
            seen.note("position", sys::seek(&file, 0, libc::SEEK_CUR));
            seen.note("read there", sys::read(&file, 10));
        };
        "a position beyond what the file system can hold" => |seen| {
            let file = with(seen, b"x");
            seen.note("lseek to 2^62", sys::seek(&file, 1 << 62, libc::SEEK_SET));
        };
        "a file too large" => |seen| {
            let file = with(seen, b"x");
            seen.note("pwrite at 2^62", sys::pwrite(&file, b"x", 1 << 62));
            seen.note("ftruncate to 2^62", sys::set_size(&file, 1 << 62));
            seen.note("fallocate up to 2^62", sys::allocate(&file, 0, 1 << 62, 4096));
            seen.note("fallocate of 2^50", sys::allocate(&file, 0, 0, 1 << 50));
            seen.look("f");
        };
        "two positions of one file" => |seen| {
            let (one, two) = (with(seen, &pattern(100)), opened(seen, "f", libc::O_RDWR));
            // SAFETY: a number for the same open file, which stays open until the end of the process.
            let copy = unsafe { libc::dup(one.as_raw_fd()) };
            seen.note("read by one", sys::read(&one, 10));
            seen.note("read by two", sys::read(&two, 10));
            seen.note("position of a copy", call!(lseek(copy, 0, libc::SEEK_CUR)));
            seen.note("write by two", sys::write(&two, b"two"));
            seen.note("read by one", sys::read(&one, 10));
            call!(close(copy)).expect("an open file");
        };
        "appending" => |seen| {
            let (one, two) = (with(seen, b"start"), opened(seen, "f", libc::O_RDWR | libc::O_APPEND));
            let three = opened(seen, "f", libc::O_WRONLY | libc::O_APPEND);
            seen.note("write by two", sys::write(&two, b"-two"));
            seen.note("write by three", sys::write(&three, b"-three"));
            seen.note("pwrite by two at 0", sys::pwrite(&two, b"-again", 0));
            seen.note("pwrite by one", sys::pwrite(&one, b"-one", 30));
            seen.note("write by three", sys::write(&three, b"-last"));
            seen.note("position", sys::seek(&three, 0, libc::SEEK_CUR));
            seen.read("f");
        };
        "an open file that may only be read, or only be written" => |seen| {
            drop(with(seen, b"bytes"));
            let (reader, writer) = (opened(seen, "f", libc::O_RDONLY), opened(seen, "f", libc::O_WRONLY));
            seen.note("write by the reader", sys::write(&reader, b"x"));
            seen.note("read by the writer", sys::read(&writer, 1));
            seen.note("ftruncate by the reader", sys::set_size(&reader, 0));
            seen.note("fallocate by the reader", sys::allocate(&reader, 0, 0, 10));
            seen.note("fsync by the reader", sys::fsync(&reader));
            seen.note("fdatasync by the writer", sys::fdatasync(&writer));
        };
        "sizes that are set" => |seen| {
            let file = with(seen, &pattern(10_000));
            for size in [5000, 4096, 4095, 100_000, 0, 1, 8192, -1] {
                seen.note(&format!("ftruncate to {size}"), sys::set_size(&file, size));
                seen.note("bytes", sys::pread(&file, 200_000, 0));
                seen.look("f");
            }
        };
        "what is cut off is zeros when the file grows again" => |seen| {
            let file = with(seen, &[9; 20_000]);
            sys::set_size(&file, 5001).expect("cut");
            sys::pwrite(&file, b"z", 9000).expect("written");
            sys::set_size(&file, 30_000).expect("grown");
            seen.read("f");
        };
        "flags of an open file" => |seen| {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_SYNC | libc::O_APPEND | libc::O_NOATIME | libc::O_NONBLOCK;
            let file = opened(seen, "f", flags);
            seen.note("fcntl", call!(fcntl(file.as_raw_fd(), libc::F_GETFL)));
            seen.note("write", sys::write(&file, b"x"));
            seen.note("without appending", call!(fcntl(file.as_raw_fd(), libc::F_SETFL, 0)));
            seen.note("fcntl", call!(fcntl(file.as_raw_fd(), libc::F_GETFL)));
            let file = opened(seen, "f", libc::O_RDWR | libc::O_DSYNC);
            seen.note("pwrite", sys::pwrite(&file, b"y", 5000));
            seen.read("f");
        };
        "direct I/O that is aligned" => |seen| {
            let file = opened(seen, "f", libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT);
            // A part of the buffer that begins at a multiple of 4096.
            let mut space = vec![5_u8; 4 * 4096];
            let start = space.as_ptr().align_offset(4096);
            let part = &mut space[start..start + 8192];
            seen.note("pwrite", call!(pwrite(file.as_raw_fd(), part.as_ptr().cast(), 8192, 4096)));
            part.fill(0);
            seen.note("pread", call!(pread(file.as_raw_fd(), part.as_mut_ptr().cast(), 8192, 8192)));
            seen.note("bytes", part.to_vec());
            seen.look("f");
        };
        "direct I/O that is not aligned" => |seen| {
            drop(with(seen, &pattern(5000)));
            let file = opened(seen, "f", libc::O_RDWR | libc::O_DIRECT);
            seen.note("pread of 10 bytes at 3", sys::pread(&file, 10, 3));
            seen.note("pwrite of 3 bytes at 7", sys::pwrite(&file, b"abc", 7));
        };
        "many buffers" => |seen| {
            let file = with(seen, b"");
            let parts = [&b"one"[..], b"", b"three"].map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
            seen.note("pwritev", call!(pwritev(file.as_raw_fd(), parts.as_ptr(), 3, 2)));
            seen.note("pwritev of none", call!(pwritev(file.as_raw_fd(), parts.as_ptr(), 0, 0)));
            seen.note("pwritev2 that appends", call!(pwritev2(file.as_raw_fd(), parts.as_ptr(), 1, 0, libc::RWF_APPEND)));
            seen.note("pwritev2 that syncs", call!(pwritev2(file.as_raw_fd(), parts.as_ptr(), 1, 0, libc::RWF_DSYNC)));
            seen.note("pwritev2 with an unknown flag", call!(pwritev2(file.as_raw_fd(), parts.as_ptr(), 1, 0, 1 << 30)));
            seen.read("f");
        };
        "large writes" => |seen| {
            let file = with(seen, b"");
            seen.note("write of 3 MiB", sys::write(&file, &pattern(3 << 20)));
            seen.note("write of 100 bytes in the middle", sys::pwrite(&file, &[1; 100], 1_500_000));
            seen.read("f");
        };
        "a folder is neither read nor written" => |seen| {
            let folder = sys::open(&seen.path(""), libc::O_RDONLY, 0).expect("a folder");
            seen.note("read", sys::read(&folder, 1));
            seen.note("write", sys::write(&folder, b"x"));
            seen.note("ftruncate", sys::set_size(&folder, 0));
            seen.note("fallocate", sys::allocate(&folder, 0, 0, 1));
            seen.note("fsync", sys::fsync(&folder));
            seen.note("fdatasync", sys::fdatasync(&folder));
            seen.note("lseek", sys::seek(&folder, 0, libc::SEEK_SET));
        };
        "advice and syncs of all kinds" => |seen| {
            let file = with(seen, &pattern(50_000));
            for advice in [libc::POSIX_FADV_NORMAL, libc::POSIX_FADV_WILLNEED, libc::POSIX_FADV_DONTNEED, libc::POSIX_FADV_RANDOM] {
                // SAFETY: of numbers alone.
                let answer = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
                seen.note(&format!("advice {advice}"), i64::from(answer));
            }
            seen.note("readahead", call!(readahead(file.as_raw_fd(), 0, 4096)));
            seen.note("sync_file_range", call!(sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE)));
            seen.note("syncfs", call!(syncfs(file.as_raw_fd())));
            seen.read("f");
        };
    )
}

/// Notes the positions of data and holes, asked at each page, and around the beginning and the end.
fn seek_all(seen: &mut Record, file: &OwnedFd) {
    let size = sys::fstat(file).expect("attributes").st_size;
    for offset in (0..=size).step_by(4096).chain([1, size - 1, size, size + 1, -1]) {
        let found = |whence| sys::seek(file, offset, whence).map_err(sys::name);
        seen.note(
            &format!("from {offset}"),
            format!("data {:?}, hole {:?}", found(libc::SEEK_DATA), found(libc::SEEK_HOLE)),
        );
    }
}

fn holes() -> Vec<Scenario> {
    let mut scenarios = scenarios!(anybody about "holes";
        "of an empty file" => |seen| { let file = with(seen, b""); seek_all(seen, &file) };
        "of a file without holes" => |seen| { let file = with(seen, &pattern(20_000)); seek_all(seen, &file) };
        "of a file that is a hole" => |seen| { let file = sparse(seen, &[], 20_000); seek_all(seen, &file) };
        "first, between and last" => |seen| { let file = sparse(seen, &[2, 3, 6], 40_000); seek_all(seen, &file) };
        "with a byte in the last page" => |seen| {
            let file = sparse(seen, &[0], 30_000);
            sys::pwrite(&file, b"x", 29_999).expect("a byte");
            seek_all(seen, &file);
            seen.look("f");
        };
        "after a sync" => |seen| {
            let file = sparse(seen, &[1, 4], 30_000);
            sys::fsync(&file).expect("a sync");
            seek_all(seen, &file);
        };
        "after a cut and growth" => |seen| {
            let file = with(seen, &pattern(40_000));
            sys::set_size(&file, 9000).expect("cut");
            sys::set_size(&file, 40_000).expect("grown");
            seek_all(seen, &file);
            seen.read("f");
        };
    );
    let modes = [
        ("plain", 0),
        ("keeping the size", libc::FALLOC_FL_KEEP_SIZE),
        ("punching", libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
        ("punching, not keeping the size", libc::FALLOC_FL_PUNCH_HOLE),
        ("zeros", libc::FALLOC_FL_ZERO_RANGE),
        ("zeros keeping the size", libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE),
        ("collapsing", libc::FALLOC_FL_COLLAPSE_RANGE),
        ("inserting", libc::FALLOC_FL_INSERT_RANGE),
        ("unsharing", libc::FALLOC_FL_UNSHARE_RANGE),
        ("an unknown mode", 1 << 14),
    ];
    let ranges = [
        ("within", 4096, 8192),
        ("within, not aligned", 5000, 10_001),
        ("across the end", 16_384, 40_960),
        ("beyond the end", 49_152, 4096),
        ("of no length", 4096, 0),
        ("before 0", -4096, 8192),
    ];
    for (mode, flags) in modes {
        for (range, offset, bytes) in ranges {
            let name = format!("fallocate: {mode}, {range}");
            scenarios.push(anybody(&name, move |seen| {
                let file = with(seen, &pattern(20_000));
                seen.note("fallocate", sys::allocate(&file, flags, offset, bytes));
                seen.look("f");
                seen.read("f");
                seen.note("write after", sys::pwrite(&file, &[8; 3000], 18_000));
                seen.read("f");
            }));
        }
    }
    scenarios
}

fn map(seen: &Record, flags: i32, protection: i32, how: i32) -> Result<Map, i32> {
    Map::new(&opened(seen, "f", flags), 20_000, protection, how, 0)
}

fn mappings() -> Vec<Scenario> {
    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
    scenarios!(anybody about "mappings";
        "a shared one is written and the file is read" => |seen| {
            let file = with(seen, &pattern(20_000));
            let mut map = map(seen, libc::O_RDWR, BOTH, libc::MAP_SHARED).expect("a mapping");
            map.bytes()[100..200].fill(1);
            map.bytes()[19_990..20_000].fill(2);
            seen.note("read", sys::pread(&file, 30_000, 0));
            seen.note("msync", map.sync(libc::MS_SYNC));
            drop(map);
            seen.read("f");
            seen.look("f");
        };
        "a shared one sees what is written" => |seen| {
            let file = with(seen, &pattern(20_000));
            let mut map = map(seen, libc::O_RDONLY, libc::PROT_READ, libc::MAP_SHARED).expect("a mapping");
            seen.note("before", map.bytes().to_vec());
            sys::pwrite(&file, &[3; 5000], 4000).expect("written");
            seen.note("after", map.bytes().to_vec());
        };
        "a private one keeps what is written to itself" => |seen| {
            drop(with(seen, &pattern(20_000)));
            let mut map = map(seen, libc::O_RDONLY, BOTH, libc::MAP_PRIVATE).expect("a mapping");
            map.bytes().fill(4);
            seen.note("msync", map.sync(libc::MS_SYNC));
            seen.note("mapped", map.bytes().to_vec());
            seen.read("f");
        };
        "which are refused" => |seen| {
            drop(with(seen, &pattern(20_000)));
            let mut refused = |label: &str, flags, protection, how| {
                let answer = map(seen, flags, protection, how).map(drop);
                seen.note(label, answer);
            };
            refused("shared, written, of a reader", libc::O_RDONLY, BOTH, libc::MAP_SHARED);
            refused("shared, read, of a writer", libc::O_WRONLY, libc::PROT_READ, libc::MAP_SHARED);
            refused("private, read, of a writer", libc::O_WRONLY, libc::PROT_READ, libc::MAP_PRIVATE);
            refused("neither shared nor private", libc::O_RDWR, BOTH, 0);
            let folder = sys::open(&seen.path(""), libc::O_RDONLY, 0).expect("a folder");
            seen.note("of a folder", Map::new(&folder, 4096, libc::PROT_READ, libc::MAP_PRIVATE, 0).map(drop));
            let file = opened(seen, "f", libc::O_RDWR);
            seen.note("not at a page", Map::new(&file, 4096, libc::PROT_READ, libc::MAP_PRIVATE, 100).map(drop));
            seen.note("of nothing", Map::new(&file, 0, libc::PROT_READ, libc::MAP_PRIVATE, 0).map(drop));
        };
        "one outlives the name and the open file" => |seen| {
            drop(with(seen, &pattern(20_000)));
            let mut map = map(seen, libc::O_RDWR, BOTH, libc::MAP_SHARED).expect("a mapping");
            sys::unlink(&seen.path("f")).expect("removed");
            map.bytes()[5000] = 77;
            seen.note("msync", map.sync(libc::MS_SYNC));
            seen.note("mapped", map.bytes().to_vec());
        };
        "beyond the end of the file there are zeros in the last page, which are not written" => |seen| {
            let file = with(seen, &pattern(5000));
            let mut map = Map::new(&file, 8192, BOTH, libc::MAP_SHARED, 0).expect("a mapping");
            seen.note("mapped", map.bytes().to_vec());
            map.bytes()[5000..8192].fill(9);
            seen.note("msync", map.sync(libc::MS_SYNC));
            drop(map);
            seen.look("f");
            sys::set_size(&file, 8192).expect("grown");
            seen.read("f");
        };
        "the file is cut and grows under one" => |seen| {
            let file = with(seen, &pattern(20_000));
            let mut map = map(seen, libc::O_RDWR, BOTH, libc::MAP_SHARED).expect("a mapping");
            map.bytes()[10_000..15_000].fill(6);
            sys::set_size(&file, 6000).expect("cut");
            sys::set_size(&file, 20_000).expect("grown");
            seen.note("mapped", map.bytes().to_vec());
            drop(map);
            seen.read("f");
        };
        "a hole is punched under one" => |seen| {
            let file = with(seen, &pattern(20_000));
            let mut map = map(seen, libc::O_RDWR, BOTH, libc::MAP_SHARED).expect("a mapping");
            map.bytes()[0..9000].fill(6);
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            seen.note("fallocate", sys::allocate(&file, punch, 3000, 10_000));
            seen.note("mapped", map.bytes().to_vec());
            seen.read("f");
        };
        "a mapping of a hole is written" => |seen| {
            drop(sparse(seen, &[], 20_000));
            let mut map = map(seen, libc::O_RDWR, BOTH, libc::MAP_SHARED).expect("a mapping");
            map.bytes()[9000] = 1;
            seen.note("msync", map.sync(libc::MS_SYNC));
            drop(map);
            seen.read("f");
            seen.look("f");
        };
        "two share" => |seen| {
            let file = with(seen, &pattern(20_000));
            let mut one = map(seen, libc::O_RDWR, BOTH, libc::MAP_SHARED).expect("a mapping");
            let mut two = Map::new(&file, 20_000, libc::PROT_READ, libc::MAP_SHARED, 0).expect("a mapping");
            one.bytes()[12_345] = 250;
            seen.note("seen by the other", i64::from(two.bytes()[12_345]));
        };
    )
}

/// The source and its offset, the target and its offset, and the number of bytes.
type Ranges<'a> = (&'a OwnedFd, i64, &'a OwnedFd, i64, usize);

fn copy((from, at, to, into, count): Ranges<'_>) -> Result<i64, i32> {
    let (mut at, mut into) = (at, into);
    call!(copy_file_range(from.as_raw_fd(), &mut at, to.as_raw_fd(), &mut into, count, 0))
}

fn copies() -> Vec<Scenario> {
    scenarios!(anybody about "copies";
        "copy_file_range" => |seen| {
            let (from, to) = (with(seen, &pattern(30_000)), sys::make(&seen.path("g"), b"short"));
            seen.note("some", copy((&from, 100, &to, 3, 9000)));
            seen.note("up to the end", copy((&from, 29_000, &to, 20_000, 9000)));
            seen.note("from beyond the end", copy((&from, 30_000, &to, 0, 10)));
            seen.note("nothing", copy((&from, 0, &to, 0, 0)));
            seen.note("within one file", copy((&from, 0, &from, 15_000, 5000)));
            seen.note("over itself", copy((&from, 0, &from, 100, 5000)));
            seen.note("from before 0", copy((&from, -1, &to, 0, 10)));
            seen.read("f");
            seen.read("g");
        };
        "copy_file_range that is refused" => |seen| {
            let from = with(seen, &pattern(100));
            seen.note("to a reader", copy((&from, 0, &opened(seen, "f", libc::O_RDONLY), 0, 10)));
            seen.note("to one that appends", copy((&from, 0, &opened(seen, "g", libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND), 0, 10)));
            seen.note("from a writer", copy((&opened(seen, "f", libc::O_WRONLY), 0, &from, 50, 10)));
            let folder = opened(seen, "", libc::O_RDONLY);
            seen.note("from a folder", copy((&folder, 0, &from, 0, 10)));
            let flags = 1;
            let none: *mut i64 = std::ptr::null_mut();
            seen.note("with a flag", call!(copy_file_range(from.as_raw_fd(), none, from.as_raw_fd(), none, 1, flags)));
        };
        "sendfile to a file and to a pipe" => |seen| {
            let (from, to) = (with(seen, &pattern(10_000)), sys::make(&seen.path("g"), b""));
            let (out, into) = rustix::pipe::pipe().expect("a pipe");
            let mut at = 5000_i64;
            seen.note("to a pipe", call!(sendfile(into.as_raw_fd(), from.as_raw_fd(), &mut at, 1000)));
            seen.note("bytes", sys::read(&out, 2000));
            seen.note("to a file", call!(sendfile(to.as_raw_fd(), from.as_raw_fd(), &mut at, 100_000)));
            seen.note("offset", at);
            seen.read("g");
        };
        "splice from a pipe and to it" => |seen| {
            let file = with(seen, &pattern(10_000));
            let (out, into) = rustix::pipe::pipe().expect("a pipe");
            let none: *mut i64 = std::ptr::null_mut();
            let mut at = 100_i64;
            seen.note("to a pipe", call!(splice(file.as_raw_fd(), &mut at, into.as_raw_fd(), none, 4096, 0)));
            at = 9000;
            seen.note("from a pipe", call!(splice(out.as_raw_fd(), none, file.as_raw_fd(), &mut at, 4096, 0)));
            seen.read("f");
        };
        "a clone of the blocks" => |seen| {
            let (from, to) = (with(seen, &pattern(8192)), sys::make(&seen.path("g"), b""));
            seen.note("FICLONE", call!(ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd())));
        };
    )
}

pub fn scenarios() -> Vec<Scenario> {
    [edges(), holes(), mappings(), copies()].into_iter().flatten().collect()
}
