//! The NBD front-end's limits: memory of all connections together, time for the negotiation, users who may connect.

mod support;

use entresol_cache::Block;
use entresol_nbd::{Counts, Error, Export, Limits, Listener, Peers, Server};
use rustix::process::Uid;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::client::{self, Answer, Client, READ, WRITE};
use support::{Random, Watched};

const MIB: u32 = 1 << 20;

struct Served {
    server: Server,
    block: Arc<Watched>,
    socket: PathBuf,
    notices: Arc<Mutex<Vec<String>>>,
    directory: tempfile::TempDir,
}

fn serve(size: usize, limits: Limits) -> Served {
    let directory = tempfile::tempdir().unwrap();
    // Other users must reach the socket to be refused.
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = directory.path().join("s");
    let block = Arc::new(Watched::new(size));
    let (server, notices) = start(&block, Listener::unix(&socket).unwrap(), limits);
    Served { server, block, socket, notices, directory }
}

fn start(block: &Arc<Watched>, listener: Listener, limits: Limits) -> (Server, Arc<Mutex<Vec<String>>>) {
    let export = Export { block: block.clone(), name: String::new(), description: String::new(), read_only: false };
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = notices.clone();
    let notice = move |error: &Error| heard.lock().unwrap().push(error.to_string());
    (Server::start(listener, export, limits, notice).unwrap(), notices)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never came: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the server takes up no more requests.
fn settled(server: &Server) -> Counts {
    let (mut counts, mut since) = (server.counts(), Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(5));
        let now = server.counts();
        if now != counts {
            (counts, since) = (now, Instant::now());
        }
    }
    counts
}

/// The largest request that the server offers.
fn offered(served: &Served) -> u32 {
    let mut stream = client::greeted(&served.socket, 3).unwrap();
    client::option(&mut stream, 6, &[0; 6]).unwrap();
    loop {
        let (_, kind, data) = client::option_reply(&mut stream).unwrap();
        assert_eq!(kind, 3, "INFO is answered by facts");
        if data[..2] == [0, 3] {
            return u32::from_be_bytes(data[10..14].try_into().unwrap());
        }
    }
}

#[test]
fn clients_that_take_no_replies_hold_no_more_than_the_memory_and_others_are_served() {
    let limits = Limits { memory_max: 64 << 20, ..Limits::default() };
    let served = serve(4 << 20, limits);
    let mut random = Random(0x0d00_0101);
    println!("seed 0xd000101");
    let content = random.bytes(4 << 20);
    served.block.memory.write(0, &content, false).unwrap();
    let share = offered(&served);
    assert_eq!(share, 2 * MIB);
    eventually("a free place", || served.server.counts().connections_open == 0);
    // Each client asks for as much as all together may hold.
    let mut silent: Vec<(Client, Vec<u64>)> = (0..15)
        .map(|_| {
            let mut client = Client::connect(&served.socket, true).unwrap();
            let sent = (0..64).map(|_| client.send(READ, 0, u64::from(MIB), MIB, b"").unwrap()).collect();
            (client, sent)
        })
        .collect();
    let counts = settled(&served.server);
    assert!(counts.held_bytes_max <= limits.memory_max, "{} bytes were held", counts.held_bytes_max);
    let mut other = Client::connect(&served.socket, true).unwrap();
    for round in 0..20 {
        let at = random.below(u64::from(2 * MIB)) as usize;
        assert!(other.read(at as u64, share) == content[at..at + share as usize], "round {round}");
    }
    for (client, sent) in &mut silent {
        let mut answered: Vec<u64> = Vec::new();
        for _ in 0..64 {
            let (cookie, answer) = client.receive().unwrap();
            assert!(answer.errno == 0 && answer.data == content[MIB as usize..2 * MIB as usize]);
            answered.push(cookie);
        }
        answered.sort_unstable();
        assert_eq!(&answered, sent, "each is answered once");
    }
    let counts = served.server.counts();
    assert!(counts.held_bytes_max <= limits.memory_max, "{} bytes were held", counts.held_bytes_max);
    eventually("all memory given back", || served.server.counts().held_bytes == 0);
}

#[test]
fn a_request_beyond_its_share_waits_for_memory_or_is_answered_enomem() {
    let limits = Limits { memory_max: 64 << 20, memory_patience: Duration::from_millis(200), ..Limits::default() };
    let served = serve(64 << 20, limits);
    let share = offered(&served);
    let (held, large) = (32 << 20, 8 * share);
    served.block.hold(held);
    let mut greedy: Vec<Client> = (0..14).map(|_| Client::connect(&served.socket, true).unwrap()).collect();
    for client in &mut greedy {
        for _ in 0..64 {
            client.send(READ, 0, held, MIB, b"").unwrap();
        }
    }
    settled(&served.server);
    for structured in [false, true] {
        let mut client = Client::connect(&served.socket, structured).unwrap();
        let refused = Answer { errno: 12, data: vec![] };
        assert_eq!(client.call(READ, 0, 0, large, b"").unwrap(), refused);
        let payload = vec![9; large as usize];
        assert_eq!(client.call(WRITE, 0, 0, large, &payload).unwrap(), refused);
        assert!(client.read(0, large.min(share)) == vec![0; share as usize], "nothing of it was written");
        client.write(1 << 20, &payload[..share as usize], 0);
        client.write(1 << 20, &vec![0; share as usize], 0);
    }
    let mut waiting = Client::connect(&served.socket, true).unwrap();
    waiting.write(0, b"it is there", 0);
    drop(greedy);
    served.block.release();
    eventually("memory", || served.server.counts().held_bytes == 0);
    assert_eq!(waiting.read(0, large)[..11], *b"it is there");
}

#[test]
fn requests_of_many_sizes_on_many_connections_are_each_answered_and_counted_out() {
    const SEED: u64 = 0x0d00_0102;
    println!("seed {SEED:#x}");
    let limits = Limits { memory_max: 40 << 20, requests_max: 16, ..Limits::default() };
    let served = serve(32 << 20, limits);
    let content = Random(SEED).bytes(32 << 20);
    served.block.memory.write(0, &content, false).unwrap();
    let (content, socket) = (&content, &served.socket);
    std::thread::scope(|scope| {
        for number in 0..12 {
            scope.spawn(move || {
                let mut random = Random(SEED + number);
                let mut client = Client::connect(socket, number % 2 == 0).unwrap();
                for _ in 0..6 {
                    let asked: Vec<(u64, usize, usize)> = (0..8)
                        .map(|_| {
                            let length = 1 << (9 + random.below(13));
                            let at = random.below((32 << 20) - length) as usize;
                            let cookie = client.send(READ, 0, at as u64, length as u32, b"").unwrap();
                            (cookie, at, length as usize)
                        })
                        .collect();
                    for _ in 0..8 {
                        let (cookie, answer) = client.receive().unwrap();
                        let &(_, at, length) = asked.iter().find(|asked| asked.0 == cookie).expect("it was asked");
                        // Only a request larger than a share may be refused.
                        let refused = answer.errno == 12 && length > MIB as usize;
                        assert!(refused || answer.data == content[at..at + length], "{at} + {length}");
                    }
                }
            });
        }
    });
    let counts = served.server.counts();
    assert!(counts.held_bytes_max <= limits.memory_max, "{} bytes were held", counts.held_bytes_max);
    eventually("all memory given back", || served.server.counts().held_bytes == 0);
}

#[test]
fn half_a_write_gives_its_memory_back() {
    let limits = Limits { memory_max: 64 << 20, memory_patience: Duration::from_millis(1), ..Limits::default() };
    let served = serve(16 << 20, limits);
    let large = 6 * offered(&served);
    for round in 0..20 {
        let mut client = Client::connect(&served.socket, round % 2 == 0).unwrap();
        client.send(WRITE, 0, 0, large, &[7; 5000]).unwrap();
        drop(client);
        eventually("its place", || served.server.counts().connections_open == 0);
    }
    eventually("all memory given back", || served.server.counts().held_bytes == 0);
    let mut client = Client::connect(&served.socket, true).unwrap();
    assert!(client.read(0, large) == vec![0; large as usize], "there is memory, and half a write is none");
}

#[test]
fn a_server_without_memory_for_its_connections_is_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { memory_max: 8 << 20, ..Limits::default() };
    let export = |size| Export {
        block: Arc::new(Watched::new(size)),
        name: String::new(),
        description: String::new(),
        read_only: false,
    };
    let listener = Listener::unix(&directory.path().join("s")).unwrap();
    let refused = Server::start(listener, export(4096), limits, |_| {}).err().expect("a refusal");
    let Error::Memory { connections: 16, needed } = refused else { panic!("{refused}") };
    let listener = Listener::unix(&directory.path().join("t")).unwrap();
    assert!(Server::start(listener, export(4096), Limits { memory_max: needed, ..limits }, |_| {}).is_ok());
}

#[test]
fn a_stop_ends_clients_that_take_no_replies_and_those_that_wait_for_their_memory() {
    let limits = Limits { memory_max: 40 << 20, memory_patience: Duration::from_secs(600), ..Limits::default() };
    let served = serve(4 << 20, limits);
    let mut clients: Vec<Client> = (0..15).map(|_| Client::connect(&served.socket, true).unwrap()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        // The last clients ask for more than their share, and wait.
        let bytes = if number < 10 { MIB } else { 3 * MIB };
        for _ in 0..32 {
            client.send(READ, 0, 0, bytes, b"").unwrap();
        }
    }
    settled(&served.server);
    let counts = served.server.stop().unwrap();
    assert_eq!((counts.connections_open, counts.held_bytes), (0, 0));
}

/// A client that asks again and again, never silent and never choosing, until the server ends the connection.
fn dawdle(mut stream: UnixStream) {
    loop {
        // STRUCTURED_REPLY, answered each time.
        if client::option(&mut stream, 8, b"").is_err() || client::option_reply(&mut stream).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn a_negotiation_has_a_deadline_however_busy_the_client_is() {
    let limits = Limits { connections_max: 2, negotiation_max: Duration::from_millis(300), ..Limits::default() };
    let served = serve(4096, limits);
    let drip = {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        std::thread::spawn(move || {
            // A byte of the flags and of options that begin well, one at a time.
            let bytes = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0; 1000]].concat();
            bytes.iter().position(|&byte| {
                std::thread::sleep(Duration::from_millis(30));
                stream.write_all(&[byte]).is_err()
            })
        })
    };
    let dawdler = client::greeted(&served.socket, 3).unwrap();
    let dawdler = std::thread::spawn(move || dawdle(dawdler));
    dawdler.join().unwrap();
    assert!(drip.join().unwrap().is_some(), "the server listened to the end");
    eventually("both notices", || served.notices.lock().unwrap().len() == 2);
    for notice in served.notices.lock().unwrap().iter() {
        assert!(notice.contains("had not chosen an export within 300ms"), "{notice}");
    }
    assert_eq!(Client::connect(&served.socket, true).unwrap().read(0, 1), [0], "their places are free");
}

/// Runs `act` as another user of this machine; `None`, with a note, where only root could.
fn as_another<T: Send>(test: &str, act: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED {test}: only root can act as another user");
        return None;
    }
    let nobody = Uid::from_raw(65534);
    // The system call changes the identity of one thread only.
    let acted = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("another user");
            act()
        });
        thread.join()
    });
    Some(acted.expect("no panic"))
}

/// Reply of the server to a client that asks for the export by GO over TCP.
fn asked(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.read_exact(&mut [0; 18])?;
    stream
        .write_all(&[&[0, 0, 0, 3][..], b"IHAVEOPT", &7_u32.to_be_bytes(), &6_u32.to_be_bytes(), &[0; 6]].concat())?;
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let length = u32::from_be_bytes(header[16..].try_into().unwrap());
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok([&header[12..16], &data].concat())
}

const REFUSED: &str = "it is of user 65534; the user who serves and root alone may connect";

#[test]
fn another_user_is_refused_over_tcp_unless_all_may_connect() {
    let test = "another_user_is_refused_over_tcp_unless_all_may_connect";
    for peers in [Peers::OwnerAndRoot, Peers::Any] {
        let block = Arc::new(Watched::new(4096));
        let listener = Listener::loopback("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.uri().unwrap().strip_prefix("nbd://").unwrap().parse().unwrap();
        let (server, notices) = start(&block, listener, Limits { peers, ..Limits::default() });
        assert_eq!(asked(address).unwrap()[..4], [0, 0, 0, 3], "we may");
        let Some(answer) = as_another(test, || asked(address).unwrap()) else { return };
        if peers == Peers::Any {
            assert_eq!(answer[..4], [0, 0, 0, 3]);
            continue;
        }
        assert_eq!((&answer[..4], &answer[4..]), (&[0x80, 0, 0, 2][..], REFUSED.as_bytes()));
        let said = notices.lock().unwrap().clone();
        assert!(said.contains(&format!("refused a client: {REFUSED}")), "{said:?}");
        server.stop().unwrap();
    }
}

#[test]
fn another_user_is_refused_on_a_unix_socket_that_lets_it_in_unless_all_may_connect() {
    let test = "another_user_is_refused_on_a_unix_socket_that_lets_it_in_unless_all_may_connect";
    for peers in [Peers::OwnerAndRoot, Peers::Any] {
        let served = serve(4096, Limits { peers, ..Limits::default() });
        let connect = || Client::connect(&served.socket, true).map(|_| ()).map_err(|error| error.to_string());
        let Some(answer) = as_another(test, connect) else { return };
        assert!(answer.is_err_and(|error| error.contains("ermission denied")), "the socket is its owner's alone");
        std::fs::set_permissions(&served.socket, PermissionsExt::from_mode(0o666)).unwrap();
        let answer = as_another(test, connect).expect("it could before");
        match peers {
            Peers::Any => assert_eq!(answer, Ok(())),
            Peers::OwnerAndRoot => assert_eq!(answer, Err(format!("reply 0x80000002: {REFUSED}"))),
        }
        assert_eq!(connect(), Ok(()), "we may");
        drop(served.directory);
    }
}
