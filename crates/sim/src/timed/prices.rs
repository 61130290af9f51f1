//! Access times of a device by its model, for forecasting the time of a policy from its movements.

use entresol_core::Random;
use entresol_device::load::closed_loop;
use entresol_device::{Device, Io, IoKind};
use entresol_policy::miniature::{Access, Prices};

/// Number of accesses measured.
const ACCESSES: u64 = 2000;

/// Measures random accesses on models of one device, each built anew by `device`: alone, and `depth` at a time. A page
/// has `page_bytes`, of which a request reads or changes `touched_bytes` in place.
///
/// # Errors
/// When `device` fails, with its error.
pub fn prices<D: Device, E>(
    mut device: impl FnMut() -> Result<D, E>,
    page_bytes: u32,
    touched_bytes: u32,
    depth: usize,
    seed: u64,
) -> Result<Prices, E> {
    let mut load = |kind: IoKind, bytes: u32, depth: usize| {
        let (mut device, mut random) = (device()?, Random::new(seed));
        let places = (device.capacity_bytes() / u64::from(page_bytes)).max(1);
        Ok(closed_loop(&mut device, depth, ACCESSES, |_| Io {
            kind,
            ..Io::read(random.below(places) * u64::from(page_bytes), bytes)
        }))
    };
    let mut access = |kind, bytes| -> Result<Access, E> {
        let waits = load(kind, bytes, 1)?.latency.mean() / 1e9;
        let busy = load(kind, bytes, depth.max(1))?.elapsed as f64 / ACCESSES as f64 / 1e9;
        Ok(Access { waits, busy })
    };
    Ok(Prices {
        read: access(IoKind::Read, page_bytes)?,
        write: access(IoKind::Write, page_bytes)?,
        look: access(IoKind::Read, touched_bytes)?,
        change: access(IoKind::Write, touched_bytes)?,
    })
}
