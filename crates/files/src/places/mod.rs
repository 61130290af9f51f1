//! Files and directories that are remembered: their descriptors are closed when there are too many, and opened again by name.
//!
//! A descriptor finds its file whatever that is called, a name does not. So the names of what is closed are kept current by whoever
//! changes names ([`Places::changing`]), and what is opened again is compared by its number and the moment of its making: another file is
//! ESTALE. What has lost its name keeps its descriptor, and so does what the file system has no moment of making for.
//!
//! `open_by_handle_at` would need no names, and no comparison. It takes CAP_DAC_READ_SEARCH, which a server of an ordinary user has not,
//! and a file system that gives handles (an overlay or a network's may not); where root serves it would save the tree of names. One way
//! that works for all is tested twice as well as two of which each works for some.

mod pool;
mod tree;

use pool::POOL;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use tree::Tree;

/// Paths shorter than this the system takes at once.
const PATH_MAX: usize = 4000;

/// Number of times that a descriptor was closed because there were too many.
pub fn closed_descriptors() -> u64 {
    POOL.closed()
}

/// Number of descriptors of remembered files that may be open.
pub fn descriptors_bound() -> usize {
    POOL.bound()
}

/// Takes notice of another limit of this process.
pub(crate) fn measure() {
    POOL.measure();
}

/// Holder of a file that is remembered.
pub trait Holder: Send + Sync {
    /// Closes its descriptor, if nobody uses it and a name leads to the file; whether it did.
    fn let_go(&self) -> bool;

    /// Opens it again before its name changes hands. What fails is told to who uses the file.
    fn hold_again(&self);

    /// Was it used since this was last asked?
    fn was_used(&self) -> bool;
}

/// Identity that tells a file from all others that had or will have its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    made: (i64, u32),
}

impl Identity {
    /// None where the file system does not keep when a file was made.
    fn of(file: impl AsFd) -> rustix::io::Result<Option<Self>> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        let made = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
        let device = (found.stx_dev_major, found.stx_dev_minor);
        let known = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
        Ok(known.then_some(Identity { device, inode: found.stx_ino, made }))
    }
}

/// The names in one directory, and in those in it.
pub struct Places {
    root: OwnedFd,
    tree: Mutex<Tree>,
    /// Held while something is closed or opened, and alone while a name changes.
    naming: RwLock<()>,
}

/// Ticket by which a closed file is found again.
struct Ticket {
    places: Arc<Places>,
    at: usize,
    identity: Identity,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.places.tree().give_back(self.at);
    }
}

fn link_of(file: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// A change of a name.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// A name in a directory goes.
    Remove(BorrowedFd<'a>, &'a Path),
    /// A name takes another's place.
    Rename([(BorrowedFd<'a>, &'a Path); 2]),
    /// Two names change places.
    Exchange([(BorrowedFd<'a>, &'a Path); 2]),
}

impl Places {
    /// Those in the directory that is open here.
    pub fn new(root: OwnedFd) -> Arc<Self> {
        Arc::new(Places { root, tree: Mutex::new(Tree::new()), naming: RwLock::default() })
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of a file relative to the root; none where the system cannot tell it.
    fn path_of(&self, file: impl AsFd) -> Option<PathBuf> {
        let (path, root) = (link_of(file).ok()?, link_of(&self.root).ok()?);
        path.strip_prefix(&root).map(Path::to_owned).ok()
    }

    /// Opens what is at a path below the root, for its place alone; not over links.
    fn walk(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if path.as_os_str().len() < PATH_MAX {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            match rustix::fs::openat2(&self.root, path, place, Mode::empty(), resolve) {
                Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
                other => return other,
            }
        }
        let mut at = None;
        for name in path {
            let from = at.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            at = Some(rustix::fs::openat(from, name, place, Mode::empty())?);
        }
        at.ok_or(Errno::NOENT)
    }

    /// A ticket for what is open here; none when no name leads to it.
    fn ticket(self: &Arc<Self>, file: impl AsFd, holder: &Weak<dyn Holder>) -> Option<Ticket> {
        let identity = Identity::of(&file).ok()??;
        let path = self.path_of(&file)?;
        // The system has a word for names that are gone, and so may have a file.
        let found = self.walk(&path).ok()?;
        if Identity::of(&found).ok()? != Some(identity) {
            return None;
        }
        let at = self.tree().take(&path, holder.clone())?;
        Some(Ticket { places: self.clone(), at, identity })
    }

    fn open(&self, ticket: &Ticket) -> rustix::io::Result<OwnedFd> {
        let path = self.tree().path(ticket.at).ok_or(Errno::STALE)?;
        let found = self.walk(&path).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => Errno::STALE,
            other => other,
        })?;
        if Identity::of(&found)? == Some(ticket.identity) { Ok(found) } else { Err(Errno::STALE) }
    }

    /// Changes a name, with those who find something by it told before, and the names afterwards.
    ///
    /// # Errors
    /// The error of `act`.
    pub fn changing<T, E>(&self, change: Change<'_>, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let _alone = self.naming.write().unwrap_or_else(PoisonError::into_inner);
        // In a directory whose path the system cannot say nothing is closed.
        let path = |(directory, name): (BorrowedFd, &Path)| self.path_of(directory).map(|path| path.join(name));
        let (lost, moved, exchanged) = match change {
            Change::Remove(directory, name) => (path((directory, name)), [None, None], false),
            Change::Rename([from, to]) => (path(to), [path(from), path(to)], false),
            Change::Exchange([one, other]) => (None, [path(one), path(other)], true),
        };
        let mut holders = lost.as_ref().map_or_else(Vec::new, |lost| self.tree().holders(lost));
        let pair = moved[0].clone().zip(moved[1].clone());
        if pair.is_none() {
            // It goes to where nothing can be found by its path, or comes from there.
            moved.iter().flatten().for_each(|path| holders.extend(self.tree().holders_below(path)));
        }
        // Whatever this frees needs no lock of ours.
        let held: Vec<Arc<dyn Holder>> = holders.iter().filter_map(Weak::upgrade).collect();
        held.iter().for_each(|holder| holder.hold_again());
        let done = act()?;
        let mut tree = self.tree();
        match (pair, lost, exchanged) {
            (Some((one, other)), _, true) => tree.exchange(&one, &other),
            (Some((from, to)), _, false) => tree.rename(&from, &to),
            (None, Some(lost), _) => tree.remove(&lost),
            (None, None, _) => {}
        }
        drop(tree);
        drop(_alone);
        Ok(done)
    }
}

/// An open file, or the ticket for it.
enum State<H> {
    Open(Arc<H>),
    Closed(Ticket),
}

/// A file that is remembered. `H` is what its descriptor is opened as.
pub struct Place<H> {
    state: RwLock<State<H>>,
    used: AtomicBool,
    /// None for what is never closed.
    places: Option<Arc<Places>>,
}

impl<H> Place<H> {
    /// A place whose file is open. The file is closed when others need the descriptor once it is
    /// [admitted](Self::admit).
    pub fn new(open: H, places: Option<Arc<Places>>) -> Self {
        Place { state: RwLock::new(State::Open(Arc::new(open))), used: AtomicBool::new(true), places }
    }

    /// From now on others may have it closed.
    pub fn admit(&self, holder: Weak<dyn Holder>) {
        if self.places.is_some() {
            POOL.admit(holder);
        }
    }

    fn opened(&self) -> Option<Arc<H>> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Open(open) => Some(open.clone()),
            State::Closed(_) => None,
        }
    }

    /// The open file, which is opened again by `open` if it was closed.
    ///
    /// # Errors
    /// `ESTALE` when its name leads to another file; else what the system answered.
    pub fn get(&self, holder: &Weak<dyn Holder>, open: impl Fn(OwnedFd) -> io::Result<H>) -> io::Result<Arc<H>> {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        if let Some(open) = self.opened() {
            return Ok(open);
        }
        let Some(places) = &self.places else { return Err(Errno::STALE.into()) };
        let naming = places.naming.read().unwrap_or_else(PoisonError::into_inner);
        let again = self.open_again(open);
        drop(naming);
        let (opened, again) = again?;
        if again {
            self.admit(holder.clone());
        }
        Ok(opened)
    }

    /// As [`get`](Self::get), by who changes names and has them to himself; whether it had been closed.
    fn open_again(&self, open: impl Fn(OwnedFd) -> io::Result<H>) -> io::Result<(Arc<H>, bool)> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let opened = match &*state {
            State::Open(open) => return Ok((open.clone(), false)),
            State::Closed(ticket) => Arc::new(open(ticket.places.open(ticket)?)?),
        };
        let before = std::mem::replace(&mut *state, State::Open(opened.clone()));
        drop(state);
        drop(before);
        Ok((opened, true))
    }

    /// For [`Holder::hold_again`].
    pub fn hold_again(&self, holder: &Weak<dyn Holder>, open: impl Fn(OwnedFd) -> io::Result<H>) {
        if let Ok((_, true)) = self.open_again(open) {
            self.admit(holder.clone());
        }
    }

    /// Puts another handle of the same file in the place of the one that is open.
    pub fn replace(&self, open: H) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, State::Open(Arc::new(open)));
        drop(state);
        drop(before);
    }

    /// For [`Holder::let_go`]: closes it unless it is in use. `file` gives the descriptor, where there is one.
    pub fn let_go(&self, holder: &Weak<dyn Holder>, file: impl Fn(&H) -> Option<BorrowedFd<'_>>) -> bool {
        let Some(places) = &self.places else { return false };
        let _naming = match places.naming.try_read() {
            Ok(naming) => naming,
            Err(TryLockError::Poisoned(naming)) => naming.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Ok(mut state) = self.state.try_write() else { return false };
        let ticket = match &*state {
            State::Open(open) if Arc::strong_count(open) == 1 => {
                file(open).and_then(|file| places.ticket(file, holder))
            }
            _ => None,
        };
        let Some(ticket) = ticket else { return false };
        let before = std::mem::replace(&mut *state, State::Closed(ticket));
        drop(state);
        drop(before);
        true
    }

    /// For [`Holder::was_used`].
    pub fn was_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    /// Takes what a name leads to for what was closed here, if it is the same file.
    ///
    /// # Errors
    /// Gives it back when it is another.
    pub fn meet(&self, found: H, file: impl Fn(&H) -> BorrowedFd<'_>) -> Result<(), H> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let same = match &*state {
            State::Open(_) => true,
            State::Closed(ticket) => Identity::of(file(&found)).is_ok_and(|found| found == Some(ticket.identity)),
        };
        if !same {
            return Err(found);
        }
        let before = std::mem::replace(&mut *state, State::Open(Arc::new(found)));
        drop(state);
        drop(before);
        Ok(())
    }

    /// The file, if it is open; nothing is opened for it.
    pub fn if_open(&self) -> Option<Arc<H>> {
        self.opened()
    }

    /// Path of a closed file relative to the root; none while the file is open.
    pub fn closed_path(&self) -> Option<PathBuf> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Open(_) => None,
            State::Closed(ticket) => ticket.places.tree().path(ticket.at),
        }
    }
}
