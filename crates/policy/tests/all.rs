//! The tests of policies as one program: of several each would contain every policy again, which takes the compiler a
//! minute.

mod common;
#[path = "common/count.rs"]
mod count;
mod plain;
#[path = "common/single.rs"]
mod single;
mod slow_runs;
#[path = "common/sources.rs"]
mod sources;

mod choice;
mod complete;
mod conformance;
mod ghosts_adaptive;
mod model_adaptive;
mod model_adaptive_distance;
mod model_adaptive_history;
mod model_classic;
mod model_dirty;
mod model_dirty_h_arc;
mod model_extension_heuristicdb;
mod model_extension_lc;
mod model_extension_table_placement;
mod model_extension_tac;
mod model_face;
mod model_hybrid;
mod model_migration;
mod model_modern;
mod model_offline;
mod model_run;
mod model_writebuffer;
mod oracle_adaptive;
mod oracle_classic;
mod oracle_modern;
mod oracle_offline;
mod refusals;
mod stack;
mod tunables;
