//! Records the requests of a database file, in a form that `entresol simulate` reads.

use entresol_core::Op;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Writes one line per request: time in microseconds, operation, offset and length in bytes.
pub(crate) struct Recorder(Mutex<State>);

struct State {
    out: BufWriter<File>,
    /// The first error of writing a line; no line is written after it.
    error: Option<io::Error>,
}

impl Recorder {
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(b"ts_us,op,offset,size\n")?;
        Ok(Recorder(Mutex::new(State { out, error: None })))
    }

    /// Records a request. An error shows only at the end of the recording: it must not fail the request.
    pub fn note(&self, now_us: u64, op: Op, offset: u64, bytes: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.error.is_none() {
            let op = if op == Op::Read { 'R' } else { 'W' };
            state.error = writeln!(state.out, "{now_us},{op},{offset},{bytes}").err();
        }
    }

    /// Ends the recording.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.error.take() {
            Some(error) => Err(error),
            None => state.out.flush(),
        }
    }
}
