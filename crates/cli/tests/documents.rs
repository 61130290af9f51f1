//! Documents that the command writes are what it writes today.

mod common;

use common::Scratch;
use std::path::Path;

#[test]
fn the_chapter_on_policies_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let written = std::fs::read_to_string(&path).expect("docs/policies.md");
    let now = Scratch::new().ok(&["policies", "--markdown"]);
    assert!(written == now, "docs/policies.md is out of date: entresol policies --markdown > docs/policies.md");
    assert_eq!(now.matches("\n### ").count(), 45, "every policy of the catalogue is in a family");
}
