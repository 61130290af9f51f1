//! Checks that a block device may be destroyed: only one whose serial number was typed and that is not in use.

use crate::target::TargetError;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directories in which the kernel and udev publish facts about devices; others in tests.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) sys: PathBuf,
    pub(super) proc: PathBuf,
    pub(super) udev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { sys: "/sys".into(), proc: "/proc".into(), udev: "/run/udev/data".into() }
    }
}

/// Checks all that can be seen without opening the device, and returns its size in bytes. A user of the device without
/// a trace there is found by opening it exclusively, which the caller does.
///
/// # Errors
/// When the path is no whole block device, is read-only, or has another serial number. Also when the device or a
/// partition of it is mounted, swapped to or part of another device.
pub(super) fn check(device: &Path, serial: &str, roots: &Roots) -> Result<u64, TargetError> {
    let refuse = |what: String| TargetError::Refused { target: device.display().to_string(), what };
    let metadata = fs::metadata(device).map_err(|error| TargetError::System {
        target: device.display().to_string(),
        action: "looking at it",
        error,
    })?;
    if !metadata.file_type().is_block_device() {
        return Err(refuse("is no block device; a directory is probed without --device".to_owned()));
    }
    let number = format!("{}:{}", rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    check_number(&number, serial, roots).map_err(refuse)
}

/// The same check for the device with this number.
fn check_number(number: &str, serial: &str, roots: &Roots) -> Result<u64, String> {
    let place = roots.sys.join("dev/block").join(number);
    let disk = fs::canonicalize(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    if disk.join("partition").exists() {
        return Err("is a partition; only a whole device can be probed".to_owned());
    }
    let known = serials(&disk, number, roots);
    if known.is_empty() {
        return Err("has no serial number, so that it cannot be told from others".to_owned());
    }
    if !known.iter().any(|known| known == serial.trim()) {
        return Err(format!("its serial number is not '{serial}' (`lsblk -o NAME,SERIAL` shows it)"));
    }
    if text(&disk.join("ro")).as_deref() == Some("1") {
        return Err("is read-only".to_owned());
    }
    let partitions: Vec<PathBuf> =
        children(&disk).into_iter().filter(|child| child.join("partition").exists()).collect();
    for part in std::iter::once(&disk).chain(&partitions) {
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        if let Some(holder) = children(&part.join("holders")).first() {
            let holder = holder.file_name().unwrap_or_default().to_string_lossy();
            return Err(format!("{name} is part of the device {holder}"));
        }
        let Some(number) = text(&part.join("dev")) else { return Err(format!("{name} has no number in sysfs")) };
        if let Some(point) = mount_point(&number, roots)? {
            return Err(format!("{name} is mounted at {point}"));
        }
        if is_swap(&name, roots)? {
            return Err(format!("{name} is swapped to"));
        }
    }
    // The kernel counts sectors of 512 B, whatever the device's own are.
    let sectors = text(&disk.join("size")).and_then(|sectors| sectors.parse::<u64>().ok());
    sectors.map(|sectors| sectors * 512).ok_or_else(|| "has no size in sysfs".to_owned())
}

/// The trimmed content of a file of one line; none where the file is absent or empty.
fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
    (!text.is_empty()).then_some(text)
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Serial numbers that the kernel and udev have for the device. A loop device has none: its backing file stands in.
fn serials(disk: &Path, number: &str, roots: &Roots) -> Vec<String> {
    let files = ["device/serial", "serial", "loop/backing_file"];
    let mut known: Vec<String> = files.iter().filter_map(|file| text(&disk.join(file))).collect();
    // SCSI's page of the unit's serial number: four bytes of heading, then the text.
    let page = fs::read(disk.join("device/vpd_pg80")).unwrap_or_default();
    known.extend(page.get(4..).map(|serial| String::from_utf8_lossy(serial).trim().to_owned()));
    let udev = fs::read_to_string(roots.udev.join(format!("b{number}"))).unwrap_or_default();
    let keys = ["E:ID_SERIAL=", "E:ID_SERIAL_SHORT=", "E:ID_SCSI_SERIAL="];
    known.extend(udev.lines().filter_map(|line| keys.iter().find_map(|key| line.strip_prefix(key))).map(str::to_owned));
    known.retain(|serial| !serial.is_empty());
    known
}

fn mount_point(number: &str, roots: &Roots) -> Result<Option<String>, String> {
    let path = roots.proc.join("self/mountinfo");
    let mounts = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    // ID, parent, number, root, mount point, ...
    let point = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next() == Some(number)).then(|| fields.nth(1).unwrap_or("an unknown place").to_owned())
    });
    Ok(point)
}

fn is_swap(name: &str, roots: &Roots) -> Result<bool, String> {
    let path = roots.proc.join("swaps");
    match fs::read_to_string(&path) {
        Ok(swaps) => Ok(swaps.lines().any(|line| {
            let device = line.split_whitespace().next().unwrap_or_default();
            Path::new(device).file_name().is_some_and(|file| file == name)
        })),
        // A kernel without swapping has no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk `sda` 8:0 with the partitions `sda1` 8:1, serial number S1, that is not in use.
    struct Testbed {
        _scratch: tempfile::TempDir,
        roots: Roots,
        disk: PathBuf,
    }

    impl Testbed {
        fn new() -> Self {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            let at = |name: &str| scratch.path().join(name);
            let roots = Roots { sys: at("sys"), proc: at("proc"), udev: at("udev") };
            let disk = at("sys/devices/sda");
            let testbed = Testbed { roots, disk, _scratch: scratch };
            testbed.put("sys/devices/sda/dev", "8:0\n");
            testbed.put("sys/devices/sda/ro", "0\n");
            testbed.put("sys/devices/sda/size", "2048\n");
            testbed.put("sys/devices/sda/device/serial", "S1  \n");
            testbed.put("sys/devices/sda/queue/rotational", "1\n");
            testbed.put("sys/devices/sda/sda1/dev", "8:1\n");
            testbed.put("sys/devices/sda/sda1/partition", "1\n");
            testbed.put("proc/self/mountinfo", "22 1 254:0 / / rw - ext4 /dev/vda rw\n");
            testbed.put("proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n");
            fs::create_dir_all(testbed.roots.sys.join("dev/block")).expect("a directory");
            for (number, place) in [("8:0", "sda"), ("8:1", "sda/sda1")] {
                let place = testbed.disk.with_file_name(place);
                std::os::unix::fs::symlink(place, testbed.roots.sys.join("dev/block").join(number)).expect("a link");
            }
            testbed
        }

        fn put(&self, name: &str, content: &str) {
            let path = self.roots.sys.with_file_name(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
            fs::write(path, content).expect("a file");
        }

        fn check(&self, number: &str, serial: &str) -> Result<u64, String> {
            check_number(number, serial, &self.roots)
        }
    }

    #[test]
    fn an_unused_disk_with_the_right_serial_number_may_be_destroyed() {
        assert_eq!(Testbed::new().check("8:0", "S1"), Ok(1 << 20));
    }

    #[test]
    fn a_serial_number_must_match_to_the_letter() {
        let testbed = Testbed::new();
        for wrong in ["", "S", "s1", "S11", "S1 S1"] {
            let error = testbed.check("8:0", wrong).expect_err(wrong);
            assert!(error.contains(&format!("is not '{wrong}'")) && !error.contains("S1  "), "{error}");
        }
        fs::remove_file(testbed.disk.join("device/serial")).expect("the serial number");
        assert!(testbed.check("8:0", "").expect_err("no serial number").contains("has no serial number"));
    }

    #[test]
    fn a_serial_number_may_come_from_scsi_udev_or_a_loop_devices_file() {
        for (file, content, serial) in [
            ("sys/devices/sda/serial", "V7\n", "V7"),
            ("sys/devices/sda/loop/backing_file", "/tmp/x.img\n", "/tmp/x.img"),
            ("sys/devices/sda/device/vpd_pg80", "\0\u{1}\0\u{4}  Q9", "Q9"),
            ("udev/b8:0", "E:ID_MODEL=X\nE:ID_SERIAL_SHORT=U5\n", "U5"),
        ] {
            let testbed = Testbed::new();
            fs::remove_file(testbed.disk.join("device/serial")).expect("the serial number");
            testbed.put(file, content);
            assert_eq!(testbed.check("8:0", serial), Ok(1 << 20), "{file}");
        }
    }

    #[test]
    fn whatever_uses_the_disk_or_a_partition_of_it_is_named() {
        for (file, content, expected) in [
            ("sys/devices/sda/ro", "1\n", "is read-only"),
            ("proc/self/mountinfo", "1 1 8:0 / /data rw - ext4 /dev/sda rw\n", "sda is mounted at /data"),
            ("proc/self/mountinfo", "1 1 8:1 / /boot rw - ext4 /dev/sda1 rw\n", "sda1 is mounted at /boot"),
            ("proc/swaps", "Filename\n/dev/sda1 partition 1 0 1\n", "sda1 is swapped to"),
            ("sys/devices/sda/holders/dm-0/dev", "", "sda is part of the device dm-0"),
            ("sys/devices/sda/sda1/holders/md127/dev", "", "sda1 is part of the device md127"),
        ] {
            let testbed = Testbed::new();
            testbed.put(file, content);
            assert_eq!(testbed.check("8:0", "S1"), Err(expected.to_owned()), "{file}");
        }
        let partition = Testbed::new().check("8:1", "S1").expect_err("a partition");
        assert!(partition.contains("is a partition"), "{partition}");
    }

    #[test]
    fn a_file_is_no_block_device() {
        let error = check(Path::new("/dev/null"), "S1", &Roots::default()).expect_err("a character device").to_string();
        assert!(error.contains("/dev/null: is no block device"), "{error}");
        let error = check(Path::new("/dev/no-such"), "S1", &Roots::default()).expect_err("nothing there").to_string();
        assert!(error.contains("/dev/no-such") && error.contains("No such file"), "{error}");
    }
}
