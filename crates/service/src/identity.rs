//! Identity of a backing store: distinguishes it from all others, so that its cache is never put in front of another
//! one.

use super::hold::metadata;
use anyhow::{Context, Result, bail};
use entresol_disk::file_identity;
use entresol_fsck::Superblock;
use std::fs::{self, File};
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The identity, as the superblock stores it.
pub type Identity = [u8; 16];

/// Files of sysfs that may hold a name of a disk, relative to the disk's directory. The first that exists counts.
///
/// Worldwide names come first, then UUIDs of mappings and arrays, then serial numbers.
const NAMES: [&str; 6] = ["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/serial", "serial"];

/// The identity of a backing store; `given` is the identity that the user gave for a block device.
///
/// A file is identified by its inode and the inode's creation time: both survive a rename and a restart of the machine.
/// A copy is another file, as it should be, because it ages apart from the cache. A block device is identified by its
/// own description, because its name may belong to another device after a restart.
pub(crate) fn identity(path: &Path, given: Option<Identity>) -> Result<Identity> {
    let found = metadata(path)?;
    if found.file_type().is_block_device() {
        if let Some(given) = given {
            return Ok(given);
        }
        return match sysfs(path).and_then(|directory| name_in(&directory)) {
            Some(name) => Ok(fnv128(name.as_bytes())),
            None => bail!(
                "{}: is a block device without a serial number, and its name may change at a restart; give it the \
                 same --identity UUID at every start",
                path.display()
            ),
        };
    }
    if !found.is_file() {
        bail!("{}: is not a file or a block device", path.display());
    }
    if given.is_some() {
        bail!("{}: is a file, which has an identity of its own; --identity is for block devices", path.display());
    }
    file_identity(path).with_context(|| path.display().to_string())
}

/// The identity under which the record of a backing store is found, whatever size the store has grown to. `identity` is
/// the identity now.
pub(crate) fn lasting(backing: &Path, identity: Identity) -> Identity {
    let Some(directory) = sysfs(backing) else { return identity };
    match (name_of(&directory), name_in(&directory)) {
        // An identity given by the user has no size in it.
        (Some(name), Some(now)) if fnv128(now.as_bytes()) == identity => fnv128(name.with_size("").as_bytes()),
        _ => identity,
    }
}

/// True if a superblock names this backing store, perhaps at a smaller size. `identity` is the store's identity now.
pub(crate) fn is_of(superblock: &Superblock, backing: &Path, identity: Identity) -> bool {
    let directory =
        || sysfs(backing).filter(|directory| Some(identity) == name_in(directory).map(|now| fnv128(now.as_bytes())));
    let grown = || directory().and_then(|directory| name_of(&directory));
    superblock.backing == identity
        || grown().is_some_and(|name| name.was(superblock.backing, sectors_before(superblock)))
}

/// Bytes of a sector as sysfs counts them.
const SECTOR: u64 = 512;

/// The directory of a block device in sysfs.
fn sysfs(path: &Path) -> Option<PathBuf> {
    let number = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Name of a block device from sysfs, without its size; for a partition with its first sector.
struct DeviceName {
    kind: &'static str,
    name: String,
    start: String,
}

impl DeviceName {
    fn with_size(&self, sectors: &str) -> String {
        let DeviceName { kind, name, start } = self;
        format!("{kind}\n{name}\n{sectors}\n{start}")
    }

    /// True if the device had this identity at one of these sizes.
    fn was(&self, identity: Identity, mut sectors: RangeInclusive<u64>) -> bool {
        sectors.any(|sectors| fnv128(self.with_size(&sectors.to_string()).as_bytes()) == identity)
    }
}

/// Name of the device with this sysfs directory, with its size; for a partition with its first sector.
fn name_in(directory: &Path) -> Option<String> {
    Some(name_of(directory)?.with_size(&text(&directory.join("size"))?))
}

fn name_of(directory: &Path) -> Option<DeviceName> {
    let partition = directory.join("partition").exists();
    let disk = if partition { directory.parent()? } else { directory };
    let (kind, name) = NAMES.iter().find_map(|kind| Some((kind, text(&disk.join(kind))?)))?;
    let start = if partition { text(&directory.join("start"))? } else { String::new() };
    Some(DeviceName { kind, name, start })
}

/// FNV-1a of 128 bits (Fowler, Noll, Vo). Names are few, and no adversary chooses them.
fn fnv128(bytes: &[u8]) -> Identity {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)).to_be_bytes()
}

/// Parses a UUID as `uuidgen` prints it; the hyphens may be left out.
pub fn uuid(text: &str) -> Result<Identity, String> {
    let digits = text.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    number
        .map(u128::to_be_bytes)
        .ok_or_else(|| "it must be a UUID of 32 hexadecimal digits, as `uuidgen` prints".to_owned())
}

/// A random identity, for a cache or directory that is made.
pub(crate) fn random() -> Result<Identity> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("/dev/urandom")?;
    Ok(bytes)
}

/// Checks that a cache belongs to a backing store. Returns the store's identity now: a device that has grown is known
/// by its new size.
pub(crate) fn check(
    cache: &Path,
    superblock: &Superblock,
    backing: &Path,
    given: Option<Identity>,
) -> Result<Identity> {
    let found = identity(backing, given).with_context(|| format!("the backing store of {}", cache.display()))?;
    if !is_of(superblock, backing, found) {
        bail!("{}: this is the cache of another backing store than {}", cache.display(), backing.display());
    }
    Ok(found)
}

/// Sizes in sectors that the device may have had when its cache was last opened. A superblock of version 2 has the size
/// in pages alone.
fn sectors_before(superblock: &Superblock) -> RangeInclusive<u64> {
    let page = u64::from(superblock.geometry.page_bytes);
    let (least, most) = match superblock.backing_bytes {
        0 => (superblock.backing_pages.saturating_sub(1) * page + 1, superblock.backing_pages.saturating_mul(page)),
        bytes => (bytes, bytes),
    };
    least.div_ceil(SECTOR)..=most / SECTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_32_digits() {
        assert_eq!(uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap()[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(uuid("00112233445566778899AABBCCDDEEFF"), uuid("00112233-4455-6677-8899-aabbccddeeff"));
        for wrong in ["", "0011", "+0112233445566778899aabbccddeeff", "00112233-4455-6677-8899-aabbccddeefg"] {
            assert!(uuid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Published test vectors.
        assert_eq!(fnv128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964_u128.to_be_bytes());
        assert_eq!(fnv128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18_u128.to_be_bytes());
    }

    #[test]
    fn a_device_is_known_by_what_it_says_of_itself() {
        let root = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        };
        let name = |directory: &str| name_in(&root.path().join(directory));
        put("disk/size", "4096\n");
        assert_eq!(name("disk"), None, "nothing to know it by");
        put("disk/serial", " \n");
        assert_eq!(name("disk"), None, "an empty serial number is none");
        put("disk/serial", "S1\n");
        assert_eq!(name("disk").as_deref(), Some("serial\nS1\n4096\n"));
        put("disk/device/wwid", "naa.5000\n");
        assert_eq!(name("disk").as_deref(), Some("device/wwid\nnaa.5000\n4096\n"));
        for (part, start) in [("p1", "64"), ("p2", "1024")] {
            put(&format!("disk/{part}/partition"), "1\n");
            put(&format!("disk/{part}/size"), "512\n");
            put(&format!("disk/{part}/start"), start);
        }
        assert_eq!(name("disk/p1").as_deref(), Some("device/wwid\nnaa.5000\n512\n64"));
        assert_ne!(name("disk/p1"), name("disk/p2"));
        // A device that has grown is the same; another device of that size is not.
        let before = fnv128(name("disk").expect("a name").as_bytes());
        put("disk/size", "8192\n");
        let grown = name_of(&root.path().join("disk")).expect("a name");
        assert!(grown.was(before, 4096..=4096) && grown.was(before, 4089..=4096) && !grown.was(before, 4097..=8192));
        put("disk/device/wwid", "naa.5001\n");
        assert!(!name_of(&root.path().join("disk")).expect("a name").was(before, 4096..=4096));
    }
}
