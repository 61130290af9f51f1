//! The system's table of mounts, as this process sees it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Number of the mount, unique while the mount exists.
    pub id: u64,
    /// Number of the mount that it is mounted on.
    pub parent: u64,
    /// Major and minor number of the device of its file system.
    pub device: (u32, u32),
    /// Directory of the file system that is mounted, as a path from the file system's root.
    pub root: PathBuf,
    /// Mount point.
    pub at: PathBuf,
    /// The mounted source, as the file system names it.
    pub source: OsString,
}

/// All mounts of the namespace, in the order in which they were made.
///
/// # Errors
/// If there is no /proc, or it belongs to another PID namespace.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parsed(&std::fs::read("/proc/self/mountinfo")?))
}

fn parsed(table: &[u8]) -> Vec<MountEntry> {
    table.split(|&byte| byte == b'\n').filter_map(entry).collect()
}

/// Parses one line; `None` if it is malformed. Names in it may be any bytes.
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (id, parent, device) = (text()?.parse().ok()?, text()?.parse().ok()?, text()?);
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let (root, at) = (fields.next()?, fields.next()?);
    // After the options and a varying number of other fields: a hyphen, the type, the source.
    let source = fields.skip_while(|&field| field != b"-").nth(2)?;
    let (root, at) = (unescaped(root).into(), unescaped(at).into());
    Some(MountEntry { id, parent, device, root, at, source: unescaped(source) })
}

/// Decodes a name of the table, where blanks and the like are a backslash and three octal digits.
fn unescaped(name: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whatever_their_names_are() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            61 22 0:39 / /a\\040b\\134c\xff rw,nosuid shared:7 master:1 - fuse.entresol entresol:/x\\012y rw\n\
            broken\n\
            62 22 0:x / /c rw - tmpfs t rw\n";
        let found = parsed(table);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].id, found[0].parent, found[0].device), (22, 1, (254, 0)));
        assert_eq!(found[1].at.as_os_str(), OsString::from_vec(b"/a b\\c\xff".to_vec()));
        assert_eq!(found[1].source, "entresol:/x\ny");
        assert_eq!(unescaped(b"/a\\9"), "/a\\9");
    }

    #[test]
    fn the_root_of_this_process_is_mounted() {
        let found = mounts().expect("/proc");
        assert!(found.iter().any(|mount| mount.at.as_os_str() == "/"), "{found:?}");
    }
}
