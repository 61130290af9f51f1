//! Every policy that has a file is in the catalogue: one that was forgotten there compiles, and nobody can name it.

use crate::sources::sources;
use entresol_policy::catalogue;
use std::fs;
use std::path::Path;

/// The names that a source gives to its policies: texts in the line of the first field of each `INFO`.
fn names(text: &str) -> Vec<String> {
    let infos = text.split("const INFO: Info = Info {").skip(1);
    let fields = infos.filter_map(|info| info.trim_start().strip_prefix("name:").and_then(|rest| rest.lines().next()));
    fields.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn every_policy_that_has_a_file_is_in_the_catalogue() {
    let mut named = 0;
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        for name in names(&fs::read_to_string(&file).expect("text")) {
            assert!(catalogue::info(&name).is_ok(), "{}: '{name}' is not in list.rs", file.display());
            named += 1;
        }
    }
    println!("{named} names in files, {} policies in the catalogue", catalogue::ALL.len());
    assert!(named + 5 >= catalogue::ALL.len(), "names are found");
}
