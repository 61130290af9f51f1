//! Bound on the memory of a server, its share of the page cache included.

use crate::BenchError;
use std::path::PathBuf;

/// A cgroup whose processes may use so much memory together. It is removed when it is dropped, once its processes have
/// ended.
pub struct MemoryBound {
    group: PathBuf,
}

impl MemoryBound {
    /// Makes the group.
    ///
    /// # Errors
    /// The system's error: only root may make one.
    pub fn new(bytes: u64) -> Result<Self, BenchError> {
        // The first version of cgroups has a hierarchy for memory alone.
        let first = PathBuf::from("/sys/fs/cgroup/memory");
        let (root, limit) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
        };
        let bound = Self { group: root.join(format!("entresol-bench-{}", std::process::id())) };
        std::fs::create_dir(&bound.group).map_err(BenchError::at(&bound.group))?;
        bound.write(limit, bytes)?;
        Ok(bound)
    }

    /// Moves these processes into the group; what they start later is in it too.
    ///
    /// # Errors
    /// The system's error.
    pub fn take(&self, processes: &[u32]) -> Result<(), BenchError> {
        for &pid in processes {
            match self.write("cgroup.procs", pid.into()) {
                // It has ended meanwhile.
                Err(BenchError::Path { error, .. })
                    if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                written => written?,
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, value: u64) -> Result<(), BenchError> {
        let path = self.group.join(file);
        std::fs::write(&path, value.to_string()).map_err(BenchError::at(&path))
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        // A group that is left behind bounds nobody.
        let _removed = std::fs::remove_dir(&self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_in_the_group_until_they_end() {
        let bound = match MemoryBound::new(64 << 20) {
            Ok(bound) => bound,
            Err(error) => {
                entresol_skip::skipped!("cgroup", "{error}");
                return;
            }
        };
        let (group, mut child) =
            (bound.group.clone(), std::process::Command::new("sleep").arg("60").spawn().expect("sleep"));
        let ended = std::process::Command::new("true").spawn().and_then(|mut child| child.wait().map(|_| child.id()));
        bound.take(&[child.id(), ended.expect("it ends")]).expect("they are taken");
        let inside = std::fs::read_to_string(group.join("cgroup.procs")).expect("a list");
        assert_eq!(inside.lines().collect::<Vec<_>>(), [child.id().to_string()]);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        drop(bound);
        assert!(!group.exists());
    }
}
