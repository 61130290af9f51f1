//! Requests of users to a node under a key, without a connection.

use super::*;
use crate::credentials::{Claims, altered};
use crate::message::{About, NO_SUCH_PIECE, ShareId};
use crate::mutant::{Mutant, activate};
use crate::pfs::Directory;
use entresol_burst::{CheckpointId, Epoch, Extent, JobId, Lease, Object, Role};

const MINE: Owner = Owner { uid: 1000, gid: 100 };
const ABOUT: About = About { ranks: 1, total: 20, attempt: 1 };
const BYTES: [u8; 20] = [7; 20];

type Checked = Result<(), String>;

struct Testbed {
    shared: Shared,
    key: Key,
    grant: Reservation,
    seal: Option<Seal>,
    _scratch: tempfile::TempDir,
}

fn user(job: u64, seconds: u64) -> Bearer {
    let until_s = clock::now_ns() / 1_000_000_000 + seconds;
    Bearer::User(Claims::new(JobId(job), Owner { uid: job as u32, gid: 1 }, until_s).expect("a user"))
}

impl Testbed {
    /// A node with a stored piece of job 1.
    fn new() -> Testbed {
        let scratch = tempfile::tempdir().expect("a directory");
        let key = Key::of([9; 32]);
        let settings = NodeSettings {
            node: NodeId(0),
            listen: String::new(),
            advertise: None,
            coordinator: String::new(),
            capacity: 1000,
            key: Some(key.clone()),
            drain_rate: None,
        };
        let pfs = Arc::new(Directory::open(scratch.path()).expect("a directory"));
        let shared = Shared::new(&settings, 7, "here".to_owned(), pfs).expect("memory");
        lock(&shared.buffer).join(Epoch(1), None).expect("the first epoch");
        let grant = Reservation {
            lease: Lease { epoch: Epoch(1), number: 1 },
            node: NodeId(0),
            incarnation: 7,
            extents: vec![Extent { offset: 100, bytes: 10 }, Extent { offset: 200, bytes: 10 }],
            role: Role::Primary,
            object: Object { job: JobId(1), checkpoint: CheckpointId(1), rank: 0 },
            owner: MINE,
            offset: 0,
            guard: None,
            opened_ns: 5,
            expires_ns: u64::MAX / 2,
        };
        let seal = Some(key.seal(&grant));
        let testbed = Testbed { shared, key, grant, seal, _scratch: scratch };
        let write = testbed.write(&testbed.grant, testbed.seal);
        assert!(matches!(testbed.ask(user(1, 60), write), FromNode::Done));
        assert!(matches!(testbed.ask(user(1, 60), testbed.store()), FromNode::Done));
        testbed
    }

    fn write(&self, grant: &Reservation, seal: Option<Seal>) -> ToNode {
        ToNode::Write { grant: grant.clone(), about: ABOUT, chunk: 0, seal }
    }

    fn fill(&self, grant: &Reservation, seal: Option<Seal>) -> ToNode {
        let share = ShareId { incarnation: 7, number: 1 };
        ToNode::Fill { grant: grant.clone(), about: ABOUT, share, seal }
    }

    fn store(&self) -> ToNode {
        ToNode::Store { lease: self.grant.lease, crcs: vec![crc32c(&BYTES)] }
    }

    fn ask(&self, bearer: Bearer, request: ToNode) -> FromNode {
        answer(&self.shared, bearer, request, &BYTES).0
    }

    fn refuses(&self, bearer: Bearer, request: ToNode, with: &str) -> Checked {
        let named = format!("{request:?}");
        match self.ask(bearer, request) {
            FromNode::Refused { why } if why == with => Ok(()),
            other => Err(format!("{named}: {other:?}")),
        }
    }

    /// Every request that names a piece or a job, by a user of another job and by one whose ticket has ended.
    fn keeps_users_apart(&self) -> Checked {
        let lease = self.grant.lease;
        let other = "the ticket is for another job";
        for (request, why) in [
            (self.write(&self.grant, self.seal), other),
            (self.fill(&self.grant, self.seal), other),
            (self.store(), NO_SUCH_PIECE),
            (ToNode::Read { lease, chunk: 0 }, NO_SUCH_PIECE),
            (ToNode::Locate { lease, share: ShareId { incarnation: 0, number: 0 } }, NO_SUCH_PIECE),
            (ToNode::Pieces { job: JobId(1) }, other),
        ] {
            self.refuses(user(2, 60), request.clone(), why)?;
            self.refuses(user(1, 0), request, "the ticket has ended")?;
        }
        Ok(())
    }

    /// A grant with any other field, or another seal, from the user of the job itself or an administrator.
    fn takes_sealed_grants_alone(&self) -> Checked {
        let why = "the grant is not as the coordinator has sealed it";
        let other = Key::of([8; 32]).seal(&self.grant);
        let forged = altered(&self.grant).into_iter().map(|grant| (grant, self.seal));
        for (grant, seal) in forged.chain([(self.grant.clone(), None), (self.grant.clone(), Some(other))]) {
            let job = grant.object.job.0;
            for request in [self.write(&grant, seal), self.fill(&grant, seal)] {
                self.refuses(user(job, 60), request.clone(), why)?;
                self.refuses(Bearer::Cluster, request, why)?;
            }
        }
        Ok(())
    }
}

#[test]
fn a_user_reaches_the_pieces_of_its_job_and_no_others() {
    let testbed = Testbed::new();
    testbed.keeps_users_apart().expect("apart");
    let lease = testbed.grant.lease;
    for bearer in [user(1, 60), Bearer::Cluster] {
        assert!(matches!(testbed.ask(bearer, ToNode::Read { lease, chunk: 0 }), FromNode::Chunk));
        let FromNode::Pieces { pieces, .. } = testbed.ask(bearer, ToNode::Pieces { job: JobId(1) }) else {
            panic!("no pieces")
        };
        assert_eq!(pieces.len(), 1);
    }
    // A piece that does not exist is refused as one of another job is.
    let lease = Lease { number: 99, ..lease };
    testbed.refuses(user(2, 60), ToNode::Read { lease, chunk: 0 }, NO_SUCH_PIECE).expect("the same");
}

#[test]
fn the_failure_of_a_job_is_shown_to_its_user_alone() {
    let testbed = Testbed::new();
    lock(&testbed.shared.buffer).note_failure(Some(JobId(1)), "rank 0 of job 1: disk full".to_owned());
    let failing = |bearer| match testbed.ask(bearer, ToNode::Status) {
        FromNode::Status(status) => status.failing.expect("a failure"),
        other => panic!("{other:?}"),
    };
    for bearer in [user(1, 60), Bearer::Cluster, Bearer::Anyone] {
        assert_eq!(failing(bearer), "rank 0 of job 1: disk full");
    }
    assert_eq!(failing(user(2, 60)), "bytes of another job are not on the PFS yet, kept and tried again");
}

#[test]
fn a_grant_is_taken_as_it_was_sealed() {
    let testbed = Testbed::new();
    testbed.takes_sealed_grants_alone().expect("no forged grant is taken");
    // A later end has a seal of its own.
    let mut renewed = testbed.grant.clone();
    renewed.lease.number = 2;
    renewed.extents = vec![Extent { offset: 300, bytes: 20 }];
    for _ in 0..2 {
        let seal = Some(testbed.key.seal(&renewed));
        assert!(matches!(testbed.ask(user(1, 60), testbed.write(&renewed, seal)), FromNode::Done));
        renewed.expires_ns += 1;
    }
}

#[test]
fn the_checks_find_a_step_that_is_left_out() {
    let testbed = Testbed::new();
    for (mutant, check) in [
        (Mutant::JobNotCompared, Testbed::keeps_users_apart as fn(&Testbed) -> Checked),
        (Mutant::SealNotCompared, Testbed::takes_sealed_grants_alone),
    ] {
        check(&testbed).expect("nothing is left out");
        activate(Some(mutant));
        let found = check(&testbed);
        activate(None);
        println!("{mutant:?}: {found:?}");
        assert!(found.is_err(), "{mutant:?} is not found");
    }
}
