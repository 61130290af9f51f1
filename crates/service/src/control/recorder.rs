//! Transfer of the requests of a cache in use to `entresol record`.
//!
//! After the answer to its question the client gets batches. A batch is a line of JSON, [`Head`], and then as many
//! entries of [`ENTRY_BYTES`] bytes as the head says. An entry is little endian: time in microseconds (8), block within
//! the object (8), object (4), operation as in the native trace format (1), three zeros.
//!
//! A batch comes ten times a second, an empty one if need be. When the client ends its half of the connection, or the
//! cache is closed, the remaining requests follow, and the last head says so.

use super::protocol::{self, ANSWER_MAX, Answer};
use anyhow::{Context, Result};
use entresol_cache::Recording;
use entresol_trace::OpByte;
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 24;
/// Longest time for which a batch that is not full waits for more requests.
const WAIT: Duration = Duration::from_millis(100);
/// Requests of a batch at most.
const BATCH_MAX: usize = 1 << 16;

/// Header of a batch, sent before its entries.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// Entries that follow.
    requests: usize,
    /// Requests left out since the beginning of the recording.
    left_out: u64,
    /// Names of objects first mentioned in these entries; their numbers continue those of earlier batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    objects: Vec<String>,
    /// True for the last batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    last: bool,
}

/// Contents of the answer to [`Question::Record`](super::Question::Record).
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    page_bytes: u32,
    policy: String,
    mode: String,
}

/// Mapping from the pages of a cache to the objects and blocks that the users of the cache see.
pub(crate) trait Places: Send {
    /// The object of a page, and the page's block in the object. Objects are numbered from 0 in order of appearance.
    fn place(&mut self, page: u64) -> (u32, u64);

    /// Names of the objects that have appeared since the last call.
    fn fresh(&mut self) -> Vec<String>;
}

/// The recording of a running cache, and the facts that the client needs.
pub(crate) struct Recorder {
    pub(crate) recording: Recording,
    pub(crate) places: Box<dyn Places>,
    pub(crate) page_bytes: u32,
    pub(crate) policy: String,
    pub(crate) mode: String,
}

impl Recorder {
    /// Sends the requests until the client has enough or the cache is closed.
    pub(super) fn play(self, stream: &UnixStream, closing: &AtomicBool, listening: &AtomicUsize) -> io::Result<()> {
        listening.fetch_add(1, SeqCst);
        let played = self.play_on(stream, closing);
        listening.fetch_sub(1, SeqCst);
        played
    }

    fn play_on(self, mut stream: &UnixStream, closing: &AtomicBool) -> io::Result<()> {
        let Recorder { mut recording, mut places, page_bytes, policy, mode } = self;
        let opening = serde_json::to_value(Opening { page_bytes, policy, mode }).expect("text and numbers");
        stream.write_all(&protocol::encode_answer(Answer::Done(opening)))?;
        let mut out = Vec::new();
        loop {
            let ends = closing.load(SeqCst) || has_ended(stream)?;
            if ends {
                recording.stop();
            }
            let batch = recording.next(if ends { Duration::ZERO } else { WAIT });
            out.clear();
            let mut entries = Vec::with_capacity(batch.requests.len() * ENTRY_BYTES);
            for noted in batch.requests {
                let (object, block) = places.place(noted.page);
                entries.extend_from_slice(&noted.time_us.to_le_bytes());
                entries.extend_from_slice(&block.to_le_bytes());
                entries.extend_from_slice(&object.to_le_bytes());
                entries.extend_from_slice(&[OpByte::new(noted.op, noted.sequential, noted.first).0, 0, 0, 0]);
            }
            let last = ends && batch.requests.is_empty();
            let head = Head { requests: batch.requests.len(), left_out: batch.left_out, objects: places.fresh(), last };
            serde_json::to_writer(&mut out, &head)?;
            out.push(b'\n');
            out.append(&mut entries);
            if last {
                // Another recording may begin as soon as the client knows of the end.
                drop(recording);
                return stream.write_all(&out);
            }
            stream.write_all(&out)?;
        }
    }
}

/// True if the client has ended its half of the connection. Bytes that it sends are ignored.
fn has_ended(mut stream: &UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false)?;
    match read {
        Ok(bytes) => Ok(bytes == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// A request as the client receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) time_us: u64,
    pub(crate) object: u32,
    pub(crate) block: u64,
    pub(crate) op: OpByte,
}

/// The client's end of a recording.
pub struct Listener {
    stream: BufReader<UnixStream>,
    opening: Opening,
    heard: Vec<Heard>,
    left_out: u64,
    objects: u32,
}

fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Listener {
    pub(super) fn new(opening: serde_json::Value, stream: BufReader<UnixStream>) -> Result<Self> {
        let opening = serde_json::from_value(opening).context("the answer of the server")?;
        Ok(Listener { stream, opening, heard: Vec::new(), left_out: 0, objects: 0 })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.opening.page_bytes
    }

    /// The policy and the mode that the cache had at the beginning of the recording.
    pub fn served_by(&self) -> String {
        format!("{}, {}", self.opening.policy, self.opening.mode)
    }

    /// Requests that the server has left out so far.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Ends the recording; the requests up to now still come.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)
    }

    /// The next batch, perhaps an empty one, and the names of objects that are new in it; none after the last batch.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server ended without a last batch.
    pub(crate) fn next(&mut self) -> io::Result<Option<(&[Heard], Vec<String>)>> {
        let line = protocol::read_line(&mut self.stream, ANSWER_MAX)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let head: Head = serde_json::from_slice(&line).map_err(|error| malformed(error.to_string()))?;
        if head.requests > BATCH_MAX {
            return Err(malformed(format!("a batch of {} requests", head.requests)));
        }
        self.left_out = head.left_out;
        self.objects += head.objects.len() as u32;
        let mut bytes = vec![0; head.requests * ENTRY_BYTES];
        self.stream.read_exact(&mut bytes)?;
        self.heard.clear();
        for entry in bytes.chunks_exact(ENTRY_BYTES) {
            self.heard.push(decode(entry, self.objects)?);
        }
        Ok((!head.last).then_some((&self.heard[..], head.objects)))
    }
}

fn decode(entry: &[u8], objects: u32) -> io::Result<Heard> {
    let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
    let object = u32::from_le_bytes(entry[16..20].try_into().expect("4 bytes"));
    let heard = Heard { time_us: word(0), block: word(8), object, op: OpByte(entry[20]) };
    if object >= objects || !heard.op.is_valid() {
        return Err(malformed(format!("no request: {heard:?}")));
    }
    Ok(heard)
}
