//! Requests of users to a coordinator under a key, without a connection.

use super::*;
use crate::credentials::Claims;
use crate::mutant::{Mutant, activate};
use entresol_burst::{CheckpointId, Extent, HeldState, JobId, Lease, Object, Report, Reservation, Role};

type Checked = Result<(), String>;

const OBJECT: Object = Object { job: JobId(1), checkpoint: CheckpointId(1), rank: 0 };

fn user(job: u64, seconds: u64) -> Bearer {
    let until_s = clock::now_ns() / 1_000_000_000 + seconds;
    Bearer::User(Claims::new(JobId(job), Owner { uid: job as u32, gid: 5 }, until_s).expect("a user"))
}

fn report() -> Report {
    Report { node: NodeId(0), incarnation: 1, capacity: 100, held: Vec::new() }
}

/// A coordinator under a key, to which a node has reported.
fn coordinator() -> Shared {
    let mut settings = CoordinatorSettings::new("", "".into());
    settings.policy = "cdbb".parse().expect("a policy");
    settings.key = Some(Key::of([9; 32]));
    settings.share = "50%".parse().expect("a share");
    let shared = Shared::new(&settings, Epoch(1), None);
    let mut node = None;
    for request in [hello(), ToCoordinator::Report(report())] {
        let answer = answer(&shared, Bearer::Cluster, request, &mut node);
        assert!(!matches!(answer, FromCoordinator::Refused { .. }), "{answer:?}");
    }
    shared
}

fn hello() -> ToCoordinator {
    ToCoordinator::Hello { node: NodeId(0), incarnation: 1, address: "there".to_owned(), pfs: None }
}

fn open(bytes: u64) -> Event {
    // A client may claim what it wants.
    Event::Open { object: OBJECT, ranks: 1, node: NodeId(0), bytes, owner: Owner { uid: 77, gid: 77 } }
}

fn ask(shared: &Shared, bearer: Bearer, request: ToCoordinator) -> FromCoordinator {
    answer(shared, bearer, request, &mut None)
}

fn refuses(shared: &Shared, bearer: Bearer, request: ToCoordinator, with: &str) -> Checked {
    let named = format!("{request:?}");
    match ask(shared, bearer, request) {
        FromCoordinator::Refused { why } if why == with => Ok(()),
        other => Err(format!("{named}: {other:?}")),
    }
}

fn keeps_users_apart(shared: &Shared) -> Checked {
    for event in
        [open(10), Event::Renew { object: OBJECT }, Event::Commit { object: OBJECT }, Event::Abandon { object: OBJECT }]
    {
        let request = ToCoordinator::Writer(event);
        refuses(shared, user(2, 60), request.clone(), "the ticket is for another job")?;
        refuses(shared, user(1, 0), request, "the ticket has ended")?;
    }
    Ok(())
}

#[test]
fn a_user_writes_for_its_job_and_no_other() {
    let shared = coordinator();
    keeps_users_apart(&shared).expect("apart");
    activate(Some(Mutant::JobNotCompared));
    let found = keeps_users_apart(&shared);
    activate(None);
    assert!(found.is_err(), "the mutant is not found");
}

#[test]
fn a_user_is_no_node() {
    let shared = coordinator();
    let lease = Lease { epoch: Epoch(1), number: 0 };
    let events = [Event::Stored { lease }, Event::Drained { lease, bytes: 1 }, Event::Released { lease }, Event::Tick]
        .into_iter();
    let events = events.chain([Event::Report(report()), Event::NodeLost { node: NodeId(0) }]);
    let requests = events.clone().map(ToCoordinator::Writer).chain([
        hello(),
        ToCoordinator::Report(report()),
        ToCoordinator::Events(events.map(|event| (1, event)).collect()),
    ]);
    for request in requests {
        refuses(&shared, user(1, 60), request, "only a holder of the key is a node").expect("refused");
    }
}

#[test]
fn grants_are_of_the_owner_of_the_ticket_within_its_share_and_sealed() {
    let shared = coordinator();
    let FromCoordinator::Grants { grants, seals, .. } = ask(&shared, user(1, 60), ToCoordinator::Writer(open(80)))
    else {
        panic!("no grants")
    };
    let Place::Buffer { primary, .. } = &grants[0].place else { panic!("{grants:?}") };
    assert_eq!((primary.owner, primary.bytes()), (Owner { uid: 1, gid: 5 }, 50));
    assert_eq!((grants.len(), &grants[1].place, grants[1].bytes), (2, &Place::Pfs, 30));
    let [(lease, seal)] = seals[..] else { panic!("{seals:?}") };
    let key = shared.key.as_ref().expect("a key");
    assert!(lease == primary.lease && key.is_sealed(primary, Some(&seal)));

    // A renewed grant has a later end and a seal of its own.
    let renew = ToCoordinator::Writer(Event::Renew { object: OBJECT });
    let FromCoordinator::Grants { grants, seals, .. } = ask(&shared, user(1, 60), renew) else { panic!("no grants") };
    let Place::Buffer { primary: renewed, .. } = &grants[0].place else { panic!("{grants:?}") };
    assert!(renewed.expires_ns > primary.expires_ns && key.is_sealed(renewed, Some(&seals[0].1)));
    assert_eq!(Reservation { expires_ns: primary.expires_ns, ..renewed.clone() }, *primary);
}

#[test]
fn a_user_sees_no_other_job_in_the_list_of_nodes() {
    let shared = coordinator();
    for (job, number) in [(1, 1), (2, 2)] {
        // Bytes of both jobs are in the buffer of another node.
        let object = Object { job: JobId(job), ..OBJECT };
        let held = Reservation {
            lease: Lease { epoch: Epoch(0), number },
            node: NodeId(number as u32),
            incarnation: 1,
            extents: vec![Extent { offset: 0, bytes: 10 }],
            role: Role::Primary,
            object,
            owner: Owner { uid: job as u32, gid: 5 },
            offset: 0,
            guard: None,
            opened_ns: 0,
            expires_ns: 0,
        };
        let mut node = None;
        let report = Report { node: held.node, held: vec![(held, HeldState::Stored)], ..report() };
        let hello = ToCoordinator::Hello { node: report.node, incarnation: 1, address: "there".to_owned(), pfs: None };
        for request in [hello, ToCoordinator::Report(report)] {
            let answer = answer(&shared, Bearer::Cluster, request, &mut node);
            assert!(!matches!(answer, FromCoordinator::Refused { .. }), "{answer:?}");
        }
    }
    let jobs = |bearer| match ask(&shared, bearer, ToCoordinator::Nodes) {
        FromCoordinator::Nodes { undrained_jobs, nodes, .. } => {
            assert_eq!(nodes.len(), 3);
            undrained_jobs.into_iter().map(|job| job.0).collect::<Vec<u64>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((jobs(Bearer::Cluster), jobs(user(1, 60)), jobs(user(3, 60))), (vec![1, 2], vec![1], vec![]));
}
