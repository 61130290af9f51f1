//! Removal of names in the backing store, by `unlink` or by a rename over a file: the order in which the layer is
//! notified.

use crate::{Directory, FileId, FileLayer};
use rustix::fs::RenameFlags;
use std::ffi::OsStr;
use std::io;

/// A backing directory, with the calls that change names in it.
pub trait NamesBelow {
    /// A file that is held open by `O_PATH` only, so that its number is not reused.
    type Place;

    /// The file that a name leads to, if it leads to one that a layer may know.
    ///
    /// # Errors
    /// The error that prevents a look at the file. A name that is not there is no error.
    fn find(&self, name: &OsStr) -> io::Result<Option<(Self::Place, FileId)>>;

    /// True if a file has a name still.
    fn has_name(place: &Self::Place) -> bool;

    /// The directory, opened so that it can be synced.
    ///
    /// # Errors
    /// The error of the backing file system.
    fn open_to_sync(&self) -> io::Result<Directory>;

    /// `unlink`.
    ///
    /// # Errors
    /// The error of the backing file system.
    fn unlink(&self, name: &OsStr) -> io::Result<()>;

    /// `rename` to a name in another directory, or in this one.
    ///
    /// # Errors
    /// The error of the backing file system.
    fn rename_to(&self, name: &OsStr, to: &Self, new_name: &OsStr, flags: RenameFlags) -> io::Result<()>;
}

/// Runs `act`, which removes a name. The layer is notified before and, where the file still has a name, afterwards.
fn losing<D: NamesBelow>(
    layer: &(impl FileLayer + ?Sized),
    directory: &D,
    name: &OsStr,
    act: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    // An error of the look-up ends the removal: the layer could not be notified of a file whose identity is unknown.
    let Some((place, id)) = directory.find(name)? else { return act() };
    layer.leaving(id, &|| directory.open_to_sync())?;
    let ours = layer.changing(id);
    let done = act();
    drop(ours);
    if D::has_name(&place) {
        layer.stays(id);
    }
    done
}

/// `unlink`, of a file of this layer or of anything else.
///
/// # Errors
/// The error of the layer or of the backing file system; the name is there then.
pub fn remove<D: NamesBelow>(layer: &(impl FileLayer + ?Sized), directory: &D, name: &OsStr) -> io::Result<()> {
    losing(layer, directory, name, || directory.unlink(name))
}

/// `rename`, from a name in a directory to another.
///
/// # Errors
/// The error of the layer or of the backing file system; the names are as they were then.
pub fn rename<D: NamesBelow>(
    layer: &(impl FileLayer + ?Sized),
    from: (&D, &OsStr),
    to: (&D, &OsStr),
    flags: RenameFlags,
) -> io::Result<()> {
    let moved = if let Some((_, id)) = from.0.find(from.1)? { layer.changing(id) } else { None };
    let exchanged = match flags.contains(RenameFlags::EXCHANGE) {
        true => to.0.find(to.1)?.and_then(|(_, id)| layer.changing(id)),
        false => None,
    };
    let act = move || {
        let done = from.0.rename_to(from.1, to.0, to.1, flags);
        drop((moved, exchanged));
        done
    };
    if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE) || to.0.find(to.1)?.is_none() {
        return act();
    }
    if let Some((_, id)) = from.0.find(from.1)? {
        layer.replacing(id)?;
    }
    losing(layer, to.0, to.1, act)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DirectFiles;
    use std::cell::Cell;

    /// A directory whose files cannot be opened, for want of descriptors say.
    #[derive(Default)]
    struct Exhausted {
        changed: Cell<usize>,
    }

    impl NamesBelow for Exhausted {
        type Place = ();

        fn find(&self, _name: &OsStr) -> io::Result<Option<((), FileId)>> {
            Err(rustix::io::Errno::MFILE.into())
        }

        fn has_name((): &()) -> bool {
            true
        }

        fn open_to_sync(&self) -> io::Result<Directory> {
            Err(rustix::io::Errno::MFILE.into())
        }

        fn unlink(&self, _name: &OsStr) -> io::Result<()> {
            self.changed.set(self.changed.get() + 1);
            Ok(())
        }

        fn rename_to(&self, name: &OsStr, _to: &Self, _new_name: &OsStr, _flags: RenameFlags) -> io::Result<()> {
            self.unlink(name)
        }
    }

    #[test]
    fn a_name_that_cannot_be_looked_at_is_neither_removed_nor_replaced() {
        let (directory, name) = (Exhausted::default(), OsStr::new("a"));
        let refused = |error: io::Error| error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
        assert!(remove(&DirectFiles, &directory, name).is_err_and(refused));
        let renamed = rename(&DirectFiles, (&directory, name), (&directory, OsStr::new("b")), RenameFlags::empty());
        assert!(renamed.is_err_and(refused));
        assert_eq!(directory.changed.get(), 0);
    }
}
