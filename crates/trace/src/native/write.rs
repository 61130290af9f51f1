//! Writes the native format.

use super::{ALIGNMENT, ENTRY_BYTES, HEADER_BYTES, Kind, MAGIC, Metadata, VERSION};
use crate::record::TraceError;
use crate::trace::Trace;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;

/// Writes a trace to a file, which appears complete or not at all: it is written under a temporary name beside `path`,
/// synced, and renamed. A file of that name is replaced, or the one that a link of that name leads to.
///
/// # Errors
/// [`TraceError::Io`] when the system fails; nothing is left behind then. [`TraceError::Refused`] for a directory, a
/// device or a pipe: renaming would put a file in its place.
pub fn write(trace: &Trace, path: &Path) -> Result<(), TraceError> {
    if cfg!(target_endian = "big") {
        return Err(TraceError::refused(path, "the native format needs a little-endian machine"));
    }
    let metadata =
        Metadata { objects: trace.objects.clone(), events: trace.events.clone(), provenance: trace.provenance.clone() };
    let metadata = serde_json::to_vec(&metadata).map_err(|e| TraceError::refused(path, e.to_string()))?;
    let mut sections: Vec<(Kind, &[u8])> = vec![(Kind::Pages, trace.pages.as_bytes()), (Kind::Ops, &trace.ops)];
    if let Some(times) = &trace.times_us {
        sections.push((Kind::Times, times.as_bytes()));
    }
    if let Some(next_use) = &trace.next_use {
        sections.push((Kind::NextUse, next_use.as_bytes()));
    }
    sections.push((Kind::PageObject, trace.page_object.as_bytes()));
    sections.push((Kind::PageBlock, trace.page_block.as_bytes()));
    sections.push((Kind::Metadata, &metadata));

    let target = target(path)?;
    let path = target.as_path();
    let temporary = Temporary::beside(path)?;
    let write = || -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary.0)?;
        put(trace, &sections, &file)?;
        file.sync_all()?;
        fs::rename(&temporary.0, path)?;
        // The rename itself must also survive a crash.
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    };
    write().map_err(|e| TraceError::io(path, e))
}

fn put(trace: &Trace, sections: &[(Kind, &[u8])], file: &File) -> std::io::Result<()> {
    let mut table = Vec::with_capacity(sections.len() * ENTRY_BYTES);
    let mut at = aligned(HEADER_BYTES + sections.len() * ENTRY_BYTES);
    for (kind, bytes) in sections {
        table.extend_from_slice(&(*kind as u32).to_le_bytes());
        table.extend_from_slice(&kind.element_bytes().to_le_bytes());
        table.extend_from_slice(&(at as u64).to_le_bytes());
        table.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        table.extend_from_slice(&xxh3_64(bytes).to_le_bytes());
        at = aligned(at + bytes.len());
    }
    let mut header = Vec::with_capacity(HEADER_BYTES + table.len());
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(sections.len() as u32).to_le_bytes());
    header.extend_from_slice(&(at as u64).to_le_bytes());
    header.extend_from_slice(&(trace.len() as u64).to_le_bytes());
    header.extend_from_slice(&(trace.footprint() as u64).to_le_bytes());
    header.extend_from_slice(&trace.page_bytes.to_le_bytes());
    header.extend_from_slice(&[0; 12]);
    // The checksum of the header covers the table too, without the checksum's own bytes.
    header.extend_from_slice(&table);
    let checksum = xxh3_64(&header);
    header.splice(HEADER_BYTES - 8..HEADER_BYTES - 8, checksum.to_le_bytes());

    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&header)?;
    let mut written = header.len();
    for (_, bytes) in sections {
        pad(&mut out, &mut written)?;
        out.write_all(bytes)?;
        written += bytes.len();
    }
    pad(&mut out, &mut written)?;
    out.flush()
}

/// The file to replace or to create.
fn target(path: &Path) -> Result<PathBuf, TraceError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(TraceError::refused(path, "is a directory")),
        Ok(found) if !found.is_file() => Err(TraceError::refused(path, "is no regular file")),
        Ok(_) => fs::canonicalize(path).map_err(|e| TraceError::io(path, e)),
        Err(_) => Ok(path.to_owned()),
    }
}

fn aligned(offset: usize) -> usize {
    offset.next_multiple_of(ALIGNMENT)
}

fn pad(out: &mut impl Write, written: &mut usize) -> std::io::Result<()> {
    let gap = aligned(*written) - *written;
    *written += gap;
    out.write_all(&[0; ALIGNMENT][..gap])
}

/// A name for a file that is removed unless it was renamed away.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> Result<Self, TraceError> {
        let name = path.file_name().ok_or_else(|| TraceError::refused(path, "names no file"))?;
        Ok(Temporary(path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()))))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The file is gone already when the rename succeeded; if it cannot be removed, the error that led here says
        // more.
        let _ = fs::remove_file(&self.0);
    }
}
