//! The NBD front-end with a client of the tests' own: promises, refusals, and isolation of clients.

mod support;

use entresol_cache::{Block, FileBlock, PathError};
use entresol_nbd::{Error, Export, Limits, Listener, Server};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::client::{self, Answer, Client, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES};
use support::{Call, Random, Watched};

struct Served {
    server: Server,
    block: Arc<Watched>,
    socket: PathBuf,
    notices: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
}

fn serve(size: usize, limits: Limits, read_only: bool) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let block = Arc::new(Watched::new(size));
    let export = Export { block: block.clone(), name: "disk".into(), description: "a test".into(), read_only };
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = notices.clone();
    let notice = move |error: &Error| heard.lock().unwrap().push(error.to_string());
    let server = Server::start(Listener::unix(&socket).unwrap(), export, limits, notice).unwrap();
    Served { server, block, socket, notices, _directory: directory }
}

fn served() -> Served {
    serve(1 << 20, Limits::default(), false)
}

/// Waits for an effect of another thread that comes soon.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never came: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn reads_give_what_was_written() {
    let served = served();
    for structured in [false, true] {
        let mut client = Client::connect(&served.socket, structured).unwrap();
        assert_eq!(client.size, 1 << 20);
        let seed = 0x0d00_0001 + u64::from(structured);
        println!("seed {seed:#x}");
        let mut random = Random(seed);
        let mut model = client.read(0, 1 << 20);
        for _ in 0..2000 {
            let length = random.below(20_000) as usize;
            let offset = random.below((1 << 20) - length as u64 + 1);
            let range = offset as usize..offset as usize + length;
            match random.below(6) {
                0..3 => assert_eq!(client.read(offset, length as u32), model[range]),
                3 | 4 => {
                    let bytes = random.bytes(length);
                    client.write(offset, &bytes, 0);
                    model[range].copy_from_slice(&bytes);
                }
                _ => {
                    let zeroed = client.call(WRITE_ZEROES, 0, offset, length as u32, b"").unwrap();
                    assert_eq!(zeroed.errno, 0);
                    model[range].fill(0);
                }
            }
        }
        assert_eq!(client.read(0, 1 << 20), model);
    }
}

#[test]
fn every_command_reaches_the_block_as_it_is() {
    let served = served();
    let mut client = Client::connect(&served.socket, true).unwrap();
    let mut calls = |command, flags, offset, length, payload: &[u8]| {
        assert_eq!(client.call(command, flags, offset, length, payload).unwrap().errno, 0);
        served.block.taken()
    };
    assert_eq!(calls(READ, 0, 7, 5, b""), [Call::Read(7, 5)]);
    assert_eq!(calls(WRITE, 0, 1, 3, b"abc"), [Call::Write(1, 3, false)]);
    assert_eq!(calls(WRITE, FUA, 1, 3, b"abc"), [Call::Write(1, 3, true)]);
    assert_eq!(calls(FLUSH, 0, 0, 0, b""), [Call::Flush]);
    assert_eq!(calls(TRIM, 0, 4096, 8192, b""), [Call::Discard(4096, 8192)]);
    assert_eq!(calls(TRIM, FUA, 0, 1, b""), [Call::Discard(0, 1), Call::Flush]);
    assert_eq!(calls(WRITE_ZEROES, 0, 5, 100, b""), [Call::Write(5, 100, false)]);
    assert_eq!(calls(WRITE_ZEROES, FUA, 5, 100, b""), [Call::Write(5, 100, false), Call::Flush]);
    let end = 1 << 20;
    assert_eq!(calls(READ, 0, end, 0, b""), [Call::Read(end, 0)]);
}

#[test]
fn what_the_export_can_do_is_said_truthfully() {
    const DF: u16 = 1 << 7;
    let flags = |read_only, structured| {
        let served = serve(4096, Limits::default(), read_only);
        Client::connect(&served.socket, structured).unwrap().flags
    };
    // has-flags, flush, FUA, trim, write-zeroes, multi-conn.
    let all = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;
    assert_eq!(flags(false, false), all);
    assert_eq!(flags(false, true), all | DF);
    assert_eq!(flags(true, false), 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 8);
}

#[test]
fn wrong_requests_are_refused_one_by_one() {
    let served = served();
    let end = 1 << 20;
    for structured in [false, true] {
        let mut client = Client::connect(&served.socket, structured).unwrap();
        let mut errno = |command, flags, offset, length: u32, payload: usize| {
            client.call(command, flags, offset, length, &vec![0; payload]).unwrap().errno
        };
        assert_eq!(errno(READ, 0, end, 1, 0), 22, "a read beyond the end");
        assert_eq!(errno(READ, 0, u64::MAX, 2, 0), 22, "a read whose end does not fit in 64 bits");
        assert_eq!(errno(READ, 0, 0, u32::MAX, 0), 22, "a read of 4 GiB");
        assert_eq!(errno(WRITE, 0, end - 1, 2, 2), 28, "a write beyond the end");
        assert_eq!(errno(TRIM, 0, end - 1, 2, 0), 28, "a trim beyond the end");
        assert_eq!(errno(WRITE_ZEROES, 0, 0, u32::MAX, 0), 28, "zeroes beyond the end");
        assert_eq!(errno(client::CACHE, 0, 0, 4096, 0), 22, "a command that was not offered");
        assert_eq!(errno(77, 0, 0, 4096, 0), 22, "a command that does not exist");
        assert_eq!(errno(READ, 1 << 9, 0, 4096, 0), 22, "a flag that does not exist");
        assert_eq!(errno(WRITE, 1 << 1, 0, 2, 2), 22, "a flag of another command");
        assert_eq!(served.block.taken(), [], "nothing of it reaches the block");
        // The stream is still in step.
        client.write(0, b"still here", 0);
        assert_eq!(client.read(0, 10), b"still here");
        served.block.taken();
    }
}

#[test]
fn a_read_only_export_refuses_whatever_writes() {
    let served = serve(4096, Limits::default(), true);
    let mut client = Client::connect(&served.socket, true).unwrap();
    assert_eq!(client.call(WRITE, 0, 0, 4, b"abcd").unwrap().errno, 1);
    assert_eq!(client.call(TRIM, 0, 0, 4, b"").unwrap().errno, 1);
    assert_eq!(client.call(WRITE_ZEROES, 0, 0, 4, b"").unwrap().errno, 1);
    assert_eq!(client.read(0, 4), [0; 4]);
    assert_eq!(served.block.taken(), [Call::Read(0, 4)]);
}

#[test]
fn an_error_of_the_storage_reaches_the_client_that_can_act_on_it() {
    let served = served();
    for structured in [false, true] {
        let mut client = Client::connect(&served.socket, structured).unwrap();
        let kinds = [(ErrorKind::Other, 5), (ErrorKind::StorageFull, 28), (ErrorKind::PermissionDenied, 1)];
        for (kind, errno) in kinds {
            *served.block.fault.lock().unwrap() = Some(kind);
            assert_eq!(client.call(READ, 0, 0, 4096, b"").unwrap(), Answer { errno, data: vec![] });
            assert_eq!(client.call(WRITE, FUA, 0, 1, b"x").unwrap().errno, errno);
            assert_eq!(client.call(FLUSH, 0, 0, 0, b"").unwrap().errno, errno);
            assert_eq!(client.call(WRITE_ZEROES, 0, 0, 4096, b"").unwrap().errno, errno);
        }
        *served.block.fault.lock().unwrap() = None;
        assert_eq!(client.read(0, 2), [0; 2]);
    }
}

#[test]
fn a_flush_on_one_connection_follows_the_writes_answered_on_another() {
    let served = served();
    let mut first = Client::connect(&served.socket, true).unwrap();
    let mut second = Client::connect(&served.socket, false).unwrap();
    first.write(10, b"seen by both", 0);
    assert_eq!(second.read(10, 12), b"seen by both");
    assert_eq!(second.call(FLUSH, 0, 0, 0, b"").unwrap().errno, 0);
    assert_eq!(served.block.taken(), [Call::Write(10, 12, false), Call::Read(10, 12), Call::Flush]);
}

#[test]
fn a_slow_request_does_not_hold_up_those_behind_it() {
    let served = served();
    let mut client = Client::connect(&served.socket, true).unwrap();
    served.block.hold(4096);
    // Sent together, so that the server sees that the slow request is not alone.
    let slow = client.send(READ, 0, 4096, 1, b"").unwrap();
    eventually("the slow read", || served.block.calls.lock().unwrap().contains(&Call::Read(4096, 1)));
    served.block.release();
    assert_eq!(client.receive().unwrap().0, slow);

    served.block.hold(4096);
    let mut overtaken = 0;
    for _ in 0..50 {
        // A flush goes to a worker, and so do the requests behind it while it is in flight.
        let flush = client.send(FLUSH, 0, 0, 0, b"").unwrap();
        let slow = client.send(READ, 0, 4096, 1, b"").unwrap();
        let fast = client.send(READ, 0, 8192, 1, b"").unwrap();
        client.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let before: Vec<u64> = (0..2).map_while(|_| client.receive().ok()).map(|(cookie, _)| cookie).collect();
        client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        served.block.release();
        overtaken += usize::from(before.contains(&fast));
        let mut all = before;
        while all.len() < 3 {
            all.push(client.receive().unwrap().0);
        }
        all.sort_unstable();
        assert_eq!(all, [flush, slow, fast]);
        if overtaken > 0 {
            return;
        }
        served.block.hold(4096);
    }
    panic!("the fast read never overtook the slow one");
}

#[test]
fn hits_wait_neither_for_the_misses_before_them_nor_for_those_behind() {
    // One miss takes the whole limit.
    let limits = Limits { requests_max: 1, workers_max: 1, ..Limits::default() };
    let served = serve(1 << 20, limits, false);
    served.block.hot.store(8192, Relaxed);
    let mut client = Client::connect(&served.socket, true).unwrap();
    let miss = 8192;
    for round in 0..20 {
        served.block.hold(miss);
        let sent = client.send_reads(&[0, 512, miss], 100).unwrap();
        for &hit in &sent[..2] {
            assert_eq!(client.receive().unwrap().0, hit, "round {round}");
        }
        // After the first miss the server knows that misses take long.
        if round > 0 {
            for hit in client.send_reads(&[1024, 4096], 100).unwrap() {
                assert_eq!(client.receive().unwrap().0, hit, "round {round}");
            }
        }
        eventually("the miss", || served.block.calls.lock().unwrap().len() == round + 1);
        std::thread::sleep(Duration::from_millis(1));
        served.block.release();
        assert_eq!(client.receive().unwrap().0, sent[2]);
    }
    let missed = vec![Call::Read(miss, 100); 20];
    assert_eq!(served.block.taken(), missed, "a read that was answered at once is not made again");
}

#[test]
fn a_client_holds_no_more_requests_than_its_limit() {
    let limits = Limits { requests_max: 4, workers_max: 2, ..Limits::default() };
    let served = serve(1 << 20, limits, false);
    let mut client = Client::connect(&served.socket, true).unwrap();
    served.block.hold(0);
    for _ in 0..100 {
        client.send(READ, 0, 0, 512, b"").unwrap();
    }
    eventually("the workers' reads", || !served.block.calls.lock().unwrap().is_empty());
    std::thread::sleep(Duration::from_millis(50));
    // Two workers hold a request each at most; the other requests wait, and two clients do not share the limit.
    assert!(served.block.calls.lock().unwrap().len() <= 2);
    let mut other = Client::connect(&served.socket, true).unwrap();
    assert_eq!(other.read(4096, 3), [0; 3]);
    served.block.release();
    for _ in 0..100 {
        assert_eq!(client.receive().unwrap().1, Answer { errno: 0, data: vec![0; 512] });
    }
}

#[test]
fn requests_larger_than_the_limit_of_bytes_go_one_at_a_time() {
    let limits = Limits { bytes_max: 1000, request_bytes_max: 300_000, ..Limits::default() };
    let served = serve(1 << 20, limits, false);
    let mut client = Client::connect(&served.socket, false).unwrap();
    for at in 0..3 {
        client.send(WRITE, 0, at * 300_000, 300_000, &vec![at as u8 + 1; 300_000]).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(client.receive().unwrap().1.errno, 0);
    }
    let read = client.read(299_999, 2);
    assert_eq!(read, [1, 2]);
}

#[test]
fn a_killed_client_leaves_the_others_served() {
    let served = served();
    let mut survivor = Client::connect(&served.socket, true).unwrap();
    for round in 0..40 {
        let mut victim = Client::connect(&served.socket, round % 2 == 0).unwrap();
        served.block.hold(4096);
        for _ in 0..10 {
            victim.send(READ, 0, 4096, 4096, b"").unwrap();
        }
        // Half of a write: header without payload.
        victim.send(WRITE, 0, 0, 4096, b"half").unwrap();
        drop(victim);
        served.block.release();
        survivor.write(100, &[round], 0);
        assert_eq!(survivor.read(100, 1), [round]);
        assert_eq!(survivor.read(0, 4), [0; 4], "half a write is no write");
    }
    eventually("the end of the killed clients", || served.server.counts().connections_open == 1);
    let counts = served.server.counts();
    assert_eq!((counts.connections, counts.connections_failed), (41, 40));
    drop(survivor);
}

#[test]
fn a_client_that_breaks_the_protocol_is_sent_away() {
    let served = served();
    let connect = || Client::connect(&served.socket, true).unwrap();

    let mut client = connect();
    client.stream.write_all(&[0x55; 28]).unwrap();
    assert!(client::is_closed(&mut client.stream), "a request without its first word");

    let mut client = connect();
    let answer = client.call(WRITE, 0, 0, u32::MAX, b"").unwrap();
    assert_eq!(answer.errno, 22);
    assert!(client::is_closed(&mut client.stream), "a write of 4 GiB");

    let mut stream = client::greeted(&served.socket, 0xffff).unwrap();
    assert!(client::is_closed(&mut stream), "flags that were not offered");

    let mut stream = client::greeted(&served.socket, 3).unwrap();
    stream.write_all(&[7; 16]).unwrap();
    assert!(client::is_closed(&mut stream), "an option without its first words");

    let mut stream = client::greeted(&served.socket, 3).unwrap();
    stream.write_all(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").unwrap();
    let (_, kind, _) = client::option_reply(&mut stream).unwrap();
    assert_eq!(kind, 0x8000_0009);
    assert!(client::is_closed(&mut stream), "an option of 4 GiB");

    let mut stream = client::greeted(&served.socket, 3).unwrap();
    client::option(&mut stream, 1, b"no such export").unwrap();
    assert!(client::is_closed(&mut stream), "EXPORT_NAME has no error reply");

    let mut stream = client::greeted(&served.socket, 3).unwrap();
    let asked = (0..1000).take_while(|_| {
        client::option(&mut stream, 2_000_000, b"").is_ok() && client::option_reply(&mut stream).is_ok()
    });
    assert_eq!(asked.count(), 256, "options without end");

    eventually("the end of all of them", || served.server.counts().connections_failed == 7);
    let notices = served.notices.lock().unwrap().join("\n");
    for expected in ["0x55555555", "4294967295 bytes", "0xffff", "0x07070707", "no such export", "256 options"] {
        assert!(notices.contains(expected), "{expected} is missing in:\n{notices}");
    }
    assert_eq!(connect().read(0, 1), [0]);
}

#[test]
fn negotiation_answers_every_option() {
    let served = served();
    let mut stream = client::greeted(&served.socket, 3).unwrap();
    let mut ask = |number, data: &[u8]| {
        client::option(&mut stream, number, data).unwrap();
        let mut replies = Vec::new();
        loop {
            let (answered, kind, data) = client::option_reply(&mut stream).unwrap();
            assert_eq!(answered, number);
            replies.push((kind, data));
            if kind != 2 && kind != 3 {
                return replies;
            }
        }
    };
    assert_eq!(ask(3, b""), [(2, b"\0\0\0\x04disk".to_vec()), (1, vec![])]);
    assert_eq!(ask(3, b"x")[0].0, 0x8000_0003);
    assert_eq!(ask(5, b"")[0].0, 0x8000_0001, "no TLS");
    assert_eq!(ask(4711, b"what")[0].0, 0x8000_0001);
    assert_eq!(ask(6, b"")[0].0, 0x8000_0003, "INFO without a name");
    assert_eq!(ask(6, b"\0\0\0\x05disk\0\0")[0].0, 0x8000_0003, "a name longer than the option");
    assert_eq!(ask(6, b"\0\0\0\x04dusk\0\0")[0].0, 0x8000_0006);
    let facts = ask(6, b"\0\0\0\x04disk\0\x02\0\x01\0\x02");
    let kinds: Vec<_> = facts.iter().map(|(kind, data)| (*kind, data.get(..2).map(<[u8]>::to_vec))).collect();
    let fact = |kind: u8| (3, Some(vec![0, kind]));
    assert_eq!(kinds, [fact(0), fact(1), fact(2), fact(3), (1, None)]);
    assert_eq!(facts[1].1[2..], *b"disk");
    assert_eq!(facts[2].1[2..], *b"a test");
    assert_eq!(facts[3].1[2..], [0, 0, 0, 1, 0, 0, 16, 0, 0, 128, 0, 0], "8 MiB, a share of 256");
    assert_eq!(ask(2, b""), [(1, vec![])]);
    assert!(client::is_closed(&mut stream));
    assert_eq!(served.server.counts().connections_failed, 0, "leaving is no failure");
}

#[test]
fn the_old_way_to_choose_an_export_works_with_and_without_padding() {
    let served = served();
    for (flags, expected) in [(1, 134), (3, 10)] {
        let mut stream = client::greeted(&served.socket, flags).unwrap();
        client::option(&mut stream, 1, b"disk").unwrap();
        let mut answer = vec![0; expected];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], (1_u64 << 20).to_be_bytes());
        // A disconnect in order, after which no bytes follow.
        stream.write_all(&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 2]).unwrap();
        stream.write_all(&[0; 20]).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}

#[test]
fn a_client_that_says_nothing_loses_its_place() {
    let limits = Limits { connections_max: 2, negotiation_max: Duration::from_millis(100), ..Limits::default() };
    let served = serve(4096, limits, false);
    let mut silent = UnixStream::connect(&served.socket).unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 18, "the greeting and nothing more");
    eventually("the notice", || {
        served.notices.lock().unwrap().join("").contains("had not chosen an export within 100ms")
    });
    // A client that has chosen may be silent for as long as it likes.
    let mut client = Client::connect(&served.socket, true).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.read(0, 1), [0]);
}

#[test]
fn a_connection_too_many_is_refused_in_words() {
    let served = serve(4096, Limits { connections_max: 2, ..Limits::default() }, false);
    let mut clients = [0, 1].map(|_| Client::connect(&served.socket, true).unwrap());
    let refused = || Client::connect(&served.socket, true).err().map(|error| error.to_string());
    let expected = "reply 0x80000002: 2 connections are open, as many as the server takes";
    assert_eq!([refused(), refused()], [Some(expected.to_owned()), Some(expected.to_owned())]);
    assert_eq!(served.server.counts().connections_refused, 2);
    assert_eq!(served.notices.lock().unwrap().len(), 1, "who tries again and again is said once");
    assert_eq!(clients.each_mut().map(|client| client.read(0, 1)), [[0], [0]]);
    let [first, mut second] = clients;
    drop(first);
    eventually("a free place", || Client::connect(&served.socket, true).is_ok());
    assert_eq!(second.read(0, 1), [0]);
}

#[test]
fn the_socket_is_the_owners_alone_and_is_removed_at_the_end() {
    let served = served();
    let mode = std::fs::metadata(&served.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = Client::connect(&served.socket, true).unwrap();
    client.write(0, b"x", 0);
    let counts = served.server.stop().unwrap();
    assert_eq!((counts.connections, counts.connections_open), (1, 0));
    assert_eq!(served.block.taken(), [Call::Write(0, 1, false), Call::Flush], "the end flushes");
    assert!(client::is_closed(&mut client.stream));
    assert!(!served.socket.exists());
}

#[test]
fn requests_in_flight_are_answered_before_the_server_stops() {
    let served = served();
    let mut client = Client::connect(&served.socket, true).unwrap();
    served.block.hold(0);
    let cookie = client.send(READ, 0, 0, 2, b"").unwrap();
    eventually("the read", || !served.block.calls.lock().unwrap().is_empty());
    let block = served.block.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        block.release();
    });
    served.server.stop().unwrap();
    assert_eq!(client.receive().unwrap(), (cookie, Answer { errno: 0, data: vec![0; 2] }));
    release.join().unwrap();
}

#[test]
fn a_socket_in_use_or_something_else_is_not_replaced() {
    let served = served();
    assert!(matches!(Listener::unix(&served.socket), Err(Error::Path(PathError::InUse(_)))));
    assert_eq!(Client::connect(&served.socket, true).unwrap().read(0, 1), [0]);

    let directory = tempfile::tempdir().unwrap();
    let dead = directory.path().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    assert!(dead.exists());
    assert!(Listener::unix(&dead).is_ok(), "a socket that nobody listens on is replaced");

    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(Listener::unix(&file), Err(Error::Path(PathError::NotASocket(_)))));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    assert!(matches!(
        Listener::unix(&directory.path().join("no/such/place")),
        Err(Error::Path(PathError::System { .. }))
    ));
    assert!(Listener::unix(Path::new(&"x".repeat(200))).is_err());
}

#[test]
fn tcp_is_served_to_this_machine_only() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809", "10.0.0.1:0"] {
        assert!(matches!(Listener::loopback(address.parse().unwrap()), Err(Error::NotLoopback(_))), "{address}");
    }
    let listener = Listener::loopback("127.0.0.1:0".parse().unwrap()).unwrap();
    let uri = listener.uri().unwrap();
    let block: Arc<dyn Block> = Arc::new(Watched::new(4096));
    let export = Export { block, name: String::new(), description: String::new(), read_only: false };
    let server = Server::start(listener, export, Limits::default(), |_| {}).unwrap();
    let mut stream = std::net::TcpStream::connect(uri.strip_prefix("nbd://").unwrap()).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    server.stop().unwrap();
}

#[test]
fn a_file_is_served_and_keeps_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (path, socket) = (directory.path().join("disk"), directory.path().join("s"));
    std::fs::write(&path, vec![9; 65536]).unwrap();
    let block = Arc::new(FileBlock::open(&path, false).unwrap());
    let export = Export { block, name: String::new(), description: String::new(), read_only: false };
    let server = Server::start(Listener::unix(&socket).unwrap(), export, Limits::default(), |_| {}).unwrap();
    let mut client = Client::connect(&socket, true).unwrap();
    client.write(5000, b"durable", FUA);
    assert_eq!(client.read(4999, 9), b"\x09durable\x09");
    server.stop().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[5000..5007], *b"durable");
}

#[test]
fn a_block_that_panics_ends_the_connection_and_not_the_server() {
    struct Panics;
    impl Block for Panics {
        fn size_bytes(&self) -> u64 {
            4096
        }
        fn read(&self, offset: u64, _: &mut [u8]) -> io::Result<()> {
            assert_eq!(offset, 0, "a panic that the test wants");
            Ok(())
        }
        fn write(&self, _: u64, _: &[u8], _: bool) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            panic!("a panic that the test wants")
        }
        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let export = Export { block: Arc::new(Panics), name: String::new(), description: String::new(), read_only: false };
    let server = Server::start(Listener::unix(&socket).unwrap(), export, Limits::default(), |_| {}).unwrap();
    for (command, offset) in [(FLUSH, 0), (READ, 1)] {
        let mut client = Client::connect(&socket, true).unwrap();
        assert!(client.call(command, 0, offset, 1, b"").is_err(), "the client does not wait for ever");
    }
    assert_eq!(Client::connect(&socket, true).unwrap().read(0, 1), [0]);
    eventually("what they held given back", || server.counts().held_bytes == 0);
    drop(server);
}
