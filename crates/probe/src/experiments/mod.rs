//! What can be measured. One file per experiment; each says which section of which paper it follows.

mod buffer;
mod disk;
mod disturb;
mod durable;
mod fill;
mod flash;
mod lab;
mod latency;
mod load;
mod mixed;
mod overwrite;
mod pressure;
mod replay;
mod steady;
mod sweep;
mod tail;
mod threads;
mod unaligned;
mod write_buffer;

pub(crate) use disk::{SEEK_CURVE, ZONE_CURVE};

use crate::experiment::Experiment;

/// All experiments, in an order in which each finds the state that it needs: what wears a flash drive comes last.
pub fn experiments() -> &'static [Experiment] {
    const ALL: &[Experiment] = &[
        fill::EXPERIMENT,
        latency::EXPERIMENT,
        flash::EXPERIMENT,
        buffer::EXPERIMENT,
        disturb::EXPERIMENT,
        threads::EXPERIMENT,
        load::EXPERIMENT,
        write_buffer::EXPERIMENT,
        unaligned::EXPERIMENT,
        durable::EXPERIMENT,
        disk::EXPERIMENT,
        tail::EXPERIMENT,
        replay::EXPERIMENT,
        mixed::EXPERIMENT,
        pressure::EXPERIMENT,
        sweep::EXPERIMENT,
        overwrite::EXPERIMENT,
        steady::EXPERIMENT,
    ];
    ALL
}
