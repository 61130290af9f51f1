//! The two traits of a device model.

use crate::io::{Completion, DeviceError, Io, Nanos, Wear};

/// A model whose resources serve in order of arrival, so that an I/O's completion is known when it is submitted.
pub trait Calendar {
    /// Serves an I/O that arrives at `now`, which never runs backwards.
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
    /// When it reaches beyond the end; the device is unchanged.
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError>;

    /// Hands over an I/O like [`Device::submit`] to a device that knows at once when it will be done, and returns that.
    /// The completion is the caller's to keep until its time, and [`Device::advance`] does not bring it. `None` from a
    /// device that cannot know, which has not taken the I/O: it must be submitted. A device always answers the same
    /// way, so a caller that once used this method uses no other to hand over.
    fn foresee(&mut self, _now: Nanos, _io: Io) -> Option<Result<Completion, DeviceError>> {
        None
    }

    /// When the device next does something on its own: completes an I/O or starts one. `None` when it is idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Lets time pass until `until` and appends what completes by then, in order of time.
    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>);

    /// Capacity in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Bytes that the device moved so far, and its erasures, wear and energy.
    fn wear(&self) -> Wear;

    /// Name of the mode of write amplification that [`Device::wear`] includes. `mech`: by cleaning that was carried
    /// out. `curve`: by measurements of a drive. `None` for a device without write amplification to speak of.
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
