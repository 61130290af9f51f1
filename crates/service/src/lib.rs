//! A cache in use: opened, guarded, served, watched, recorded and closed; asked by its control
//! socket, and counted; checked, drained, and made anew where it was lost.
//!
//! The cache is a file or block device. Its backing store is another one, or a directory of files.
//! A command that serves a cache is its arguments and a front-end over this library. Figures and
//! metrics are texts here; screens and printing are the command's.

#[macro_use]
#[doc(hidden)]
pub mod say;

mod accounts;
mod age;
mod around;
pub mod attach;
pub mod backing_record;
mod backing_store;
mod cache_file;
pub mod cache_options;
pub mod check;
pub mod choice;
pub mod chosen;
pub mod config;
mod conflicts;
pub mod control;
pub mod device_cache;
mod directory;
pub mod doubt;
pub mod drain;
pub mod ending;
pub mod figures;
pub mod files;
pub mod format;
pub mod guard;
mod health_monitor;
pub mod hints;
pub mod hold;
pub mod holder;
pub mod identity;
pub mod keyword;
mod lease;
pub mod log;
pub mod lost;
pub mod memory;
pub mod metrics;
pub mod mount;
pub mod namer;
pub mod nbd;
mod notify;
pub mod objects;
pub mod observed;
pub mod onlooker;
pub mod open_cache;
mod opening;
mod places;
pub mod record;
mod reserving;
pub mod resolve;
pub mod restart;
pub mod run;
pub mod running;
pub mod serve;
pub mod served;
pub mod server_pages;
pub mod serving;
pub mod set;
mod settings;
mod setup;
pub mod stats;
pub mod tables;
mod tally;
pub mod top;
mod translation;
pub mod ublk;
mod unseen;
mod unwritable;
mod unwritten;
pub mod upgrade;
pub mod values;
pub mod words;
mod writers;
