//! Files of a checkpoint: one that is written from its beginning to its end, and one that is read anywhere.

use crate::client::Stored;
use crate::error::of_file;
use crate::memory;
use entresol_burst_live::client::{FileReader, FileWriter, WriteBuffer};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A file that is being written.
struct Open {
    writer: FileWriter,
    buffer: WriteBuffer,
    length: u64,
}

/// A file of a checkpoint that is written once. It counts from its commit on, and without one never.
#[pyclass(frozen, module = "entresol_burst._native")]
pub struct Writer {
    open: Mutex<Option<Open>>,
}

impl Writer {
    pub fn new(writer: FileWriter) -> Writer {
        let open = Open { writer, buffer: WriteBuffer::default(), length: 0 };
        Writer { open: Mutex::new(Some(open)) }
    }

    /// Uses the open file without Python's lock.
    fn with<T: Send>(&self, py: Python, act: impl FnOnce(&mut Open) -> PyResult<T> + Send) -> PyResult<T> {
        py.detach(|| {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            act(open.as_mut().ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?)
        })
    }
}

#[pymethods]
impl Writer {
    fn write(&self, py: Python, data: &Bound<PyAny>) -> PyResult<usize> {
        let buffer = PyUntypedBuffer::get(data)?;
        let bytes = memory::bytes(&buffer)?;
        self.with(py, |open| {
            open.writer.write(&mut open.buffer, open.length, bytes).map_err(of_file)?;
            open.length += bytes.len() as u64;
            Ok(bytes.len())
        })
    }

    fn length(&self, py: Python) -> PyResult<u64> {
        self.with(py, |open| Ok(open.length))
    }

    /// Stores what is left and commits the file. It stays open after an error: the call may be repeated.
    fn commit(&self, py: Python) -> PyResult<Stored> {
        let stored = self.with(py, |open| {
            let since = Instant::now();
            open.writer.send(&mut open.buffer, since).map_err(of_file)?;
            open.writer.commit(since).map_err(of_file)?;
            let safety = open.writer.safety();
            Ok((safety.level.name(), safety.media))
        })?;
        self.abort(py);
        Ok(stored)
    }

    /// Gives up what is not committed.
    fn abort(&self, py: Python) {
        py.detach(|| drop(self.open.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

/// A committed file.
#[pyclass(frozen, module = "entresol_burst._native")]
pub struct Reader {
    length: u64,
    reader: Mutex<FileReader>,
}

impl Reader {
    pub fn new(reader: FileReader) -> Reader {
        Reader { length: reader.length(), reader: Mutex::new(reader) }
    }
}

#[pymethods]
impl Reader {
    fn length(&self) -> u64 {
        self.length
    }

    /// Fills memory from an offset on, and returns the number of bytes.
    fn read_into(&self, py: Python, offset: u64, data: &Bound<PyAny>) -> PyResult<usize> {
        let mut buffer = PyUntypedBuffer::get(data)?;
        let bytes = memory::bytes_mut(&mut buffer)?;
        py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.read_into(offset, bytes).map_err(of_file)
        })
    }
}
