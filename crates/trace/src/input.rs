//! Bytes of a trace file: decompression by magic number, lines, and records of fixed size.
//!
//! Memory is bounded whatever the file holds: one head of 64 KiB, one buffer of 256 KiB, lines of at most 64 KiB, an
//! xz dictionary of at most 1 GiB and a zstd window of at most 2 GiB (`--long=31`).

use crate::record::TraceError;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Decompressed bytes that the detection of a format may look at, at most.
pub const HEAD_BYTES: usize = 64 << 10;
/// The longest line that is read.
pub const LINE_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;
const XZ_MEMORY_BYTES_MAX: u64 = 1 << 30;
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// Compression of a file, found by its first bytes, never by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    Plain,
    /// Zstandard.
    Zstd,
    /// gzip, members concatenated or not.
    Gzip,
    /// xz, streams concatenated or not.
    Xz,
}

impl Compression {
    /// Decides by magic number.
    pub fn of(first: &[u8]) -> Self {
        match first {
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Compression::Zstd,
            // A skippable frame may come first (written by pzstd and seekable formats).
            [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Compression::Zstd,
            [0x1F, 0x8B, ..] => Compression::Gzip,
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            _ => Compression::Plain,
        }
    }

    /// Its name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Plain => "plain",
            Compression::Zstd => "zstd",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
        }
    }
}

/// An opened trace file: its first bytes to look at, then all of its bytes to read.
pub struct Input {
    path: PathBuf,
    compression: Compression,
    /// Bytes of the file, where it is a regular one and was opened by its name.
    file_bytes: Option<u64>,
    head: Vec<u8>,
    rest: Box<dyn Read + Send>,
}

impl Input {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|e| TraceError::io(path, e))?;
        let kind = file.metadata().map_err(|e| TraceError::io(path, e))?;
        if kind.is_dir() {
            return Err(TraceError::refused(path, "is a directory, not a trace"));
        }
        let input = Input::new(path, Box::new(file))?;
        Ok(Input { file_bytes: kind.is_file().then_some(kind.len()), ..input })
    }

    /// Reads from any reader; messages call it `path`.
    pub fn new(path: &Path, mut raw: Box<dyn Read + Send>) -> Result<Self, TraceError> {
        let mut magic = Vec::new();
        raw.by_ref().take(8).read_to_end(&mut magic).map_err(|e| TraceError::io(path, e))?;
        let compression = Compression::of(&magic);
        let raw = Cursor::new(magic).chain(raw);
        let mut rest = decoder(compression, raw).map_err(|e| TraceError::io(path, e))?;
        let mut head = Vec::new();
        rest.by_ref()
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(|e| read_error(path, compression, head.len() as u64, e))?;
        Ok(Input { path: path.to_owned(), compression, file_bytes: None, head, rest })
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compression of the file.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The first [`HEAD_BYTES`] decompressed bytes, or all there are.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Number of decompressed bytes, where known in advance; a file that grows has more.
    pub fn bytes_expected(&self) -> Option<u64> {
        self.file_bytes.filter(|_| self.compression == Compression::Plain)
    }

    /// True when [`Input::head`] is the whole file.
    pub fn head_is_all(&self) -> bool {
        self.head.len() < HEAD_BYTES
    }

    /// A reader of the whole input, from the first byte on.
    fn into_reader(self) -> impl Read + Send {
        Cursor::new(self.head).chain(self.rest)
    }

    /// All decompressed bytes, refused beyond `bytes_max`.
    pub fn read_all(self, bytes_max: u64) -> Result<Vec<u8>, TraceError> {
        let (path, compression) = (self.path.clone(), self.compression);
        let mut all = Vec::new();
        let mut reader = self.into_reader().take(bytes_max + 1);
        reader.read_to_end(&mut all).map_err(|e| read_error(&path, compression, all.len() as u64, e))?;
        if all.len() as u64 > bytes_max {
            return Err(TraceError::refused(&path, format!("is longer than {bytes_max} bytes when decompressed")));
        }
        Ok(all)
    }
}

fn decoder(compression: Compression, raw: impl Read + Send + 'static) -> std::io::Result<Box<dyn Read + Send>> {
    Ok(match compression {
        Compression::Plain => Box::new(raw),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::new(raw)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(raw))),
        Compression::Xz => {
            let stream =
                liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, liblzma::stream::CONCATENATED)?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(buffered(raw), stream))
        }
    })
}

fn buffered<R: Read>(raw: R) -> std::io::BufReader<R> {
    std::io::BufReader::with_capacity(BUFFER_BYTES, raw)
}

/// Chooses the error: a plain file fails for a reason of the system, a compressed one most likely because its stream
/// is damaged.
fn read_error(path: &Path, compression: Compression, offset: u64, source: std::io::Error) -> TraceError {
    if compression == Compression::Plain {
        return TraceError::io(path, source);
    }
    TraceError::refused(
        path,
        format!(
            "byte {offset} of the decompressed text: the {} stream is truncated or corrupt: {source}",
            compression.name()
        ),
    )
}

/// A buffer that is refilled from the front; the bytes from `start` to `end` are unread.
struct Window {
    path: PathBuf,
    compression: Compression,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file of `buffer[0]`.
    base: u64,
    ended: bool,
}

impl Window {
    fn new(input: Input) -> Self {
        Window {
            path: input.path.clone(),
            compression: input.compression,
            reader: Box::new(input.into_reader()),
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            base: 0,
            ended: false,
        }
    }

    /// Offset in the file of the first unread byte.
    fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Moves the unread bytes to the front and reads more behind them; false at the end of the file.
    fn refill(&mut self) -> Result<bool, TraceError> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(n) => {
                    self.end += n;
                    return Ok(true);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.ended = true;
                    return Err(read_error(&self.path, self.compression, self.base + self.end as u64, e));
                }
            }
        }
    }
}

/// The lines of a text, without their line ends (LF or CRLF).
pub struct Lines {
    window: Window,
    number: u64,
}

impl Lines {
    /// The lines of an input.
    pub fn new(input: Input) -> Self {
        Lines { window: Window::new(input), number: 0 }
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.window.path
    }

    /// Number of the last line returned, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line. A line beyond [`LINE_BYTES_MAX`] is malformed and skipped.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        let mut scanned = 0;
        loop {
            let unread = &self.window.buffer[self.window.start..self.window.end];
            if let Some(at) = memchr::memchr(b'\n', &unread[scanned..]) {
                let length = scanned + at;
                let from = self.window.start;
                self.window.start += length + 1;
                self.number += 1;
                if length > LINE_BYTES_MAX {
                    return Err(self.too_long());
                }
                return Ok(Some(without_cr(&self.window.buffer[from..from + length])));
            }
            scanned = unread.len();
            if scanned > LINE_BYTES_MAX {
                return self.skip_long_line();
            }
            if !self.window.refill()? {
                if scanned == 0 {
                    return Ok(None);
                }
                let from = self.window.start;
                self.window.start += scanned;
                self.number += 1;
                return Ok(Some(without_cr(&self.window.buffer[from..from + scanned])));
            }
        }
    }

    fn skip_long_line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.number += 1;
        loop {
            let unread = &self.window.buffer[self.window.start..self.window.end];
            if let Some(at) = memchr::memchr(b'\n', unread) {
                self.window.start += at + 1;
                return Err(self.too_long());
            }
            self.window.start = self.window.end;
            if !self.window.refill()? {
                return Err(self.too_long());
            }
        }
    }

    fn too_long(&self) -> TraceError {
        let what = format!("a line of more than {LINE_BYTES_MAX} bytes: not a text trace?");
        TraceError::malformed(self.path(), format!("line {}", self.number), what)
    }
}

/// Strips a carriage return before the line feed.
pub fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Records of a fixed size.
pub struct Records {
    window: Window,
    size: usize,
    last: u64,
}

impl Records {
    /// Records of `size` bytes each, `size` at most 4 KiB.
    pub fn new(input: Input, size: usize) -> Self {
        assert!(size > 0 && size <= 4096, "a record of {size} bytes");
        Records { window: Window::new(input), size, last: 0 }
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.window.path
    }

    /// Offset in the file of the last record returned, in bytes.
    pub fn offset(&self) -> u64 {
        self.last
    }

    /// Records that lie in memory already, at most `most`, one after the other.
    pub fn buffered(&mut self, most: usize) -> &[u8] {
        let records = ((self.window.end - self.window.start) / self.size).min(most);
        let from = self.window.start;
        self.window.start += records * self.size;
        if records > 0 {
            self.last = self.window.offset() - self.size as u64;
        }
        &self.window.buffer[from..self.window.start]
    }

    /// The next record; a file that ends within one is malformed.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, TraceError> {
        while self.window.end - self.window.start < self.size {
            if !self.window.refill()? {
                let left = self.window.end - self.window.start;
                if left == 0 {
                    return Ok(None);
                }
                self.last = self.window.offset();
                self.window.start = self.window.end;
                let what = format!("the file ends within a record: {left} of {} bytes", self.size);
                return Err(TraceError::malformed(&self.window.path, format!("byte {}", self.last), what));
            }
        }
        self.last = self.window.offset();
        let from = self.window.start;
        self.window.start += self.size;
        Ok(Some(&self.window.buffer[from..from + self.size]))
    }
}
