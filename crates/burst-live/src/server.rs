//! A TCP server with a thread for each connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most connections at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Pause after a failed accept, which is usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Locks a mutex. A thread that panicked while it had the lock has left the state as one of its steps does, and the
/// other connections go on.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listener at an address.
///
/// # Errors
/// With the address, when it is not this host's or another process listens there.
pub fn listen(address: &str) -> io::Result<TcpListener> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("listening at {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    // The standard library's queue has 128 connections, and one that finds it full tries again after a second: all ranks of a job connect
    // at the same time.
    rustix::net::listen(&listener, CONNECTIONS_MAX as i32).map_err(|error| failed(error.into()))?;
    Ok(listener)
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, TcpStream>>,
}

/// A running server. [`Server::stop`] ends it.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves connections of a listener until [`Server::stop`].
    ///
    /// # Errors
    /// When the listener has no address or no thread can be started.
    pub fn start(listener: TcpListener, serve: Arc<dyn Fn(TcpStream) + Send + Sync>) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let accept = move || accept(&listener, &own, &serve);
        let acceptor = std::thread::Builder::new().name("accept".to_owned()).spawn(accept)?;
        Ok(Server { address, shared, acceptor: Some(acceptor) })
    }

    /// Address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks all connections and accepts no more.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor; it may have ended already.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for stream in lock(&self.shared.connections).values() {
            // The peer may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, serve: &Arc<dyn Fn(TcpStream) + Send + Sync>) {
    let mut next = 0;
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Ok(clone) = stream.try_clone() else { continue };
        let number = next;
        next += 1;
        {
            let mut connections = lock(&shared.connections);
            if connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            connections.insert(number, clone);
        }
        let (own, serve) = (Arc::clone(shared), Arc::clone(serve));
        let work = move || {
            // Answers are small, and waited for.
            if stream.set_nodelay(true).is_ok() {
                serve(stream);
            }
            lock(&own.connections).remove(&number);
        };
        if std::thread::Builder::new().name("connection".to_owned()).spawn(work).is_err() {
            lock(&shared.connections).remove(&number);
        }
    }
}
