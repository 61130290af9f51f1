//! The client: files, and ranks without files.

use crate::error::{of_client, of_file};
use crate::file::{Reader, Writer};
use crate::memory;
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::client::{Checkpoints, FileReader, FileWriter, Files, Safety};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Safety of what was stored: the name of its level, and the media.
pub type Stored = (&'static str, BTreeSet<String>);

/// A writer and reader of checkpoints.
#[pyclass(frozen, module = "entresol_burst._native")]
pub struct Client(Checkpoints);

impl Client {
    fn files(&self, job: u64, files: u32) -> PyResult<Arc<Files>> {
        self.0.files(JobId(job), files).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(
        coordinator: Option<String>,
        pfs: PathBuf,
        node: u32,
        node_addresses: Vec<String>,
        ticket: Option<PathBuf>,
    ) -> PyResult<Client> {
        Ok(Client(Checkpoints::open(coordinator, node_addresses, NodeId(node), &pfs, ticket.as_deref())?))
    }

    fn writer(
        &self,
        py: Python,
        job: u64,
        checkpoint: u64,
        files: u32,
        name: OsString,
        replace: bool,
    ) -> PyResult<Writer> {
        let files = self.files(job, files)?;
        let create = || FileWriter::create(files, CheckpointId(checkpoint), &name, replace);
        Ok(Writer::new(py.detach(create).map_err(of_file)?))
    }

    fn reader(&self, py: Python, job: u64, checkpoint: u64, name: OsString) -> PyResult<Reader> {
        // A checkpoint says itself how many files it has.
        let files = self.files(job, 1)?;
        let open = || FileReader::open(files, CheckpointId(checkpoint), &name);
        Ok(Reader::new(py.detach(open).map_err(of_file)?))
    }

    fn newest(&self, py: Python, job: u64) -> PyResult<Option<u64>> {
        let files = self.files(job, 1)?;
        let newest = py.detach(|| files.newest_complete()).map_err(of_client)?;
        Ok(newest.map(|checkpoint| checkpoint.0))
    }

    fn put(
        &self,
        py: Python,
        job: u64,
        checkpoint: u64,
        rank: u32,
        ranks: u32,
        data: &Bound<PyAny>,
    ) -> PyResult<Stored> {
        let buffer = PyUntypedBuffer::get(data)?;
        let bytes = memory::bytes(&buffer)?;
        let object = Object { job: JobId(job), checkpoint: CheckpointId(checkpoint), rank };
        let acknowledged = py.detach(|| self.0.client().put(object, ranks, bytes)).map_err(of_client)?;
        let mut safety = Safety::default();
        safety.add(&acknowledged);
        Ok((safety.level.name(), safety.media))
    }

    fn restore<'py>(
        &self,
        py: Python<'py>,
        job: u64,
        rank: u32,
        checkpoint: Option<u64>,
    ) -> PyResult<(u64, Bound<'py, PyBytes>)> {
        let restore = || self.0.client().restore(JobId(job), checkpoint.map(CheckpointId), rank);
        let restored = py.detach(restore).map_err(of_client)?;
        Ok((restored.checkpoint.0, PyBytes::new(py, &restored.bytes)))
    }
}
