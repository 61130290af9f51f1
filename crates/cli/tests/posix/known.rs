//! Differences between a mount and the file system below that are intended or cannot be helped.

use super::record::Line;
use super::setups::{Seen, Setup};
use super::testbed::Kind;

/// An answer of a mount that differs from that of the file system below.
#[derive(Debug, Clone)]
pub struct Difference {
    pub setup: &'static str,
    pub scenario: String,
    pub label: String,
    pub below: String,
    pub above: String,
}

/// A known difference: its scenarios, its answers, and its reason.
pub struct Known {
    /// The difference as a program sees it, in the words of the documents.
    pub what: &'static str,
    pub reason: &'static str,
    /// Names of scenarios, `*` for any part; alternatives are separated by ` | `.
    pub scenarios: &'static str,
    /// Labels of answers, as above.
    pub labels: &'static str,
    /// The answer below, as above.
    pub below: &'static str,
    /// The answer of the mount, as above.
    pub above: &'static str,
    /// Setups in which the difference occurs.
    pub setups: fn(&Setup) -> bool,
    /// File systems over which the difference occurs.
    pub over: &'static [Kind],
}

/// Every file system of the list.
const ANY: &[Kind] = &[Kind::Ext4, Kind::Xfs, Kind::Btrfs];

/// In every setup.
fn all(_: &Setup) -> bool {
    true
}

/// True if root serves.
fn roots(setup: &Setup) -> bool {
    !setup.how.nobody
}

/// True if pages of the cache are not blocks of the file system below.
fn pages_are_no_blocks(setup: &Setup) -> bool {
    setup.is_formatted("--page-size")
}

/// True if pages of the cache are of 64 KiB, larger than the default.
fn pages_are_large(setup: &Setup) -> bool {
    setup.is_formatted("65536")
}

/// True if a write does not bring its page into the cache, or may begin in a page that the cache lacks.
fn writes_read(setup: &Setup) -> bool {
    setup.is("write-around") || setup.is_formatted("512")
}

/// True if the user nobody serves.
fn nobodys(setup: &Setup) -> bool {
    setup.how.nobody
}

pub const KNOWN: &[Known] = &[
    Known {
        what: "`O_DIRECT` asks for no alignment of offsets, lengths and memory",
        reason: "wanted: a cache has pages of its own, and what is not aligned goes through memory",
        scenarios: "bytes: direct I/O that is not aligned",
        labels: "pread* | pwrite* | in the end: f",
        below: "EINVAL | file*",
        above: "*",
        setups: all,
        over: &[Kind::Ext4, Kind::Xfs],
    },
    Known {
        what: "`lseek` to an offset that the file system below cannot hold succeeds; a write there is EFBIG as below",
        reason: "the kernel takes any file of a FUSE mount to hold 2^63 - 1 bytes, and does this `lseek` by itself",
        scenarios: "bytes: a position beyond what the file system can hold",
        labels: "lseek*",
        below: "EINVAL",
        above: "4611686018427387904",
        setups: all,
        over: &[Kind::Ext4],
    },
    Known {
        what: "`fallocate` that collapses or inserts a range is EOPNOTSUPP",
        reason: "the kernel passes no such call to a FUSE mount",
        scenarios: "fallocate: collapsing* | fallocate: inserting*",
        labels: "*",
        below: "*",
        above: "*",
        setups: all,
        over: &[Kind::Ext4, Kind::Xfs],
    },
    Known {
        what: "`FICLONE` is EOPNOTSUPP (xfs and btrfs have it); `cp` copies then",
        reason: "the kernel passes no such call to a FUSE mount",
        scenarios: "copies: a clone of the blocks",
        labels: "FICLONE | in the end: g",
        below: "0 | file*8192 bytes*",
        above: "EOPNOTSUPP | file*0 bytes*",
        setups: all,
        over: &[Kind::Xfs, Kind::Btrfs],
    },
    Known {
        what: "`lseek` for bytes or a hole from before the beginning on is ENXIO, as on ext4 and xfs; btrfs takes it for the beginning",
        reason: "the kernel answers so before a FUSE mount is asked",
        scenarios: "holes: *",
        labels: "from -1",
        below: "data*",
        above: "data Err(\"ENXIO\"), hole Err(\"ENXIO\")",
        setups: all,
        over: &[Kind::Btrfs],
    },
    Known {
        what: "`fallocate` that unshares a range (xfs) is EOPNOTSUPP",
        reason: "the kernel passes no such call to a FUSE mount",
        scenarios: "fallocate: unsharing*",
        labels: "*",
        below: "*",
        above: "*",
        setups: all,
        over: &[Kind::Xfs],
    },
    Known {
        what: "`truncate` to the size that a file has moves its times, as on ext4; on xfs and btrfs it moves none",
        reason: "the mount is told of a size, and not by which call; POSIX has the times move",
        scenarios: "times that move: truncate to as much",
        labels: "file",
        below: "",
        above: "written changed",
        setups: all,
        over: &[Kind::Xfs, Kind::Btrfs],
    },
    Known {
        what: "`open` with `O_TMPFILE` is EOPNOTSUPP; programs then make a file with a name and remove it",
        reason: "fuser 0.18 knows no FUSE_TMPFILE",
        scenarios: "files without a name: from the start",
        labels: "*",
        below: "*",
        above: "EOPNOTSUPP | nothing",
        setups: all,
        over: ANY,
    },
    Known {
        what: "`statx` does not tell when a file was made",
        reason: "fuser 0.18 knows no FUSE_STATX, and the older answer has no such field",
        scenarios: "times: the moment of making is told",
        labels: "it tells*",
        below: "true",
        above: "false",
        setups: all,
        over: ANY,
    },
    Known {
        what: "a read does not move the time of reading, nor does a mapping, unless bytes are read below",
        reason: "what the cache has it answers without the file below; moving its time would cost a write for a read",
        scenarios: "times that move: read | times that move: write through a mapping",
        labels: "file",
        below: "read*",
        above: " | written changed",
        setups: Setup::is_cached,
        over: ANY,
    },
    Known {
        what: "a write or a cut may move the time of reading",
        reason: "the rest of a page that the cache has not is read below",
        scenarios: "times that move: write* | times that move: ftruncate to less",
        labels: "file",
        below: "written changed",
        above: "read written changed",
        setups: writes_read,
        over: ANY,
    },
    Known {
        what: "holes that `SEEK_HOLE` and `SEEK_DATA` tell begin and end with pages of the cache, if these are no blocks of the file system below",
        reason: "what the cache will write it counts as data, page by page",
        scenarios: "holes: *",
        labels: "from *",
        below: "data*",
        above: "data*",
        setups: pages_are_no_blocks,
        over: ANY,
    },
    Known {
        what: "a file that was written has blocks for whole pages of the cache, where these are larger than blocks below",
        reason: "whole pages are written below, holes in them with zeros",
        scenarios: "*",
        labels: "attributes of * | in the end: *",
        below: "*fewer blocks*",
        above: "*all blocks*",
        setups: pages_are_large,
        over: ANY,
    },
    Known {
        what: "names of `trusted.` attributes are listed to root alone, as on ext4 and xfs; btrfs lists them to all",
        reason: "wanted: nobody else may read them",
        scenarios: "rights: names of attributes that only root may see",
        labels: "names | how long they are",
        below: "trusted* | 28",
        above: "user.of_all | 12",
        setups: nobodys,
        over: &[Kind::Btrfs],
    },
    Known {
        what: "`ioctl` is ENOTTY but for those that the kernel does itself: no attributes as `chattr` and `lsattr` have them",
        reason: "such a request may name memory of any shape, and the file system below would have to be asked by its own rules",
        scenarios: "services: the file system's own requests",
        labels: "FS_IOC_GETFLAGS",
        below: "done",
        above: "ENOTTY",
        setups: all,
        over: ANY,
    },
    Known {
        what: "`statfs` has the kind of a FUSE mount, 65735546",
        reason: "it is one",
        scenarios: "services: the kind of the file system",
        labels: "its number",
        below: "*",
        above: "65735546",
        setups: all,
        over: ANY,
    },
    Known {
        what: "a device below is not opened through the mount: EACCES",
        reason: "a mount has the options `nodev` and `nosuid`, as every FUSE mount of a user; programs run with their own rights alone",
        scenarios: "special files: a device is opened",
        labels: "open",
        below: "opened",
        above: "EACCES",
        setups: roots,
        over: ANY,
    },
    Known {
        what: "another user than the one who mounted is refused with EACCES, also who is one for files alone (`setfsuid`)",
        reason: "wanted: the cache would have to know whose rights each request has; `--allow-root` lets root in",
        scenarios: "modes: another user looks | modes: what root makes as another user is that user's",
        labels: "*",
        below: "*",
        above: "EACCES | ENOENT | nothing",
        setups: roots,
        over: ANY,
    },
    Known {
        what: "what is made belongs to the group of who mounted, whatever group the process has for files (`setfsgid`)",
        reason: "the server makes it; a process of another group than that of who mounted is refused without `--allow-root`",
        scenarios: "modes: what root makes as another group is that group's",
        labels: "attributes of f | in the end: f",
        below: "*0:1234*",
        above: "*0:0*",
        setups: roots,
        over: ANY,
    },
    Known {
        what: "in a folder with a default access list the `umask` counts too",
        reason: "the kernel takes it from the mode before a FUSE mount is asked",
        scenarios: "extended attributes: access lists",
        labels: "attributes of d/e | in the end: d/e",
        below: "directory 760*",
        above: "directory 740*",
        setups: all,
        over: ANY,
    },
    Known {
        what: "a file of another user that may be written and not read cannot be opened, EACCES",
        reason: "a mount reads what it writes; of one's own files such a mode is no hindrance",
        scenarios: "rights: a file of root with 602",
        labels: "open to write | open to cut | pread | pwrite | truncate | attributes of f",
        below: "*",
        above: "EACCES | nothing | file 602*9 bytes*",
        setups: nobodys,
        over: ANY,
    },
];

/// True if a text fits a pattern, in which `*` is any part.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((first, rest)) => text
            .strip_prefix(first)
            .is_some_and(|text| (0..=text.len()).any(|at| text.is_char_boundary(at) && fits(rest, &text[at..]))),
    }
}

fn fits_any(patterns: &str, text: &str) -> bool {
    patterns.split(" | ").any(|pattern| fits(pattern, text))
}

impl Known {
    /// True if the difference occurs over this file system. Over an unknown one all are expected.
    fn is_over(&self, below: Kind) -> bool {
        below == Kind::Other || self.over.contains(&below)
    }

    fn is(&self, difference: &Difference, setup: &Setup) -> bool {
        let pairs = [
            (self.scenarios, &difference.scenario),
            (self.labels, &difference.label),
            (self.below, &difference.below),
            (self.above, &difference.above),
        ];
        (self.setups)(setup) && pairs.into_iter().all(|(patterns, text)| fits_any(patterns, text))
    }
}

/// Answers that differ, line by line.
pub fn differences(setup: &Setup, below: &[Seen], above: &[Seen]) -> Vec<Difference> {
    let none = |label: &str| Line { label: label.to_owned(), seen: "nothing".to_owned() };
    let mut differences = Vec::new();
    for ((scenario, below), (other, above)) in below.iter().zip(above) {
        assert_eq!(scenario, other);
        for (below, above) in aligned(below, above) {
            let label = below.or(above).map_or("", |line| &line.label);
            let (one, two) =
                (below.cloned().unwrap_or_else(|| none(label)), above.cloned().unwrap_or_else(|| none(label)));
            if one.seen != two.seen {
                let (scenario, label) = (scenario.clone(), label.to_owned());
                differences.push(Difference { setup: setup.name, scenario, label, below: one.seen, above: two.seen });
            }
        }
    }
    differences
}

/// Pairs of lines of the same label in order; a line without a partner stands alone.
fn aligned<'a>(below: &'a [Line], above: &'a [Line]) -> Vec<(Option<&'a Line>, Option<&'a Line>)> {
    let mut pairs = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < below.len() || j < above.len() {
        match (below.get(i), above.get(j)) {
            (Some(one), Some(two)) if one.label == two.label => {
                pairs.push((Some(one), Some(two)));
                (i, j) = (i + 1, j + 1);
            }
            (Some(one), _) if !above[j..].iter().any(|line| line.label == one.label) => {
                pairs.push((Some(one), None));
                i += 1;
            }
            (_, Some(two)) => {
                pairs.push((None, Some(two)));
                j += 1;
            }
            (Some(one), None) => {
                pairs.push((Some(one), None));
                i += 1;
            }
            (None, None) => unreachable!("one has a line"),
        }
    }
    pairs
}

/// Unknown differences, and known ones that did not occur.
pub fn judge<'a>(
    differences: &'a [Difference],
    setups: &[Setup],
    below: Kind,
) -> (Vec<&'a Difference>, Vec<&'static Known>) {
    let setup = |name: &str| setups.iter().find(|setup| setup.name == name).expect("a world");
    let is =
        |known: &Known, difference: &Difference| known.is_over(below) && known.is(difference, setup(difference.setup));
    let unknown = differences.iter().filter(|difference| !KNOWN.iter().any(|known| is(known, difference)));
    let unseen = KNOWN.iter().filter(|known| known.is_over(below)).filter(|known| {
        setups.iter().any(|setup| (known.setups)(setup)) && !differences.iter().any(|difference| is(known, difference))
    });
    (unknown.collect(), unseen.collect())
}

/// The list as the documents have it: a line for each difference that a program sees.
pub fn table() -> String {
    let mut lines = vec!["| a program sees | because |".to_owned(), "|:--|:--|".to_owned()];
    for known in KNOWN {
        let line = format!("| {} | {} |", known.what, known.reason);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}
