//! Recorder of the requests of a database to its files, as a trace and as sums.

use anyhow::Result;
use entresol_core::Op;
use entresol_files::paced::Listener;
use entresol_trace::native::Spool;
use entresol_trace::{ObjectKind, OpByte, TraceError};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AskedFigures {
    /// Pages that were read or written.
    pub requests: u64,
    /// Pages among these that were written.
    pub writes: u64,
    /// Time that all requesters waited together, in seconds. Divided by the elapsed time, it is the mean number of
    /// waiting requests (Little's law).
    pub waited_s: f64,
    /// Part of that time for writes.
    pub writes_waited_s: f64,
}

impl AskedFigures {
    /// Counts since an earlier look.
    pub fn since(&self, before: &Self) -> Self {
        AskedFigures {
            requests: self.requests - before.requests,
            writes: self.writes - before.writes,
            waited_s: self.waited_s - before.waited_s,
            writes_waited_s: self.writes_waited_s - before.writes_waited_s,
        }
    }
}

/// Writes the requests that it receives to a trace.
pub struct Recorder {
    page_bytes: u64,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    /// None once the trace is finished.
    spool: Option<Spool>,
    files: HashMap<u64, File>,
    figures: AskedFigures,
    /// The first error; no request is written after it.
    failed: Option<TraceError>,
}

/// A file in the trace, and the last pages of its latest read and its latest write.
struct File {
    object: u32,
    ends: [u64; 2],
}

impl Recorder {
    /// Begins a trace that will be at `path`, of pages of `page_bytes` bytes.
    ///
    /// # Errors
    /// When a file cannot be created there.
    pub fn create(path: &Path, page_bytes: u32) -> Result<Self> {
        let spool = Some(Spool::create(path, page_bytes)?);
        let state = State { spool, files: HashMap::new(), figures: AskedFigures::default(), failed: None };
        Ok(Recorder { page_bytes: page_bytes.into(), started: Instant::now(), state: Mutex::new(state) })
    }

    /// Counts of requests so far.
    pub fn figures(&self) -> AskedFigures {
        self.state().figures
    }

    /// Puts the trace under its name; later requests are not recorded.
    ///
    /// # Errors
    /// The first error of the recording, at whatever time it occurred.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.state();
        match (state.failed.take(), state.spool.take()) {
            (Some(error), _) => Err(error.into()),
            (None, Some(spool)) => {
                Ok(spool.finish("recorded below a database's buffer pool by entresol-lab bench".to_owned())?)
            }
            (None, None) => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Recorder {
    fn opened(&self, number: u64, name: &str) {
        let mut state = self.state();
        let Some(spool) = &mut state.spool else { return };
        let object = spool.object(name, ObjectKind::Data);
        state.files.insert(number, File { object, ends: [0; 2] });
    }

    fn asked(&self, number: u64, offset: u64, bytes: u64, write: bool) {
        let (time_us, page) = (self.started.elapsed().as_micros() as u64, self.page_bytes);
        let mut state = self.state();
        let State { spool, files, figures, failed } = &mut *state;
        let (Some(spool), Some(file)) = (spool, files.get_mut(&number)) else { return };
        let (first, end) = (offset / page, (offset + bytes).div_ceil(page));
        let goes_on = std::mem::replace(&mut file.ends[usize::from(write)], end) == first;
        for block in first..end {
            let whole = offset <= block * page && offset + bytes >= (block + 1) * page;
            let op = match (write, whole) {
                (false, _) => Op::Read,
                (true, true) => Op::Write,
                (true, false) => Op::Update,
            };
            let op = OpByte::new(op, goes_on || block > first, block == first);
            if failed.is_none() {
                *failed = spool.push(time_us, file.object, block, op).err();
            }
            figures.requests += 1;
            figures.writes += u64::from(write);
        }
    }

    fn answered(&self, waited: Duration, write: bool) {
        let figures = &mut self.state().figures;
        figures.waited_s += waited.as_secs_f64();
        figures.writes_waited_s += if write { waited.as_secs_f64() } else { 0.0 };
    }
}
