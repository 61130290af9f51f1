//! Users of a burst buffer under a key, over real daemons: nobody reads, lists, changes or exhausts the share of another.

mod common;

use common::burst::Daemon;
use common::{PROGRAM, Scratch, says};
use entresol_burst::{
    CheckpointId, Event, Extent, Grant, JobId, Lease, NodeId, Object, Owner, Place, Report, Reservation, Role,
};
use entresol_burst_live::credentials::Seal;
use entresol_burst_live::message::{About, FromCoordinator, FromNode, ToCoordinator, ToNode};
use entresol_burst_live::wire::{Peer, WireError};
use entresol_burst_live::{Credential, Key};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The numbers of two users, their groups, and their jobs.
const ANN: User = User { uid: 65_534, gid: 65_533, job: "1" };
const BOB: User = User { uid: 12_345, gid: 12_346, job: "2" };

const MINUTE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
    job: &'static str,
}

impl User {
    fn job(self) -> JobId {
        JobId(self.job.parse().expect("a number"))
    }

    fn object(self, checkpoint: u64) -> Object {
        Object { job: self.job(), checkpoint: CheckpointId(checkpoint), rank: 0 }
    }

    fn ticket(self) -> String {
        format!("ticket-{}", self.job)
    }
}

/// A burst buffer under a key, with a ticket for each user.
struct Testbed {
    scratch: Scratch,
    coordinator: Daemon,
    node: Daemon,
}

impl Testbed {
    /// None without root, who alone can be two users.
    fn start(share: &str) -> Option<Testbed> {
        if !rustix::process::geteuid().is_root() {
            entresol_skip::skipped!("root", "only root can be two users");
            return None;
        }
        let scratch = Scratch::new();
        let share_mode = |path: &str, mode| fs::set_permissions(scratch.path(path), Permissions::from_mode(mode));
        share_mode(".", 0o755).expect("root may");
        fs::create_dir(scratch.path("pfs")).expect("a directory");
        // As /tmp: every user has folders there, and nobody takes away those of others.
        share_mode("pfs", 0o1777).expect("root may");
        scratch.ok(&["burst", "key", "key"]);
        for user in [ANN, BOB] {
            let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
            let ticket = ["burst", "ticket", "--key", "key", "--job", user.job, "--user", &uid, "--group", &gid];
            scratch.file(&user.ticket(), scratch.ok(&ticket));
            share_mode(&user.ticket(), 0o400).expect("root may");
            chown(scratch.path(&user.ticket()), Some(user.uid), Some(user.gid)).expect("root may");
        }
        let coordinate =
            ["coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--policy", "cdbb", "--nodes", "1"];
        let under = ["--key", "key", "--share", share];
        let coordinator = Daemon::start(&scratch, &[&coordinate[..], &under].concat());
        let serve = ["serve", "--node", "0", "--listen", "127.0.0.1:0", "--memory", "8MiB", "--pfs", "pfs"];
        let under = ["--key", "key", "--coordinator", &coordinator.address];
        let node = Daemon::start(&scratch, &[&serve[..], &under].concat());
        let testbed = Testbed { scratch, coordinator, node };
        testbed.command(BOB, "ls", &[]).ok();
        Some(testbed)
    }

    /// A command of a user for its job, with its ticket.
    fn command(&self, user: User, command: &str, more: &[&str]) -> Answer {
        let ticket = self.scratch.path(&user.ticket()).display().to_string();
        self.with_ticket(user, &ticket, command, more)
    }

    fn with_ticket(&self, user: User, ticket: &str, command: &str, more: &[&str]) -> Answer {
        let address = &self.coordinator.address;
        let words = ["burst", command, "--coordinator", address, "--pfs", "pfs", "--job", user.job, "--ticket", ticket];
        self.run(user, &[&words[..], more].concat())
    }

    /// A command of a user as it is.
    fn run(&self, user: User, words: &[&str]) -> Answer {
        // By its descriptor, because the user may not be able to reach the program's path.
        let program = fs::File::open(PROGRAM).expect("the program");
        rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty()).expect("it is open");
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.args(words).current_dir(self.scratch.path(".")).uid(user.uid).gid(user.gid);
        Answer(command.output().expect("it runs"))
    }

    /// Stores a file of so many bytes as a checkpoint of a user's job.
    fn put(&self, user: User, checkpoint: &str, bytes: usize) -> String {
        self.scratch.file("bytes", user.job.repeat(bytes));
        self.command(user, "put", &["--checkpoint", checkpoint, "--rank", "0", "--ranks", "1", "bytes"]).ok()
    }

    fn credential(&self, user: User) -> Credential {
        Credential::ticket(&self.scratch.path(&user.ticket())).expect("a ticket")
    }

    fn key(&self) -> Credential {
        Credential::key(&self.scratch.path("key")).expect("a key")
    }

    /// The answer of the coordinator to a holder of a credential.
    fn coordinator(&self, credential: &Credential, request: &ToCoordinator) -> FromCoordinator {
        let peer = Peer::connect_as(&self.coordinator.address, MINUTE, Some(credential)).expect("the coordinator");
        peer.call(request, &[], MINUTE).expect("an answer").0
    }

    /// The answer of the node.
    fn node(&self, credential: &Credential, request: &ToNode, payload: &[u8]) -> (FromNode, Vec<u8>) {
        let peer = Peer::connect_as(&self.node.address, MINUTE, Some(credential)).expect("the node");
        peer.call(request, payload, MINUTE).expect("an answer")
    }

    fn node_refuses(&self, credential: &Credential, request: &ToNode, why: &str) {
        match self.node(credential, request, &[7; 9]).0 {
            FromNode::Refused { why: said } => assert_eq!(said, why, "{request:?}"),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Opens an object of a user.
    fn open(&self, user: User, checkpoint: u64, bytes: u64) -> (Vec<Grant>, Vec<(Lease, Seal)>) {
        let object = user.object(checkpoint);
        let open = Event::Open { object, ranks: 1, node: NodeId(0), bytes, owner: Owner::default() };
        match self.coordinator(&self.credential(user), &ToCoordinator::Writer(open)) {
            FromCoordinator::Grants { grants, seals, .. } => (grants, seals),
            other => panic!("{other:?}"),
        }
    }

    fn folder(&self, user: User) -> PathBuf {
        self.scratch.path(&format!("pfs/job-{}", user.job))
    }
}

/// Result of a command.
struct Answer(Output);

impl Answer {
    fn ok(self) -> String {
        assert!(self.0.status.success(), "{}", self.said());
        String::from_utf8(self.0.stdout).expect("text")
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    fn refused(self, why: &[&str]) {
        assert!(!self.0.status.success(), "{}", String::from_utf8_lossy(&self.0.stdout));
        says(&self.said(), why);
    }
}

/// Bytes of grants in buffers, and for the PFS.
fn placed(grants: &[Grant]) -> (u64, u64) {
    let sum = |in_buffer: bool| {
        let of_kind = grants.iter().filter(|grant| matches!(grant.place, Place::Buffer { .. }) == in_buffer);
        of_kind.map(|grant| grant.bytes).sum()
    };
    (sum(true), sum(false))
}

#[test]
fn users_cannot_read_list_or_change_the_checkpoints_of_others() {
    let Some(testbed) = Testbed::start("100%") else { return };
    // Bob has made the folder of Ann's job, to read there. Her bytes stay in memory.
    fs::create_dir(testbed.folder(ANN)).expect("a directory");
    fs::set_permissions(testbed.folder(ANN), Permissions::from_mode(0o777)).expect("root may");
    chown(testbed.folder(ANN), Some(BOB.uid), Some(BOB.gid)).expect("root may");
    says(&testbed.put(ANN, "1", 2_000_000), &["absorbed: ", "memory of node 0"]);
    says(&testbed.command(ANN, "ls", &[]).ok(), &["absorbed"]);
    let (ann, bob, key) = (testbed.credential(ANN), testbed.credential(BOB), testbed.key());
    let FromNode::Pieces { pieces, .. } = testbed.node(&key, &ToNode::Pieces { job: ANN.job() }, &[]).0 else {
        panic!("no pieces")
    };
    let lease = pieces[0].lease;
    let read = ToNode::Read { lease, chunk: 0 };
    assert!(testbed.node(&ann, &read, &[]).1.starts_with(b"1111"));

    // Bob, with his own ticket, and with what he can make of it.
    testbed.node_refuses(&bob, &read, "no such piece is stored here");
    testbed.node_refuses(&bob, &ToNode::Store { lease, crcs: vec![0; 2] }, "no such piece is stored here");
    testbed.node_refuses(&bob, &ToNode::Pieces { job: ANN.job() }, "the ticket is for another job");
    let (FromNode::Status(status), _) = testbed.node(&bob, &ToNode::Status, &[]) else { panic!("no counters") };
    let until = Instant::now() + MINUTE;
    let failing = |credential| match testbed.node(credential, &ToNode::Status, &[]).0 {
        FromNode::Status(status) => status.failing,
        other => panic!("{other:?}"),
    };
    while failing(&ann).is_none_or(|why| !why.contains("job-1: not a directory of this user alone")) {
        assert!(Instant::now() < until, "the drain does not fail: {status:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(failing(&bob).as_deref(), Some("bytes of another job are not on the PFS yet, kept and tried again"));
    let FromCoordinator::Nodes { undrained_jobs, undrained, .. } = testbed.coordinator(&bob, &ToCoordinator::Nodes)
    else {
        panic!("no nodes")
    };
    assert!(undrained_jobs.is_empty() && undrained == 0);
    let object = ANN.object(1);
    let open = Event::Open { object, ranks: 1, node: NodeId(0), bytes: 9, owner: Owner { uid: ANN.uid, gid: ANN.gid } };
    for event in [open, Event::Renew { object }, Event::Commit { object }, Event::Abandon { object }] {
        let answer = testbed.coordinator(&bob, &ToCoordinator::Writer(event));
        assert!(
            matches!(&answer, FromCoordinator::Refused { why } if why == "the ticket is for another job"),
            "{answer:?}"
        );
    }
    let report = Report { node: NodeId(1), incarnation: 1, capacity: 9, held: Vec::new() };
    let drained = Event::Drained { lease, bytes: 2_000_000 };
    let hello =
        ToCoordinator::Hello { node: NodeId(0), incarnation: u64::MAX, address: "127.0.0.1:1".to_owned(), pfs: None };
    for request in [hello, ToCoordinator::Report(report), ToCoordinator::Events(vec![(u64::MAX, drained)])] {
        let answer = testbed.coordinator(&bob, &request);
        assert!(matches!(&answer, FromCoordinator::Refused { why } if why.contains("holder of the key")), "{answer:?}");
    }

    // Bob, with the commands.
    for command in ["ls", "drain"] {
        let words = ["--coordinator", &testbed.coordinator.address, "--pfs", "pfs", "--job", "1"];
        testbed
            .run(BOB, &[&["burst", command], &words[..], &["--ticket", "ticket-2"]].concat())
            .refused(&["is for job 2, not 1"]);
        testbed
            .run(BOB, &[&["burst", command], &words[..], &["--ticket", "ticket-1"]].concat())
            .refused(&["Permission denied"]);
        testbed
            .run(BOB, &[&["burst", command], &words[..], &["--key", "key"]].concat())
            .refused(&["Permission denied"]);
        testbed.run(BOB, &[&["burst", command], &words[..]].concat()).refused(&["this burst buffer has a key"]);
    }
    testbed.scratch.file("open-ticket", testbed.scratch.read("ticket-2"));
    fs::set_permissions(testbed.scratch.path("open-ticket"), Permissions::from_mode(0o644)).expect("root may");
    testbed.with_ticket(BOB, "open-ticket", "ls", &[]).refused(&["open-ticket: others may use it"]);
    assert!(
        !testbed.command(BOB, "restore", &["--rank", "0", "stolen"]).0.status.success(),
        "there is nothing of Bob's"
    );
    let short = ["burst", "ticket", "--key", "key", "--job", "1", "--user", "65534", "--group", "1", "--for", "1s"];
    testbed.scratch.file("short", testbed.scratch.ok(&short));
    fs::set_permissions(testbed.scratch.path("short"), Permissions::from_mode(0o400)).expect("root may");
    chown(testbed.scratch.path("short"), Some(ANN.uid), None).expect("root may");
    std::thread::sleep(Duration::from_millis(2100));
    testbed.with_ticket(ANN, "short", "ls", &[]).refused(&["the ticket has ended"]);
    let other = Credential::Key(Key::of([1; 32]));
    for address in [&testbed.node.address, &testbed.coordinator.address] {
        let refused = Peer::connect_as(address, MINUTE, Some(&other)).err();
        assert!(matches!(refused, Some(WireError::Handshake(_))), "{refused:?}");
    }

    // His own bytes pass those of Ann, which the PFS does not take.
    says(&testbed.put(BOB, "1", 1_000_000), &["absorbed"]);
    testbed.command(BOB, "drain", &["--for", "60s"]).ok();
    testbed.command(ANN, "drain", &["--for", "1s"]).refused(&["not durable", "not a directory of this user alone"]);

    // Her bytes are as they were, and go to the PFS when the folder is hers.
    fs::remove_dir(testbed.folder(ANN)).expect("it is empty");
    testbed.command(ANN, "drain", &["--for", "60s"]).ok();
    for (user, other) in [(ANN, BOB), (BOB, ANN)] {
        let folder = testbed.folder(user);
        assert_eq!(fs::metadata(&folder).expect("it is there").mode() & 0o777, 0o700);
        let mut files = vec![folder.clone(), folder.join("checkpoint-1")];
        files.extend(fs::read_dir(&files[1]).expect("names").map(|entry| entry.expect("a name").path()));
        assert_eq!(files.len(), 5, "the part, its checksums and the manifest: {files:?}");
        for file in files {
            let metadata = fs::metadata(&file).expect("it is there");
            assert_eq!((metadata.uid(), metadata.gid()), (user.uid, user.gid), "{}", file.display());
        }
        let list = Command::new("ls").arg(&folder).uid(other.uid).gid(other.gid).output().expect("it runs");
        says(&String::from_utf8_lossy(&list.stderr), &["Permission denied"]);
        fs::create_dir(testbed.scratch.path(&format!("home-{}", user.job))).expect("a directory");
        let home = testbed.scratch.path(&format!("home-{}", user.job));
        chown(&home, Some(user.uid), Some(user.gid)).expect("root may");
        let restored = home.join("restored").display().to_string();
        testbed.command(user, "restore", &["--rank", "0", &restored]).ok();
        assert!(fs::read(&restored).expect("bytes").iter().all(|&byte| byte == user.job.as_bytes()[0]));
    }
    // An administrator sees all, and a ticket is in the environment of a job.
    let words = ["--coordinator", &testbed.coordinator.address, "--pfs", "pfs", "--job", "1"];
    says(&testbed.scratch.ok(&[&["burst", "ls", "--key", "key"], &words[..]].concat()), &["durable"]);
    let mut listed = testbed.scratch.command(&[&["burst", "ls"], &words[..]].concat());
    listed.env("ENTRESOL_BURST_TICKET", testbed.scratch.path("ticket-1"));
    says(&Answer(listed.output().expect("it runs")).ok(), &["durable"]);
}

#[test]
fn a_grant_that_is_forged_or_altered_is_refused() {
    let Some(testbed) = Testbed::start("100%") else { return };
    let bob = testbed.credential(BOB);
    let (grants, seals) = testbed.open(BOB, 1, 9);
    let Place::Buffer { primary: one, .. } = &grants[0].place else { panic!("{grants:?}") };
    let seal = Some(seals[0].1);
    let write = |grant: &Reservation, seal| {
        let about = About { ranks: 1, total: grant.bytes(), attempt: 1 };
        ToNode::Write { grant: grant.clone(), about, chunk: 0, seal }
    };
    let changes: [fn(&mut Reservation); 18] = [
        |it| it.lease.epoch.0 += 1,
        |it| it.lease.number += 1,
        |it| it.node.0 += 1,
        |it| it.incarnation += 1,
        |it| it.extents[0].offset += 1,
        |it| it.extents[0].bytes += 1,
        |it| it.extents.push(Extent { offset: MIB, bytes: 9 }),
        |it| it.extents.clear(),
        |it| it.role = Role::Copy,
        |it| it.role = Role::Parity,
        |it| it.object.checkpoint.0 += 1,
        |it| it.object.rank += 1,
        |it| it.owner = Owner::default(),
        |it| it.owner.gid += 1,
        |it| it.offset += 1,
        |it| it.guard = Some(it.lease),
        |it| it.opened_ns -= 1,
        |it| it.expires_ns += 1_000_000_000,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut altered = one.clone();
        change(&mut altered);
        assert!(altered != *one, "change {number}");
        testbed.node_refuses(&bob, &write(&altered, seal), "the grant is not as the coordinator has sealed it");
    }
    testbed.node_refuses(&bob, &write(one, None), "the grant is not as the coordinator has sealed it");
    let mut of_ann = one.clone();
    of_ann.object.job = ANN.job();
    testbed.node_refuses(&bob, &write(&of_ann, seal), "the ticket is for another job");
    testbed.node_refuses(&testbed.credential(ANN), &write(one, seal), "the ticket is for another job");
    // What remains is the grant as it was made.
    assert!(matches!(testbed.node(&bob, &write(one, seal), &[7; 9]).0, FromNode::Done));
}

#[test]
fn a_user_who_takes_all_it_can_leaves_others_their_share() {
    let Some(testbed) = Testbed::start("50%") else { return };
    let (grants, _) = testbed.open(ANN, 1, 8 * MIB);
    assert_eq!(placed(&grants), (4 * MIB, 4 * MIB), "half of the memory");
    let (grants, _) = testbed.open(ANN, 2, 8 * MIB);
    assert_eq!(placed(&grants), (0, 8 * MIB));
    // A program of hers goes on, on the PFS.
    says(&testbed.put(ANN, "3", 100_000), &["durable: ", "the PFS"]);
    says(&testbed.put(BOB, "1", 4 << 20), &["absorbed: ", "memory of node 0"]);
    testbed.command(BOB, "drain", &["--for", "60s"]).ok();
    assert_eq!(fs::metadata(testbed.folder(ANN)).expect("it is there").uid(), ANN.uid);
}

/// Connections to a daemon that answer a request, of 4,096 that a user makes.
fn taken(address: &str, credential: &Credential, request: &impl serde::Serialize) -> Vec<Peer> {
    let peers = (0..4096).filter_map(|_| Peer::connect_as(address, MINUTE, Some(credential)).ok());
    let answered = |peer: &Peer| peer.call::<serde_json::Value>(request, &[], MINUTE).is_ok();
    peers.filter(answered).collect()
}

#[test]
fn a_user_who_takes_all_connections_it_can_leaves_others_some() {
    let Some(testbed) = Testbed::start("100%") else { return };
    let ann = testbed.credential(ANN);
    // A refusal is an answer too.
    let of_coordinator = taken(&testbed.coordinator.address, &ann, &ToCoordinator::Nodes);
    let of_node = taken(&testbed.node.address, &ann, &ToNode::Status);
    println!("{} connections to the coordinator, {} to the node", of_coordinator.len(), of_node.len());
    // Three quarters of 4,096, less what the daemons have among themselves.
    for taken in [&of_coordinator, &of_node] {
        assert!((3060..=3072).contains(&taken.len()), "{}", taken.len());
    }
    says(&testbed.put(BOB, "1", 1 << 20), &["absorbed: ", "memory of node 0"]);
    testbed.command(BOB, "drain", &["--for", "60s"]).ok();
    drop((of_coordinator, of_node));
    says(&testbed.put(ANN, "1", 1 << 20), &["absorbed: "]);
}

#[test]
fn a_link_of_a_user_leads_where_that_user_may_write() {
    let Some(testbed) = Testbed::start("100%") else { return };
    let roots = testbed.scratch.path("roots");
    fs::create_dir(&roots).expect("a directory");
    fs::create_dir(testbed.folder(ANN)).expect("a directory");
    fs::set_permissions(testbed.folder(ANN), Permissions::from_mode(0o700)).expect("root may");
    chown(testbed.folder(ANN), Some(ANN.uid), Some(ANN.gid)).expect("root may");
    symlink(&roots, testbed.folder(ANN).join("checkpoint-1")).expect("a link");
    says(&testbed.put(ANN, "1", 1000), &["absorbed"]);
    testbed.command(ANN, "drain", &["--for", "2s"]).refused(&["not durable", "Permission denied"]);
    assert_eq!(fs::read_dir(&roots).expect("names").count(), 0, "nothing was written there");
    fs::remove_file(testbed.folder(ANN).join("checkpoint-1")).expect("the link");
    testbed.command(ANN, "drain", &["--for", "60s"]).ok();
}

/// A process at the address of a dead node or coordinator: it has no key, has another one, or passes all on to another daemon.
#[test]
fn nobody_takes_the_place_of_a_daemon() {
    let Some(testbed) = Testbed::start("100%") else { return };
    let bob = testbed.credential(BOB);
    let connected = |listener: &TcpListener| {
        let address = listener.local_addr().expect("an address").to_string();
        match Peer::connect_as(&address, MINUTE, Some(&bob)) {
            Err(WireError::Handshake(error)) => error.to_string(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("the client has taken the process for a daemon"),
        }
    };
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");

    let silent = bind();
    let first = silent.try_clone().expect("the same port");
    let closes = std::thread::spawn(move || drop(first.accept()));
    assert!(connected(&silent).contains("the server has no key"));
    closes.join().expect("it ends");

    let liar = bind();
    let first = liar.try_clone().expect("the same port");
    let lies = std::thread::spawn(move || {
        let (mut stream, _) = first.accept().expect("a client");
        let mut hello = [0; 61];
        stream.read_exact(&mut hello).expect("its first message");
        stream.write_all(&[&b"EBA1\0"[..], &[7; 64]].concat()).expect("sent");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    });
    assert!(connected(&liar).contains("has not proved that it has the key"));
    assert!(lies.join().expect("it ends").is_empty(), "something was sent to it");

    for daemon in [&testbed.node.address, &testbed.coordinator.address] {
        let relay = bind();
        let first = relay.try_clone().expect("the same port");
        let daemon = daemon.clone();
        let relays = std::thread::spawn(move || {
            let (mut client, _) = first.accept().expect("a client");
            let mut server = TcpStream::connect(daemon).expect("the daemon");
            let (mut hello, mut answer, mut rest) = ([0; 61], [0; 69], Vec::new());
            client.read_exact(&mut hello).expect("its first message");
            server.write_all(&hello).expect("sent");
            server.read_exact(&mut answer).expect("an answer");
            client.write_all(&answer).expect("sent");
            let _ = client.read_to_end(&mut rest);
            rest
        });
        assert!(connected(&relay).contains("has not proved that it has the key"));
        assert!(relays.join().expect("it ends").is_empty(), "the client has sent a proof or a request");
    }

    // A daemon with another key is none of this cluster, and one without a key takes no ticket.
    testbed.scratch.ok(&["burst", "key", "other-key"]);
    let coordinate = ["coordinate", "--listen", "127.0.0.1:0", "--state", "other", "--policy", "cdbb"];
    for (more, why) in [(&["--key", "other-key"][..], "has not proved"), (&[][..], "the server has no key")] {
        let other = Daemon::start(&testbed.scratch, &[&coordinate[..], more].concat());
        let words = ["--coordinator", &other.address, "--pfs", "pfs", "--job", "2", "--ticket", "ticket-2"];
        testbed.run(BOB, &[&["burst", "ls"], &words[..]].concat()).refused(&[why]);
    }
    testbed.scratch.refused(&["burst", "coordinate", "--listen", "127.0.0.1:0", "--state", "s", "--share", "50%"]);
}

#[test]
fn programs_write_to_a_mount_with_a_ticket() {
    if fs::File::open("/dev/fuse").is_err() {
        return entresol_skip::skipped!("/dev/fuse", "no FUSE device can be opened");
    }
    let Some(testbed) = Testbed::start("100%") else { return };
    let scratch = &testbed.scratch;
    let ticket = ["burst", "ticket", "--key", "key", "--job", "3", "--user", "root"];
    scratch.file("ticket-3", scratch.ok(&ticket));
    fs::set_permissions(scratch.path("ticket-3"), Permissions::from_mode(0o600)).expect("its owner may");
    fs::create_dir(scratch.path("mnt")).expect("a directory");
    let job = ["--coordinator", &testbed.coordinator.address, "--pfs", "pfs", "--job", "3", "--ticket", "ticket-3"];
    let mut mount = Daemon::start(scratch, &[&["mount", "--files", "1", "mnt"], &job[..]].concat());
    fs::create_dir(scratch.path("mnt/1")).expect("a checkpoint");
    fs::write(scratch.path("mnt/1/state"), [7; 100_000]).expect("a file");
    assert_eq!(fs::read(scratch.path("mnt/newest/state")).expect("a file"), [7; 100_000]);
    assert_eq!(mount.terminate(), Some(0));
    scratch.ok(&[&["burst", "drain"], &job[..], &["--for", "60s"]].concat());
    let folder = fs::metadata(scratch.path("pfs/job-3")).expect("it is there");
    assert_eq!(folder.mode() & 0o777, 0o700);
    // The key is for administrators, who write nothing.
    let words = ["burst", "mount", "--files", "1", "mnt", "--pfs", "pfs", "--job", "3", "--key", "key"];
    says(&scratch.refused(&words), &["--key"]);
}

#[test]
fn a_ticket_names_a_user_as_the_system_knows_it() {
    let scratch = Scratch::new();
    scratch.ok(&["burst", "key", "key"]);
    assert!(scratch.refused(&["burst", "key", "key"]).contains("File exists"));
    fn ticket<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["burst", "ticket", "--key", "key", "--job", "7"], more].concat()
    }
    says(&scratch.ok(&ticket(&["--user", "root"])), &["\njob 7\nuid 0\ngid 0\nuntil "]);
    says(&scratch.ok(&ticket(&["--user", "4242", "--group", "root"])), &["\nuid 4242\ngid 0\n"]);
    says(&scratch.refused(&ticket(&["--user", "4242"])), &["the group of user 4242: give it by --group"]);
    says(&scratch.refused(&ticket(&["--user", "no-such-user"])), &["--user: no-such-user is not known"]);
    says(&scratch.refused(&ticket(&["--user", "4294967295", "--group", "0"])), &["the number of no user"]);
    says(
        &scratch.refused(&["burst", "ticket", "--job", "7", "--user", "root"]),
        &["a ticket needs the key: --key FILE"],
    );
}
