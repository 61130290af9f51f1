//! Reading of an object from buffers and the PFS, with every chunk's checksum compared.

use super::inventory::{Found, Inventory, Source};
use super::{Client, ClientError, MESSAGE, Peers};
use crate::arena;
use crate::checksum::{CHUNK_BYTES, chunks, crc32c};
use crate::clock;
use crate::layout::{self, Sidecar};
use crate::message::{About, FromNode, NO_SUCH_PIECE, Part, ToNode};
use entresol_burst::{CheckpointId, JobId, Lease, NodeId, Object};
use std::collections::BTreeMap;
use std::io;

/// Most looks at the inventory: parts move while they are read.
pub(super) const ROUNDS: usize = 3;
/// Requests for chunks that are on their way to a node at the same time.
const AHEAD: u64 = 4;

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
        self.find_rank(job, checkpoint, rank, |reader, found, object, about| {
            let (bytes, chunks) = reader.object(found, object, about)?;
            let warnings = std::mem::take(&mut reader.warnings);
            Ok(Restored { checkpoint: object.checkpoint, bytes, chunks, warnings })
        })
    }

    /// Reads the object of one rank of a checkpoint into the beginning of memory of the caller. Returns its length in bytes: an
    /// object that is longer than the memory is not read.
    ///
    /// # Errors
    /// When the checkpoint is not complete, or a chunk has no source with its checksum. Any byte of the memory may have changed then.
    pub fn restore_into(
        &self,
        job: JobId,
        checkpoint: CheckpointId,
        rank: u32,
        into: &mut [u8],
    ) -> Result<u64, ClientError> {
        self.find_rank(job, Some(checkpoint), rank, |reader, found, object, about| {
            let length = usize::try_from(about.total).unwrap_or(usize::MAX);
            if let Some(into) = into.get_mut(..length) {
                reader.object_into(found, object, about, into)?;
            }
            Ok(about.total)
        })
    }

    /// Finds the object of one rank and reads it. Parts move while they are read: after a chunk that is nowhere all is found anew.
    fn find_rank<T>(
        &self,
        job: JobId,
        checkpoint: Option<CheckpointId>,
        rank: u32,
        mut read: impl FnMut(&mut Reader, &Found, Object, &About) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut peers = self.peers();
        let mut round = 1;
        loop {
            let inventory = self.inventory(job, &mut peers)?;
            let mut warnings = inventory.missing.clone();
            let (checkpoint, found) = choose(&inventory, job, checkpoint, &mut warnings)?;
            let census = found.census();
            if census.is_files {
                return Err(ClientError::Files(job, checkpoint));
            }
            let about = *census.whole.get(&rank).ok_or(ClientError::NoSuchRank(rank, census.ranks))?;
            let mut reader = Reader::new(self, &mut peers);
            reader.warnings = warnings;
            match read(&mut reader, found, Object { job, checkpoint, rank }, &about) {
                Err(ClientError::Damaged { .. }) if round < ROUNDS => round += 1,
                result => return result,
            }
        }
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

fn damaged(object: Object, offset: u64, failures: Vec<String>) -> ClientError {
    let Object { job, checkpoint, .. } = object;
    ClientError::Damaged { job, checkpoint, offset, failures }
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
        let memory = arena::zeroed(about.total);
        let mut bytes =
            memory.map_err(|error| damaged(object, 0, vec![format!("memory for {} bytes: {error}", about.total)]))?;
        let read = self.object_into(found, object, about, &mut bytes)?;
        Ok((bytes, read))
    }

    /// Reads an attempt at an object into memory of its length, and returns the sources of its chunks.
    fn object_into(
        &mut self,
        found: &Found,
        object: Object,
        about: &About,
        bytes: &mut [u8],
    ) -> Result<Vec<RestoredChunk>, ClientError> {
        let (mut end, mut read) = (0, Vec::new());
        for ((offset, length), sources) in sources(found, object.rank, about, self.client.settings.node) {
            if offset > end {
                break;
            }
            if offset + length <= end && length > 0 {
                continue;
            }
            end = offset + length;
            let into =
                bytes.get_mut(offset as usize..end as usize).ok_or_else(|| damaged(object, offset, Vec::new()))?;
            self.part(&sources, offset, into, &mut read).map_err(|(at, failures)| damaged(object, at, failures))?;
        }
        match end == about.total {
            true => Ok(read),
            false => Err(damaged(object, end, Vec::new())),
        }
    }

    /// Reads a part that begins at an offset of its object, and notes the sources of its chunks.
    ///
    /// # Errors
    /// Offset of a chunk that no source has, and the failures of all sources.
    fn part(
        &mut self,
        sources: &[&(Part, Source)],
        offset: u64,
        into: &mut [u8],
        read: &mut Vec<RestoredChunk>,
    ) -> Result<(), (u64, Vec<String>)> {
        let nearest = sources.first().map(|(_, source)| source);
        let streamed = nearest.map_or(0, |source| self.stream(source, into));
        for (number, chunk) in (0..).zip(into.chunks_mut(CHUNK_BYTES as usize)) {
            let at = offset + number * CHUNK_BYTES;
            let source = match nearest.filter(|_| number < streamed) {
                Some(nearest) => name(nearest),
                None => self.first(sources, number, chunk).map_err(|failures| (at, failures))?,
            };
            read.push(RestoredChunk { offset: at, bytes: chunk.len() as u64, source });
        }
        Ok(())
    }

    /// Reads the chunks of a part from a node that sends them, of which several are asked for at the same time. Returns the number of
    /// those that were read before one was not.
    fn stream(&mut self, source: &Source, into: &mut [u8]) -> u64 {
        let Source::Node { node, address, lease, crcs } = source else { return 0 };
        let count = chunks(into.len() as u64);
        if count < 2 || self.is_near(*node) && self.client.views.get(address, MESSAGE).is_some() {
            return 0;
        }
        let read = |chunk| ToNode::Read { lease: *lease, chunk };
        let mut asked = 1;
        for (number, chunk) in (0..).zip(into.chunks_mut(CHUNK_BYTES as usize)) {
            // The first chunk may need a new connection.
            let answer = match number {
                0 => self.peers.node(address, &read(0), &[], MESSAGE),
                _ => self.peers.end(address, MESSAGE),
            };
            // The node sends the next chunks while this one is compared.
            while answer.is_ok() && asked < count && asked <= number + AHEAD {
                if self.peers.begin(address, &read(asked), &[], MESSAGE).is_err() {
                    return number;
                }
                asked += 1;
            }
            if take(answer, number, crcs.get(number as usize).copied(), chunk).is_err() {
                // The connection is of use when the other answers are received.
                (number + 1..asked).for_each(|_| drop(self.peers.end(address, MESSAGE)));
                return number;
            }
        }
        count
    }

    /// True if the memory of a node may be mapped here.
    fn is_near(&self, node: NodeId) -> bool {
        node == self.client.settings.node && !clock::is_simulated()
    }

    /// Copies a chunk out of the memory of the reader's own node, and returns the checksum of the copy; none if the memory is not shared
    /// with this process, or the piece is there no more.
    fn view(&mut self, address: &str, lease: Lease, chunk: u64, into: &mut [u8]) -> Option<u32> {
        let share = self.client.views.get(address, MESSAGE)?;
        if self.peers.located.as_ref().is_none_or(|(of, _)| *of != lease) {
            match self.peers.node(address, &ToNode::Locate { lease, share: share.id }, &[], MESSAGE) {
                Ok((FromNode::Located { extents }, _)) => {
                    share.touch(&extents).ok()?;
                    self.peers.located = Some((lease, extents));
                }
                // Another node's memory, or a node that does not know the question.
                Ok(_) | Err(ClientError::Wire(..)) => {
                    self.client.views.avoid(address);
                    return None;
                }
                Err(_) => return None,
            }
        }
        let (_, extents) = self.peers.located.as_ref()?;
        share.read(extents, chunk * CHUNK_BYTES, into).ok()
    }

    /// Reads one chunk of a part from the first source that has it, and returns the name of the source.
    ///
    /// # Errors
    /// The failures of all sources.
    pub fn first(&mut self, sources: &[&(Part, Source)], chunk: u64, into: &mut [u8]) -> Result<String, Vec<String>> {
        let (mut failures, mut warnings) = (Vec::new(), Vec::new());
        for (part, source) in sources {
            let named = name(source);
            match self.chunk(part, source, chunk, into) {
                Ok(()) => {
                    self.warnings.extend(warnings);
                    return Ok(named);
                }
                Err(Failure::Left) => failures.push(format!("{named}: {NO_SUCH_PIECE}")),
                Err(Failure::Other(why)) => {
                    let failure = format!("{named}: {why}");
                    warnings.push(failure.clone());
                    failures.push(failure);
                }
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

    /// Reads one chunk of a part, of its length, from one source.
    fn chunk(&mut self, part: &Part, source: &Source, chunk: u64, into: &mut [u8]) -> Result<(), Failure> {
        match source {
            Source::Node { node, address, lease, crcs } => {
                let crc = crcs.get(chunk as usize).copied();
                if self.is_near(*node) {
                    if crc.is_some() && self.view(address, *lease, chunk, into) == crc {
                        return Ok(());
                    }
                    // The space may be another piece's by now. The node knows.
                    self.peers.located = None;
                }
                let read = ToNode::Read { lease: *lease, chunk };
                take(self.peers.node(address, &read, &[], MESSAGE), chunk, crc, into)
            }
            Source::Pfs => {
                let failed = |error: io::Error| Failure::Other(error.to_string());
                let crc = self.sidecar(part).map_err(failed)?.crcs.get(chunk as usize).copied();
                let folder = layout::folder(part.object.job, part.object.checkpoint);
                let at = chunk * CHUNK_BYTES;
                let read = self.client.pfs.read(&folder, &layout::name(part), at, into.len() as u64);
                compare(&read.map_err(failed)?, chunk, crc, into)
            }
        }
    }
}

/// Reason why a source has not given a chunk.
enum Failure {
    /// The node does not have the piece any more: it has drained since the node was asked for its pieces. That is no warning.
    Left,
    /// Another reason.
    Other(String),
}

/// Takes the bytes of a chunk from the answer of a node.
fn take(
    answer: Result<(FromNode, Vec<u8>), ClientError>,
    chunk: u64,
    crc: Option<u32>,
    into: &mut [u8],
) -> Result<(), Failure> {
    match answer {
        Ok((FromNode::Chunk, bytes)) => compare(&bytes, chunk, crc, into),
        Ok(_) => Err(Failure::Other("an answer that does not fit".to_owned())),
        Err(ClientError::Refused(_, why)) if why == NO_SUCH_PIECE => Err(Failure::Left),
        Err(error) => Err(Failure::Other(error.to_string())),
    }
}

/// Copies a chunk if it has its length and checksum.
fn compare(read: &[u8], chunk: u64, crc: Option<u32>, into: &mut [u8]) -> Result<(), Failure> {
    match read.len() == into.len() && Some(crc32c(read)) == crc {
        true => {
            into.copy_from_slice(read);
            Ok(())
        }
        false => Err(Failure::Other(format!("chunk {chunk} has another checksum"))),
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::Node { node, .. } => format!("memory of node {}", node.0),
        Source::Pfs => "the PFS".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientSettings, FileReader, FileWriter, Files, PATIENCE, WriteBuffer};
    use crate::credentials::{Credential, Key};
    use crate::pfs::{Directory, Pfs};
    use crate::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings};
    use std::io::{ErrorKind, Read};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    const MINUTE: Duration = Duration::from_secs(60);
    const JOB: JobId = JobId(1);
    const CHECKPOINT: CheckpointId = CheckpointId(1);
    const OBJECT: Object = Object { job: JOB, checkpoint: CHECKPOINT, rank: 0 };

    /// A directory to which nothing can be written while it is shut.
    struct Gate {
        inner: Directory,
        is_shut: AtomicBool,
    }

    impl Pfs for Gate {
        fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
            match self.is_shut.load(Ordering::SeqCst) {
                true => Err(ErrorKind::StorageFull.into()),
                false => self.inner.create(folder, name, contents),
            }
        }

        fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
            self.inner.read(folder, name, at, bytes)
        }

        fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
            self.inner.read_small(folder, name)
        }

        fn list(&self, folder: &str) -> io::Result<Vec<String>> {
            self.inner.list(folder)
        }
    }

    /// A coordinator and a node whose bytes stay in its memory until the gate opens.
    struct Testbed {
        scratch: tempfile::TempDir,
        gate: Arc<Gate>,
        coordinator: CoordinatorDaemon,
        node: NodeDaemon,
        key: Option<Key>,
    }

    impl Testbed {
        fn new(key: Option<Key>) -> Testbed {
            let scratch = tempfile::tempdir().expect("a directory");
            let inner = Directory::open(scratch.path()).expect("a directory");
            let gate = Arc::new(Gate { inner, is_shut: AtomicBool::new(true) });
            let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
            settings.policy = "cdbb".parse().expect("a policy");
            settings.key = key.clone();
            let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
            let settings = NodeSettings {
                node: NodeId(0),
                listen: "127.0.0.1:0".to_owned(),
                advertise: None,
                coordinator: coordinator.address().to_string(),
                capacity: 1 << 20,
                key: key.clone(),
                drain_rate: None,
            };
            let node = NodeDaemon::start(&settings, gate.clone()).expect("a node");
            Testbed { scratch, gate, coordinator, node, key }
        }

        /// A client on a host of its own, or on that of node 0.
        fn client(&self, node: u32) -> Client {
            let settings = ClientSettings {
                coordinator: Some(self.coordinator.address().to_string()),
                nodes: Vec::new(),
                node: NodeId(node),
                patience: PATIENCE,
                credential: self.key.clone().map(Credential::Key),
            };
            Client::new(settings, self.gate.clone())
        }
    }

    /// Not a multiple of the length of a chunk.
    fn contents() -> Vec<u8> {
        (0..50_001_u64).map(|at| ((at * at) >> 7) as u8).collect()
    }

    #[test]
    fn space_that_is_given_to_others_while_it_is_read_is_found_out() {
        let testbed = Testbed::new(None);
        let (client, bytes) = (testbed.client(0), contents());
        client.put(OBJECT, 1, &bytes).expect("stored");
        let mut peers = client.peers();
        let (found, _) = client.found(JOB, CHECKPOINT, &mut peers).expect("parts");
        let about = found.census().whole[&0];
        let all = sources(&found, 0, &about, NodeId(0));
        let (_, sources) = all.first_key_value().expect("a part");
        let mut reader = Reader::new(&client, &mut peers);
        let mut chunk = [0; CHUNK_BYTES as usize];
        assert_eq!(reader.first(sources, 0, &mut chunk).expect("a chunk"), "memory of node 0");
        assert!(chunk[..] == bytes[..chunk.len()] && reader.peers.located.is_some());
        let address = testbed.node.address().to_string();
        assert!(client.views.has(&address), "the memory is mapped");
        // Where the piece is stays known to the reader, and the space is zeroed.
        testbed.gate.is_shut.store(false, Ordering::SeqCst);
        let until = Instant::now() + MINUTE;
        let failures = loop {
            assert!(Instant::now() < until, "the space is never given back");
            let located = reader.peers.located.clone();
            match reader.first(sources, 1, &mut chunk) {
                Ok(_) => assert!(chunk[..] == bytes[chunk.len()..][..chunk.len()]),
                Err(failures) if located.is_some() => break failures,
                // The node has dropped the piece, and zeroes its space when the reader does not know it any more.
                Err(_) => panic!("{located:?}"),
            }
        };
        assert!(failures[0].ends_with(NO_SUCH_PIECE), "{failures:?}");
        let drained = (sources[0].0, Source::Pfs);
        let both = [sources[0], &drained];
        assert_eq!(reader.first(&both, 0, &mut chunk).expect("a chunk"), "the PFS");
        assert!(chunk[..] == bytes[..chunk.len()] && reader.warnings.is_empty(), "{:?}", reader.warnings);
        let restored = client.restore(JOB, Some(CHECKPOINT), 0).expect("a checkpoint");
        assert!(restored.bytes == bytes);
        assert!(restored.chunks.iter().all(|chunk| chunk.source == "the PFS"), "{:?}", restored.chunks);
        drop(testbed.node);
        while client.views.has(&address) {
            assert!(Instant::now() < until, "the mapping is kept");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn chunks_that_are_asked_for_ahead_arrive_in_their_order() {
        let testbed = Testbed::new(None);
        let bytes = contents();
        testbed.client(0).put(OBJECT, 1, &bytes).expect("stored");
        let reader = testbed.client(1);
        let restored = reader.restore(JOB, None, 0).expect("a checkpoint");
        assert!(restored.bytes == bytes && restored.warnings.is_empty(), "{:?}", restored.warnings);
        assert_eq!(restored.chunks.len() as u64, chunks(bytes.len() as u64));
        assert!(restored.chunks.iter().all(|chunk| chunk.source == "memory of node 0"));
        assert!(!reader.views.has(&testbed.node.address().to_string()), "another node's memory is mapped");
    }

    #[test]
    fn a_file_is_read_from_memory_with_a_credential() {
        let testbed = Testbed::new(Some(Key::of([8; 32])));
        let directory = Arc::new(Directory::open(testbed.scratch.path()).expect("a directory"));
        let files = |node| {
            Arc::new(Files::new(testbed.client(node), Arc::clone(&directory), JOB, 1).expect("a number of files"))
        };
        let (bytes, name) = (contents(), "state".as_ref());
        let writer = FileWriter::create(files(0), CHECKPOINT, name, false).expect("opened");
        let mut buffer = WriteBuffer::default();
        writer.write(&mut buffer, 0, &bytes).expect("collected");
        writer.send(&mut buffer, Instant::now()).expect("stored");
        writer.commit(Instant::now()).expect("committed");
        for node in [0, 1] {
            let mut reader = FileReader::open(files(node), CHECKPOINT, name).expect("a file");
            assert!(reader.read(0, 1 << 20).expect("bytes") == bytes, "{node}");
        }
    }
}
