use super::*;
use crate::io::{Io, Nanos};

const FIXED: &str = "name = \"x\"\nabout = \"a\"\nsource = \"s\"\n[device]\nkind = \"fixed\"\nread_ns = 100\nwrite_ns = 200\nparallelism = 1\n";

/// The error of the profile that comes of replacing one text in `FIXED`.
fn error_after(from: &str, to: &str) -> String {
    assert!(FIXED.contains(from));
    Profile::from_toml("bad.toml", &FIXED.replace(from, to)).expect_err(to).to_string()
}

#[test]
fn every_profile_loads_builds_serves_and_survives_a_round_trip() {
    for name in names() {
        let profile = load(name).expect(name);
        assert_eq!(profile.name, name);
        let again = Profile::from_toml(name, &profile.to_toml()).expect("what we wrote");
        assert_eq!(again, profile);

        let mut device = profile.build(1 << 20, 1);
        device.submit(0, Io::read(0, 4096)).expect("within the device");
        let mut done = Vec::new();
        device.advance(Nanos::MAX, &mut done);
        assert!(done.len() == 1 && done[0].finished > 0, "{name}: {done:?}");
    }
}

#[test]
fn every_number_of_a_profile_has_its_source_beside_it_or_above_it() {
    for (name, text) in BUILT_IN {
        let mut section_has_source = false;
        for line in text.lines() {
            let code = line.split('#').next().expect("a line").trim();
            section_has_source = match code.is_empty() || code.starts_with('[') {
                true => line.contains('#') || (section_has_source && !code.starts_with('[') && !line.is_empty()),
                false => section_has_source || line.contains('#'),
            };
            let is_number = code.contains('=') && code.chars().any(|c| c.is_ascii_digit()) && !code.contains('"');
            assert!(!is_number || section_has_source, "{name}: no source for {line}");
        }
    }
}

#[test]
fn an_impossible_number_is_named_with_its_file_its_key_and_what_is_expected() {
    for (from, to, key, expected) in [
        ("read_ns = 100", "read_ns = -5", "read_ns", "a whole number, 0 or more"),
        ("read_ns = 100", "read_ns = 0", "read_ns", "above 0"),
        ("read_ns = 100", "read_ns = 1.5", "read_ns", "a whole number"),
        ("read_ns = 100", "read_ns = \"fast\"", "read_ns", "a whole number"),
        ("read_ns = 100", "read_ns = 99_000_000_000_000", "read_ns", "at most an hour"),
        ("read_ns = 100\n", "", "read_ns", "missing"),
        ("parallelism = 1", "parallelism = 0", "parallelism", "1 to 256"),
        ("parallelism = 1", "parallelism = 1\ngb_per_s = 0.0", "gb_per_s", "between"),
        ("parallelism = 1", "parallelism = 1\ngb_per_s = nan", "gb_per_s", "between"),
        ("parallelism = 1", "parallelism = 1\ngb_per_s = -1.0", "gb_per_s", "between"),
        ("parallelism = 1", "parallelism = 1\ngb_per_s = inf", "gb_per_s", "between"),
        ("parallelism = 1", "parallelism = 1\nspeed = 1", "speed", "expected one of"),
        ("parallelism = 1", "parallelism = 1\n[host]\nthreads = 1\nbusy_ns = 1", "software_ns", "missing"),
        ("parallelism = 1", "parallelism = 1\n[hots]\nthreads = 1", "hots", "expected name"),
        ("kind = \"fixed\"", "kind = \"tape\"", "kind", "nvm-block"),
        ("kind = \"fixed\"\n", "", "kind", "missing"),
        ("name = \"x\"", "name = 7", "name", "expected a text"),
        ("name = \"x\"", "name = \"x\"\ndollars_per_gb = -1", "dollars_per_gb", "from 0"),
        ("[device]", "[devices]", "device", "missing"),
        ("read_ns = 100", "read_ns = ", "read_ns", "no TOML"),
    ] {
        let error = error_after(from, to);
        for part in ["bad.toml", key, expected] {
            assert!(error.contains(part), "{to}: '{error}' lacks '{part}'");
        }
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_file_is_loaded_by_its_path_and_an_unknown_name_lists_the_known_ones() {
    let path = std::env::temp_dir().join(format!("entresol-profile-{}.toml", std::process::id()));
    std::fs::write(&path, FIXED).expect("a temporary file");
    let loaded = load(path.to_str().expect("a path in UTF-8"));
    std::fs::remove_file(&path).expect("the file just written");
    assert_eq!(loaded.expect("a sound profile"), Profile::from_toml("x", FIXED).expect("a sound profile"));

    let error = load("p4800y").expect_err("no such profile").to_string();
    assert!(error.contains("p4800y") && error.contains("p4800x"), "{error}");
    assert!(load("/").expect_err("a directory").to_string().contains("cannot be read"));
}

#[test]
fn the_example_of_the_manual_loads_and_its_error_is_the_one_it_shows() {
    let manual = include_str!("../../../../docs/devices.md");
    let (_, rest) = manual.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("the end of the example");
    let profile = Profile::from_toml("my-drive.toml", example).expect("a sound example");
    assert_eq!(Profile::from_toml("again", &profile.to_toml()), Ok(profile));

    let broken = example.replace("parallelism = 64", "parallelism = 0");
    let error = Profile::from_toml("my-drive.toml", &broken).expect_err("no parallelism").to_string();
    assert!(manual.contains(&error), "{error}");
    for known in names() {
        let (family, rest) = known.split_once('-').unwrap_or((known, ""));
        let listed = match family {
            "arulraj" | "yang" => manual.contains(&format!("`-{rest}`")) || manual.contains(&format!("`{known}`")),
            _ => manual.contains(&format!("`{known}`")),
        };
        assert!(listed, "{known} is not in the manual");
    }
}
