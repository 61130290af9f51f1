//! Cost of a page on a device: the mean time of the device's model, one request at a time.

use entresol_core::Random;
use entresol_device::load::closed_loop;
use entresol_device::profile::Profile;
use entresol_device::{DeviceError, Io};

/// I/Os that are measured of each kind.
const COUNT: u64 = 2000;
const SEED: u64 = 42;

/// Costs of an access to one page, in a unit that both devices share.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct PageCosts {
    /// A read at random.
    pub random_read: f64,
    /// A read after that of the page before it.
    pub sequential_read: f64,
    /// A write at random.
    pub write: f64,
}

impl PageCosts {
    /// Every access counts one.
    pub const ONE: PageCosts = PageCosts { random_read: 1.0, sequential_read: 1.0, write: 1.0 };
    /// No access counts.
    pub const NOTHING: PageCosts = PageCosts { random_read: 0.0, sequential_read: 0.0, write: 0.0 };

    /// Times of a device of this capacity, in microseconds.
    ///
    /// # Errors
    /// When the profile cannot be built at this capacity.
    pub fn of_device(profile: &Profile, capacity_bytes: u64, page_bytes: u32) -> Result<Self, DeviceError> {
        let mean = |io: &mut dyn FnMut(u64) -> Io| -> Result<f64, DeviceError> {
            let mut device = profile.build(capacity_bytes, SEED)?;
            Ok(closed_loop(&mut device, 1, COUNT, io).latency.mean() / 1000.0)
        };
        let pages = capacity_bytes / u64::from(page_bytes);
        let mut random = Random::new(SEED);
        let mut anywhere = || random.below(pages) * u64::from(page_bytes);
        Ok(PageCosts {
            random_read: mean(&mut |_| Io::read(anywhere(), page_bytes))?,
            sequential_read: mean(&mut |i| Io::read(i % pages * u64::from(page_bytes), page_bytes))?,
            write: mean(&mut |_| Io::write(anywhere(), page_bytes))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_seeks_and_a_flash_device_does_not() {
        let costs = |name: &str| {
            let profile = entresol_device::profile::load(name).expect("a profile of the house");
            PageCosts::of_device(&profile, 1 << 30, 8192).expect("a device")
        };
        let (disk, flash) = (costs("cheetah-15k5"), costs("p4800x"));
        assert!(disk.random_read > 10.0 * disk.sequential_read, "{disk:?}");
        assert!((0.5..2.0).contains(&(flash.random_read / flash.sequential_read)), "{flash:?}");
        assert!(disk.random_read > 50.0 * flash.random_read, "{disk:?} {flash:?}");
    }
}
