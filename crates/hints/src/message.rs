//! One datagram about one query. `docs/hints.md` describes it to the byte.

use std::fmt;

/// Longest datagram, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 8192;
/// The first line: format and version.
const FIRST: &str = "entresol-hint 1";

/// Identity of a query: the process that runs it and its number there. Unique among the queries that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryId {
    /// The process.
    pub pid: u32,
    /// The process's own number for the query.
    pub number: u32,
}

/// Kind of use that a query's plan makes of a relation. The letter is the one in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// `s`: scanned from end to end, or a sample of it.
    Scan,
    /// `i`: an index that is searched.
    Index,
    /// `r`: rows found through an index or their row id.
    Rows,
    /// `b`: rows in the order of their row ids, from a bitmap.
    Bitmap,
    /// `w`: written.
    Write,
    /// `f`: a file, in any kind of use.
    File,
}

impl Use {
    fn of(letter: &str) -> Option<Self> {
        Some(match letter {
            "s" => Use::Scan,
            "i" => Use::Index,
            "r" => Use::Rows,
            "b" => Use::Bitmap,
            "w" => Use::Write,
            "f" => Use::File,
            _ => return None,
        })
    }
}

/// Content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A query starts.
    Begin {
        /// The query.
        query: QueryId,
        /// The data directory of the files.
        directory: String,
        /// Relations that the query will use: the kind of use, and the path of the first file in the data directory.
        relations: Vec<(Use, String)>,
        /// True if the datagram was too short for all of them.
        truncated: bool,
    },
    /// A query ended, in whatever way.
    End {
        /// The query.
        query: QueryId,
    },
}

/// Why bytes are not a datagram of this format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// The fault of the line.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// True if a path stays in the data directory.
fn is_inside(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains('\0') && path.split('/').all(plain)
}

/// Parses a datagram.
///
/// # Errors
/// If the datagram does not follow `docs/hints.md` exactly.
pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
    let wrong = |line: usize, what| Err(Malformed { line, what });
    if bytes.len() > MESSAGE_BYTES_MAX {
        return wrong(1, "longer than 8192 bytes");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return wrong(1, "not UTF-8") };
    let Some(text) = text.strip_suffix('\n') else { return wrong(1, "the last line does not end") };
    let mut lines = text.split('\n').zip(1..);
    if lines.next().is_none_or(|(first, _)| first != FIRST) {
        return wrong(1, "'entresol-hint 1' was expected");
    }
    let words: Vec<&str> = lines.next().map(|(line, _)| line.split(' ').collect()).unwrap_or_default();
    let &[what, pid, number] = &words[..] else { return wrong(2, "'begin' or 'end' and two numbers were expected") };
    let (Ok(pid), Ok(number)) = (pid.parse(), number.parse()) else { return wrong(2, "not a number") };
    let query = QueryId { pid, number };
    match what {
        "end" => match lines.next() {
            None => Ok(Message::End { query }),
            Some((_, line)) => wrong(line, "nothing follows the end of a query"),
        },
        "begin" => begin(query, lines),
        _ => wrong(2, "'begin' or 'end' was expected"),
    }
}

fn begin<'a>(query: QueryId, mut lines: impl Iterator<Item = (&'a str, usize)>) -> Result<Message, Malformed> {
    let wrong = |line: usize, what| Err(Malformed { line, what });
    let directory = lines.next().and_then(|(line, _)| line.strip_prefix("d /"));
    let Some(directory) = directory.filter(|path| !path.contains('\0')) else {
        return wrong(3, "'d' and the path of a data directory were expected");
    };
    let mut relations = Vec::new();
    let mut truncated = false;
    for (line, at) in lines {
        if truncated {
            return wrong(at, "nothing follows '+'");
        }
        if line == "+" {
            truncated = true;
            continue;
        }
        let relation = line.split_once(' ').and_then(|(letter, path)| Some((Use::of(letter)?, path)));
        match relation.filter(|(_, path)| is_inside(path)) {
            Some((how, path)) => relations.push((how, path.to_owned())),
            None => return wrong(at, "a letter and a path in the data directory were expected"),
        }
    }
    Ok(Message::Begin { query, directory: format!("/{directory}"), relations, truncated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEGIN: &str = "entresol-hint 1\nbegin 12 7\nd /srv/my data\ns base/5/16390\ni base/5/16395\n";

    #[test]
    fn a_message_is_what_it_says() {
        let query = QueryId { pid: 12, number: 7 };
        let relations = vec![(Use::Scan, "base/5/16390".to_owned()), (Use::Index, "base/5/16395".to_owned())];
        let begin = |truncated| Message::Begin {
            query,
            directory: "/srv/my data".into(),
            relations: relations.clone(),
            truncated,
        };
        assert_eq!(parse(BEGIN.as_bytes()), Ok(begin(false)));
        assert_eq!(parse(format!("{BEGIN}+\n").as_bytes()), Ok(begin(true)));
        assert_eq!(parse(b"entresol-hint 1\nend 12 7\n"), Ok(Message::End { query }));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let long = format!("{BEGIN}s {}\n", "x".repeat(MESSAGE_BYTES_MAX));
        let cases = [
            ("", 1),
            ("entresol-hint 1\nend 12 7", 1),
            ("entresol-hint 2\nend 12 7\n", 1),
            ("entresol-hint 1\n", 2),
            ("entresol-hint 1\nend 12\n", 2),
            ("entresol-hint 1\nend 12 x\n", 2),
            ("entresol-hint 1\nend 12 -7\n", 2),
            ("entresol-hint 1\nstop 12 7\n", 2),
            ("entresol-hint 1\nend 12 7\nend 12 7\n", 3),
            ("entresol-hint 1\nbegin 12 7\n", 3),
            ("entresol-hint 1\nbegin 12 7\nd srv\n", 3),
            ("entresol-hint 1\nbegin 12 7\nd /srv\nx base/5/1\n", 4),
            ("entresol-hint 1\nbegin 12 7\nd /srv\ns /etc/passwd\n", 4),
            ("entresol-hint 1\nbegin 12 7\nd /srv\ns ../secret\n", 4),
            ("entresol-hint 1\nbegin 12 7\nd /srv\ns a\0b\n", 4),
            ("entresol-hint 1\nbegin 12 7\nd /srv\n+\ns base/5/1\n", 5),
            (&long, 1),
        ];
        for (text, line) in cases {
            assert_eq!(parse(text.as_bytes()).expect_err(text).line, line, "{text}");
        }
        assert_eq!(parse(b"entresol-hint 1\nend 1\xff 7\n").expect_err("bytes").what, "not UTF-8");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(noise: Vec<u8>, at in 0..BEGIN.len(), byte: u8) {
            let _ = parse(&noise);
            let mut near = BEGIN.as_bytes().to_vec();
            near[at] = byte;
            if let Ok(Message::Begin { directory, relations, .. }) = parse(&near) {
                prop_assert!(directory.starts_with('/') && relations.iter().all(|(_, path)| is_inside(path)));
            }
            near.extend(noise);
            let _ = parse(&near);
        }
    }
}
