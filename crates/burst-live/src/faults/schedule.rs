//! Threads that run one at a time in virtual time, in an order that a seed decides.
//!
//! A thread hands over at each step: a message, a call to the file system, a pause. The next thread is drawn from those
//! whose time has come; if there is none, time moves on to the first of them. So a seed gives the same schedule again.

use entresol_core::Random;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crate::server::lock;

/// Most steps of a schedule. One that takes more does not end.
const STEPS_MAX: u64 = 300_000;
const STACK_BYTES: usize = 512 << 10;

/// Payload with which a thread of a killed process unwinds.
struct Killed;

/// A process of the cluster; a process that starts again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// The test itself, which strikes and checks.
    Driver,
    Coordinator(usize),
    /// A node's daemon: the node, and the number of its start.
    Node(usize, usize),
    /// A writer: its rank, and the number of its start.
    Writer(usize, usize),
}

/// A step at which the driver strikes: the `after`-th from now on, of any process or of one.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    pub of: Option<Process>,
    pub step: &'static str,
    pub after: u64,
}

/// A step that was about to be made: its process, and the one that it talks to.
#[derive(Clone, Copy, Debug)]
pub struct Caught {
    pub step: &'static str,
    pub process: Process,
    pub peer: Option<Process>,
}

struct Member {
    process: Process,
    thread: Option<Thread>,
    wake: Duration,
    /// Address of the condition variable that it waits for.
    condition: Option<usize>,
    killed: bool,
    finished: bool,
    /// True while it does the work of a server, which outlives the death of its caller.
    serves: bool,
    step: &'static str,
}

struct State {
    random: Random,
    now: Duration,
    members: Vec<Member>,
    running: usize,
    steps: u64,
    trap: Option<Trap>,
    caught: Option<Caught>,
    violation: Option<String>,
    handles: Vec<JoinHandle<()>>,
}

/// All threads of one schedule. The thread that makes it is the driver.
pub struct Schedule {
    state: Mutex<State>,
}

impl Schedule {
    pub fn new(seed: u64) -> Arc<Schedule> {
        let driver = Member::new(Process::Driver, Duration::ZERO, Some(std::thread::current()));
        let state = State {
            random: Random::new(seed),
            now: Duration::ZERO,
            members: vec![driver],
            running: 0,
            steps: 0,
            trap: None,
            caught: None,
            violation: None,
            handles: Vec::new(),
        };
        Arc::new(Schedule { state: Mutex::new(state) })
    }

    pub fn now(&self) -> Duration {
        lock(&self.state).now
    }

    /// A number below a bound.
    pub fn below(&self, bound: u64) -> u64 {
        lock(&self.state).random.below(bound)
    }

    pub fn chance(&self, probability: f64) -> bool {
        lock(&self.state).random.chance(probability)
    }

    /// Notes a broken promise; the first one is kept.
    pub fn violated(&self, why: String) {
        let mut state = lock(&self.state);
        let at = state.now;
        state.violation.get_or_insert_with(|| format!("at {at:?}: {why}"));
    }

    pub fn violation(&self) -> Option<String> {
        lock(&self.state).violation.clone()
    }

    /// Adds a thread, which begins when it is drawn. It is told its number.
    pub fn spawn(self: &Arc<Self>, process: Process, work: impl FnOnce(usize) + Send + 'static) {
        let number = {
            let mut state = lock(&self.state);
            let member = Member::new(process, state.now, None);
            state.members.push(member);
            state.members.len() - 1
        };
        let schedule = Arc::clone(self);
        let body = move || {
            schedule.until_running(number);
            if !lock(&schedule.state).members[number].killed
                && let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(number)))
                && !payload.is::<Killed>()
            {
                schedule.violated(format!("{process:?} panicked"));
            }
            schedule.finish(number);
        };
        let handle = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).expect("a thread");
        let mut state = lock(&self.state);
        state.members[number].thread = Some(handle.thread().clone());
        state.handles.push(handle);
    }

    /// Waits for the thread's next step.
    fn until_running(&self, number: usize) {
        while lock(&self.state).running != number {
            std::thread::park();
        }
    }

    fn finish(&self, number: usize) {
        let mut state = lock(&self.state);
        state.members[number].finished = true;
        state.hand_over();
    }

    /// Ends a step of thread `number`: others run until `time` has passed, or its condition is notified. The name and
    /// the peer are those of the step that it is about to make.
    pub fn pause(
        &self,
        number: usize,
        step: &'static str,
        peer: Option<Process>,
        condition: Option<&Condvar>,
        time: Duration,
    ) {
        let mut state = lock(&self.state);
        let wake = state.now + time;
        let member = &mut state.members[number];
        (member.wake, member.step, member.condition) = (wake, step, condition.map(address));
        state.catch(number, peer);
        state.hand_over();
        if state.running != number {
            drop(state);
            self.until_running(number);
            state = lock(&self.state);
        }
        let member = &mut state.members[number];
        member.condition = None;
        if member.killed && !member.serves {
            drop(state);
            // Without the panic hook's message.
            resume_unwind(Box::new(Killed));
        }
    }

    /// Number of steps so far, and the virtual time.
    pub fn length(&self) -> (u64, Duration) {
        let state = lock(&self.state);
        (state.steps, state.now)
    }

    /// Wakes the threads that wait for a condition.
    pub fn notify_all(&self, condition: &Condvar) {
        let mut state = lock(&self.state);
        let now = state.now;
        for member in state.members.iter_mut().filter(|member| member.condition == Some(address(condition))) {
            member.wake = member.wake.min(now);
        }
    }

    /// Notes that a thread begins or ends the work of a server.
    pub fn set_serving(&self, number: usize, serves: bool) {
        lock(&self.state).members[number].serves = serves;
    }

    /// Kills all threads of a process: none makes another step.
    pub fn kill(&self, process: Process) {
        let mut state = lock(&self.state);
        let now = state.now;
        for member in state.members.iter_mut().filter(|member| member.process == process && !member.finished) {
            member.killed = true;
            member.wake = now;
        }
    }

    /// True if a process has a thread.
    pub fn is_running(&self, process: Process) -> bool {
        lock(&self.state).members.iter().any(|member| member.process == process && !member.finished)
    }

    /// Waits as the driver until a thread is about to make a step, or a time has passed.
    pub fn wait_for(&self, trap: Trap, within: Duration) -> Option<Caught> {
        lock(&self.state).trap = Some(trap);
        self.pause(0, "pause", None, None, within);
        let mut state = lock(&self.state);
        state.trap = None;
        state.caught.take()
    }

    /// Kills all threads and waits for their ends.
    pub fn end(&self) {
        loop {
            let mut state = lock(&self.state);
            let now = state.now;
            let mut left = state.members.iter_mut().skip(1).filter(|member| !member.finished).peekable();
            if left.peek().is_none() {
                break;
            }
            left.for_each(|member| (member.killed, member.serves, member.wake) = (true, false, now));
            drop(state);
            self.pause(0, "pause", None, None, Duration::from_millis(1));
        }
        let handles = std::mem::take(&mut lock(&self.state).handles);
        handles.into_iter().for_each(|handle| handle.join().expect("its panics are caught"));
    }
}

fn address(condition: &Condvar) -> usize {
    std::ptr::from_ref(condition) as usize
}

impl Member {
    fn new(process: Process, wake: Duration, thread: Option<Thread>) -> Member {
        let step = "start";
        Member { process, thread, wake, condition: None, killed: false, finished: false, serves: false, step }
    }
}

impl State {
    /// Wakes the driver if this is the step that it waits for.
    fn catch(&mut self, number: usize, peer: Option<Process>) {
        let member = &self.members[number];
        let fits = |trap: &&mut Trap| {
            let is_its = trap.of.map_or(member.process != Process::Driver, |of| of == member.process);
            is_its && trap.step == member.step
        };
        if let Some(trap) = self.trap.as_mut().filter(fits) {
            if trap.after > 0 {
                trap.after -= 1;
                return;
            }
            self.caught = Some(Caught { step: member.step, process: member.process, peer });
            self.trap = None;
            self.members[0].wake = self.now;
        }
    }

    /// Draws the next thread and lets it run.
    fn hand_over(&mut self) {
        self.steps += 1;
        if self.steps == STEPS_MAX {
            let steps: Vec<_> = self.members.iter().filter(|it| !it.finished).map(|it| (it.process, it.step)).collect();
            self.violation.get_or_insert_with(|| format!("the schedule does not end: {steps:?}"));
        }
        self.running = self.next();
        if let Some(thread) = &self.members[self.running].thread {
            thread.unpark();
        }
    }

    fn next(&mut self) -> usize {
        // The driver strikes exactly at the step that it has waited for.
        if self.caught.is_some() && !self.members[0].finished {
            return 0;
        }
        let waiting = |member: &&Member| !member.finished;
        let first = self.members.iter().filter(waiting).map(|member| member.wake).min().unwrap_or(self.now);
        self.now = self.now.max(first);
        let ready = |member: &Member| !member.finished && member.wake <= self.now;
        let count = self.members.iter().filter(|member| ready(member)).count() as u64;
        let drawn = self.random.below(count.max(1)) as usize;
        let numbers = (0..self.members.len()).filter(|&number| ready(&self.members[number]));
        numbers.into_iter().nth(drawn).unwrap_or(0)
    }
}
