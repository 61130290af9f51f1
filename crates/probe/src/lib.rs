//! Measures a device as 002 did, and writes its profile.
//!
//! An experiment is a function over a [`Target`]: a file, a block device or a device model in virtual time. On a model
//! the probe must find again what the model was built with, which proves the analysis without hardware.
//!
//! [`experiments`] lists what can be measured; each gives [`Findings`]: tables, curves and fitted [`Parameter`]s with
//! confidence intervals.

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
