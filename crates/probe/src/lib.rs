//! Measures a device as 002 did, and writes its profile.
//!
//! An experiment is a function over a [`Target`]: a file, a block device or a device model in virtual time. On a model
//! the probe must recover the model's own parameters, which proves the analysis without hardware.
//!
//! [`experiments`] lists the experiments. Each gives [`Findings`]: tables, curves and fitted [`Parameter`]s with
//! confidence intervals, of which [`fit::to_profile`] makes a device and [`advise`] derives advice.
//!
//! # Parameters
//!
//! A name ends in its unit; a yes or no is 1 or 0. A parameter that does not show on a target is left out, and a note
//! says why.
//!
//! | parameters | experiment | meaning |
//! |---|---|---|
//! | `capacity_bytes`, `fill_mb_s` | fill | size; writes in order |
//! | `{sequential,random}_{read,write}_us`, `random_read_p{99,995,999,9999}_us` | latency | medians and tail at 4 KiB, one at a time |
//! | `software_us`, `reads_ahead` | latency | the host's part of a latency; whether the device reads ahead |
//! | `{read,write}_fixed_us`, `{read,write}_gb_per_s` | latency | line of latency in size: a command without its bytes, and their rate |
//! | `sense_us`, `channel_mb_s`, `program_busy_us`, `program_parallel_kib` | flash | a page's sense time, a channel's rate, a die's time for a program with its transfer, what all dies program at once |
//! | `read_buffer`, `read_buffer_mib` | buffer | whether reads are buffered, and how much |
//! | `refresh_reads`, `refresh_us` | disturb | reads of a page until it is refreshed (0: never), and what that read waits |
//! | `host_busy_us` or `device_busy_us`, `threads_gain` | threads | the least time between 4-KiB reads of one thread, and whose it is |
//! | `open_loop_read_us` | load | mean latency at 70 % of the most, open loop |
//! | `write_buffer_mib` | write_buffer | what a burst of writes fills |
//! | `page_bytes`, `half_page_penalty_us`, `odd_penalty_us`, `layers_meet_kib` or `unaligned_penalty_us` | unaligned | alignment and its price: layers that meet, or a price that stays |
//! | `durable_write_us`, `flush_us` | fsync | a write and its flush; the flush alone |
//! | `rotates`, `rpm`, `{read,write}_overhead_us`, `track_to_track_us`, `average_seek_us`, `full_stroke_us`, `write_settle_us`, `{outer,inner}_mb_s`, `queue_gain` | disk | mechanics; random reads at depth 32 over depth 1 |
//! | `{pattern}_beside_{reads,writes}_factor` | pressure | mean latency beside a background of 60 % over that alone |
//! | `{pattern}_mb_s`, `{pattern}_4k_iops`, `{pattern}_{4,16,32,128}k_saturation_depth`, `{pattern}_4k_parallelism`, `segment_kib` | sweep | the most, the depth for 95 % of it, the smallest write for 95 % of the largest's rate |
//! | `overwrite_mb_s`, `overwrite_drop_percent` | overwrite | rate of overwriting, and by how much it drops |
//! | `fresh_write_mb_s`, `steady`, `steady_write_iops`, `steady_write_mb_s`, `random_write_slowdown` | steady | before and in steady state; the slow-down bounds write amplification from above |

mod advice;
mod document;
mod experiment;
mod experiments;
mod findings;
pub mod fit;
mod model;
mod noise;
mod real;
mod session;
mod target;

pub use advice::{Advice, Use, advise};
pub use document::{Document, Environment, Measured, SCHEMA};
pub use experiment::{Cost, Experiment, Replayed, Setup};
pub use experiments::experiments;
pub use findings::{Cell, Findings, Line, Parameter, Series, Table};
pub use model::ModelTarget;
pub use noise::{CONTENDED_SHARE, Noise, NoiseMeter};
pub use real::{Engine, RealOptions, RealTarget};
pub use session::{Opener, Outcome, Session, UnknownExperiment, cost, names, selection};
pub use target::{Pace, Pattern, Samples, Stream, Target, TargetError, Until};
