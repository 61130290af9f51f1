//! The client: files, and ranks without files.

use crate::error::{of_client, of_file};
use crate::file::{Reader, Writer};
use crate::memory;
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::Credential;
use entresol_burst_live::client::{self, ClientSettings, FileReader, FileWriter, Files, PATIENCE, Safety};
use entresol_burst_live::pfs::Directory;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Safety of what was stored: the name of its level, and the media.
pub type Stored = (&'static str, BTreeSet<String>);

/// A writer and reader of checkpoints.
#[pyclass(frozen, module = "entresol_burst._native")]
pub struct Client {
    client: client::Client,
    directory: Arc<Directory>,
    /// The files of a job by their number in a checkpoint: what was seen of them is remembered.
    files: Mutex<BTreeMap<(JobId, u32), Arc<Files>>>,
}

impl Client {
    fn files(&self, job: u64, files: u32) -> PyResult<Arc<Files>> {
        let mut known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = known.get(&(JobId(job), files)) {
            return Ok(Arc::clone(files));
        }
        let of_job = Files::new(self.client.clone(), Arc::clone(&self.directory), JobId(job), files);
        let of_job = Arc::new(of_job.map_err(|error| PyValueError::new_err(error.to_string()))?);
        known.insert((JobId(job), files), Arc::clone(&of_job));
        Ok(of_job)
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
        let credential = ticket.map(|file| Credential::ticket(&file)).transpose()?;
        let directory = Directory::open(&pfs)?;
        let directory = Arc::new(if credential.is_some() { directory.into_private() } else { directory });
        let (nodes, node) = (node_addresses, NodeId(node));
        let settings = ClientSettings { coordinator, nodes, node, patience: PATIENCE, credential };
        let client = client::Client::new(settings, Arc::clone(&directory) as _);
        Ok(Client { client, directory, files: Mutex::default() })
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
        let acknowledged = py.detach(|| self.client.put(object, ranks, bytes)).map_err(of_client)?;
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
        let restore = || self.client.restore(JobId(job), checkpoint.map(CheckpointId), rank);
        let restored = py.detach(restore).map_err(of_client)?;
        Ok((restored.checkpoint.0, PyBytes::new(py, &restored.bytes)))
    }
}
