//! Drains of a node beside writers of the parallel file system.

use crate::client::{Client, ClientSettings, Level};
use crate::message::{FromCoordinator, ToCoordinator};
use crate::node::drain::WAY_MAX;
use crate::pfs::Directory;
use crate::wire::Peer;
use crate::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings};
use entresol_burst::{CheckpointId, Event, JobId, NodeId, Object, Owner};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

fn wait_until(is: impl Fn() -> bool, why: &str) {
    let until = Instant::now() + MINUTE;
    while !is() {
        assert!(Instant::now() < until, "{why}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_drain_of_low_priority_makes_way_to_a_writer_on_the_pfs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
    settings.policy = "cdbb:object=whole:drain=low".parse().expect("a policy");
    let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
    let address = coordinator.address().to_string();
    let pfs = Arc::new(Directory::open(scratch.path()).expect("a directory"));
    let settings = NodeSettings {
        node: NodeId(0),
        listen: "127.0.0.1:0".to_owned(),
        advertise: None,
        coordinator: address.clone(),
        capacity: 1 << 20,
        key: None,
        drain_rate: None,
    };
    let node = NodeDaemon::start(&settings, pfs.clone()).expect("a node");
    let large = Object { job: JobId(1), checkpoint: CheckpointId(1), rank: 0 };
    let tell = |event| {
        let peer = Peer::connect(&address, MINUTE).expect("a connection");
        peer.call::<FromCoordinator>(&ToCoordinator::Writer(event), &[], MINUTE).expect("an answer").0
    };
    let owner = Owner::default();
    let open = || tell(Event::Open { object: large, ranks: 1, node: NodeId(0), bytes: 2 << 20, owner });
    wait_until(|| matches!(open(), FromCoordinator::Grants { .. }), "the node does not join");
    let is_direct = || node.makes_way();
    wait_until(is_direct, "the node does not hear of the writer");

    let settings = ClientSettings {
        coordinator: Some(address.clone()),
        nodes: Vec::new(),
        node: NodeId(0),
        patience: MINUTE,
        credential: None,
    };
    let small = Object { job: JobId(2), ..large };
    let bytes = vec![7; 1 << 19];
    let begin = Instant::now();
    assert_eq!(Client::new(settings, pfs).put(small, 1, &bytes).expect("stored").level, Level::Absorbed);
    wait_until(|| node.status().drained == 1 << 19, "the drain does not go on");
    assert!(begin.elapsed() >= WAY_MAX, "the drain has not made way: {:?}", begin.elapsed());
    tell(Event::Abandon { object: large });
    wait_until(|| !is_direct(), "the node does not hear of the writer's end");
}
