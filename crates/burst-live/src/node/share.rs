//! The socket at which a node shares its memory with writers on its host.

use super::Shared;
use crate::message::ShareId;
use crate::server::lock;
use crate::share::{name, send};
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most shares at the same time; further writers send their bytes.
const SHARES_MAX: usize = 1024;
/// Pause after a failed accept, which is usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Open {
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, UnixStream>>,
}

/// A running server of shares. Dropping it closes them.
pub(super) struct ShareServer {
    address: SocketAddr,
    open: Arc<Open>,
    acceptor: Option<JoinHandle<()>>,
}

impl ShareServer {
    /// Listens under the name of the node's address.
    pub fn start(shared: &Arc<Shared>) -> io::Result<ShareServer> {
        let address = SocketAddr::from_abstract_name(name(&shared.advertised))?;
        let listener = UnixListener::bind_addr(&address)?;
        let open = Arc::new(Open::default());
        let (shared, own) = (Arc::clone(shared), Arc::clone(&open));
        let accept = move || accept(&listener, &shared, &own);
        let acceptor = Some(std::thread::Builder::new().name("shares".to_owned()).spawn(accept)?);
        Ok(ShareServer { address, open, acceptor })
    }
}

impl Drop for ShareServer {
    fn drop(&mut self) {
        self.open.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor; it may have ended already.
        let _ = UnixStream::connect_addr(&self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for stream in lock(&self.open.connections).values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, open: &Arc<Open>) {
    for number in 0.. {
        let accepted = listener.accept();
        if open.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Ok(clone) = stream.try_clone() else { continue };
        {
            let mut connections = lock(&open.connections);
            if connections.len() >= SHARES_MAX {
                continue;
            }
            connections.insert(number, clone);
        }
        let (shared, own) = (Arc::clone(shared), Arc::clone(open));
        let work = move || {
            share(&shared, stream, ShareId { incarnation: shared.incarnation, number });
            lock(&own.connections).remove(&number);
        };
        if std::thread::Builder::new().name("share".to_owned()).spawn(work).is_err() {
            lock(&open.connections).remove(&number);
        }
    }
}

/// Shares the memory until the writer closes the connection, or its process has ended. There is no other end of it, however long it takes.
fn share(shared: &Shared, mut stream: UnixStream, id: ShareId) {
    if !is_trusted(&stream) {
        return;
    }
    let memory = lock(&shared.buffer).open_share(id);
    if let Ok(memory) = memory
        && send(&stream, memory.as_fd(), id).is_ok()
    {
        drop(memory);
        while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
    }
    lock(&shared.buffer).close_share(id);
}

/// True if the writer is of this process's user, or root: others could change bytes that are stored.
fn is_trusted(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == getuid())
}
