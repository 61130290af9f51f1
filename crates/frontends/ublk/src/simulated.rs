//! A simulated ublk driver, as that of Linux 6.15: devices, their tags, and processes that may be killed at any call.
//!
//! The character device of a device is a file in memory, with the descriptors at its beginning and the data of each tag
//! where the kernel has it.

use crate::abi::{
    Command, DEAD, DeviceInfo, IoCommand, LIVE, QUIESCED, control, data_at, feature, io as queue, operation,
};
use crate::driver::{Driver, Ring};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::{FromBytes, IntoBytes};

/// Result of a request: the bytes of a read, or the number of the error.
pub type Answer = Result<Vec<u8>, i32>;

/// Attempts to recover a device that find the character device still open.
const CLOSING: u32 = 3;
const DESCRIPTOR_BYTES: u64 = 24;

struct Request {
    operation: u32,
    at: u64,
    bytes: usize,
    data: Vec<u8>,
    user: Sender<Answer>,
}

impl Request {
    fn fail(self) {
        // The user may have gone.
        let _ = self.user.send(Err(Errno::IO.raw_os_error()));
    }
}

enum Tag {
    NotAwaited,
    Awaited,
    Issued { request: Request, is_seen: bool },
}

struct SimDevice {
    info: DeviceInfo,
    memory: File,
    opened: Option<u64>,
    closing: u32,
    tags: Vec<Tag>,
    waiting: VecDeque<Request>,
    /// Requests that are sent again when the device has been recovered.
    again: VecDeque<Request>,
    event: Option<OwnedFd>,
    is_stopped: bool,
}

#[derive(Default)]
struct State {
    features: u64,
    devices: BTreeMap<u32, SimDevice>,
    processes: u64,
    killed: BTreeSet<u64>,
    /// Requests that were sent again.
    sent_again: u64,
}

/// A machine with the driver.
#[derive(Clone)]
pub struct Machine(Arc<Mutex<State>>);

impl Machine {
    pub fn new(features: u64) -> Self {
        Machine(Arc::new(Mutex::new(State { features, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver for a new process, which is killed at its call of this number, if there is one.
    pub fn process(&self, killed_at: Option<u64>) -> Process {
        let mut state = self.state();
        state.processes += 1;
        Process { machine: self.clone(), number: state.processes, calls_left: Arc::new(Mutex::new(killed_at)) }
    }

    /// Kills a process.
    pub fn kill(&self, process: u64) {
        self.state().kill(process);
    }

    /// Numbers and states of the devices.
    pub fn devices(&self) -> Vec<(u32, u16)> {
        self.state().devices.iter().map(|(&number, device)| (number, device.info.state)).collect()
    }

    pub fn sent_again(&self) -> u64 {
        self.state().sent_again
    }

    /// Sends a request to a block device.
    pub fn request(&self, number: u32, operation: u32, at: u64, bytes: usize, data: &[u8]) -> Receiver<Answer> {
        let (user, answer) = channel();
        let request = Request { operation, at, bytes, data: data.to_vec(), user };
        match self.state().devices.get_mut(&number).filter(|device| device.info.state != DEAD) {
            Some(device) => {
                device.waiting.push_back(request);
                device.send();
            }
            None => request.fail(),
        }
        answer
    }
}

impl State {
    fn kill(&mut self, process: u64) {
        self.killed.insert(process);
        for device in self.devices.values_mut().filter(|device| device.opened == Some(process)) {
            (device.opened, device.closing) = (None, CLOSING);
            let sends_again = device.info.flags & feature::RECOVERY == feature::RECOVERY;
            for tag in &mut device.tags {
                match std::mem::replace(tag, Tag::NotAwaited) {
                    Tag::Issued { request, .. } if sends_again => device.again.push_back(request),
                    Tag::Issued { request, .. } => request.fail(),
                    _ => {}
                }
            }
            if device.info.flags & feature::USER_RECOVERY == 0 {
                device.end();
            } else if device.info.state == LIVE {
                device.info.state = QUIESCED;
            }
            device.signal();
            device.event = None;
        }
    }
}

impl SimDevice {
    fn new(info: DeviceInfo) -> Self {
        let memory = File::from(memfd_create("device", MemfdFlags::CLOEXEC).expect("memory"));
        memory.set_len(data_at(info.depth)).expect("memory");
        let tags = (0..info.depth).map(|_| Tag::NotAwaited).collect();
        let (waiting, again) = (VecDeque::new(), VecDeque::new());
        SimDevice { info, memory, opened: None, closing: 0, tags, waiting, again, event: None, is_stopped: false }
    }

    fn is_ready(&self) -> bool {
        self.tags.iter().all(|tag| !matches!(tag, Tag::NotAwaited))
    }

    /// Takes the device away: requests that wait fail.
    fn end(&mut self) {
        (self.info.state, self.is_stopped) = (DEAD, true);
        self.waiting.drain(..).chain(self.again.drain(..)).for_each(Request::fail);
        self.signal();
    }

    fn signal(&self) {
        if let Some(event) = &self.event {
            rustix::io::write(event, &1_u64.to_ne_bytes()).expect("an event");
        }
    }

    /// Sends requests to the server, once it awaits all tags: before the recovery is at its end, too.
    fn send(&mut self) {
        if !self.is_ready() || self.info.state == DEAD {
            return;
        }
        for tag in 0..self.tags.len() {
            if !matches!(self.tags[tag], Tag::Awaited) {
                continue;
            }
            let Some(request) = self.waiting.pop_front() else { break };
            let mut descriptor = [0; DESCRIPTOR_BYTES as usize];
            descriptor[..4].copy_from_slice(&request.operation.to_ne_bytes());
            descriptor[4..8].copy_from_slice(&(request.bytes as u32 / 512).to_ne_bytes());
            descriptor[8..16].copy_from_slice(&(request.at / 512).to_ne_bytes());
            self.memory.write_all_at(&descriptor, tag as u64 * DESCRIPTOR_BYTES).expect("memory");
            self.memory.write_all_at(&request.data, data_at(tag as u16)).expect("memory");
            self.tags[tag] = Tag::Issued { request, is_seen: false };
        }
        self.signal();
    }

    /// A command of the server about a tag; the number of the error if it is refused.
    fn queue_command(&mut self, operation: u32, command: &IoCommand) -> Result<(), i32> {
        let tag = &mut self.tags[usize::from(command.tag)];
        match (operation, std::mem::replace(tag, Tag::Awaited)) {
            (queue::FETCH, Tag::NotAwaited) => {}
            (queue::COMMIT_AND_FETCH, Tag::Issued { request, .. }) => {
                let answer = match command.result {
                    error @ ..0 => Err(-error),
                    _ if request.operation & 0xff == operation::READ => {
                        let mut bytes = vec![0; request.bytes];
                        self.memory.read_exact_at(&mut bytes, data_at(command.tag)).expect("memory");
                        Ok(bytes)
                    }
                    _ => Ok(Vec::new()),
                };
                let _ = request.user.send(answer);
            }
            _ => return Err(Errno::INVAL.raw_os_error()),
        }
        self.send();
        Ok(())
    }
}

/// The driver for a process.
#[derive(Clone)]
pub struct Process {
    machine: Machine,
    pub number: u64,
    calls_left: Arc<Mutex<Option<u64>>>,
}

impl Process {
    /// The state of the machine for a call, unless the process is killed before it.
    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.machine.state();
        if let Some(left) = self.calls_left.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.kill(self.number);
            }
        }
        match state.killed.contains(&self.number) {
            true => Err(io::Error::other("the process is killed")),
            false => Ok(state),
        }
    }
}

impl Driver for Process {
    type Ring = SimRing;

    fn command(&mut self, operation: u32, command: Command, buffer: &mut [u8]) -> io::Result<()> {
        let mut guard = self.call()?;
        let state = &mut *guard;
        if operation == control::GET_FEATURES {
            state.features.write_to(buffer).expect("eight bytes");
            return Ok(());
        }
        if operation == control::ADD {
            let mut info = DeviceInfo::read_from_bytes(buffer).expect("information");
            info.device = (0..).find(|number| !state.devices.contains_key(number)).expect("a number");
            info.flags &= state.features;
            info.write_to(buffer).expect("room");
            state.devices.insert(info.device, SimDevice::new(info));
        } else {
            let device = state.devices.get_mut(&command.device).ok_or(Errno::NODEV)?;
            let recovers = device.info.flags & feature::USER_RECOVERY != 0;
            match operation {
                control::SET_PARAMETERS => {}
                control::GET_INFO => device.info.write_to(buffer).expect("room"),
                control::START | control::END_RECOVERY if !device.is_ready() => {
                    return Err(io::Error::other("it would wait for ever"));
                }
                control::START => device.info.state = LIVE,
                control::START_RECOVERY if !recovers => return Err(Errno::INVAL.into()),
                control::START_RECOVERY => {
                    device.closing = device.closing.saturating_sub(1);
                    if device.closing > 0 || device.opened.is_some() || device.info.state != QUIESCED {
                        return Err(Errno::BUSY.into());
                    }
                }
                control::END_RECOVERY => {
                    device.info.state = LIVE;
                    state.sent_again += device.again.len() as u64;
                    let again = std::mem::take(&mut device.again);
                    device.waiting.extend(again);
                    device.send();
                }
                control::STOP => device.end(),
                control::DELETE | control::DELETE_SOON => {
                    device.end();
                    state.devices.remove(&command.device);
                }
                _ => return Err(Errno::OPNOTSUPP.into()),
            }
        }
        drop(guard);
        // The process may be killed before it has the result.
        self.call().map(drop)
    }

    fn numbers(&self) -> io::Result<Vec<u32>> {
        Ok(self.call()?.devices.keys().copied().collect())
    }

    fn open(&self, number: u32) -> io::Result<File> {
        let mut state = self.call()?;
        let device = state.devices.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        if device.opened.is_some() {
            return Err(Errno::BUSY.into());
        }
        device.opened = Some(self.number);
        device.memory.try_clone()
    }

    fn ring(&self, number: u32, _device: &File, _depth: u16) -> io::Result<SimRing> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut state = self.call()?;
        let device = state.devices.get_mut(&number).ok_or(Errno::NODEV)?;
        device.event = Some(event.try_clone()?);
        Ok(SimRing { process: self.clone(), number, event, pushed: Vec::new() })
    }

    fn unlock(&self) -> io::Result<()> {
        self.call().map(drop)
    }
}

/// An exchange about the tags of a simulated device.
pub struct SimRing {
    process: Process,
    number: u32,
    event: OwnedFd,
    pushed: Vec<(u32, IoCommand)>,
}

impl Ring for SimRing {
    fn event(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    fn push(&mut self, operation: u32, command: IoCommand) {
        self.pushed.push((operation, command));
    }

    fn submit(&mut self, ended: &mut Vec<(u16, i32)>) -> io::Result<()> {
        for (operation, command) in std::mem::take(&mut self.pushed) {
            let mut state = self.process.call()?;
            let device = state.devices.get_mut(&self.number).ok_or(Errno::NODEV)?;
            if let Err(error) = device.queue_command(operation, &command) {
                ended.push((command.tag, -error));
            }
        }
        let mut state = self.process.call()?;
        let device = state.devices.get_mut(&self.number).ok_or(Errno::NODEV)?;
        for (number, tag) in device.tags.iter_mut().enumerate() {
            match tag {
                Tag::Issued { is_seen, .. } if !*is_seen => {
                    *is_seen = true;
                    ended.push((number as u16, 0));
                }
                Tag::Awaited if device.is_stopped => {
                    *tag = Tag::NotAwaited;
                    ended.push((number as u16, -Errno::NODEV.raw_os_error()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn wait(&mut self, ended: &mut Vec<(u16, i32)>) -> io::Result<()> {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            self.submit(ended)?;
            let is_woken = rustix::io::read(&self.event, &mut [0; 8]).is_ok();
            if !ended.is_empty() || is_woken {
                return Ok(());
            }
            poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&LOOK))?;
        }
    }
}
