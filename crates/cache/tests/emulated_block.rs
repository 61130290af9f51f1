//! An emulated device behind the engine's trait.

use entresol_cache::Block;
use entresol_device::emulated::{Clock, EmulatedDevice, VirtualClock};
use entresol_device::profile;
use std::sync::Arc;

#[test]
fn a_block_can_be_an_emulated_disk() {
    let clock = Arc::new(VirtualClock::new());
    let file = tempfile::tempfile().expect("a file");
    file.set_len(1 << 20).expect("room");
    let disk = profile::load("face-disk").expect("a profile").build(1 << 20, 1).expect("a disk");
    let block: Box<dyn Block> = Box::new(EmulatedDevice::new(file, disk, Arc::clone(&clock)).expect("a device"));
    assert_eq!(block.size_bytes(), 1 << 20);
    block.write(8192, b"on a disk", true).expect("a write");
    let written = clock.now();
    // A disk without a write cache takes milliseconds.
    assert!((1_000_000..30_000_000).contains(&written), "{written} ns");
    let mut found = [0; 9];
    block.read(8192, &mut found).expect("a read");
    assert_eq!(&found, b"on a disk");
    assert!(clock.now() > written);
    block.discard(8192, 4096).expect("a discard");
    block.flush().expect("a flush");
    block.read(8192, &mut found).expect("a read");
    assert_eq!(found, [0; 9]);
    assert!(block.read(1 << 20, &mut [0]).is_err());
}
