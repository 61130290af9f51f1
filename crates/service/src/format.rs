//! The format of a cache: makes one for a backing store, and chooses what its user leaves open.

use super::around;
use super::backing_record;
use super::cache_options::WEAR;
use super::chosen::Kept;
use super::config::one_policy;
use super::directory::{check_outside, refusal};
use super::hold::{ReadFile, check_apart, hex, hold, metadata};
use super::identity::{Identity, identity, random};
use super::server_pages::{self, ServerPages};
use anyhow::{Context, Result, bail};
use entresol_cache::{BlockCache, Mode, default_policy};
use entresol_disk::{Caching, Disk, FileDisk, take_room};
use entresol_files::Backing;
use entresol_files::record::{Record, RecordPlace};
use entresol_fsck::{Bytes, SurveyError, survey};
use entresol_policy::Wear;
use entresol_store::{Geometry, Layout};
use std::fs::OpenOptions;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a page where neither the user nor a database below names them.
const PAGE_BYTES: u64 = 4096;

/// Options of a new cache.
pub struct FormatOptions {
    /// File or block device to make a cache of.
    pub cache: PathBuf,
    /// File or block device to be cached, or directory of files.
    pub backing: PathBuf,
    /// UUID for a backing block device that has no serial number.
    pub identity: Option<Identity>,
    /// Size of the cache in bytes; none: that of the existing file or device.
    pub size: Option<u64>,
    /// Bytes of a page, a power of two from 512 to 65536; none: those of the database server below if they fit, else
    /// 4096.
    pub page_size: Option<u64>,
    /// Bytes of a segment, a multiple of the page size; none: those of the layout, less in a small cache.
    pub segment_size: Option<u64>,
    /// Layout of the pages; none: segments where there is a bound on wear, which no other keeps, else slots.
    pub layout: Option<Layout>,
    /// Bound on what is written to the cache, of starts that name none.
    pub wear: Option<Wear>,
    /// Policy of a start that names none; none: that of the layout.
    pub policy: Option<String>,
    /// Mode of a first start that names none; none: write-through.
    pub mode: Option<Mode>,
    /// True if an existing cache is overwritten, dirty pages that only it may have included.
    pub force: bool,
}

impl FormatOptions {
    fn is_bounded(&self) -> bool {
        self.wear.is_some_and(|wear| wear != Wear::Unbounded)
    }

    /// Bound over a layout, which only segments keep, by the policy of this name; none where nothing is bounded.
    fn bound(&self, layout: Layout) -> Result<Option<Bound>> {
        let wear = self.wear.unwrap_or(WEAR);
        if layout != Layout::Segments || wear == Wear::Unbounded {
            return Ok(None);
        }
        let policy = one_policy(self.policy.as_deref().unwrap_or(default_policy(layout))).context("--policy")?.info;
        Ok(Some(Bound { wear, policy: policy.name, is_kept: policy.ranked }))
    }

    fn layout(&self) -> Layout {
        self.layout.unwrap_or(if self.is_bounded() { Layout::Segments } else { Layout::default() })
    }
}

/// A new cache, with what was chosen for its user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formatted {
    /// Sizes and layout.
    pub geometry: Geometry,
    /// The database server below, whose page size was taken unless one was given or so small a cache has no such pages.
    pub server: Option<ServerPages>,
    /// Bound on what is written to the cache, of a layout that can keep one.
    pub bound: Option<Bound>,
}

/// Bound on what is written to a new cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The bound, as given or that of the layout.
    pub wear: Wear,
    /// Name of the policy.
    pub policy: &'static str,
    /// True if the policy ranks its pages. Without ranks the cache does not know which writes to save, and keeps no
    /// bound.
    pub is_kept: bool,
}

/// Makes a cache.
///
/// # Errors
/// If a path, a size or an option does not fit, something is there already, or an I/O fails. A new file is removed then.
pub fn format(options: &FormatOptions) -> Result<Formatted> {
    let name = options.cache.display();
    check_apart(&options.cache, &options.backing)?;
    options.policy.as_deref().map(one_policy).transpose().context("--policy")?;
    if let Some(layout) = options.layout.filter(|&layout| options.is_bounded() && layout != Layout::Segments) {
        let (layout, wear) = (layout.name(), options.wear.unwrap_or_default());
        bail!(
            "--wear: a cache of the layout {layout} keeps no bound; one of the layout segments does. Over {layout} each page that \
             the policy admits is written, and nothing holds that to {wear}"
        );
    }
    let bound = options.bound(options.layout())?;
    let backing = below(options)?;
    let exists = options.cache.exists();
    let size = match (options.size, exists) {
        (Some(size), _) => size,
        (None, true) => ReadFile::open(&options.cache)?.size_bytes,
        (None, false) => bail!("{name}: is not there; --size gives its size"),
    };
    let server = server_pages::find(&options.backing);
    let own = server.map(|server| server.page_bytes.into()).filter(|&own| geometry(options, size, own).is_ok());
    let page_bytes = options.page_size.or(own).unwrap_or(PAGE_BYTES);
    let geometry = geometry(options, size, page_bytes).with_context(|| name.to_string())?;
    if exists {
        make_over(options, size, geometry, &backing)?;
    } else {
        // Created exclusively, so that no file of another process can appear here and be taken for the new one.
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&options.cache);
        let file = new.with_context(|| name.to_string())?;
        let made = take_room(&file, size).with_context(|| name.to_string());
        let made = made.and_then(|_room| make(options, size, geometry, &backing));
        made.inspect_err(|_| drop(std::fs::remove_file(&options.cache)))?;
    }
    Ok(Formatted { geometry, server, bound })
}

fn geometry(options: &FormatOptions, size: u64, page_size: u64) -> Result<Geometry> {
    let page_bytes = u32::try_from(page_size).unwrap_or(u32::MAX);
    let probe = Geometry { page_bytes, segment_pages: 4, segments: 8, layout: Layout::Log };
    probe.check()?;
    let layout = options.layout();
    let Some(segment) = options.segment_size else {
        let geometry = Geometry::for_device(size, page_bytes, layout)?;
        geometry.check()?;
        return Ok(geometry);
    };
    if !segment.is_multiple_of(page_size) {
        bail!("--segment-size {segment} is no multiple of the page size {page_bytes}");
    }
    let segment_pages = u32::try_from(segment / page_size).unwrap_or(u32::MAX);
    let segments = size.saturating_sub(probe.base()) / segment;
    let segments = u32::try_from(segments).unwrap_or(u32::MAX);
    let geometry = Geometry { page_bytes, segment_pages, segments, layout };
    geometry.check()?;
    Ok(geometry)
}

/// Makes a cache of an existing file or device. A file gets all its blocks; if it cannot have them, it is left as it
/// was.
fn make_over(options: &FormatOptions, size: u64, geometry: Geometry, backing: &Below) -> Result<()> {
    let path = &options.cache;
    if !options.force
        && let Some(found) = holds(path)?
    {
        bail!("{}: {found}; --force overwrites it", path.display());
    }
    // Fails here if a process uses the file, before the file changes size.
    let held = hold(path, Caching::Buffered)?;
    let before = held.size_bytes();
    let file_type = metadata(path)?.file_type();
    if file_type.is_block_device() {
        if size > before {
            bail!("{}: has {before} bytes, fewer than --size {size}", path.display());
        }
        drop(held);
        return make(options, before, geometry, backing);
    }
    let name = || path.display().to_string();
    let file = OpenOptions::new().write(true).open(path).with_context(name)?;
    let space = take_room(&file, size).with_context(name)?;
    drop(held);
    make(options, size, geometry, backing).inspect_err(|_| space.give_back(&file))?;
    // A file is cut only once the new cache is complete: until then the old contents may be wanted.
    if size < before { file.set_len(size).with_context(name) } else { Ok(()) }
}

/// Makes the cache and its record at the backing store; `size` is the size of the file or device, now or later.
fn make(options: &FormatOptions, size: u64, geometry: Geometry, backing: &Below) -> Result<()> {
    let name = || options.cache.display().to_string();
    let cache = hold(&options.cache, Caching::Buffered)?;
    let uuid = random()?;
    let (policy, &FormatOptions { mode, wear, .. }) = (options.policy.clone(), options);
    let kept = Kept { policy, mode, layout: Some(geometry.layout), wear };
    let choices = backing_record::choices(&options.cache, geometry, size, &kept)?;
    match backing {
        Below::File { held, identity, place } => {
            let record = Record::first(uuid, place.volume()?, Some(choices));
            BlockCache::format_of(&cache, geometry, held, uuid, *identity, record.generation).with_context(name)?;
            place.write(&record).with_context(|| format!("the record of the cache, {}", place.name()))
        }
        Below::Directory => {
            let made = Backing::format_as(&options.backing, &cache, geometry, uuid, random()?, Some(choices));
            made.map_err(|error| refusal(&options.backing, error))
        }
    }
}

/// Backing store that the new cache is for.
enum Below {
    File { held: FileDisk, identity: Identity, place: Arc<dyn RecordPlace> },
    Directory,
}

fn below(options: &FormatOptions) -> Result<Below> {
    let path = &options.backing;
    if path.is_dir() {
        check_outside(&options.cache, path)?;
        if !options.force && Backing::needs_its_cache(path).map_err(|error| refusal(path, error))? {
            let name = path.display();
            bail!("{name}: another cache may have dirty pages of its files: drain that cache, or lose them by --force");
        }
        if !options.force {
            around::check(path)?;
        }
        return Ok(Below::Directory);
    }
    let (held, identity) = (hold(path, Caching::Buffered)?, identity(path, options.identity)?);
    if held.size_bytes() == 0 {
        bail!("{}: is empty", path.display());
    }
    let place = backing_record::place(path, identity)?;
    if !options.force {
        backing_record::check_free(path, &*place)?;
    }
    Ok(Below::File { held, identity, place })
}

/// Describes contents of a file that its owner may want; none if the first and the last MiB are zeros.
fn holds(path: &Path) -> Result<Option<String>> {
    const LOOKED_AT: u64 = 1 << 20;
    let file = ReadFile::open(path)?;
    match survey(&file, false) {
        Ok(found) => {
            let (pages, dirty) = (found.pages.len(), found.count(|version| version.dirty));
            let uuid = hex(&found.superblock.uuid);
            return Ok(Some(format!("holds an Entresol cache ({uuid}, {pages} pages, {dirty} of them dirty)")));
        }
        Err(SurveyError::NotACache) => {}
        Err(SurveyError::Io(error)) => return Err(error).with_context(|| path.display().to_string()),
        Err(error) => return Ok(Some(format!("holds an Entresol cache ({error})"))),
    }
    let mut bytes = vec![0; LOOKED_AT.min(file.size_bytes) as usize];
    for at in [0, file.size_bytes - bytes.len() as u64] {
        file.read_at(at, &mut bytes).with_context(|| path.display().to_string())?;
        if let Some(first) = bytes.iter().position(|&byte| byte != 0) {
            let (at, size) = (at + first as u64, file.size_bytes);
            return Ok(Some(format!("holds {size} bytes of something else, which begin at byte {at}")));
        }
    }
    Ok(None)
}
