//! Remembered files and directories: their descriptors are closed when there are too many, and opened again by name.
//!
//! A descriptor keeps finding its file after a rename; a name does not. So code that changes names keeps the names of
//! closed files current ([`Places::changing`]). A file that is opened again is compared by number and time of making:
//! another file is ESTALE. A file that has lost its name keeps its descriptor, and so does one whose file system keeps
//! no time of making.
//!
//! `open_by_handle_at` would need neither names nor the comparison. However, it takes CAP_DAC_READ_SEARCH, which an
//! ordinary user's server lacks. It also takes a file system that gives handles, which an overlay or a network's may
//! not. Where root serves it would save the tree of names. One way that works everywhere is tested twice as well as two
//! that each work for some.

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

/// Longer paths are walked name by name; the system's own limit is 4096 bytes.
const PATH_MAX: usize = 4000;

/// Number of descriptors that were closed because there were too many.
pub fn closed_descriptors() -> u64 {
    POOL.closed()
}

/// Largest number of open descriptors of remembered files.
pub fn descriptors_bound() -> usize {
    POOL.bound()
}

/// Reads the limit of this process again after a change.
pub(crate) fn measure() {
    POOL.measure();
}

/// Holder of a remembered file.
pub trait Holder: Send + Sync {
    /// Closes the descriptor if it is unused and a name leads to the file; true if it did.
    fn let_go(&self) -> bool;

    /// Opens the descriptor again before the file's name is given to another. Errors are reported to the next user of
    /// the file.
    fn hold_again(&self);

    /// True if the file was used since the last call.
    fn was_used(&self) -> bool;
}

/// Identity that tells a file from all others, including earlier and later ones with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// Number of the file in it.
    pub inode: u64,
    /// Time of making in seconds since 1970 and nanoseconds.
    pub made: (i64, u32),
}

impl Identity {
    /// The identity of an open file. None where the file system does not keep the time of making.
    ///
    /// # Errors
    /// The error of `statx`.
    pub fn of(file: impl AsFd) -> rustix::io::Result<Option<Self>> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        let made = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
        let device = (found.stx_dev_major, found.stx_dev_minor);
        let known = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
        Ok(known.then_some(Identity { device, inode: found.stx_ino, made }))
    }
}

/// The names in one directory and its subdirectories.
pub struct Places {
    root: OwnedFd,
    tree: Mutex<Tree>,
    /// Shared while a file is closed or opened; exclusive while a name changes.
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
    /// A name in a directory is removed.
    Remove(BorrowedFd<'a>, &'a Path),
    /// A name replaces another.
    Rename([(BorrowedFd<'a>, &'a Path); 2]),
    /// Two names are exchanged.
    Exchange([(BorrowedFd<'a>, &'a Path); 2]),
}

impl Places {
    /// The names in the directory that is open as `root`.
    pub fn new(root: OwnedFd) -> Arc<Self> {
        Arc::new(Places { root, tree: Mutex::new(Tree::new()), naming: RwLock::default() })
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of a file relative to the root; none where the system cannot give it.
    fn path_of(&self, file: impl AsFd) -> Option<PathBuf> {
        let (path, root) = (link_of(file).ok()?, link_of(&self.root).ok()?);
        path.strip_prefix(&root).map(Path::to_owned).ok()
    }

    /// Opens a path below the root with `O_PATH`; symbolic links are not followed.
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

    /// A ticket for an open file; none if no name leads to it.
    fn ticket(self: &Arc<Self>, file: impl AsFd, holder: &Weak<dyn Holder>) -> Option<Ticket> {
        let identity = Identity::of(&file).ok()??;
        let path = self.path_of(&file)?;
        // The kernel appends " (deleted)" to the path of a removed file, and a file may have that very name.
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

    /// Changes a name through `act`. Holders of files found by that name are called before; the tree of names is
    /// updated afterwards.
    ///
    /// # Errors
    /// The error of `act`.
    pub fn changing<T, E>(&self, change: Change<'_>, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let _alone = self.naming.write().unwrap_or_else(PoisonError::into_inner);
        // Nothing is closed in a directory whose path the system cannot give.
        let path = |(directory, name): (BorrowedFd, &Path)| self.path_of(directory).map(|path| path.join(name));
        let (lost, moved, exchanged) = match change {
            Change::Remove(directory, name) => (path((directory, name)), [None, None], false),
            Change::Rename([from, to]) => (path(to), [path(from), path(to)], false),
            Change::Exchange([one, other]) => (None, [path(one), path(other)], true),
        };
        let mut holders = lost.as_ref().map_or_else(Vec::new, |lost| self.tree().holders(lost));
        let pair = moved[0].clone().zip(moved[1].clone());
        if pair.is_none() {
            // One of the two directories has no path: files below the moved name could not be found again.
            moved.iter().flatten().for_each(|path| holders.extend(self.tree().holders_below(path)));
        }
        // Held until after the change: the drop of a holder must not need a lock taken here.
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
    /// No name leads to the file, as far as is known.
    Lost(Option<Identity>),
}

/// A remembered file. `H` is the type of its open descriptor.
pub struct Place<H> {
    state: RwLock<State<H>>,
    used: AtomicBool,
    /// None for a file that is never closed.
    places: Option<Arc<Places>>,
}

impl<H> Place<H> {
    /// A place whose file is open. Once it is [admitted](Self::admit), the file is closed when others need the
    /// descriptor.
    pub fn new(open: H, places: Option<Arc<Places>>) -> Self {
        Place { state: RwLock::new(State::Open(Arc::new(open))), used: AtomicBool::new(true), places }
    }

    /// A place whose file is closed, at a path relative to the root. Without a path that leads to a file of this
    /// identity, users get `ESTALE` until [`meet`](Self::meet) gives a descriptor.
    pub fn closed(
        places: &Arc<Places>,
        path: Option<&Path>,
        identity: Option<Identity>,
        holder: &Weak<dyn Holder>,
    ) -> Self {
        let ticket = path.zip(identity).and_then(|(path, identity)| {
            let at = places.tree().take(path, holder.clone())?;
            Some(Ticket { places: places.clone(), at, identity })
        });
        let state = RwLock::new(ticket.map_or(State::Lost(identity), State::Closed));
        Place { state, used: AtomicBool::new(false), places: Some(places.clone()) }
    }

    /// Enters the file into the pool: from now on others may cause it to be closed.
    pub fn admit(&self, holder: Weak<dyn Holder>) {
        if self.places.is_some() {
            POOL.admit(holder);
        }
    }

    fn opened(&self) -> Option<Arc<H>> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Open(open) => Some(open.clone()),
            State::Closed(_) | State::Lost(_) => None,
        }
    }

    /// The open file; `open` opens it again if it was closed.
    ///
    /// # Errors
    /// `ESTALE` when its name leads to another file; else the error of the system.
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

    /// Like [`get`](Self::get), for a caller that holds `naming`; also returns true if the file had been closed.
    fn open_again(&self, open: impl Fn(OwnedFd) -> io::Result<H>) -> io::Result<(Arc<H>, bool)> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let opened = match &*state {
            State::Open(open) => return Ok((open.clone(), false)),
            State::Closed(ticket) => Arc::new(open(ticket.places.open(ticket)?)?),
            State::Lost(_) => return Err(Errno::STALE.into()),
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

    /// Replaces the open handle with another one of the same file.
    pub fn replace(&self, open: H) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, State::Open(Arc::new(open)));
        drop(state);
        drop(before);
    }

    /// For [`Holder::let_go`]: closes the file unless it is in use. `file` gives the descriptor, if there is one.
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

    /// Takes `found`, which a name leads to, as the open handle if it is the same file as the closed one.
    ///
    /// # Errors
    /// Returns `found` when it is another file.
    pub fn meet(&self, found: H, file: impl Fn(&H) -> BorrowedFd<'_>) -> Result<(), H> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let is = |identity| Identity::of(file(&found)).is_ok_and(|found| found == identity);
        let same = match &*state {
            State::Open(_) => true,
            State::Closed(ticket) => is(Some(ticket.identity)),
            State::Lost(identity) => is(*identity),
        };
        if !same {
            return Err(found);
        }
        let before = std::mem::replace(&mut *state, State::Open(Arc::new(found)));
        drop(state);
        drop(before);
        Ok(())
    }

    /// The file if it is open; a closed file stays closed.
    pub fn if_open(&self) -> Option<Arc<H>> {
        self.opened()
    }

    /// Path of a closed file relative to the root; none while the file is open.
    pub fn closed_path(&self) -> Option<PathBuf> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Open(_) | State::Lost(_) => None,
            State::Closed(ticket) => ticket.places.tree().path(ticket.at),
        }
    }
}
