//! Record of a scenario's observations, in lines that must not depend on where it ran.

use super::sys::{self, Answer, lstat, name};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A scenario's folder, and the observations in it.
pub struct Record {
    at: PathBuf,
    lines: Vec<Line>,
}

/// An observation: its label, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub label: String,
    pub seen: String,
}

/// An answer in words.
pub trait Said {
    fn said(self) -> String;
}

impl Said for &str {
    fn said(self) -> String {
        self.to_owned()
    }
}

impl Said for String {
    fn said(self) -> String {
        self
    }
}

impl Said for bool {
    fn said(self) -> String {
        self.to_string()
    }
}

impl Said for i64 {
    fn said(self) -> String {
        self.to_string()
    }
}

impl Said for () {
    fn said(self) -> String {
        "done".to_owned()
    }
}

impl Said for OwnedFd {
    fn said(self) -> String {
        "opened".to_owned()
    }
}

impl Said for &OwnedFd {
    fn said(self) -> String {
        "opened".to_owned()
    }
}

impl Said for Vec<u8> {
    fn said(self) -> String {
        bytes(&self)
    }
}

impl<T: Said> Said for Result<T, i32> {
    fn said(self) -> String {
        self.map_or_else(name, Said::said)
    }
}

impl Record {
    pub fn new(at: PathBuf) -> Self {
        Record { at, lines: Vec::new() }
    }

    /// A path in the folder; for "" the folder's own with a slash.
    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    pub fn note(&mut self, label: &str, seen: impl Said) {
        self.lines.push(Line { label: label.to_owned(), seen: seen.said() });
    }

    /// Notes the attributes of a file by name.
    pub fn look(&mut self, name: &str) {
        let found = lstat(&self.path(name));
        self.note(&format!("attributes of {name}"), found.map(|found| shown(&found)));
    }

    /// Notes attributes of an open file.
    pub fn look_open(&mut self, label: &str, file: &OwnedFd) {
        self.note(label, sys::fstat(file).map(|found| shown(&found)));
    }

    /// Notes the bytes of a file, by its name.
    pub fn read(&mut self, name: &str) {
        let seen = sys::open(&self.path(name), libc::O_RDONLY, 0).and_then(|file| sys::pread(&file, 1 << 22, 0));
        self.note(&format!("bytes of {name}"), seen);
    }

    /// Notes everything in the folder.
    pub fn everything(&mut self, label: &str) {
        for line in everything(&self.at) {
            let (name, seen) = line.split_once(": ").expect("a name");
            self.note(&format!("{label}: {name}"), seen);
        }
    }

    pub fn lines(self) -> Vec<Line> {
        self.lines
    }
}

/// Few bytes as they are, many by a digest.
pub fn bytes(bytes: &[u8]) -> String {
    if bytes.len() <= 24 {
        return format!("{} bytes {}", bytes.len(), bytes.escape_ascii());
    }
    let sum = bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte) + 1));
    format!("{} bytes {sum:x}", bytes.len())
}

/// Attributes that must agree. Of the blocks only three cases are shown: none, fewer than the size, or as many. A
/// directory's size is left out, because it depends on earlier contents.
pub fn shown(found: &libc::stat) -> String {
    let kind = match found.st_mode & libc::S_IFMT {
        libc::S_IFREG => "file",
        libc::S_IFDIR => "directory",
        libc::S_IFLNK => "link",
        libc::S_IFIFO => "fifo",
        libc::S_IFSOCK => "socket",
        libc::S_IFCHR => "character device",
        libc::S_IFBLK => "block device",
        _ => "thing",
    };
    let mut shown =
        format!("{kind} {:o}, {} links, {}:{}", found.st_mode & 0o7777, found.st_nlink, found.st_uid, found.st_gid);
    match kind {
        "file" => {
            let blocks = match found.st_blocks * 512 {
                0 => "no",
                bytes if bytes < found.st_size => "fewer",
                _ => "all",
            };
            shown += &format!(", {} bytes, {blocks} blocks", found.st_size);
        }
        "link" => shown += &format!(", {} bytes", found.st_size),
        "character device" | "block device" => shown += &format!(", number {:x}", found.st_rdev),
        _ => {}
    }
    shown
}

/// Names, attributes, bytes and targets below a folder, in order.
fn everything(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut lines = Vec::new();
    for path in paths {
        let name = path.file_name().expect("a name").as_bytes().escape_ascii().to_string();
        let name = if name.len() > 40 { format!("{}… ({})", &name[..8], name.len()) } else { name };
        let found = match lstat(&path) {
            Ok(found) => found,
            Err(errno) => {
                lines.push(format!("{name}: {}", sys::name(errno)));
                continue;
            }
        };
        let mut line = format!("{name}: {}", shown(&found));
        match found.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let seen = sys::open(&path, libc::O_RDONLY, 0).and_then(|file| sys::pread(&file, 1 << 22, 0));
                line += &format!(", {}", seen.said());
            }
            libc::S_IFLNK => line += &format!(" to {}", sys::readlink(&path).map(|target| bytes(&target)).said()),
            _ => {}
        }
        let attributes = sys::attributes(&path).unwrap_or_else(sys::name);
        if !attributes.is_empty() {
            line += &format!(", with {attributes}");
        }
        lines.push(line);
        if found.st_mode & libc::S_IFMT == libc::S_IFDIR {
            lines.extend(everything(&path).into_iter().map(|line| format!("{name}/{line}")));
        }
    }
    lines
}

/// Drops the number of an answer, which does not matter for most calls, and keeps its error.
pub fn done(answer: Answer) -> Result<(), i32> {
    answer.map(drop)
}

/// Drops an answer that does not matter: the scenario observes its consequences.
pub fn ignore<T>(_: T) {}
