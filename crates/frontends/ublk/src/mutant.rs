//! Faults that tests put into the recovery of devices, one at a time: see [`entresol_core::fault_points`].

entresol_core::fault_points! {
    /// A step that is left out.
    pub(crate) enum Mutant {
        /// The kernel is not asked to send requests again that a killed server had not answered.
        NotSentAgain,
        /// A start removes devices that wait for another server.
        LeftSwept,
        /// A device is taken over though it is that of another backing store.
        IdentityIgnored,
        /// A server does not wait until the kernel has closed what the killed one had open.
        BusyNotAwaited,
    }
}
