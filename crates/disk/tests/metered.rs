//! Test of the counts of calls of a disk.

use entresol_crashtest::{Power, SimDisk};
use entresol_disk::{DeviceCounts, Disk, Metered, Transfer};

#[test]
fn every_call_is_counted_once_and_by_its_kind() {
    let disk = Metered::new(SimDisk::new(1 << 16, &Power::steady()));
    let meter = disk.meter();
    assert_eq!(meter.counts(), DeviceCounts::default());
    disk.write_at(0, &[1; 4096]).expect("a write");
    let (one, two) = ([2; 512], [3; 512]);
    disk.submit(&mut [Transfer::Write { at: 4096, bytes: &one }, Transfer::Write { at: 8192, bytes: &two }])
        .expect("two writes");
    disk.sync().expect("a sync");
    let mut bytes = [0; 512];
    disk.submit(&mut [Transfer::Read { at: 4096, bytes: &mut bytes }]).expect("a read");
    assert_eq!(bytes, one);
    assert!(disk.read_at(1 << 16, &mut bytes).is_err(), "beyond the end");
    let DeviceCounts { read, write, sync } = meter.counts();
    assert_eq!((read.calls, read.errors, read.bytes), (2, 1, 1024));
    assert_eq!((write.calls, write.errors, write.bytes), (2, 0, 5120));
    assert_eq!((sync.calls, sync.errors, sync.bytes), (1, 0, 0));
    for counts in [read, write, sync] {
        assert_eq!(counts.took.iter().sum::<u64>(), counts.calls);
        assert!(counts.busy_ns > 0 && counts.under_way == 0);
    }
}
