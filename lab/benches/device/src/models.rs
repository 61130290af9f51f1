//! Device models on their own, without a simulation.

use crate::Measured;
use entresol_core::Random;
use entresol_device::disk::{Discipline, Disk, DiskParameters};
use entresol_device::dram::Dram;
use entresol_device::fixed::Fixed;
use entresol_device::link::Link;
use entresol_device::load::{closed_loop, closed_loop_from};
use entresol_device::nand::{Cleaning, Ftl, Geometry, NandParameters, Pace, Ssd};
use entresol_device::nvm_block::NvmBlock;
use entresol_device::nvm_dimm::NvmDimm;
use entresol_device::profile::{self, Model};
use entresol_device::{Calendar, Device, Io};

/// Bytes of the calendars' devices: more frames than any cache has lines.
const CAPACITY: u64 = 8 << 30;
const CALENDAR: Option<f64> = Some(50.0);

/// Makes an I/O of an offset and a size.
type Direction = fn(u64, u32) -> Io;

/// Serves random I/Os of 4 KiB, sixteen at a time: each arrives when the sixteenth before it is done.
fn serve(calendar: &mut impl Calendar, count: u64, io: Direction) -> String {
    let mut random = Random::new(1);
    let mut done = [0; 16];
    let mut now = 0;
    for n in 0..count {
        let slot = &mut done[n as usize % 16];
        now = now.max(*slot);
        *slot = calendar.serve(now, io(random.next_u64() & (CAPACITY - 4096), 4096)).finished;
    }
    // The result has to be used, or the compiler could remove the computation.
    format!("{:.2} million a second of its own time", count as f64 * 1e3 / now as f64)
}

fn calendar<C: Calendar>(name: &str, new: impl Fn() -> C, rounds: u32, shorter: u64) -> [Measured; 2] {
    let count = 20_000_000 / shorter;
    let directions: [(&str, Direction); 2] = [("reads", Io::read), ("writes", Io::write)];
    directions.map(|(what, io)| {
        let name = format!("{name}, random {what}");
        Measured::of(name, CALENDAR, count, rounds, &new, |mut calendar| serve(&mut calendar, count, io))
    })
}

/// Each kind of calendar, random reads and random writes of 4 KiB over 8 GiB.
pub fn calendars(rounds: u32, shorter: u64) -> Vec<Measured> {
    let mut all = Vec::new();
    for name in ["dram", "optane-dimm", "pcm", "p4800x", "infiniband-qdr", "arulraj-ssd"] {
        let model = profile::load(name).expect("a profile of the house").device;
        all.extend(match &model {
            Model::Dram(p) => calendar(name, || Dram::new(p, CAPACITY), rounds, shorter),
            Model::NvmDimm(p) => calendar(name, || NvmDimm::new(p, CAPACITY), rounds, shorter),
            Model::NvmBlock(p) => calendar(name, || NvmBlock::new(p, CAPACITY, 1), rounds, shorter),
            Model::Link(p) => calendar(name, || Link::new(p, CAPACITY), rounds, shorter),
            Model::Fixed(p) => calendar(name, || Fixed::new(p, CAPACITY), rounds, shorter),
            other => unreachable!("{name} is of kind {}", other.kind()),
        });
    }
    all
}

/// The translation layer of the 840 Pro in its steady state under uniform random writes.
pub fn translation(rounds: u32, shorter: u64) -> Measured {
    const LOGICAL: u32 = 1 << 20;
    const DIES: u32 = 32;
    let pace = Pace { start_blocks: 2, stop_blocks: 2, moves_per_write: None };
    // The factor is 1.112 instead of the 840 Pro's 1.108: at this size it rounds to whole blocks that give 5.0.
    let mut steady = Ftl::new(Geometry::new(LOGICAL, 1.112, DIES, 256, 2), Cleaning::Greedy, pace, 1);
    let mut random = Random::new(2);
    let mut write = move |ftl: &mut Ftl, count: u64| {
        // The drive knows a group of pages before it writes them, and prefetches their entries.
        let mut group = [0u32; 16];
        for n in 0..count / 16 {
            for page in &mut group {
                *page = random.below(LOGICAL.into()) as u32;
                ftl.expect_write(*page);
            }
            group.iter().for_each(|&page| {
                ftl.write(page, (n % u64::from(DIES)) as u32);
            });
        }
    };
    for page in 0..LOGICAL {
        steady.write(page, page / 16 % DIES);
    }
    write(&mut steady, 3 * u64::from(LOGICAL));
    let count = 4_000_000 / shorter;
    Measured::of(
        "translation layer with cleaning, random writes of 4 KiB to 4 GiB",
        Some(2.0),
        count,
        rounds,
        || steady.clone(),
        |mut ftl| {
            let (host, moved) = (ftl.host_pages(), ftl.moved_pages());
            write(&mut ftl, count);
            let waf = 1.0 + (ftl.moved_pages() - moved) as f64 / (ftl.host_pages() - host).max(1) as f64;
            format!("WAF {waf:.2} mech")
        },
    )
}

/// A disk that sorts its queue.
pub fn disk(rounds: u32, shorter: u64) -> Measured {
    let p = DiskParameters { discipline: Discipline::Sptf, window: 64, ..DiskParameters::cheetah_15k5() };
    let count = 1_000_000 / shorter;
    let mut random = Random::new(3);
    Measured::of(
        "cheetah-15k5 with SPTF, 32 random reads of 4 KiB at a time",
        Some(1.0),
        count,
        rounds,
        || Disk::new(p.clone(), 1).expect("a profile of the house"),
        |mut disk| {
            let pages = disk.capacity_bytes() / 4096;
            let load = closed_loop(&mut disk, 32, count, |_| Io::read(random.below(pages) * 4096, 4096));
            format!("{:.0} IOPS", load.iops())
        },
    )
}

/// A whole flash drive with its queues, buffer and dies.
pub fn flash_drive(rounds: u32, shorter: u64) -> Measured {
    const BYTES: u64 = 4 << 30;
    let mut steady = Ssd::new(NandParameters::s840_pro().scaled_to(BYTES), 1).expect("a profile of the house");
    steady.precondition(3.0, 4);
    let count = 1_000_000 / shorter;
    let mut random = Random::new(5);
    Measured::of(
        "840-pro, a drive of 4 GiB, 32 random writes of 4 KiB at a time",
        None,
        count,
        rounds,
        || steady.clone(),
        |mut ssd| {
            let load = closed_loop_from(&mut ssd, 0, 32, count, |_| Io::write(random.below(BYTES / 4096) * 4096, 4096));
            format!("{:.0} IOPS, WAF {:.2} mech", load.iops(), ssd.wear().write_amplification())
        },
    )
}
