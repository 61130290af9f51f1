//! A TCP server with a thread for each connection.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
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

/// Lets this process have as many descriptors as it may: each connection takes two, and a process begins with 1,024.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where this fails there are fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Connections of each user. None may have them all: each may have three quarters of what the others leave.
#[derive(Default)]
pub struct Users {
    /// Number of connections by user; of none are those of the cluster itself, which has no bound.
    held: Mutex<BTreeMap<Option<u32>, usize>>,
}

/// A connection of a user, which counts until this is dropped.
pub struct Entered<'a> {
    users: &'a Users,
    user: Option<u32>,
}

impl Users {
    /// Counts a connection of a user; none if that user has as many as it may.
    pub fn enter(&self, user: Option<u32>) -> Option<Entered<'_>> {
        let mut held = lock(&self.held);
        let others: usize = held.iter().filter(|(of, _)| **of != user).map(|(_, count)| count).sum();
        let own = held.entry(user).or_default();
        if user.is_some() && 4 * (*own + 1) > 3 * CONNECTIONS_MAX.saturating_sub(others) {
            return None;
        }
        *own += 1;
        Some(Entered { users: self, user })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut held = lock(&self.users.held);
        match held.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                held.remove(&self.user);
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections of one user after another, each as many as it gets.
    fn taken(users: &Users, user: u32) -> Vec<Entered<'_>> {
        std::iter::from_fn(|| users.enter(Some(user))).collect()
    }

    #[test]
    fn each_user_leaves_a_quarter_to_the_others() {
        let users = Users::default();
        let first = taken(&users, 1);
        let second = taken(&users, 2);
        let third = taken(&users, 3);
        assert_eq!([first.len(), second.len(), third.len()], [3072, 768, 192]);
        let nodes: Vec<_> = (0..64).map(|_| users.enter(None).expect("the cluster has no bound")).collect();
        assert!(users.enter(Some(1)).is_none() && users.enter(Some(4)).is_none());
        drop((nodes, first, second));
        assert_eq!(taken(&users, 4).len(), 2928, "three quarters of what is left beside 192");
        drop(third);
        assert!(lock(&users.held).is_empty(), "nothing is kept of those who have gone");
    }
}
