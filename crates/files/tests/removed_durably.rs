//! The cache forgets pages of a removed file only when the removal is durable in the backing store. A power failure
//! that brings the name back must bring back a file with its synced bytes.
#![cfg(target_os = "linux")]

use entresol_cache::Block;
use entresol_cache::CacheConfig;
use entresol_disk::{Caching, FileDisk};
use entresol_files::{Backing, CachedFiles, FileData, FileId, FileLayer, FilesError, HIDDEN};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: usize = 20 * 4096;

fn start(place: &Path) -> CachedFiles {
    let config = CacheConfig::new(catalogue::info("lru").expect("a policy"), &[100]);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let opened = Backing::open(&place.join("backing")).and_then(|backing| {
            let device = FileDisk::create(&place.join("cache"), 1 << 20, Caching::Buffered).expect("a file");
            CachedFiles::open(backing, device, &config, Vec::new())
        });
        match opened {
            Ok((files, _)) => return files,
            // Threads of the earlier instance are ending.
            Err(FilesError::InUse) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn open(files: &CachedFiles, path: &Path) -> (FileId, Arc<dyn FileData>) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
    let found = file.metadata().expect("attributes");
    let id = FileId { device: found.dev(), inode: found.ino() };
    (id, files.open(id, file, true).expect("a file"))
}

/// Regions that the map has released.
fn dropped(backing: &Path) -> usize {
    let map = fs::read(backing.join(HIDDEN).join("map")).expect("a map");
    map.chunks(64).skip(1).filter(|record| record[..8] == 2_u64.to_le_bytes()).count()
}

fn wait_for_dropped(backing: &Path, regions: usize) {
    let until = Instant::now() + Duration::from_secs(20);
    while dropped(backing) < regions {
        assert!(Instant::now() < until, "{} of {regions} regions are released", dropped(backing));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `name_goes` removes the name before the crash. The file itself returns after the crash, as on a file system whose
/// directory was not synced.
fn comes_back_whole(name_goes: impl Fn(&CachedFiles, &Path)) {
    for layout in [Layout::Log, Layout::Slots] {
        println!("{layout:?}");
        let place = tempfile::tempdir().expect("a directory");
        let backing = place.path().join("backing");
        fs::create_dir(&backing).expect("a directory");
        let device = FileDisk::create(&place.path().join("cache"), 1 << 20, Caching::Buffered).expect("a file");
        let geometry = Geometry { page_bytes: 4096, segment_pages: 8, segments: 30, layout };
        Backing::format(&backing, &device, geometry, [1; 16], [2; 16]).expect("room");
        drop(device);
        fs::create_dir(backing.join("apart")).expect("a directory");
        let files = start(place.path());
        let ((id, file), (other, control)) =
            (open(&files, &backing.join("file")), open(&files, &backing.join("apart/other")));
        for data in [&file, &control] {
            data.write(0, &[7; BYTES]).expect("a write");
            data.sync(false).expect("a sync");
        }
        fs::hard_link(backing.join("file"), place.path().join("kept")).expect("a link");
        // A directory that cannot be synced stands for one whose sync is still to come.
        let unsynced = || Ok(rustix::fs::open(&backing, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.into());
        files.leaving(id, &unsynced).expect("a note");
        name_goes(&files, &backing.join("file"));
        drop(file);
        files.removed(id);
        // A later removal of another file, which is durable.
        let synced = || Ok(File::open(backing.join("apart"))?.into());
        files.leaving(other, &synced).expect("a note");
        fs::remove_file(backing.join("apart/other")).expect("a removal");
        drop(control);
        files.removed(other);
        wait_for_dropped(&backing, 1);
        files.cache().flush().expect("a flush");
        drop(files);
        fs::rename(place.path().join("kept"), backing.join("file")).expect("the name as it was");
        let files = start(place.path());
        let (_, file) = open(&files, &backing.join("file"));
        let mut bytes = vec![0; BYTES];
        assert_eq!(file.read(0, &mut bytes).expect("a read"), BYTES);
        assert!(bytes.iter().all(|&byte| byte == 7), "bytes that were synced are gone");
        drop(file);
        files.close().expect("a close");
    }
}

#[test]
fn a_file_whose_unlink_was_not_durable_comes_back_with_its_synced_bytes() {
    comes_back_whole(|_, path| fs::remove_file(path).expect("a removal"));
}

#[test]
fn a_file_whose_replacement_was_not_durable_comes_back_with_its_synced_bytes() {
    comes_back_whole(|files, path| {
        let new = path.with_extension("new");
        let (_, data) = open(files, &new);
        data.write(0, &[9; BYTES]).expect("a write");
        data.sync(false).expect("a sync");
        // After the crash the new file has its own name again.
        fs::hard_link(&new, new.with_extension("as it was")).expect("a link");
        fs::rename(&new, path).expect("a rename");
    });
}

#[test]
fn a_removal_that_is_durable_gives_its_regions_back() {
    let place = tempfile::tempdir().expect("a directory");
    let backing = place.path().join("backing");
    fs::create_dir(&backing).expect("a directory");
    let device = FileDisk::create(&place.path().join("cache"), 1 << 20, Caching::Buffered).expect("a file");
    let geometry = Geometry { page_bytes: 4096, segment_pages: 8, segments: 30, layout: Layout::Log };
    Backing::format(&backing, &device, geometry, [1; 16], [2; 16]).expect("room");
    drop(device);
    let files = start(place.path());
    for round in 1..=5 {
        let (id, file) = open(&files, &backing.join("file"));
        file.write(0, &[7; BYTES]).expect("a write");
        // A directory that cannot be opened: the whole file system is synced.
        files
            .leaving(id, &|| {
                if round % 2 == 0 {
                    Err(io::ErrorKind::PermissionDenied.into())
                } else {
                    Ok(File::open(&backing)?.into())
                }
            })
            .expect("a note");
        fs::remove_file(backing.join("file")).expect("a removal");
        drop(file);
        files.removed(id);
        wait_for_dropped(&backing, round);
    }
    files.close().expect("a close");
}
