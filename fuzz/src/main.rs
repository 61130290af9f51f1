//! The fuzzer over one target, which the environment variable `ENTRESOL_FUZZ` names. `make fuzz` builds and runs it.
#![no_main]

use entresol_fuzz_targets::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("ENTRESOL_FUZZ").expect("ENTRESOL_FUZZ names a target");
        TARGETS.iter().find(|target| target.0 == name).unwrap_or_else(|| panic!("there is no target {name}"))
    })
}

fuzz_target!(|data: &[u8]| (target().1)(data));
