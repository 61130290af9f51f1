//! Files with dirty pages that cannot be written. They keep a cache from being drained, and in time from taking writes.

use super::backing_store::Below;
use super::open_cache::OpenCache;
use anyhow::{Result, bail};
use entresol_cache::Mode;

impl OpenCache {
    /// Fails, naming the first such file, so that the end is not reported as a good one. A read-only cache
    /// writes no file, and passes.
    pub(super) fn check_writable(&self) -> Result<()> {
        let Below::Files(files) = &self.below else { return Ok(()) };
        if self.cache.config().mode == Mode::ReadOnly {
            return Ok(());
        }
        let refused = files.unwritable()?;
        let Some((path, why)) = refused.first() else { return Ok(()) };
        let (name, number) = (self.path.display(), refused.len());
        let files = if number == 1 { "1 file".to_owned() } else { format!("{number} files") };
        bail!("{name}: the cache alone has bytes of {files} that cannot be written, first: {}: {why}", path.display());
    }
}
