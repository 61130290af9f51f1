//! Checkpoints through real sockets: every policy, losses of nodes, restarts of the coordinator, a PFS that is full.

mod common;

use common::{JOB, MIB, Testbed, contents, object};
use entresol_burst::{CheckpointId, Epoch, Event, Lease, NodeId, Owner, Place, Role};
use entresol_burst_live::client::{
    Client, ClientError, ClientSettings, FileReader, FileWriter, Files, Level, State, WriteBuffer,
};
use entresol_burst_live::message::{
    About, FromCoordinator, FromNode, NodeStatus, Part, StoredPiece, ToCoordinator, ToNode,
};
use entresol_burst_live::pfs::Directory;
use entresol_burst_live::wire::{self, Peer};
use entresol_burst_live::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, layout, replay};
use std::fs;
use std::io::BufReader;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

fn is_durable(testbed: &Testbed, checkpoint: CheckpointId) -> bool {
    let parts = layout::parts(&*testbed.pfs, JOB, checkpoint).expect("a listing");
    layout::is_durable(&*testbed.pfs, JOB, checkpoint, &parts).expect("the PFS works")
}

/// Puts one checkpoint of as many ranks as there are nodes.
fn put(testbed: &Testbed, checkpoint: u64, bytes: u64) -> Vec<Level> {
    let ranks = testbed.nodes.len() as u32;
    let put = |rank: u32| {
        let object = object(checkpoint, rank);
        let acknowledged = testbed.client(rank as usize).put(object, ranks, &contents(object, bytes));
        acknowledged.unwrap_or_else(|error| panic!("{object}: {error}")).level
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || put(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
    })
}

/// Restores every rank on another node than the one that wrote it. Returns the sources.
fn check_restore(testbed: &Testbed, checkpoint: u64, bytes: u64) -> Vec<String> {
    let ranks = testbed.nodes.len() as u32;
    let mut sources = Vec::new();
    for rank in 0..ranks {
        let client = testbed.client((rank as usize + 1) % testbed.nodes.len());
        let restored = client.restore(JOB, None, rank).unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        assert_eq!(restored.checkpoint, CheckpointId(checkpoint));
        assert!(restored.bytes == contents(object(checkpoint, rank), bytes), "rank {rank} differs");
        sources.extend(restored.chunks.into_iter().map(|chunk| chunk.source));
    }
    sources
}

#[test]
fn every_policy_restores_each_rank_and_its_log_replays() {
    let cases = [
        ("pfs", 4 * MIB, Level::Durable),
        ("ldbb", 16 * MIB, Level::Absorbed),
        ("cdbb", 16 * MIB, Level::Absorbed),
        ("cdbb:object=whole", 3 * MIB, Level::Durable),
        ("cdbb:redundancy=partner", 64 * MIB, Level::Replicated),
        ("chunked:chunk=2MiB", 64 * MIB, Level::Replicated),
        ("chunked:chunk=2MiB:redundancy=none:order=fifo", 8 * MIB, Level::Absorbed),
    ];
    for (policy, capacity, least) in cases {
        let testbed = Testbed::new(policy, 3, capacity);
        let bytes = 5 * MIB + 12345;
        for checkpoint in 1..=2 {
            for level in put(&testbed, checkpoint, bytes) {
                assert!(level >= least, "{policy}: {level:?}");
            }
            check_restore(&testbed, checkpoint, bytes);
        }
        let left = testbed.client(0).drain(JOB, None, MINUTE).expect("drained");
        assert!(left.is_empty(), "{policy}: {left:?}");
        testbed.wait_for_empty_buffers();
        assert!(check_restore(&testbed, 2, bytes).iter().all(|source| source == "the PFS"), "{policy}");
        let (states, missing) = testbed.client(0).list(JOB).expect("a list");
        assert!(missing.is_empty() && states.len() == 2, "{states:?}");
        for state in states {
            assert_eq!((state.state, state.undrained), (State::Complete(Level::Durable), 0), "{policy}");
            assert_eq!((state.ranks, state.whole, state.bytes), (3, 3, 3 * bytes), "{policy}");
        }
        testbed.coordinator.as_ref().expect("it runs").check().expect("no byte is lost or used twice");
        let replayed = replay(BufReader::new(fs::File::open(testbed.path("grants")).expect("the log")));
        let replayed = replayed.unwrap_or_else(|error| panic!("{policy}: {error}"));
        assert!(replayed.grants >= 6, "{policy}: {replayed:?}");
    }
}

#[test]
fn a_log_with_another_destination_does_not_replay() {
    let testbed = Testbed::new("cdbb", 2, 16 * MIB);
    put(&testbed, 1, MIB);
    let log = fs::read_to_string(testbed.path("grants")).expect("the log");
    let changed =
        log.replacen("\"offset\":0,\"bytes\":1048576,\"place\"", "\"offset\":0,\"bytes\":1048575,\"place\"", 1);
    assert_ne!(log, changed);
    assert!(replay(changed.as_bytes()).expect_err("it differs").to_string().contains("the replay gives"));
    let cut = &log[..log.len() - 5];
    let (whole, part) = (replay(log.as_bytes()).expect("whole"), replay(cut.as_bytes()).expect("a cut line"));
    assert_eq!(whole.events, part.events + 1);
    assert!(replay(&b""[..]).is_err());
}

#[test]
fn a_node_that_is_lost_after_the_commit_loses_nothing_with_a_partner() {
    for policy in ["cdbb:redundancy=partner", "chunked:chunk=1MiB", "ldbb:redundancy=partner"] {
        for lost in 0..3 {
            let mut testbed = Testbed::new(policy, 3, 64 * MIB);
            testbed.pfs.set_full(true);
            let bytes = 3 * MIB + 1;
            assert_eq!(put(&testbed, 1, bytes), [Level::Replicated; 3]);
            testbed.nodes[lost] = None;
            let sources = check_restore(&testbed, 1, bytes);
            let own = format!("memory of node {lost}");
            assert!(sources.iter().all(|source| source.starts_with("memory of node") && *source != own), "{sources:?}");
            // The copies are drained in place of the lost pieces.
            testbed.pfs.set_full(false);
            testbed.start_node(lost);
            let left = testbed.client(0).drain(JOB, None, MINUTE).expect("drained");
            let reached = left.iter().all(|why| why.contains("refused"));
            assert!(left.is_empty() || reached, "{policy}: {left:?}");
            assert!(is_durable(&testbed, CheckpointId(1)), "{policy}");
            testbed.wait_for_empty_buffers();
            assert!(check_restore(&testbed, 1, bytes).iter().all(|source| source == "the PFS"));
        }
    }
}

#[test]
fn a_node_that_is_gone_for_good_keeps_no_drain_from_its_end() {
    for (policy, before) in [("cdbb:redundancy=partner", false), ("cdbb", true)] {
        let mut testbed = Testbed::new(policy, 3, 64 * MIB);
        testbed.pfs.set_full(!before);
        put(&testbed, 1, 3 * MIB + 1);
        let drained = |testbed: &Testbed| testbed.client(0).drain(JOB, None, MINUTE).expect("an answer");
        if before {
            assert!(drained(&testbed).is_empty(), "{policy}");
        }
        testbed.nodes[1] = None;
        testbed.pfs.set_full(false);
        assert_eq!(drained(&testbed), [""; 0], "{policy}");
        assert!(is_durable(&testbed, CheckpointId(1)), "{policy}");
        let (_, missing) = testbed.client(0).list(JOB).expect("a list");
        assert_eq!(missing, [""; 0], "{policy}");
    }
}

#[test]
fn without_a_copy_a_lost_checkpoint_is_not_called_complete() {
    let mut testbed = Testbed::new("cdbb", 2, 16 * MIB);
    put(&testbed, 1, MIB);
    assert!(testbed.client(0).drain(JOB, None, MINUTE).expect("drained").is_empty());
    testbed.pfs.set_full(true);
    assert_eq!(put(&testbed, 2, MIB), [Level::Absorbed; 2]);
    testbed.nodes[1] = None;
    let restored = testbed.client(0).restore(JOB, None, 0).expect("the older one");
    assert_eq!(restored.checkpoint, CheckpointId(1));
    assert!(restored.warnings.iter().any(|why| why.contains("checkpoint 2: 1 of 2 ranks")), "{:?}", restored.warnings);
    let named = testbed.client(0).restore(JOB, Some(CheckpointId(2)), 0).expect_err("it is incomplete");
    assert!(matches!(named, ClientError::Incomplete(..)), "{named}");
    let left = testbed.client(0).drain(JOB, None, Duration::from_millis(200)).expect("an answer");
    assert!(left.iter().any(|why| why.starts_with("checkpoint 2: incomplete, 1 of 2 ranks")), "{left:?}");
}

#[test]
fn bytes_do_not_go_to_nodes_that_drain_to_another_directory() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = |name: &str| {
        let path = scratch.path().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Arc::new(Directory::open(&path).expect("a directory"))
    };
    let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
    (settings.policy, settings.nodes) = ("ldbb".parse().expect("a policy"), Some(1));
    let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
    let address = coordinator.address().to_string();
    let node = |number, name| {
        let settings = NodeSettings {
            node: NodeId(number),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            coordinator: address.clone(),
            capacity: MIB,
            key: None,
            drain_rate: None,
        };
        NodeDaemon::start(&settings, directory(name)).expect("a node")
    };
    let client = |number, name| {
        let settings = ClientSettings {
            coordinator: Some(address.clone()),
            nodes: Vec::new(),
            node: NodeId(number),
            patience: MINUTE,
            credential: None,
        };
        Client::new(settings, directory(name))
    };
    let _node = node(0, "theirs");
    let put = |client: &Client, checkpoint| client.put(object(checkpoint, 0), 1, b"bytes").expect("stored");
    assert_eq!(put(&client(0, "theirs"), 1).level, Level::Absorbed);
    // The writer's own directory has the bytes: nobody would find them in the nodes' one.
    let other = client(0, "mine");
    let acknowledged = put(&other, 2);
    assert_eq!(acknowledged.level, Level::Durable);
    assert!(acknowledged.failures[0].contains("another directory on the PFS"), "{:?}", acknowledged.failures);
    assert!(scratch.path().join("mine/job-7/checkpoint-2/manifest.json").exists());
    let refused = other.restore(JOB, None, 0).expect_err("refused").to_string();
    assert!(refused.contains("another directory on the PFS"), "{refused}");
    // A second node with this directory does not join.
    let _stray = node(1, "mine");
    std::thread::sleep(Duration::from_millis(500));
    let stray = client(1, "mine").put(object(3, 0), 1, b"bytes").expect("stored");
    assert_eq!(stray.level, Level::Durable);
    assert!(stray.failures[0].contains("node 1 has not reported"), "{:?}", stray.failures);
}

#[test]
fn a_coordinator_that_restarts_has_a_higher_epoch_and_the_same_checkpoints() {
    let mut testbed = Testbed::new("cdbb:redundancy=partner", 3, 32 * MIB);
    testbed.pfs.set_full(true);
    let bytes = 2 * MIB;
    put(&testbed, 1, bytes);
    // A grant of the first epoch that is not used before the restart.
    let address = testbed.coordinator.as_ref().expect("it runs").address().to_string();
    let peer = Peer::connect(&address, MINUTE).expect("the coordinator");
    let owner = Owner::default();
    let open = Event::Open { object: object(2, 0), ranks: 3, node: NodeId(0), bytes: 10, owner };
    let (answer, _) = peer.call(&ToCoordinator::Writer(open), &[], MINUTE).expect("an answer");
    let FromCoordinator::Grants { mut grants, addresses, .. } = answer else { panic!("{answer:?}") };
    let Place::Buffer { primary, .. } = grants.remove(0).place else { panic!("a buffer has space") };

    let first = testbed.coordinator.as_ref().expect("it runs").epoch();
    testbed.coordinator = None;
    testbed.start_coordinator();
    let coordinator = testbed.coordinator.as_ref().expect("it runs");
    assert!(coordinator.epoch() > first);
    testbed.wait_for_nodes();
    coordinator.check().expect("the state is rebuilt");

    let node = Peer::connect(&addresses[&primary.node.0], MINUTE).expect("the node");
    let about = About { ranks: 3, total: 10, attempt: 1 };
    let write = ToNode::Write { grant: primary, about, chunk: 0, seal: None };
    let (answer, _) = node.call::<FromNode>(&write, &[0; 10], MINUTE).expect("an answer");
    let FromNode::Refused { why } = answer else { panic!("{answer:?}") };
    assert!(why.contains("the grant is of epoch 1, this node is in epoch 2"), "{why}");

    check_restore(&testbed, 1, bytes);
    assert_eq!(put(&testbed, 2, bytes), [Level::Replicated; 3]);
    check_restore(&testbed, 2, bytes);
    testbed.pfs.set_full(false);
    assert!(testbed.client(0).drain(JOB, None, MINUTE).expect("drained").is_empty());
    testbed.coordinator.as_ref().expect("it runs").check().expect("all is free");
}

#[test]
fn a_full_pfs_loses_nothing_and_is_tried_again() {
    let testbed = Testbed::new("cdbb", 2, 8 * MIB);
    testbed.pfs.set_full(true);
    assert_eq!(put(&testbed, 1, MIB), [Level::Absorbed; 2]);
    let until = Instant::now() + MINUTE;
    while testbed.pfs.refused.load(std::sync::atomic::Ordering::SeqCst) < 4 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = testbed.client(0).drain(JOB, None, Duration::from_millis(100)).expect("an answer");
    assert!(left.iter().any(|why| why.contains("absorbed, 2 of 2 ranks, 2097152 bytes")), "{left:?}");
    assert!(left.iter().any(|why| why.contains("node") && why.contains("no storage space")), "{left:?}");
    check_restore(&testbed, 1, MIB);
    // The buffers fill, and a writer that finds space nowhere is told so.
    let object = object(2, 0);
    let refused = testbed.client(0).put(object, 1, &contents(object, 40 * MIB)).expect_err("no space");
    assert!(matches!(refused, ClientError::NotStored { .. }), "{refused}");
    testbed.pfs.set_full(false);
    assert!(testbed.client(0).drain(JOB, Some(CheckpointId(1)), MINUTE).expect("drained").is_empty());
    check_restore(&testbed, 1, MIB);
}

/// A node had drained the piece before the manifest again for ever, and no piece behind it.
#[test]
fn a_manifest_that_fails_does_not_hold_up_the_drain() {
    let testbed = Testbed::new("cdbb", 1, 16 * MIB);
    testbed.pfs.refuses_manifests.store(true, std::sync::atomic::Ordering::SeqCst);
    put(&testbed, 1, MIB);
    put(&testbed, 2, MIB);
    let until = Instant::now() + MINUTE;
    while layout::parts(&*testbed.pfs, JOB, CheckpointId(2)).expect("a listing").is_empty() {
        assert!(Instant::now() < until, "the second piece is not drained");
        std::thread::sleep(Duration::from_millis(10));
    }
    testbed.pfs.refuses_manifests.store(false, std::sync::atomic::Ordering::SeqCst);
    let left = testbed.client(0).drain(JOB, None, MINUTE).expect("drained");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_writer_that_dies_as_it_puts_a_rank_again_loses_nothing() {
    let testbed = Testbed::new("cdbb", 2, 16 * MIB);
    testbed.pfs.set_full(true);
    put(&testbed, 1, MIB);
    let owner = Owner::default();
    let open = Event::Open { object: object(1, 0), ranks: 2, node: NodeId(0), bytes: MIB, owner };
    let abandon = Event::Abandon { object: object(1, 0) };
    let coordinator = testbed.coordinator.as_ref().expect("it runs").address().to_string();
    for event in [open, abandon] {
        let peer = Peer::connect(&coordinator, MINUTE).expect("the coordinator");
        let (answer, _) = peer.call(&ToCoordinator::Writer(event), &[], MINUTE).expect("an answer");
        assert!(matches!(answer, FromCoordinator::Kept { .. }), "{answer:?}");
    }
    check_restore(&testbed, 1, MIB);
    // The PFS works for the writer alone: a piece that a node has drained is kept no more, and its rank is absorbed again.
    let works = Arc::new(Directory::open(&testbed.path("pfs")).expect("a directory"));
    let writer = Client::new(testbed.settings(0), works);
    let again = writer.put(object(1, 0), 2, &contents(object(1, 0), MIB)).expect("the PFS works");
    assert_eq!(again.level, Level::Durable);
    testbed.pfs.set_full(false);
    let left = testbed.client(0).drain(JOB, None, MINUTE).expect("drained");
    assert!(left.is_empty(), "{left:?}");
    check_restore(&testbed, 1, MIB);
}

#[test]
fn without_a_coordinator_bytes_go_to_the_pfs() {
    let mut testbed = Testbed::new("cdbb", 2, 8 * MIB);
    testbed.coordinator = None;
    let begin = Instant::now();
    assert_eq!(put(&testbed, 1, MIB), [Level::Durable; 2]);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(matches!(testbed.client(0).restore(JOB, None, 0), Err(ClientError::NoNodes(_))));
    let nodes = testbed.nodes.iter().flatten().map(|node| node.address().to_string()).collect();
    let client = Client::new(ClientSettings { nodes, ..testbed.settings(0) }, testbed.pfs.clone());
    assert!(client.restore(JOB, None, 1).expect("the PFS").bytes == contents(object(1, 1), MIB));
    // An object without bytes is one too.
    let empty = object(2, 0);
    assert_eq!(client.put(empty, 1, &[]).expect("the PFS").level, Level::Durable);
    assert!(client.restore(JOB, None, 0).expect("it is empty").bytes.is_empty());
}

#[test]
fn a_damaged_chunk_is_taken_from_another_source() {
    let testbed = Testbed::new("cdbb:redundancy=partner", 3, 32 * MIB);
    let bytes = 2 * MIB + 7;
    put(&testbed, 1, bytes);
    assert!(testbed.client(0).drain(JOB, None, MINUTE).expect("drained").is_empty());
    testbed.wait_for_empty_buffers();
    let folder = testbed.path("pfs").join(layout::folder(JOB, CheckpointId(1)));
    let parts = layout::parts(&*testbed.pfs, JOB, CheckpointId(1)).expect("a listing");
    let part = *parts.iter().find(|part| part.object.rank == 1).expect("a part");
    // A node that says to have the part, and gives other bytes.
    let crcs = layout::sidecar(&*testbed.pfs, &part).expect("checksums").crcs;
    let liar = liar(part, crcs);
    let settings = ClientSettings { coordinator: None, nodes: vec![liar], ..testbed.settings(0) };
    let restored = Client::new(settings, testbed.pfs.clone()).restore(JOB, None, 1).expect("the PFS has it");
    assert!(restored.bytes == contents(object(1, 1), bytes));
    assert!(restored.chunks.iter().all(|chunk| chunk.source == "the PFS"));
    assert!(restored.warnings.iter().any(|why| why.contains("another checksum")), "{:?}", restored.warnings);
    // Bytes that have no source with their checksum are an error, and no older checkpoint is taken.
    let path = folder.join(layout::name(&part));
    let mut damaged = fs::read(&path).expect("a part");
    damaged[100] ^= 1;
    fs::write(&path, &damaged).expect("a part");
    let error = testbed.client(0).restore(JOB, None, 1).expect_err("no other source");
    assert!(matches!(error, ClientError::Damaged { offset: 0, .. }), "{error}");
    assert!(testbed.client(0).restore(JOB, None, 0).is_ok());
}

#[test]
fn a_file_says_how_safe_it_is_and_is_read_into_memory() {
    for (capacity, fits) in [(64 * MIB, true), (8 * MIB, false)] {
        let testbed = Testbed::new("chunked", 2, capacity);
        let directory = Arc::new(Directory::open(&testbed.path("pfs")).expect("a directory"));
        let files = Arc::new(Files::new(testbed.client(0), directory, JOB, 1).expect("a number of files"));
        let (checkpoint, name) = (CheckpointId(1), std::ffi::OsStr::new("state"));
        let writer = FileWriter::create(Arc::clone(&files), checkpoint, name, false).expect("a new file");
        // Two pieces and a part of one, and a hole between them.
        let (bytes, hole) = (contents(object(1, 0), 40 * MIB), 3 * MIB + 5);
        let mut buffer = WriteBuffer::default();
        writer.write(&mut buffer, 0, &bytes[..MIB as usize]).expect("stored");
        writer.write(&mut buffer, MIB + hole, &bytes[MIB as usize..]).expect("stored");
        let since = Instant::now();
        writer.send(&mut buffer, since).expect("stored");
        writer.commit(since).expect("committed");
        let safety = writer.safety();
        // The weakest part counts: the first one is in the memory of two nodes either way.
        assert_eq!(safety.level, Level::Replicated, "{safety:?}");
        let mut media = vec!["memory of node 0", "memory of node 1"];
        media.extend((!fits).then_some("the PFS"));
        assert_eq!(safety.media.iter().map(String::as_str).collect::<Vec<_>>(), media, "{capacity}");
        let mut expected = bytes[..MIB as usize].to_vec();
        expected.resize((MIB + hole) as usize, 0);
        expected.extend_from_slice(&bytes[MIB as usize..]);
        let mut reader = FileReader::open(files, checkpoint, name).expect("a committed file");
        let mut into = vec![7; 5 * MIB as usize];
        for offset in [0, MIB - 3, MIB + 7, 17 * MIB, 39 * MIB + 1] {
            into.fill(7);
            let filled = reader.read_into(offset, &mut into).expect("bytes");
            let rest = &expected[offset as usize..];
            assert_eq!(filled, rest.len().min(into.len()), "{offset}");
            assert!(into[..filled] == rest[..filled], "{offset}");
            assert!(into[filled..].iter().all(|&byte| byte == 7), "{offset}");
            assert!(reader.read(offset, into.len() as u64).expect("bytes") == into[..filled], "{offset}");
        }
        assert_eq!(reader.read_into(reader.length() + 1, &mut into).expect("nothing"), 0);
    }
}

/// Address of a server that answers as a node with one piece, of which it gives zeros.
fn liar(part: Part, crcs: Vec<u32>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let lease = Lease { epoch: Epoch(1), number: 1 };
        while let Ok((request, _)) = wire::receive::<ToNode>(&stream, MINUTE) {
            let piece = StoredPiece { lease, role: Role::Primary, part, crcs: crcs.clone() };
            let (answer, bytes) = match request {
                ToNode::Status => (FromNode::Status(NodeStatus::default()), 0),
                ToNode::Pieces { .. } => (FromNode::Pieces { node: NodeId(0), pieces: vec![piece] }, 0),
                ToNode::Read { chunk, .. } => (FromNode::Chunk, (part.bytes - chunk * MIB).min(MIB)),
                other => panic!("{other:?}"),
            };
            wire::send(&stream, &answer, &vec![0; bytes as usize], MINUTE).expect("an answer");
        }
    });
    address
}
