//! Shares of owners as the coordinator grants them.

use crate::{
    CheckpointId, Coordinator, DrainOrder, Epoch, Event, Grant, HeldState, JobId, NodeId, NodeStore, Object, Order,
    Owner, Place, Report,
};

fn coordinator(policy: &str, share: &str) -> Coordinator {
    let mut coordinator = Coordinator::new(policy.parse().expect(policy), Epoch(1), 100);
    coordinator.set_share(share.parse().expect(share));
    for node in [NodeId(0), NodeId(1)] {
        let report = Report { node, incarnation: 1, capacity: 100, held: Vec::new() };
        coordinator.apply(0, &Event::Report(report)).expect("it joins");
    }
    coordinator
}

/// Opens an object of an owner and returns the bytes of it in buffers, copies apart, and those for the PFS.
fn open(coordinator: &mut Coordinator, uid: u32, rank: u32, bytes: u64) -> (u64, u64) {
    let object = Object { job: JobId(uid.into()), checkpoint: CheckpointId(1), rank };
    let owner = Owner { uid, gid: 0 };
    let open = Event::Open { object, ranks: 9, node: NodeId(0), bytes, owner };
    let grants = coordinator.apply(0, &open).expect("it is open").grants;
    coordinator.check().expect("the books are right");
    let (buffers, pfs): (Vec<_>, Vec<_>) = grants.iter().partition(|grant| matches!(grant.place, Place::Buffer { .. }));
    let sum = |grants: Vec<&Grant>| grants.iter().map(|grant| grant.bytes).sum();
    (sum(buffers), sum(pfs))
}

#[test]
fn an_owner_takes_its_share_and_leaves_that_of_others() {
    let mut one = coordinator("cdbb", "50%");
    assert_eq!(open(&mut one, 1, 0, 90), (90, 0));
    assert_eq!(open(&mut one, 1, 1, 90), (10, 80), "half of 200 bytes");
    assert_eq!(open(&mut one, 1, 2, 5), (0, 5));
    assert_eq!(open(&mut one, 2, 0, 150), (100, 50), "the other half");
    // What is given back is free again: nothing was written, and the leases end.
    let ended = one.apply(101, &Event::Tick).expect("time passes").orders;
    for order in ended {
        let Order::Reclaim { lease, .. } = order else { continue };
        one.apply(101, &Event::Released { lease }).expect("it is known");
    }
    assert_eq!(open(&mut one, 1, 3, 90), (90, 0));

    let mut copied = coordinator("chunked", "50%");
    assert_eq!(open(&mut copied, 1, 0, 90), (50, 40), "copies count");
    assert_eq!(open(&mut copied, 2, 0, 90), (50, 40));
    let mut whole = coordinator("cdbb:object=whole", "25%");
    assert_eq!(open(&mut whole, 1, 0, 51), (0, 51), "more than a share is not split");
    assert_eq!(open(&mut whole, 1, 0, 50), (50, 0));
}

#[test]
fn a_new_coordinator_knows_the_owners_from_the_reports() {
    let mut first = coordinator("cdbb", "50%");
    assert_eq!(open(&mut first, 1, 0, 60), (60, 0));
    let held = first.reservations(NodeId(0)).map(|it| (it.clone(), HeldState::Writing)).collect();
    let mut next = Coordinator::new("cdbb".parse().expect("a policy"), Epoch(2), 100);
    next.set_share("50%".parse().expect("a share"));
    for (node, held) in [(NodeId(0), held), (NodeId(1), Vec::new())] {
        let report = Report { node, incarnation: 1, capacity: 100, held };
        next.apply(0, &Event::Report(report)).expect("it joins");
    }
    assert_eq!(open(&mut next, 1, 1, 60), (40, 20));
    assert_eq!(open(&mut next, 2, 1, 60), (60, 0));
}

#[test]
fn the_pieces_of_an_owner_may_wait_while_those_of_others_are_drained() {
    for order in [DrainOrder::Fifo, DrainOrder::Oldest] {
        let mut one = coordinator("cdbb", "100%");
        for uid in 1..4 {
            open(&mut one, uid, 0, 10);
        }
        let mut node = NodeStore::new(NodeId(0), 1, 100);
        node.adopt(Epoch(1)).expect("the first epoch");
        for grant in one.reservations(NodeId(0)) {
            node.admit(grant, 0).expect("a grant");
            node.stored(grant.lease, 0).expect("it is there");
        }
        let next = |node: &mut NodeStore, waits: u32| {
            let piece = node.next_drain_among(order, |piece| piece.owner.uid != waits);
            piece.map(|piece| (piece.owner.uid, piece.lease))
        };
        let (uid, lease) = next(&mut node, 0).expect("three pieces");
        assert_eq!(uid, 1);
        node.postpone(lease);
        assert!(node.drained(lease, 10).is_err(), "its drain was given up");
        assert_eq!(next(&mut node, 1).map(|it| it.0), Some(2));
        assert_eq!(next(&mut node, 0).map(|it| it.0), Some(1), "it is the first again");
        assert_eq!((next(&mut node, 3), next(&mut node, 0).map(|it| it.0)), (None, Some(3)));
    }
}
