//! Relays between the processes of a round: each decodes every message, and has the director let it pass.

use crate::common::stage::CALLS;
use crate::director::{CallOrder, Director, Ends, Role, Route, Step, Verdict};
use entresol_burst::{Event, Role as Purpose};
use entresol_burst_live::message::{FromCoordinator, FromNode, ToCoordinator, ToNode};
use entresol_burst_live::wire::{self, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const MESSAGE: Duration = Duration::from_secs(5);
/// Longest silence on a connection: longer than a round.
const IDLE: Duration = Duration::from_secs(3600);
/// Steps of the daemons' calls to the PFS, and of the writers', in the order of `stage::CALLS`.
pub const DRAIN: [Step; 6] =
    ["drain: folder", "drain: create", "drain: bytes", "drain: sync", "drain: rename", "drain: sync names"];
pub const DIRECT: [Step; 6] =
    ["direct: folder", "direct: create", "direct: bytes", "direct: sync", "direct: rename", "direct: sync names"];

/// A listener whose connections are served by threads. Dropping it ends the listener.
pub struct Server {
    pub address: String,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    fn start(director: &Arc<Director>, serve: impl Fn(&Director, TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let stopping = Arc::new(AtomicBool::new(false));
        let (own, serve, director) = (Arc::clone(&stopping), Arc::new(serve), Arc::clone(director));
        let acceptor = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if own.load(Ordering::SeqCst) {
                    return;
                }
                // A peer that is gone is seen later.
                let _ = stream.set_nodelay(true);
                let (serve, director) = (Arc::clone(&serve), Arc::clone(&director));
                std::thread::spawn(move || {
                    if catch_unwind(AssertUnwindSafe(|| serve(&director, stream))).is_err() {
                        director.violated("the test's own thread has failed".to_owned());
                    }
                });
            }
        });
        Server { address, stopping, acceptor: Some(acceptor) }
    }

    /// A relay to the coordinator of a process, or to a node.
    pub fn relay(director: &Arc<Director>, route: Route) -> Server {
        Server::start(director, move |director, stream| match route {
            Route::ToCoordinator(_) => connection::<OfCoordinator>(director, route, &stream),
            Route::ToNode(_) => connection::<OfNode>(director, route, &stream),
        })
    }

    /// The stage of all processes' calls to the PFS.
    pub fn stage(director: &Arc<Director>) -> Server {
        // A process that ends breaks its connection.
        Server::start(director, |director, stream| drop(calls(director, stream)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor.
        let _ = TcpStream::connect(&self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Messages of one kind of daemon.
trait Protocol {
    type Request: Serialize + DeserializeOwned;
    type Answer: Serialize + DeserializeOwned;

    /// Steps of a request and of its answer.
    fn steps(request: &Self::Request) -> (Step, Step);

    /// The writer that sends a request, if it can be known.
    fn writer(director: &Director, request: &Self::Request) -> Option<usize>;

    /// A request is sent now. Returns the reason why it must be refused.
    fn sent(director: &Director, ends: Ends, request: &Self::Request) -> Option<&'static str>;

    fn answered(director: &Director, ends: Ends, forbidden: Option<&'static str>, answer: &Self::Answer);
}

struct OfCoordinator;

impl Protocol for OfCoordinator {
    type Request = ToCoordinator;
    type Answer = FromCoordinator;

    fn steps(request: &ToCoordinator) -> (Step, Step) {
        match request {
            ToCoordinator::Writer(Event::Open { .. }) => ("open", "granted"),
            ToCoordinator::Writer(Event::Commit { .. }) => ("commit", "committed"),
            ToCoordinator::Writer(_) => ("another event", "its answer"),
            ToCoordinator::Nodes => ("nodes", "known"),
            ToCoordinator::Hello { .. } => ("hello", "welcome"),
            ToCoordinator::Report(_) => ("report", "reported"),
            ToCoordinator::Events(events) if events.is_empty() => ("no events", "their orders"),
            ToCoordinator::Events(_) => ("events", "orders"),
        }
    }

    fn writer(_: &Director, _: &ToCoordinator) -> Option<usize> {
        None
    }

    fn sent(director: &Director, ends: Ends, request: &ToCoordinator) -> Option<&'static str> {
        if let Some(node) = ends.node {
            director.reports(node, request);
        }
        None
    }

    fn answered(director: &Director, ends: Ends, _: Option<&'static str>, answer: &FromCoordinator) {
        if let Some(node) = ends.node {
            director.welcomed(node, answer);
        }
    }
}

struct OfNode;

impl Protocol for OfNode {
    type Request = ToNode;
    type Answer = FromNode;

    fn steps(request: &ToNode) -> (Step, Step) {
        match request {
            ToNode::Write { grant, .. } if grant.role == Purpose::Copy => ("copy", "copied"),
            ToNode::Write { .. } => ("write", "written"),
            ToNode::Fill { .. } => ("fill", "filled"),
            ToNode::Store { .. } => ("store", "stored"),
            ToNode::Read { .. } => ("read", "chunk"),
            ToNode::Locate { .. } => ("locate", "located"),
            ToNode::Pieces { .. } => ("list", "listed"),
            ToNode::Status => ("status", "counted"),
        }
    }

    fn writer(director: &Director, request: &ToNode) -> Option<usize> {
        director.writer_of(request)
    }

    fn sent(director: &Director, ends: Ends, request: &ToNode) -> Option<&'static str> {
        director.forbids(ends.node.expect("a node"), request)
    }

    fn answered(director: &Director, ends: Ends, forbidden: Option<&'static str>, answer: &FromNode) {
        director.answered(ends.node.expect("a node"), forbidden, answer);
    }
}

/// A request that was sent and not answered.
struct Asked {
    ends: Ends,
    answer: Step,
    forbidden: Option<&'static str>,
}

/// One connection through a relay.
struct Passage<'a> {
    director: &'a Director,
    number: u64,
    client: &'a TcpStream,
    server: &'a TcpStream,
    asked: Mutex<VecDeque<Asked>>,
}

fn connection<P: Protocol>(director: &Director, route: Route, client: &TcpStream) {
    // A client whose connection is dropped at once sees the same as one that is refused.
    let Some(target) = director.target(route) else { return };
    let Ok(server) = wire::connect(&target, MESSAGE) else { return };
    let (Ok(of_client), Ok(of_server)) = (client.try_clone(), server.try_clone()) else { return };
    let ends = route.ends();
    let number = director.open(ends, [of_client, of_server]);
    let passage = Passage { director, number, client, server: &server, asked: Mutex::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ended = passage.answers::<P>();
            director.close(number);
        });
        let _ended = passage.requests::<P>(ends);
        director.close(number);
    });
}

impl Passage<'_> {
    fn asked(&self) -> std::sync::MutexGuard<'_, VecDeque<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests<P: Protocol>(&self, mut ends: Ends) -> Result<(), WireError> {
        let mut payload = Vec::new();
        loop {
            let request: P::Request = wire::receive_next(self.client, &mut payload, IDLE, MESSAGE)?;
            if let Some(writer) = P::writer(self.director, &request) {
                ends.writer = Some(writer);
                self.director.set_writer(self.number, writer);
            }
            let (step, answer) = P::steps(&request);
            if !self.director.message(step, ends) {
                return Ok(());
            }
            let forbidden = P::sent(self.director, ends, &request);
            self.asked().push_back(Asked { ends, answer, forbidden });
            wire::send(self.server, &request, &payload, MESSAGE)?;
        }
    }

    fn answers<P: Protocol>(&self) -> Result<(), WireError> {
        let mut payload = Vec::new();
        loop {
            let answer: P::Answer = wire::receive_next(self.server, &mut payload, IDLE, MESSAGE)?;
            let Some(Asked { ends, answer: step, forbidden }) = self.asked().pop_front() else { return Ok(()) };
            P::answered(self.director, ends, forbidden, &answer);
            if !self.director.message(step, ends) {
                return Ok(());
            }
            wire::send(self.client, &answer, &payload, MESSAGE)?;
        }
    }
}

/// Answers the calls of one process to the PFS, until it ends.
fn calls(director: &Director, mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(name) = line(&mut reader)? else { return Ok(()) };
    let (kind, number) = name.split_once(' ').expect("a role and its number");
    let number = number.parse().expect("a number");
    let (role, steps) = if kind == "node" { (Role::Node(number), DRAIN) } else { (Role::Writer(number), DIRECT) };
    let mut order = CallOrder::default();
    while let Some(line) = line(&mut reader)? {
        let (call, path) = line.split_once('\t').expect("a call and a path");
        let at = CALLS.iter().position(|known| *known == call).expect("a call");
        let verdict = director.call(steps[at], Ends::of(role));
        if let Err(why) = order.call(call, path, verdict) {
            director.violated(format!("{name}: {why}"));
        }
        let verdict = match verdict {
            Verdict::Go => "go",
            Verdict::Full => "full",
            Verdict::Error => "error",
        };
        writeln!(stream, "{verdict}")?;
    }
    Ok(())
}

/// A line without its end; none after the last whole one, as a process that is killed may leave a part.
fn line(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.strip_suffix('\n').map(str::to_owned))
}
