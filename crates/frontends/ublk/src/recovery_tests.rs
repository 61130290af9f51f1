//! Servers of a simulated driver are killed: at each call of their start and of a recovery, and at any time under load.

use crate::abi::{LIVE, QUIESCED, feature, operation};
use crate::memory::MemoryBlock;
use crate::mutant::{self, Mutant};
use crate::simulated::{Answer, Machine, Process};
use crate::{DeviceOptions, Error, Served};
use entresol_cache::{Block, BlockCache, CacheConfig, Maintenance};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_store::arena::Arena;
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

const FEATURES: u64 = feature::ALL | feature::RECOVERY;
const SIZE: usize = 1 << 20;
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

fn options(identity: u64, takes_over: bool) -> DeviceOptions {
    DeviceOptions { read_only: false, identity, outlives: true, takes_over }
}

fn start(process: Process, block: &Arc<dyn Block>, options: &DeviceOptions) -> Result<Served<Process>, String> {
    Served::start(process, Arc::clone(block), options, || {}).map_err(|error| format!("a start: {error}"))
}

fn memory() -> Arc<dyn Block> {
    Arc::new(MemoryBlock::new(SIZE))
}

fn answer(of: &Receiver<Answer>) -> Result<Vec<u8>, String> {
    let answer = of.recv_timeout(ANSWER_MAX).map_err(|_| "a request is not answered".to_owned())?;
    answer.map_err(|error| format!("a request fails with {error}"))
}

/// A block whose requests wait until they are given up.
#[derive(Default)]
struct Stuck(Mutex<bool>, Condvar);

impl Stuck {
    fn give_up(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }

    fn wait(&self) -> io::Result<()> {
        let is_over = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.1.wait_while(is_over, |is_over| !*is_over));
        Err(io::Error::other("given up"))
    }
}

impl Block for Stuck {
    fn size_bytes(&self) -> u64 {
        SIZE as u64
    }

    fn read(&self, _offset: u64, _bytes: &mut [u8]) -> io::Result<()> {
        self.wait()
    }

    fn write(&self, _offset: u64, _bytes: &[u8], _fua: bool) -> io::Result<()> {
        self.wait()
    }

    fn flush(&self) -> io::Result<()> {
        self.wait()
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        self.wait()
    }
}

/// Kills a server that has requests under way, and sends more while there is none. Returns the number of the device,
/// and the requests: writes to consecutive sectors.
fn killed_at_work(machine: &Machine, identity: u64) -> Result<(u32, Vec<Receiver<Answer>>), String> {
    let stuck = Arc::new(Stuck::default());
    let process = machine.process(None);
    let killed = process.number;
    let served = start(process, &(Arc::clone(&stuck) as Arc<dyn Block>), &options(identity, false))?;
    let number = served.number;
    let write = |sector: u64| machine.request(number, operation::WRITE, sector * 512, 512, &[sector as u8 + 1; 512]);
    let mut requests: Vec<_> = (0..70).map(write).collect();
    std::thread::sleep(Duration::from_millis(5));
    machine.kill(killed);
    stuck.give_up();
    let _killed = served.queue.join();
    requests.extend((70..80).map(write));
    Ok((number, requests))
}

/// Checks that all of these writes were answered, and are there.
fn are_done(machine: &Machine, number: u32, requests: &[Receiver<Answer>]) -> Result<(), String> {
    requests.iter().try_for_each(|request| answer(request).map(drop))?;
    let bytes = answer(&machine.request(number, operation::READ, 0, 80 * 512, &[]))?;
    let is_right = |sector: usize| bytes[sector * 512..][..512] == [sector as u8 + 1; 512];
    if (0..80).all(is_right) { Ok(()) } else { Err("a write that was answered is not there".to_owned()) }
}

fn ends(machine: &Machine, served: Served<Process>) -> Result<(), String> {
    served.stop().map_err(|error| format!("the end: {error}"))?;
    if machine.devices().is_empty() { Ok(()) } else { Err(format!("devices are left: {:?}", machine.devices())) }
}

/// A server is killed at each call of its start. The next one has a device, and no other is left.
fn a_start_that_is_killed_leaves_no_device_behind() -> Result<(), String> {
    for call in 1.. {
        let wrong = |why| format!("killed at call {call}: {why}");
        let (machine, block) = (Machine::new(FEATURES), memory());
        let first = machine.process(Some(call));
        let killed = first.number;
        let started = start(first, &block, &options(1, false));
        machine.kill(killed);
        let is_last = started.is_ok();
        if let Ok(served) = started {
            let _killed = served.queue.join();
        }
        let served = start(machine.process(None), &block, &options(1, true)).map_err(wrong)?;
        if machine.devices() != [(0, LIVE)] {
            return Err(wrong(format!("devices {:?}", machine.devices())));
        }
        answer(&machine.request(0, operation::WRITE, 0, 512, &[1; 512])).map_err(wrong)?;
        ends(&machine, served).map_err(wrong)?;
        if is_last {
            return Ok(());
        }
    }
    unreachable!("a start has an end")
}

/// A server is killed at each call of the recovery. The next one recovers the device, and all requests are answered.
fn a_recovery_that_is_killed_is_made_by_the_next_server() -> Result<(), String> {
    for call in 1.. {
        let wrong = |why| format!("killed at call {call}: {why}");
        let (machine, block) = (Machine::new(FEATURES), memory());
        let (number, requests) = killed_at_work(&machine, 1).map_err(wrong)?;
        let second = machine.process(Some(call));
        let killed = second.number;
        let started = start(second, &block, &options(1, true));
        machine.kill(killed);
        let is_last = started.is_ok();
        if let Ok(served) = started {
            let _killed = served.queue.join();
        }
        if machine.devices() != [(number, QUIESCED)] {
            return Err(wrong(format!("devices {:?}", machine.devices())));
        }
        let served = start(machine.process(None), &block, &options(1, true)).map_err(wrong)?;
        are_done(&machine, number, &requests).map_err(wrong)?;
        if machine.sent_again() == 0 {
            return Err(wrong("no request was under way".to_owned()));
        }
        ends(&machine, served).map_err(wrong)?;
        if is_last {
            return Ok(());
        }
    }
    unreachable!("a recovery has an end")
}

/// Devices of other backing stores wait on, whoever starts, and are found by their own servers.
fn each_server_takes_its_own_device() -> Result<(), String> {
    let (machine, blocks) = (Machine::new(FEATURES), [memory(), memory()]);
    let [(one, of_one), (two, of_two)] = [killed_at_work(&machine, 1)?, killed_at_work(&machine, 2)?];
    let other = start(machine.process(None), &memory(), &options(3, true))?;
    if machine.devices() != [(one, QUIESCED), (two, QUIESCED), (other.number, LIVE)] {
        return Err(format!("devices {:?}", machine.devices()));
    }
    let served = start(machine.process(None), &blocks[0], &options(1, true))?;
    are_done(&machine, one, &of_one)?;
    if machine.devices()[1] != (two, QUIESCED) {
        return Err(format!("devices {:?}", machine.devices()));
    }
    let second = start(machine.process(None), &blocks[1], &options(2, true))?;
    are_done(&machine, two, &of_two)?;
    for served in [other, served, second] {
        served.stop().map_err(|error| format!("the end: {error}"))?;
    }
    Ok(())
}

/// Requests of a device that is not taken over do not wait for anything.
fn requests_of_a_device_that_is_not_taken_over_fail() -> Result<(), String> {
    let machine = Machine::new(FEATURES);
    let (_, requests) = killed_at_work(&machine, 1)?;
    let served = start(machine.process(None), &memory(), &options(1, false))?;
    if requests.iter().any(|request| request.recv_timeout(ANSWER_MAX) != Ok(Err(5))) {
        return Err("a request does not fail".to_owned());
    }
    ends(&machine, served)
}

fn all() -> Result<(), String> {
    a_start_that_is_killed_leaves_no_device_behind()?;
    a_recovery_that_is_killed_is_made_by_the_next_server()?;
    each_server_takes_its_own_device()?;
    requests_of_a_device_that_is_not_taken_over_fail()
}

#[test]
fn servers_are_killed_at_each_call_of_a_start_and_of_a_recovery() {
    all().unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn every_mutant_of_the_recovery_is_found_out() {
    for mutant in Mutant::ALL {
        mutant::activate(Some(mutant));
        let found = all();
        mutant::activate(None);
        println!("{mutant:?}: {}", found.expect_err("it is found"));
    }
}

#[test]
fn a_driver_without_recovery_is_refused_in_words() {
    let machine = Machine::new(feature::ALL);
    let refused = Served::start(machine.process(None), memory(), &options(1, true), || {});
    let Err(error) = refused else { panic!("it has no recovery") };
    assert!(matches!(error, Error::NoRecovery) && error.to_string().contains("Linux 6.15"), "{error}");
    let without = DeviceOptions { outlives: false, ..options(1, false) };
    let served = start(machine.process(None), &memory(), &without).expect("it needs none");
    ends(&machine, served).expect("it ends");
}

/// A cache behind a device, which carries nothing out any more once its process is killed.
struct Killable {
    cache: BlockCache,
    is_killed: AtomicBool,
}

impl Killable {
    fn alive(&self) -> io::Result<&BlockCache> {
        if self.is_killed.load(Relaxed) { Err(io::Error::other("killed")) } else { Ok(&self.cache) }
    }
}

impl Block for Killable {
    fn size_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.alive()?.read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.alive()?.write(offset, bytes, fua)
    }

    fn flush(&self) -> io::Result<()> {
        self.alive()?.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.alive()?.discard(offset, bytes)
    }
}

const PAGE: u64 = 1024;
const PAGES: u64 = 300;
const USERS: u64 = 3;

/// The part of a device that one user has, as it was answered.
struct Part {
    begin: u64,
    bytes: Vec<u8>,
    random: Random,
}

impl Part {
    /// Some requests at a time, for parts that do not overlap.
    fn step(&mut self, machine: &Machine, number: u32) -> Result<(), String> {
        let mut writes = Vec::new();
        let mut from = self.random.below(8) * 512;
        while from + 8 * 512 <= self.bytes.len() as u64 && writes.len() < 6 {
            let len = 512 * (1 + self.random.below(8));
            let data = vec![self.random.next_u64() as u8; len as usize];
            let fua = if self.random.chance(0.1) { operation::FUA } else { 0 };
            let request = machine.request(number, operation::WRITE | fua, self.begin + from, data.len(), &data);
            writes.push((from as usize, data, request));
            from += len + 512 * self.random.below(40);
        }
        for (from, data, request) in writes {
            answer(&request)?;
            self.bytes[from..from + data.len()].copy_from_slice(&data);
        }
        if self.random.chance(0.2) {
            answer(&machine.request(number, operation::FLUSH, 0, 0, &[]))?;
        }
        self.check(machine, number)
    }

    fn check(&self, machine: &Machine, number: u32) -> Result<(), String> {
        let found = answer(&machine.request(number, operation::READ, self.begin, self.bytes.len(), &[]))?;
        match found.iter().zip(&self.bytes).position(|(found, written)| found != written) {
            None => Ok(()),
            Some(at) => Err(format!("byte {} is not what was answered", self.begin + at as u64)),
        }
    }
}

/// Kills servers of a cache under three users, which check every answer. The arena outlives the servers if `keeps`.
/// Returns the requests that were sent again.
fn kills_under_load(layout: Layout, seed: u64, kills: u32, keeps: bool) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 40, layout };
    let power = Power::steady();
    let mut disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power)];
    BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], [2; 16]).expect("room");
    let mut arena = Arena::anonymous(PAGE as usize, geometry.batch_blocks()).expect("memory");
    let open = |disks: &[SimDisk; 2], arena: &Arc<Arena>| {
        let lru = entresol_policy::catalogue::info("lru").expect("a policy");
        let (maintenance, arena) = (Maintenance::Requests, keeps.then(|| Arc::clone(arena)));
        let config = CacheConfig { maintenance, arena, ..CacheConfig::new(lru, &[100]) };
        let [cache, backing] = disks.clone();
        let cache = BlockCache::open(cache, backing, [2; 16], &config).map_err(|error| error.to_string())?;
        Ok::<_, String>(Arc::new(Killable { cache, is_killed: AtomicBool::new(false) }))
    };
    let machine = Machine::new(FEATURES);
    let (mut process, mut block) = (machine.process(None), open(&disks, &arena)?);
    let first = start(process.clone(), &(Arc::clone(&block) as Arc<dyn Block>), &options(1, false))?;
    let number = first.number;
    let is_over = AtomicBool::new(false);
    let part_bytes = PAGES / USERS * PAGE;
    let mut parts: Vec<Part> = (0..USERS)
        .map(|user| {
            let random = Random::new(random.next_u64());
            Part { begin: user * part_bytes, bytes: vec![0; part_bytes as usize], random }
        })
        .collect();
    let served = std::thread::scope(|scope| {
        let users: Vec<_> = parts
            .iter_mut()
            .map(|part| {
                let (machine, is_over) = (&machine, &is_over);
                scope.spawn(move || {
                    let mut done = Ok(());
                    while done.is_ok() && !is_over.load(Relaxed) {
                        done = part.step(machine, number);
                    }
                    done
                })
            })
            .collect();
        let killing = || {
            let mut served = first;
            for _ in 0..kills {
                std::thread::sleep(Duration::from_micros(random.below(15_000)));
                machine.kill(process.number);
                block.is_killed.store(true, Relaxed);
                let _killed = served.queue.join();
                (disks, arena) = (disks.each_ref().map(SimDisk::fork), arena.killed().expect("memory"));
                (process, block) = (machine.process(None), open(&disks, &arena)?);
                served = start(process.clone(), &(Arc::clone(&block) as Arc<dyn Block>), &options(1, true))?;
                if served.number != number {
                    return Err("another device is there".to_owned());
                }
            }
            Ok(served)
        };
        let served = killing();
        is_over.store(true, Relaxed);
        let users = users.into_iter().map(|user| user.join().expect("no panic"));
        users.fold(Ok(()), Result::and).and(served)
    })?;
    parts.iter().try_for_each(|part| part.check(&machine, number))?;
    ends(&machine, served)?;
    block.cache.drain().map_err(|error| format!("a drain: {error}"))?;
    for part in &parts {
        let mut backing = vec![0; part.bytes.len()];
        disks[1].read_at(part.begin, &mut backing).map_err(|error| error.to_string())?;
        if backing != part.bytes {
            return Err("the drained disk is not what was answered".to_owned());
        }
    }
    Ok(machine.sent_again())
}

/// Runs without an arena, of which at least one has to lose something.
const TRIES: u64 = 20;

#[test]
fn what_was_answered_survives_the_servers_of_a_device() {
    for (layout, seed) in [(Layout::Log, 20_261_301), (Layout::Slots, 20_261_302)] {
        println!("{layout:?}, seed {seed} (when a kill comes is the clock's)");
        let sent_again = kills_under_load(layout, seed, 60, true).unwrap_or_else(|why| panic!("{layout:?}: {why}"));
        println!("60 kills, {sent_again} requests sent again");
        assert!(sent_again > 0);
        // Whether a kill comes while something is in memory alone is the clock's: on a fast machine not in each run.
        let is_lost = |run: u64| kills_under_load(layout, seed + run, 60, false).is_err();
        assert!((0..TRIES).any(is_lost), "without an arena something is lost");
    }
}
