//! Requests that a node refuses, each over its socket: what is not stored is not readable, and nothing is stored that
//! was not written under a live grant with the writer's checksums.

mod common;

use common::{ANSWERED_WITHIN, JOB, MIB, Testbed, object};
use entresol_burst::{Event, Extent, NodeId, Owner, Place, Reservation};
use entresol_burst_live::message::{About, FromCoordinator, FromNode, ToCoordinator, ToNode};
use entresol_burst_live::wire::Peer;
use std::time::{Duration, Instant};

/// CRC-32C of the ASCII text `123456789`.
const DIGITS: u32 = 0xE306_9283;

/// A reservation of `bytes` bytes on node 0.
fn open(testbed: &Testbed, checkpoint: u64, bytes: u64) -> Reservation {
    let address = testbed.coordinator.as_ref().expect("it runs").address().to_string();
    let peer = Peer::connect(&address, ANSWERED_WITHIN).expect("the coordinator");
    let open = Event::Open { object: object(checkpoint, 0), ranks: 1, node: NodeId(0), bytes, owner: Owner::default() };
    match peer.call(&ToCoordinator::Writer(open), &[], ANSWERED_WITHIN).expect("an answer").0 {
        FromCoordinator::Grants { mut grants, .. } => match grants.remove(0).place {
            Place::Buffer { primary, .. } => primary,
            Place::Pfs => panic!("the buffer has space"),
        },
        other => panic!("{other:?}"),
    }
}

fn ask(peer: &Peer, request: &ToNode, payload: &[u8]) -> (FromNode, Vec<u8>) {
    peer.call(request, payload, ANSWERED_WITHIN).expect("an answer")
}

/// The reason of a refusal.
fn refused(peer: &Peer, request: &ToNode, payload: &[u8]) -> String {
    match ask(peer, request, payload).0 {
        FromNode::Refused { why } => why,
        other => panic!("{request:?}: {other:?}"),
    }
}

fn node(testbed: &Testbed) -> Peer {
    Peer::connect(&testbed.nodes[0].as_ref().expect("it runs").address().to_string(), ANSWERED_WITHIN)
        .expect("the node")
}

#[test]
fn a_piece_is_readable_when_all_of_it_was_written_and_compared() {
    let testbed = Testbed::new("cdbb", 1, 4 * MIB);
    testbed.pfs.set_full(true);
    let grant = open(&testbed, 1, MIB + 9);
    let peer = node(&testbed);
    let about = About { ranks: 1, total: MIB + 9, attempt: 1 };
    let lease = grant.lease;
    let write = |chunk| ToNode::Write { grant: grant.clone(), about, chunk, seal: None };
    let read = |chunk| ToNode::Read { lease, chunk };
    let store = |crcs: &[u32]| ToNode::Store { lease, crcs: crcs.to_vec() };
    assert!(refused(&peer, &read(0), &[]).contains("no such piece"));
    assert_eq!(refused(&peer, &write(0), &[0; 9]), "the chunk has another length than the grant says");
    assert_eq!(refused(&peer, &write(2), &[]), "the chunk has another length than the grant says");
    assert!(matches!(ask(&peer, &write(1), b"123456789").0, FromNode::Done));
    assert!(refused(&peer, &read(1), &[]).contains("no such piece"), "not before it is stored");
    assert_eq!(refused(&peer, &store(&[0, DIGITS]), &[]), "chunk 0 was not written");
    assert!(matches!(ask(&peer, &write(0), &vec![7; MIB as usize]).0, FromNode::Done));
    assert_eq!(refused(&peer, &store(&[0, DIGITS]), &[]), "chunk 0 has another checksum than the writer's");
    assert!(refused(&peer, &read(0), &[]).contains("no such piece"));
    let crc = crc_of_sevens();
    assert!(matches!(ask(&peer, &store(&[crc, DIGITS]), &[]).0, FromNode::Done));
    assert!(matches!(ask(&peer, &store(&[crc, DIGITS]), &[]).0, FromNode::Done), "a repetition changes nothing");
    assert_eq!(ask(&peer, &read(1), &[]).1, b"123456789");
    assert_eq!(refused(&peer, &write(1), b"123456780"), "the piece is stored already");
    assert!(
        matches!(ask(&peer, &ToNode::Pieces { job: JOB }, &[]).0, FromNode::Pieces { pieces, .. } if pieces.len() == 1)
    );
}

/// CRC-32C of 1 MiB of sevens, bit by bit.
fn crc_of_sevens() -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
    !(0..MIB).fold(u32::MAX, |crc, _| (0..8).fold(crc ^ 7, step))
}

#[test]
fn a_forged_or_ended_grant_is_refused() {
    let testbed = Testbed::new("cdbb", 1, 4 * MIB);
    let peer = node(&testbed);
    let grant = open(&testbed, 1, 9);
    let about = About { ranks: 1, total: 9, attempt: 1 };
    let request = |grant: Reservation| ToNode::Write { grant, about, chunk: 0, seal: None };
    let write = |grant: Reservation| refused(&peer, &request(grant), b"123456789");
    let forged = |extents: &[(u64, u64)]| {
        let extents = extents.iter().map(|&(offset, bytes)| Extent { offset, bytes }).collect();
        write(Reservation { extents, ..grant.clone() })
    };
    for extents in [&[(0, 5), (4, 4)][..], &[(4 * MIB, 9)], &[(u64::MAX, 9)], &[(0, 9), (3, 0)], &[]] {
        assert_eq!(forged(extents), "the grant does not fit this buffer or its object");
    }
    assert_eq!(write(Reservation { offset: 1, ..grant.clone() }), "the grant does not fit this buffer or its object");
    assert_eq!(write(Reservation { node: NodeId(3), ..grant.clone() }), "the grant is for node 3");
    assert!(write(Reservation { expires_ns: 1, ..grant.clone() }).contains("the lease ended"));
    assert!(write(Reservation { incarnation: 1, ..grant.clone() }).contains("of start 1 of this node"));
    // Its bytes are another piece's.
    let other = open(&testbed, 2, 9);
    assert!(matches!(ask(&peer, &request(other.clone()), b"123456789").0, FromNode::Done));
    assert!(write(Reservation { extents: other.extents, ..grant.clone() }).contains("are not free here"));
    // The coordinator orders it back, which takes a moment.
    let _ = open(&testbed, 1, 9);
    let until = Instant::now() + Duration::from_secs(20);
    let request = request(grant);
    let why = loop {
        match ask(&peer, &request, b"123456789").0 {
            FromNode::Refused { why } => break why,
            other => assert!(Instant::now() < until, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(why.contains("given back"), "{why}");
}
