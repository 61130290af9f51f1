//! Reading of an object from buffers and the PFS, with every chunk's checksum compared.

use super::inventory::{Found, Inventory, Source};
use super::{Client, ClientError, MESSAGE, Peers};
use crate::checksum::{CHUNK_BYTES, chunk_length, chunks, crc32c};
use crate::layout::{self, Sidecar};
use crate::message::{About, FromNode, Part, ToNode};
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use std::collections::BTreeMap;
use std::io;

/// Most looks at the inventory: parts move while they are read.
pub(super) const ROUNDS: usize = 3;

/// One chunk of a restored object, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredChunk {
    /// Offset in the object of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Source of the bytes.
    pub source: String,
}

/// A restored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The chunks, by offset.
    pub chunks: Vec<RestoredChunk>,
    /// Newer checkpoints that are not complete, sources that failed, and nodes that could not be asked.
    pub warnings: Vec<String>,
}

impl Client {
    /// Reads the object of one rank: of the given checkpoint, or of the newest complete one.
    ///
    /// Damage of the newest complete checkpoint is an error and no reason for an older one: the ranks of a job must not
    /// restore different checkpoints.
    ///
    /// # Errors
    /// When no such checkpoint is complete, or a chunk has no source with its checksum.
    pub fn restore(&self, job: JobId, checkpoint: Option<CheckpointId>, rank: u32) -> Result<Restored, ClientError> {
        let mut peers = self.peers();
        let mut round = 1;
        loop {
            let inventory = self.inventory(job, &mut peers)?;
            match self.restore_from(&inventory, job, checkpoint, rank, &mut peers) {
                Err(ClientError::Damaged { .. }) if round < ROUNDS => round += 1,
                result => return result,
            }
        }
    }

    fn restore_from(
        &self,
        inventory: &Inventory,
        job: JobId,
        checkpoint: Option<CheckpointId>,
        rank: u32,
        peers: &mut Peers,
    ) -> Result<Restored, ClientError> {
        let mut warnings = inventory.missing.clone();
        let (checkpoint, found) = choose(inventory, job, checkpoint, &mut warnings)?;
        let census = found.census();
        if census.is_files {
            return Err(ClientError::Files(job, checkpoint));
        }
        let about = *census.whole.get(&rank).ok_or(ClientError::NoSuchRank(rank, census.ranks))?;
        let mut reader = Reader::new(self, peers);
        let (bytes, chunks) = reader.object(found, Object { job, checkpoint, rank }, &about)?;
        warnings.extend(reader.warnings);
        Ok(Restored { checkpoint, bytes, chunks, warnings })
    }
}

/// Sources of each part of an attempt at an object by offset and length, those on the reader's own node first and the
/// PFS last.
pub(super) fn sources<'a>(
    found: &'a Found,
    rank: u32,
    about: &About,
    own: NodeId,
) -> BTreeMap<(u64, u64), Vec<&'a (Part, Source)>> {
    let mut sources: BTreeMap<(u64, u64), Vec<&(Part, Source)>> = BTreeMap::new();
    for one in found.parts.iter().filter(|(part, _)| part.object.rank == rank && part.about == *about) {
        sources.entry((one.0.offset, one.0.bytes)).or_default().push(one);
    }
    sources.values_mut().for_each(|all| all.sort_by_key(|(_, source)| distance(source, own)));
    sources
}

/// The given checkpoint, or the newest complete one.
fn choose<'a>(
    inventory: &'a Inventory,
    job: JobId,
    checkpoint: Option<CheckpointId>,
    warnings: &mut Vec<String>,
) -> Result<(CheckpointId, &'a Found), ClientError> {
    for (&number, found) in inventory.checkpoints.iter().rev() {
        if checkpoint.is_some_and(|checkpoint| checkpoint != number) {
            continue;
        }
        let census = found.census();
        if census.is_complete() {
            return Ok((number, found));
        }
        warnings.push(format!("checkpoint {}: {} of {} ranks", number.0, census.whole.len(), census.ranks));
    }
    let warnings = std::mem::take(warnings);
    Err(match checkpoint {
        Some(checkpoint) => ClientError::Incomplete(job, checkpoint, warnings),
        None => ClientError::NoCheckpoint(job, warnings),
    })
}

fn distance(source: &Source, own: NodeId) -> u32 {
    match source {
        Source::Node { node, .. } if *node == own => 0,
        Source::Node { .. } => 1,
        Source::Pfs => 2,
    }
}

/// A reader of parts.
pub(super) struct Reader<'a> {
    client: &'a Client,
    peers: &'a mut Peers,
    /// Sources that failed.
    pub warnings: Vec<String>,
    /// The checksums of the last part that was read from the PFS.
    sidecar: Option<(Part, Sidecar)>,
}

impl<'a> Reader<'a> {
    pub fn new(client: &'a Client, peers: &'a mut Peers) -> Reader<'a> {
        Reader { client, peers, warnings: Vec::new(), sidecar: None }
    }

    /// The bytes of an attempt at an object, and the sources of its chunks.
    pub fn object(
        &mut self,
        found: &Found,
        object: Object,
        about: &About,
    ) -> Result<(Vec<u8>, Vec<RestoredChunk>), ClientError> {
        let (mut bytes, mut read) = (Vec::new(), Vec::new());
        let damaged = |offset, failures| {
            let Object { job, checkpoint, .. } = object;
            ClientError::Damaged { job, checkpoint, offset, failures }
        };
        // A part that begins after the end of those before is not reached: the attempt is whole.
        for ((offset, length), sources) in sources(found, object.rank, about, self.client.settings.node) {
            if offset + length <= bytes.len() as u64 && length > 0 {
                continue;
            }
            for number in 0..chunks(length) {
                let at = offset + number * CHUNK_BYTES;
                let (chunk, source) = self.first(&sources, number).map_err(|failures| damaged(at, failures))?;
                let skipped = (bytes.len() as u64).saturating_sub(at).min(chunk.len() as u64);
                read.push(RestoredChunk { offset: at, bytes: chunk.len() as u64, source });
                bytes.extend_from_slice(&chunk[skipped as usize..]);
            }
        }
        match bytes.len() as u64 == about.total {
            true => Ok((bytes, read)),
            false => Err(damaged(bytes.len() as u64, Vec::new())),
        }
    }

    /// One chunk of a part from the first source that has it, and the name of the source.
    ///
    /// # Errors
    /// The failures of all sources.
    pub fn first(&mut self, sources: &[&(Part, Source)], chunk: u64) -> Result<(Vec<u8>, String), Vec<String>> {
        let mut failures = Vec::new();
        for (part, source) in sources {
            let named = name(source);
            match self.chunk(part, source, chunk) {
                Ok(read) => {
                    self.warnings.extend(failures);
                    return Ok((read, named));
                }
                Err(why) => failures.push(format!("{named}: {why}")),
            }
        }
        Err(failures)
    }

    /// The checksums of a part on the PFS, which are read once for all its chunks.
    fn sidecar(&mut self, part: &Part) -> io::Result<&Sidecar> {
        let kept = self.sidecar.take().filter(|(of, _)| of == part);
        let of_part = match kept {
            Some(kept) => kept,
            None => (*part, layout::sidecar(&*self.client.pfs, part)?),
        };
        Ok(&self.sidecar.insert(of_part).1)
    }

    /// One chunk of a part from one source.
    fn chunk(&mut self, part: &Part, source: &Source, chunk: u64) -> Result<Vec<u8>, String> {
        let length = chunk_length(part.bytes, chunk);
        let (read, crc) = match source {
            Source::Node { address, lease, crcs, .. } => {
                let read = ToNode::Read { lease: *lease, chunk };
                match self.peers.node(address, &read, &[], MESSAGE).map_err(|error| error.to_string())? {
                    (FromNode::Chunk, bytes) => (bytes, crcs.get(chunk as usize).copied()),
                    _ => return Err("an answer that does not fit".to_owned()),
                }
            }
            Source::Pfs => {
                let crc = self.sidecar(part).map_err(|error| error.to_string())?.crcs.get(chunk as usize).copied();
                let folder = layout::folder(part.object.job, part.object.checkpoint);
                let at = chunk * CHUNK_BYTES;
                let read = self.client.pfs.read(&folder, &layout::name(part), at, length);
                (read.map_err(|error| error.to_string())?, crc)
            }
        };
        match read.len() as u64 == length && Some(crc32c(&read)) == crc {
            true => Ok(read),
            false => Err(format!("chunk {chunk} has another checksum")),
        }
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::Node { node, .. } => format!("memory of node {}", node.0),
        Source::Pfs => "the PFS".to_owned(),
    }
}
