//! A disk in memory that fails as real disks do, for the crash tests. Deterministic: no thread, no clock.
//!
//! The disk remembers all writes since the last sync. A crash keeps any one version of each such 512-byte sector, so
//! writes are lost, torn and reordered. Other faults are injected one by one.

use entresol_core::Random;
use entresol_disk::{Disk, Transfer};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes that a device writes as a whole or not at all.
const SECTOR: usize = 512;
/// Probability that an unsynced sector holds neither its old nor its new contents after a crash, on a disk that
/// garbles.
const GARBLED: f64 = 0.1;

/// The power supply of one or several disks. The power goes off in the middle of a chosen write or sync.
#[derive(Clone, Debug)]
pub struct Power {
    left: Arc<AtomicU64>,
    used: Arc<AtomicU64>,
}

impl Power {
    /// Power that does not go off.
    pub fn steady() -> Self {
        Power { left: Arc::new(AtomicU64::new(u64::MAX)), used: Arc::default() }
    }

    /// Lets so many writes and syncs begin from now on. The last of them is cut short and everything after it fails.
    pub fn fail_after(&self, operations: u64) {
        self.left.store(operations, Ordering::Relaxed);
    }

    /// Restores the power for good.
    pub fn restore(&self) {
        self.left.store(u64::MAX, Ordering::Relaxed);
    }

    /// True if the power is off.
    pub fn is_off(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Writes and syncs begun so far.
    pub fn operations(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes one operation. Returns true if the power goes off during it.
    ///
    /// # Errors
    /// If the power is off.
    pub fn consume(&self) -> io::Result<bool> {
        let less = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(1) };
        // One atomic step: another thread's operation meanwhile must not bring the power back.
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_err(|_| off())?;
        self.used.fetch_add(1, Ordering::Relaxed);
        Ok(left == 1)
    }
}

fn off() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the power is off")
}

/// A fault that strikes the next operation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read fails with EIO.
    ReadError,
    /// A read returns one flipped bit; the stored bit is right.
    ReadFlip,
    /// A write fails with EIO and writes nothing.
    WriteError,
    /// A write fails after so many bytes.
    ShortWrite(usize),
    /// A write fails for want of space.
    NoSpace,
    /// A write is acknowledged and goes to so many bytes further on (wrapping).
    Misdirected(u64),
    /// A write is acknowledged and never performed.
    LostWrite,
    /// A sync fails and unsynced writes are dropped, as Linux drops a page cache that it could not write.
    SyncError,
    /// A sync is acknowledged and makes nothing durable; a later one does.
    LostSync,
}

impl Fault {
    fn is_of_read(self) -> bool {
        matches!(self, Fault::ReadError | Fault::ReadFlip)
    }

    fn is_of_sync(self) -> bool {
        matches!(self, Fault::SyncError | Fault::LostSync)
    }
}

/// A misdirected write.
#[derive(Clone, Copy, Debug)]
pub struct Misdirected {
    /// Bytes of the write.
    pub bytes: u64,
    /// Syncs that followed.
    pub syncs_after: u64,
}

#[derive(Clone, Debug)]
struct Unsynced {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
struct State {
    /// Synced contents, which a crash leaves at least.
    stable: Vec<u8>,
    /// Contents that a read sees.
    image: Vec<u8>,
    unsynced: Vec<Unsynced>,
    faults: VecDeque<Fault>,
    misdirected: Option<Misdirected>,
    /// Number of the read that returns a flipped bit.
    misread: Option<u64>,
    /// True if a crash may leave anything in an unsynced sector.
    garbles: bool,
    gone: bool,
    random: Random,
    counts: [u64; 3],
}

/// The disk; clones are handles of the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    power: Power,
}

impl SimDisk {
    /// A disk of zeros.
    pub fn new(size_bytes: u64, power: &Power) -> Self {
        let zeros = vec![0; size_bytes as usize];
        let state = State {
            stable: zeros.clone(),
            image: zeros,
            unsynced: Vec::new(),
            faults: VecDeque::new(),
            misdirected: None,
            misread: None,
            garbles: false,
            gone: false,
            random: Random::new(0),
            counts: [0; 3],
        };
        SimDisk { state: Arc::new(Mutex::new(state)), power: power.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    /// Adds a fault; faults strike in the order in which they were added.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    /// Makes the read after so many others return one flipped bit; the stored bit is right.
    pub fn misread_after(&self, reads: u64) {
        let mut state = self.lock();
        state.misread = Some(state.counts[0] + 1 + reads);
    }

    /// Lets a crash leave anything in an unsynced sector from now on, as after a write that was cut short.
    pub fn garble(&self) {
        self.lock().garbles = true;
    }

    /// Makes every operation fail from now on, as on a device that was pulled out.
    pub fn vanish(&self) {
        self.lock().gone = true;
    }

    /// Flips one stored bit.
    pub fn flip(&self, byte: u64, bit: u8) {
        let mut state = self.lock();
        // Bytes added since the last sync are not stable yet.
        if let Some(stable) = state.stable.get_mut(byte as usize) {
            *stable ^= 1 << (bit % 8);
        }
        state.image[byte as usize] ^= 1 << (bit % 8);
    }

    /// True if an injected fault has not struck yet.
    pub fn has_faults(&self) -> bool {
        !self.lock().faults.is_empty()
    }

    /// Removes all injected faults.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.misread = None;
    }

    /// Returns the contents of the device at this moment, unsynced writes included.
    pub fn copy(&self) -> Vec<u8> {
        self.lock().image.clone()
    }

    /// Another disk with the state of this one at this moment, unsynced writes included, as the next process finds it.
    pub fn fork(&self) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(self.lock().clone())), power: self.power.clone() }
    }

    /// Puts a copy back as the device's durable contents.
    pub fn put_back(&self, copy: &[u8]) {
        let mut state = self.lock();
        state.unsynced.clear();
        state.stable = copy.to_vec();
        state.image = copy.to_vec();
    }

    /// Reads, writes and syncs that were performed.
    pub fn counts(&self) -> [u64; 3] {
        self.lock().counts
    }

    /// The last misdirected write.
    pub fn misdirected(&self) -> Option<Misdirected> {
        self.lock().misdirected
    }

    /// Applies a loss of power: some of the unsynced writes survive. The [`Power`] itself stays as it is.
    ///
    /// The seed decides how: nothing, all, whole writes, single sectors, or a prefix in some order whose last write is
    /// torn.
    pub fn crash(&self, seed: u64) {
        let mut state = self.lock();
        state.random = Random::new(seed);
        let mut unsynced = std::mem::take(&mut state.unsynced);
        // Bytes added since the last sync are gone, or not.
        let (kept, added) = (state.stable.len(), state.image.len());
        let size = if added > kept && state.random.chance(0.5) { kept } else { added };
        state.stable.resize(added, 0);
        let kind = state.random.below(5);
        // Two unsynced writes of one sector may be performed in either order.
        if kind >= 2 {
            for i in (1..unsynced.len()).rev() {
                let j = state.random.below(i as u64 + 1) as usize;
                unsynced.swap(i, j);
            }
        }
        let prefix = state.random.below(unsynced.len() as u64 + 1) as usize;
        for (i, write) in unsynced.iter().enumerate() {
            for (s, sector) in write.bytes.chunks(SECTOR).enumerate() {
                let survives = match kind {
                    0 => false,
                    1 => true,
                    2 => Random::mix(seed ^ i as u64) & 1 == 1,
                    3 => state.random.chance(0.5),
                    _ => i < prefix || (i == prefix && state.random.chance(0.5)),
                };
                let at = write.at + s * SECTOR;
                if state.garbles && state.random.chance(GARBLED) {
                    let noise = state.random.next_u64() as u8;
                    state.stable[at..at + sector.len()]
                        .iter_mut()
                        .for_each(|byte| *byte = byte.wrapping_add(noise | 1));
                } else if survives {
                    state.stable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        state.stable.truncate(size);
        state.image = state.stable.clone();
        state.faults.clear();
        state.misread = None;
    }
}

impl State {
    fn check(&self, at: u64, len: usize, kind: io::ErrorKind) -> io::Result<usize> {
        if self.gone {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the device is gone"));
        }
        match at.checked_add(len as u64) {
            Some(end) if end <= self.image.len() as u64 => Ok(at as usize),
            _ => Err(io::Error::new(kind, format!("{len} bytes at {at} of a device of {} bytes", self.image.len()))),
        }
    }

    /// Takes the fault at the head of the queue, if it fits.
    fn fault(&mut self, fits: impl Fn(Fault) -> bool) -> Option<Fault> {
        let next = self.faults.front().copied().filter(|&fault| fits(fault));
        if next.is_some() {
            self.faults.pop_front();
        }
        next
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
        self.unsynced.push(Unsynced { at, bytes: bytes.to_vec() });
    }
}

fn eio(what: &str) -> io::Error {
    io::Error::other(format!("injected {what} error"))
}

impl Disk for SimDisk {
    fn size_bytes(&self) -> u64 {
        self.lock().image.len() as u64
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.power.is_off() {
            return Err(off());
        }
        let mut state = self.lock();
        let from = state.check(at, bytes.len(), io::ErrorKind::UnexpectedEof)?;
        state.counts[0] += 1;
        let number = state.counts[0];
        let misread = state.misread.take_if(|read| *read == number).map(|_| Fault::ReadFlip);
        let fault = misread.or_else(|| state.fault(Fault::is_of_read));
        if fault == Some(Fault::ReadError) {
            return Err(eio("read"));
        }
        bytes.copy_from_slice(&state.image[from..from + bytes.len()]);
        if fault == Some(Fault::ReadFlip) && !bytes.is_empty() {
            let bit = state.random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    /// Memory needs no waiting.
    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.read_at(at, bytes).is_ok()
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let cut = self.power.consume()?;
        let mut state = self.lock();
        let to = state.check(at, bytes.len(), io::ErrorKind::StorageFull)?;
        state.counts[1] += 1;
        match state.fault(|fault| !fault.is_of_read() && !fault.is_of_sync()) {
            Some(Fault::WriteError) => return Err(eio("write")),
            Some(Fault::NoSpace) => return Err(io::Error::new(io::ErrorKind::StorageFull, "injected lack of space")),
            Some(Fault::ShortWrite(len)) => {
                state.write(to, &bytes[..len.min(bytes.len())]);
                return Err(eio("short write"));
            }
            Some(Fault::Misdirected(by)) => {
                let space = state.image.len() as u64 - bytes.len() as u64 + 1;
                state.misdirected = Some(Misdirected { bytes: bytes.len() as u64, syncs_after: 0 });
                state.write(((at + by) % space) as usize, bytes);
            }
            Some(Fault::LostWrite) => {}
            _ => state.write(to, bytes),
        }
        if cut { Err(off()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        if self.power.consume()? {
            return Err(off());
        }
        let mut state = self.lock();
        state.check(0, 0, io::ErrorKind::Other)?;
        state.counts[2] += 1;
        match state.fault(Fault::is_of_sync) {
            Some(Fault::LostSync) => return Ok(()),
            Some(_) => {
                state.unsynced.clear();
                let size = state.image.len();
                state.stable.resize(size, 0);
                state.image = state.stable.clone();
                return Err(eio("sync"));
            }
            None => {}
        }
        if let Some(misdirected) = &mut state.misdirected {
            misdirected.syncs_after += 1;
        }
        let size = state.image.len();
        state.stable.resize(size, 0);
        for write in std::mem::take(&mut state.unsynced) {
            state.stable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        Ok(())
    }

    /// Performs the transfers in random order; the power may go off between any two.
    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        let mut order: Vec<&mut Transfer> = transfers.iter_mut().collect();
        for i in (1..order.len()).rev() {
            let j = self.lock().random.below(i as u64 + 1) as usize;
            order.swap(i, j);
        }
        let perform = |transfer: &mut Transfer| match transfer {
            Transfer::Read { at, bytes } => self.read_at(*at, bytes),
            Transfer::Write { at, bytes } => self.write_at(*at, bytes),
        };
        order.into_iter().map(perform).fold(Ok(()), io::Result::and)
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        let cut = self.power.consume()?;
        let mut state = self.lock();
        state.check(0, 0, io::ErrorKind::Other)?;
        let size = (size_bytes as usize).max(state.image.len());
        state.image.resize(size, 0);
        if cut { Err(off()) } else { Ok(()) }
    }

    /// Discards a range: it reads as zeros from now on. After a crash it reads as zeros or as its old contents.
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.write_at(at, &vec![0; bytes as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn read(disk: &SimDisk, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        disk.read_at(at, &mut bytes).expect("a read");
        bytes
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_subset_of_the_rest() {
        let mut outcomes = HashSet::new();
        for seed in 0..400 {
            let disk = SimDisk::new(4096, &Power::steady());
            disk.write_at(0, &[1; 4096]).expect("a write");
            disk.sync().expect("a sync");
            disk.write_at(0, &[2; 2048]).expect("a write");
            disk.write_at(0, &[3; 1024]).expect("a write");
            disk.crash(seed);
            let after = read(&disk, 0, 4096);
            assert!(after[2048..].iter().all(|&b| b == 1), "seed {seed}: what was synced is gone");
            for sector in after.chunks(512) {
                assert!(sector.iter().all(|b| b == &sector[0]), "seed {seed}: a sector is torn");
            }
            outcomes.insert(after.chunks(512).take(4).map(|sector| sector[0]).collect::<Vec<_>>());
        }
        let all = |wanted: &[u8]| outcomes.contains(wanted);
        assert!(all(&[1, 1, 1, 1]), "nothing survives");
        assert!(all(&[3, 3, 2, 2]), "everything survives");
        assert!(all(&[2, 2, 2, 2]), "reordered");
        assert!(outcomes.iter().any(|o| o.contains(&1) && o.contains(&2)), "torn");
        assert!(outcomes.len() > 12, "{} outcomes", outcomes.len());
    }

    #[test]
    fn the_same_seed_gives_the_same_crash() {
        let after = |seed| {
            let disk = SimDisk::new(8192, &Power::steady());
            (0..16u8).for_each(|i| disk.write_at(u64::from(i) * 512, &[i + 1; 512]).expect("a write"));
            disk.crash(seed);
            read(&disk, 0, 8192)
        };
        assert!((0..50).all(|seed| after(seed) == after(seed)));
        assert_ne!(after(3), after(4));
    }

    #[test]
    fn power_goes_off_in_the_middle_of_an_operation() {
        let survived = |seed| {
            let power = Power::steady();
            let disk = SimDisk::new(1024, &power);
            power.fail_after(2);
            disk.write_at(0, &[1; 512]).expect("the first operation");
            disk.sync().expect_err("the second is cut short");
            assert!(power.is_off());
            disk.read_at(0, &mut [0; 512]).expect_err("nothing works without power");
            disk.crash(seed);
            power.restore();
            read(&disk, 0, 1)[0]
        };
        let outcomes: HashSet<u8> = (0..40).map(survived).collect();
        assert_eq!(outcomes.len(), 2, "a sync that was cut short promises nothing");
    }

    #[test]
    fn the_transfers_of_a_batch_go_in_any_order_and_the_power_goes_between_any_two() {
        let mut outcomes = HashSet::new();
        for seed in 0..200 {
            let power = Power::steady();
            let disk = SimDisk::new(2048, &power);
            // A crash gives the disk its random choices.
            disk.crash(seed);
            power.fail_after(1 + seed % 5);
            let bytes: Vec<[u8; 512]> = (1..=4).map(|i| [i; 512]).collect();
            let writes = bytes.iter().enumerate().map(|(i, bytes)| Transfer::Write { at: i as u64 * 512, bytes });
            let result = disk.submit(&mut writes.collect::<Vec<_>>());
            // The last write may have been performed in full when the power went.
            assert_eq!(result.is_ok(), seed % 5 == 4, "seed {seed}");
            power.restore();
            outcomes.insert(read(&disk, 0, 2048).chunks(512).map(|sector| sector[0] != 0).collect::<Vec<_>>());
        }
        assert_eq!(outcomes.len(), 15, "every subset but none: {outcomes:?}");
    }

    #[test]
    fn faults_strike_once_and_where_they_fit() {
        let disk = SimDisk::new(4096, &Power::steady());
        disk.inject(Fault::ShortWrite(512));
        disk.write_at(0, &[1; 1024]).expect_err("cut short");
        assert_eq!(read(&disk, 256, 512), [[1; 256], [0; 256]].concat());
        disk.inject(Fault::Misdirected(1024));
        disk.write_at(0, &[2; 512]).expect("acknowledged");
        assert_eq!((read(&disk, 0, 1)[0], read(&disk, 1024, 1)[0]), (1, 2));
        disk.inject(Fault::LostWrite);
        disk.write_at(0, &[3; 512]).expect("acknowledged");
        assert_eq!(read(&disk, 0, 1)[0], 1);
        disk.inject(Fault::NoSpace);
        assert_eq!(disk.write_at(0, &[3; 512]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        disk.inject(Fault::SyncError);
        disk.sync().expect_err("a failed sync");
        assert_eq!(read(&disk, 1024, 1)[0], 0, "what was not synced is dropped");
        disk.inject(Fault::ReadFlip);
        let flipped: u32 = read(&disk, 0, 512).iter().map(|b| b.count_ones()).sum();
        assert_eq!(flipped, 1);
        disk.inject(Fault::ReadError);
        disk.read_at(0, &mut [0; 1]).expect_err("a read error");
        disk.vanish();
        assert_eq!(disk.sync().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
