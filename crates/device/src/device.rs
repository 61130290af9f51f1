//! The two traits of a device model.

use crate::io::{Completion, DeviceError, Io, Nanos, Wear};

/// A model whose resources serve in order of arrival, so that an I/O's completion is known when it is submitted.
pub trait Calendar {
    /// Serves an I/O that arrives at `now`. `now` never runs backwards.
    fn serve(&mut self, now: Nanos, io: Io) -> Completion;

    /// Capacity in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Bytes that the device moved so far, and its erasures, wear and energy.
    fn wear(&self) -> Wear;
}

/// A device in virtual time.
pub trait Device {
    /// Hands over an I/O at time `now`, which is never before an earlier submission or the last advance.
    ///
    /// # Errors
    /// When the I/O reaches beyond the end; the device is unchanged.
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError>;

    /// Hands over an I/O like [`Device::submit`] to a device that can compute its completion at once, and returns the
    /// completion. The caller keeps the completion until its time; [`Device::advance`] does not return it. `None` from
    /// a device that cannot compute it: the I/O was not taken and must be submitted. A device always answers the same
    /// way, so a caller that once used this method uses no other to hand over I/Os.
    fn foresee(&mut self, _now: Nanos, _io: Io) -> Option<Result<Completion, DeviceError>> {
        None
    }

    /// Time at which the device next completes or starts an I/O on its own; `None` when it is idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Lets time pass until `until` and appends the completions up to then, in order of time.
    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>);

    /// Capacity in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Bytes that the device moved so far, and its erasures, wear and energy.
    fn wear(&self) -> Wear;

    /// Name of the mode of write amplification that [`Device::wear`] includes. `mech`: cleaning is carried out.
    /// `curve`: measurements of a drive. `None` for a device without relevant write amplification.
    fn amplification(&self) -> Option<&'static str> {
        None
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        (**self).submit(now, io)
    }

    fn foresee(&mut self, now: Nanos, io: Io) -> Option<Result<Completion, DeviceError>> {
        (**self).foresee(now, io)
    }

    fn next_event(&self) -> Option<Nanos> {
        (**self).next_event()
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        (**self).advance(until, done);
    }

    fn capacity_bytes(&self) -> u64 {
        (**self).capacity_bytes()
    }

    fn wear(&self) -> Wear {
        (**self).wear()
    }

    fn amplification(&self) -> Option<&'static str> {
        (**self).amplification()
    }
}
