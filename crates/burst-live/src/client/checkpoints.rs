//! Checkpoints of any job, for libraries of other languages: a client, its directory on the PFS, and the files of each job.

use super::{Client, ClientSettings, Files, PATIENCE};
use crate::credentials::Credential;
use crate::pfs::Directory;
use crate::server::lock;
use entresol_burst::{JobId, NodeId};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A client with the directory that it has on the PFS. Threads may share one.
pub struct Checkpoints {
    client: Client,
    directory: Arc<Directory>,
    /// The files of a job by their number in a checkpoint: what was seen of them is remembered.
    files: Mutex<BTreeMap<(JobId, u32), Arc<Files>>>,
}

impl Checkpoints {
    /// A client of a coordinator on a node, with the directory `pfs` and the ticket in a file. `nodes` are the addresses of nodes to read
    /// from where the coordinator does not answer.
    ///
    /// # Errors
    /// When the directory is missing, or the ticket cannot be read or is none.
    pub fn open(
        coordinator: Option<String>,
        nodes: Vec<String>,
        node: NodeId,
        pfs: &Path,
        ticket: Option<&Path>,
    ) -> io::Result<Checkpoints> {
        let credential = ticket.map(Credential::ticket).transpose()?;
        let directory =
            Directory::open(pfs).map_err(|error| io::Error::new(error.kind(), format!("the PFS: {error}")))?;
        let directory = Arc::new(if credential.is_some() { directory.into_private() } else { directory });
        let settings = ClientSettings { coordinator, nodes, node, patience: PATIENCE, credential };
        let client = Client::new(settings, Arc::clone(&directory) as _);
        Ok(Checkpoints { client, directory, files: Mutex::default() })
    }

    /// The client, for ranks without files.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The files of a job whose checkpoints have `files` files each. A reader may give any number: a checkpoint has its own.
    ///
    /// # Errors
    /// As of [`Files::new`].
    pub fn files(&self, job: JobId, files: u32) -> io::Result<Arc<Files>> {
        let mut known = lock(&self.files);
        if let Some(files) = known.get(&(job, files)) {
            return Ok(Arc::clone(files));
        }
        let of_job = Arc::new(Files::new(self.client.clone(), Arc::clone(&self.directory), job, files)?);
        known.insert((job, files), Arc::clone(&of_job));
        Ok(of_job)
    }
}
