//! Memory that a cache needs by its size, and memory that this process can have.
//!
//! A cache that cannot fit is refused with a message. Otherwise a failed allocation would end the process.

use anyhow::{Result, bail};
use entresol_cache::HANDLE_BYTES;
use entresol_store::{Geometry, HitTable};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Read speed assumed for the estimate of a start's time, in bytes a second: that of SATA flash.
const START_BYTES_PER_S: u64 = 500_000_000;

/// Describes in a line the memory that a cache of this geometry needs while in use, and the bytes that a start reads.
pub fn needs(geometry: &Geometry) -> String {
    let (index, start) = (geometry.index_bytes(), geometry.start_bytes());
    let pages = geometry.capacity_pages();
    let tables = pages * HANDLE_BYTES + HitTable::bytes_of(pages);
    let seconds = start as f64 / START_BYTES_PER_S as f64;
    format!(
        "memory in use: {} MiB at once and about {} MiB more when it is full, {} MiB more if all of it is dirty (--dirty-age), besides the \
         policy's lists; a start reads up to {} MiB, {seconds:.1} s at 500 MB/s",
        index.div_ceil(MIB),
        tables.div_ceil(MIB),
        geometry.ages_bytes().div_ceil(MIB),
        start.div_ceil(MIB)
    )
}

/// Refuses a cache whose index, with the memory tier above it (`upper_bytes`), exceeds the memory that this
/// process can have.
pub(crate) fn check(geometry: &Geometry, upper_bytes: u64) -> Result<()> {
    let needed = geometry.index_bytes().saturating_add(upper_bytes);
    let (there_is, what) = there_is();
    if needed > there_is {
        let upper = if upper_bytes > 0 { format!(" ({upper_bytes} of them --dram)") } else { String::new() };
        bail!("it would take {needed} bytes of memory{upper}; {what} {there_is}");
    }
    Ok(())
}

/// Bytes of memory that this process can have at most, and the limit that applies, in words.
fn there_is() -> (u64, &'static str) {
    let address_space = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    let group = group_of(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let group = group.map_or(u64::MAX, |group| group_limit(Path::new("/sys/fs/cgroup"), &group));
    let machine = machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(u64::MAX);
    let limits = [
        (machine, "this machine has"),
        (group, "its control group may have"),
        (address_space, "this process may have (ulimit -v)"),
    ];
    limits.into_iter().min_by_key(|(bytes, _)| *bytes).expect("there are three")
}

/// The machine's memory in bytes, from /proc/meminfo.
fn machine(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The control group (version 2), from /proc/self/cgroup.
fn group_of(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::/")).map(str::to_owned)
}

/// The least `memory.max` of a control group and its ancestors.
fn group_limit(root: &Path, group: &str) -> u64 {
    let path = root.join(group);
    let groups = path.ancestors().take_while(|at| at.starts_with(root));
    let limit = |at: &Path| fs::read_to_string(at.join("memory.max")).ok()?.trim().parse::<u64>().ok();
    groups.filter_map(limit).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_store::Layout;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        assert_eq!(machine("MemFree: 1 kB\nMemTotal:       16384 kB\n"), Some(16 * MIB));
        assert_eq!(machine("MemTotal: much\n"), None);
        assert_eq!(group_of("1:name=x:/y\n0::/a/b\n").as_deref(), Some("a/b"));
        let root = tempfile::tempdir().expect("a directory");
        let put = |at: &str, limit: &str| {
            fs::create_dir_all(root.path().join(at)).expect("a directory");
            fs::write(root.path().join(at).join("memory.max"), limit).expect("a file");
        };
        put("a/b", "max\n");
        assert_eq!(group_limit(root.path(), "a/b"), u64::MAX);
        put("a", "4096\n");
        assert_eq!(group_limit(root.path(), "a/b"), 4096);
    }

    #[test]
    fn a_tebibyte_needs_gibibytes_and_no_machine_has_a_store_of_all_blocks_with_an_exbibyte_above() {
        let tib = Geometry { page_bytes: 4096, segment_pages: 256, segments: 1 << 20, layout: Layout::Log };
        let said = needs(&tib);
        assert!(said.starts_with("memory in use: 4097 MiB at once"), "{said}");
        let small = Geometry { segments: 64, ..tib };
        check(&small, 0).expect("a megabyte is there");
        let refused = check(&small, 1 << 60).unwrap_err().to_string();
        assert!(refused.contains("of them --dram"), "{refused}");
    }
}
