//! The switch by which a thread of a test takes clock, waits and connections from a simulated schedule.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Condvar;
use std::time::{Duration, Instant};

/// One thread of a schedule, and the calls that it makes in place of those of the operating system.
pub trait Actor {
    /// The clock of the thread's host, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Virtual time as a point of time.
    fn now(&self) -> Instant;

    /// Lets others run until a time has passed, or the condition variable is notified. `step` names what comes next.
    fn pause(&self, step: &'static str, condition: Option<&Condvar>, time: Duration);

    /// Ends all waits for a condition variable.
    fn notify_all(&self, condition: &Condvar);

    /// Opens a connection, and returns its number.
    fn connect(&self, address: &str, within: Duration) -> io::Result<u64>;

    /// Sends the bytes of a message, and returns those of its answer.
    fn call(&self, connection: u64, message: &[u8], within: Duration) -> io::Result<Vec<u8>>;

    /// Closes a connection.
    fn close(&self, connection: u64);
}

thread_local! {
    static ACTOR: RefCell<Option<Rc<dyn Actor>>> = const { RefCell::new(None) };
}

/// The actor that this thread is, if it belongs to a schedule.
pub fn actor() -> Option<Rc<dyn Actor>> {
    ACTOR.with_borrow(Clone::clone)
}

/// Makes this thread an actor, or an ordinary thread again.
pub fn become_actor(actor: Option<Rc<dyn Actor>>) {
    ACTOR.set(actor);
}

/// A connection of an actor, closed when it is dropped.
pub struct Connection {
    actor: Rc<dyn Actor>,
    number: u64,
}

impl Connection {
    /// Opens a connection.
    pub fn open(actor: Rc<dyn Actor>, address: &str, within: Duration) -> io::Result<Connection> {
        let number = actor.connect(address, within)?;
        Ok(Connection { actor, number })
    }

    /// Sends the bytes of a message, and returns those of its answer.
    pub fn call(&self, message: &[u8], within: Duration) -> io::Result<Vec<u8>> {
        self.actor.call(self.number, message, within)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.actor.close(self.number);
    }
}
