//! The word of a frame: all state of it that threads must agree upon, in one `AtomicU64`.
//!
//! ```text
//!  63                              20 19            6   5   4   3  2    0
//! +----------------------------------+---------------+---+---+---+-------+
//! | version, 44 bits                 | pins, 14 bits | X | W | R | state |
//! +----------------------------------+---------------+---+---+---+-------+
//! ```
//!
//! - *state*: 0 free, 1 loading, 2 clean, 3 dirty, 4 write-back, 5 evicting;
//! - *R*, referenced: set by a hit, taken by the search for a page to clean;
//! - *W*, waited for: a thread sleeps until the word changes, and the thread that changes the word wakes it;
//! - *X*, exclusive: one thread owns the frame (a writer, an eviction, a load, the list of free frames);
//! - *pins*: threads that hold the bytes as a slice. A pinned frame is never exclusive;
//! - *version*: increases whenever exclusive ownership that may have changed the bytes or the page ends. It wraps
//!   after 2^44 changes: at one per nanosecond to a single frame, five hours. An optimistic read would have to sleep
//!   that long and then meet its own version again.
//!
//! An optimistic read (Leis, Haubenschild, Neumann: Optimistic lock coupling, IEEE Data Engineering Bulletin 2019)
//! takes a [`Stamp`], reads, and checks that the stamp still holds: it writes to no shared memory. Free, loading and
//! evicting frames are exclusive by definition, so one bit tells whether a frame can be read at all.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

const STATE: u64 = 0b111;
const REFERENCED: u64 = 1 << 3;
const WAITED: u64 = 1 << 4;
const EXCLUSIVE: u64 = 1 << 5;
const PIN: u64 = 1 << 6;
const PINS: u64 = ((1 << 14) - 1) << 6;
const VERSION: u64 = 1 << 20;
const VERSIONS: u64 = !(VERSION - 1);

/// The most pins that a frame can have at once.
pub const MAX_PINS: u64 = PINS / PIN;

/// State of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameState {
    /// Holds no page and is owned by the list of free frames.
    Free = 0,
    /// Its page is being read from storage.
    Loading = 1,
    /// Holds the same bytes as storage.
    Clean = 2,
    /// Holds bytes newer than storage.
    Dirty = 3,
    /// Is being written to storage: the page may be read and pinned, but not changed.
    WriteBack = 4,
    /// Its page is leaving.
    Evicting = 5,
}

/// One value of the word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot(u64);

impl Snapshot {
    /// State of the frame.
    pub fn state(self) -> FrameState {
        match self.0 & STATE {
            0 => FrameState::Free,
            1 => FrameState::Loading,
            2 => FrameState::Clean,
            3 => FrameState::Dirty,
            4 => FrameState::WriteBack,
            5 => FrameState::Evicting,
            other => unreachable!("no transition leads to state {other}"),
        }
    }

    /// Threads that hold the bytes as a slice.
    pub fn pins(self) -> u64 {
        (self.0 & PINS) / PIN
    }

    /// True if one thread owns the frame.
    pub fn exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// True if a hit was marked since the mark was last taken.
    pub fn referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    /// True if a thread sleeps until the word changes.
    pub fn waited_for(self) -> bool {
        self.0 & WAITED != 0
    }

    /// Changes of page or bytes so far, modulo 2^44.
    pub fn version(self) -> u64 {
        self.0 / VERSION
    }

    /// True if a thread with this need must wait.
    #[inline(always)]
    pub fn blocks(self, need: Need) -> bool {
        let written = self.0 & STATE == FrameState::WriteBack as u64;
        match need {
            Need::Shared => self.0 & EXCLUSIVE != 0 || self.0 & PINS == PINS,
            Need::Exclusive => self.0 & (EXCLUSIVE | PINS) != 0 || written,
            Need::Settled => self.0 & EXCLUSIVE != 0 || written,
        }
    }
}

/// Stamp of an optimistic read: the frame's word when the read began.
#[derive(Clone, Copy, Debug)]
pub struct Stamp(u64);

/// Need of a thread that waits for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To read or pin.
    Shared,
    /// To own.
    Exclusive,
    /// To see the frame unowned and not being written, so that its state tells what storage has.
    Settled,
}

/// Hold that the thread which ends a load keeps on the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// With a pin.
    Pin,
    /// As the owner, to write.
    Exclusive,
}

/// True if a thread sleeps until this change and must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever sleeps until this change sleeps on"]
pub struct Wake(pub bool);

/// The word of one frame. Each method is one transition. Those of an owner check ownership in debug builds.
#[derive(Debug)]
pub struct FrameWord(AtomicU64);

impl Default for FrameWord {
    fn default() -> Self {
        FrameWord::new()
    }
}

impl FrameWord {
    /// A free frame, version 0.
    pub fn new() -> Self {
        FrameWord(AtomicU64::new(FrameState::Free as u64 | EXCLUSIVE))
    }

    /// The word as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// Begins an optimistic read; `None` while another thread owns the frame.
    #[inline(always)]
    pub fn begin_read(&self) -> Option<Stamp> {
        let word = self.0.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Stamp(word))
    }

    /// True if all reads since the stamp saw one version, of the page at the stamp.
    #[inline(always)]
    pub fn validate(&self, stamp: Stamp) -> bool {
        // Pairs with the fence in `try_exclusive`: a reader of one byte of a writer sees its ownership here.
        fence(Ordering::Acquire);
        (self.0.load(Ordering::Relaxed) ^ stamp.0) & (VERSIONS | EXCLUSIVE) == 0
    }

    /// Marks a hit. Writes nothing if the mark is set already, as for every hot page.
    #[inline(always)]
    pub fn touch(&self, stamp: Stamp) {
        if stamp.0 & REFERENCED == 0 {
            self.0.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Takes away the mark of a hit; true if there was one.
    pub fn take_referenced(&self) -> bool {
        self.0.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }

    /// Pins the frame and marks a hit. False while another thread owns it, or when it has [`MAX_PINS`].
    #[inline(always)]
    pub fn try_pin(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & EXCLUSIVE == 0 && word & PINS != PINS {
            let next = (word + PIN) | REFERENCED;
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Gives a pin back.
    #[inline(always)]
    pub fn unpin(&self) -> Wake {
        let before = self.0.fetch_sub(PIN, Ordering::Release);
        debug_assert!(before & PINS != 0, "a pin was given back twice");
        // Readers wait for no pins, so only the last pin holds up a thread. A pin refused at `MAX_PINS` waits for any.
        let last = before & PINS == PIN || before & PINS == PINS;
        if before & WAITED != 0 && last { self.take_waited() } else { Wake(false) }
    }

    /// Owns the frame, to change, clean or evict it. False while it is pinned, owned, or being written to storage.
    #[inline(always)]
    pub fn try_exclusive(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while !Snapshot(word).blocks(Need::Exclusive) {
            match self.0.compare_exchange_weak(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    // No byte of the owner may be seen before its ownership is.
                    fence(Ordering::Release);
                    return true;
                }
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Releases the frame; the owner changed nothing.
    pub fn release_unchanged(&self) -> Wake {
        self.transition(|word| word & !EXCLUSIVE)
    }

    /// Releases the frame as dirty; the owner changed the bytes. The second answer is true if it was dirty before.
    #[inline]
    pub fn release_dirty(&self) -> (Wake, bool) {
        let was_dirty = self.owned(&[FrameState::Clean, FrameState::Dirty]).state() == FrameState::Dirty;
        (self.transition(|word| with(word, FrameState::Dirty).wrapping_add(VERSION) & !EXCLUSIVE), was_dirty)
    }

    /// The owner of a free frame begins to load a page into it.
    pub fn begin_load(&self) {
        self.owned(&[FrameState::Free]);
        // No thread waits for a free frame by its word.
        let _ = self.transition(|word| with(word, FrameState::Loading));
        fence(Ordering::Release);
    }

    /// Ends the load: the page is present and clean. The loading thread keeps `hold`, and others may use the page.
    pub fn end_load(&self, hold: Hold) -> Wake {
        self.owned(&[FrameState::Loading]);
        self.transition(|word| {
            let clean = (with(word, FrameState::Clean) | REFERENCED).wrapping_add(VERSION);
            match hold {
                Hold::Pin => (clean & !EXCLUSIVE) + PIN,
                Hold::Exclusive => clean,
            }
        })
    }

    /// Gives the load up: the frame is free again.
    pub fn abort_load(&self) -> Wake {
        self.owned(&[FrameState::Loading]);
        self.transition(|word| with(word, FrameState::Free).wrapping_add(VERSION))
    }

    /// Begins to write a dirty frame to storage; pins do not matter. False if the frame is owned or not dirty.
    pub fn try_begin_write_back(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & EXCLUSIVE == 0 && Snapshot(word).state() == FrameState::Dirty {
            let next = with(word, FrameState::WriteBack);
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Ends the write to storage: the frame is clean if the write succeeded, and dirty if it failed.
    pub fn end_write_back(&self, done: bool) -> Wake {
        debug_assert_eq!(self.snapshot().state(), FrameState::WriteBack);
        self.transition(|word| with(word, if done { FrameState::Clean } else { FrameState::Dirty }))
    }

    /// The owner of a clean or dirty frame begins to evict its page. True if it is dirty.
    pub fn begin_evict(&self) -> bool {
        let dirty = self.owned(&[FrameState::Clean, FrameState::Dirty]).state() == FrameState::Dirty;
        // Waiting threads go on waiting, for the end of the eviction.
        let mut word = self.0.load(Ordering::Relaxed);
        while let Err(seen) =
            self.0.compare_exchange_weak(word, with(word, FrameState::Evicting), Ordering::Relaxed, Ordering::Relaxed)
        {
            word = seen;
        }
        dirty
    }

    /// Ends the eviction: the frame is free, and still owned.
    pub fn end_evict(&self) -> Wake {
        self.owned(&[FrameState::Evicting]);
        self.transition(|word| with(word, FrameState::Free).wrapping_add(VERSION) & !REFERENCED)
    }

    /// Aborts the eviction: the page stays, because it could not be written or is wanted again. The frame is released.
    pub fn abort_evict(&self, dirty: bool) -> Wake {
        self.owned(&[FrameState::Evicting]);
        let state = if dirty { FrameState::Dirty } else { FrameState::Clean };
        self.transition(|word| with(word, state) & !EXCLUSIVE)
    }

    /// Announces that the caller will sleep until the word changes. False when there is nothing to wait for. The
    /// caller holds the lock that the waker takes before it wakes.
    pub fn announce_wait(&self, need: Need) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let seen = Snapshot(word);
            if !seen.blocks(need) || seen.state() == FrameState::Free {
                return false;
            }
            match self.0.compare_exchange_weak(word, word | WAITED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Changes the word, takes the waiters' mark, and publishes the memory written before.
    #[inline(always)]
    fn transition(&self, change: impl Fn(u64) -> u64) -> Wake {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            match self.0.compare_exchange_weak(word, change(word) & !WAITED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Wake(word & WAITED != 0),
                Err(seen) => word = seen,
            }
        }
    }

    fn take_waited(&self) -> Wake {
        Wake(self.0.fetch_and(!WAITED, Ordering::AcqRel) & WAITED != 0)
    }

    /// The word of an owned frame. Only its owner changes it, except for the marks.
    fn owned(&self, states: &[FrameState]) -> Snapshot {
        let word = Snapshot(self.0.load(Ordering::Relaxed));
        debug_assert!(word.exclusive() && states.contains(&word.state()), "{word:?} is not owned in {states:?}");
        word
    }
}

fn with(word: u64, state: FrameState) -> u64 {
    (word & !STATE) | state as u64
}
