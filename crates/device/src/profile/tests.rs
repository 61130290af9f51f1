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

        let mut device = profile.build(1 << 20, 1).expect("a device");
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
fn every_profile_that_has_a_file_comes_with_the_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let files = std::fs::read_dir(folder).expect("the profiles").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<String> = files.map(|path| path.file_stem().expect("a name").to_string_lossy().into()).collect();
    let mut known: Vec<String> = names().into_iter().map(str::to_owned).collect();
    files.sort();
    known.sort();
    assert_eq!(known, files);
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

/// JSON as a probe writes it, reduced to the profile.
fn probe_json(profile: &Profile) -> serde_json::Value {
    serde_json::json!({ "schema": PROBE_SCHEMA, "target": {}, "profile": profile })
}

#[test]
fn what_a_probe_wrote_is_a_profile() {
    for name in names() {
        let profile = load(name).expect(name);
        let text = probe_json(&profile).to_string();
        assert_eq!(Profile::from_json("probe.json", &text), Ok(profile));
    }
    let path = std::env::temp_dir().join(format!("entresol-probe-{}.json", std::process::id()));
    std::fs::write(&path, probe_json(&load("p4800x").expect("a profile")).to_string()).expect("a temporary file");
    let loaded = load(path.to_str().expect("a path in UTF-8"));
    std::fs::remove_file(&path).expect("the file just written");
    assert_eq!(loaded.expect("a sound profile").name, "p4800x");
}

#[test]
fn json_that_is_no_sound_profile_is_named() {
    let sound = probe_json(&Profile::from_toml("x", FIXED).expect("a sound profile")).to_string();
    for (from, to, part) in [
        ("entresol-probe/1", "entresol-probe/2", "expected \"entresol-probe/1\""),
        ("schema", "scheme", "`schema` is missing"),
        ("\"read_ns\":100", "\"read_ns\":0", "expected nanoseconds above 0"),
        ("\"read_ns\":100", "\"read_ns\":null", "no object of texts"),
        ("\"profile\":{", "\"profile\":null,\"other\":{", "holds no profile"),
        ("\"profile\":{", "\"profile\":7,\"other\":{", "key `profile`"),
        ("\"profile\":{", "\"profile\":{{", "is no JSON"),
    ] {
        assert!(sound.contains(from), "{sound}");
        let error = Profile::from_json("probe.json", &sound.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains("probe.json") && error.contains(part) && !error.contains('\n'), "{to}: {error}");
    }
}

/// An array's profile with some of its lines replaced.
fn array(members: u32, member: &str) -> String {
    format!("name = \"a\"\nabout = \"a\"\nsource = \"s\"\n[device]\nkind = \"raid5\"\nmembers = {members}\n{member}\n")
}

#[test]
fn an_array_takes_its_member_by_name_or_inline_and_both_are_the_same_device() {
    let named = Profile::from_toml("named", &array(4, "member = \"cheetah-15k5\"")).expect("a sound profile");
    let Model::Disk(disk) = load("cheetah-15k5").expect("a profile").device else { panic!("a disk") };
    let section = toml::to_string(&disk).expect("tables and numbers").replace("[[", "[[device.member.");
    let inline = Profile::from_toml("inline", &array(4, &format!("[device.member]\n{section}"))).expect(&section);
    assert_eq!(Profile::from_toml("again", &inline.to_toml()), Ok(inline.clone()));
    let finish = |profile: &Profile| {
        let mut device = profile.build(1 << 30, 3).expect("a device");
        device.submit(0, Io::write(123 << 12, 4096)).expect("within the device");
        let mut done = Vec::new();
        device.advance(Nanos::MAX, &mut done);
        (done[0].finished, device.capacity_bytes())
    };
    assert_eq!(finish(&named), finish(&inline));
}

#[test]
fn what_cannot_be_an_array_or_a_disk_is_named() {
    let error = |text: &str| Profile::from_toml("bad.toml", text).expect_err(text).to_string();
    for (text, parts) in [
        (array(0, "member = \"face-disk\""), ["members", "1 to 1024"]),
        (array(3, "member = \"p4800x\""), ["member", "kind nvm-block"]),
        (array(3, "member = \"no-such\""), ["no-such", "face-disk"]),
        (array(3, ""), ["member", "missing"]),
        (array(3, "member = 7"), ["name of a disk's profile", "7"]),
        (array(3, "member = \"face-disk\"\nstripe_unit_bytes = 0"), ["stripe_unit_bytes", "512"]),
        (array(3, "[device.member]\nrpm = 1"), ["member", "missing"]),
    ] {
        let error = error(&text);
        assert!(error.contains("bad.toml") && !error.contains('\n'), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "'{error}' lacks '{part}'"));
    }
    let cheetah = BUILT_IN.iter().find(|(name, _)| *name == "cheetah-15k5").expect("a profile").1;
    for (from, to, part) in [
        ("rpm = 15_020.0", "rpm = 0", "0 turns a minute"),
        ("window = 64", "window = 0", "window"),
        ("track_skew = 0.1417", "track_skew = 1.5", "track_skew = 1.5"),
        ("first_cylinder = 0,", "first_cylinder = 5,", "cylinder 0"),
    ] {
        assert!(cheetah.contains(from));
        assert!(error(&cheetah.replace(from, to)).contains(part), "{to}");
    }
    let few = Profile::from_toml("few", &array(2, "member = \"face-disk\"")).expect("numbers that are possible");
    let error = few.build(1 << 20, 1).err().expect("RAID-5 of two").to_string();
    assert!(error.contains("device 'a'") && error.contains("2 members where 3 are needed"), "{error}");
}

#[test]
fn a_disk_is_as_large_as_it_is() {
    let disk = load("cheetah-15k5").expect("a profile");
    let own = disk.build(1, 1).expect("a disk").capacity_bytes();
    assert_eq!(own, 286_749_487 * 512);
    assert!(disk.build(own, 1).is_ok());
    let error = disk.build(own + 1, 1).err().expect("larger than the disk").to_string();
    assert_eq!(error, format!("device 'cheetah-15k5': holds {own} B, and {} B are asked of it", own + 1));
}

/// The text of a built-in profile with one line replaced.
fn changed(name: &str, from: &str, to: &str) -> String {
    let text = BUILT_IN.iter().find(|(known, _)| *known == name).expect("a profile").1;
    assert!(text.contains(from), "{name} has no {from}");
    text.replace(from, to)
}

#[test]
fn what_cannot_be_a_flash_drive_is_named() {
    for (from, to, parts) in [
        ("channels = 8", "", ["missing", "channels"]),
        ("channels = 8", "channels = 0", ["`channels` is 0", "1 to 1024"]),
        ("channels = 8", "channels = -8", ["channels", "a whole number, 0 or more"]),
        ("program_us = 1268.0", "program_us = -1.0", ["`program_us` is -1", "a number from 0"]),
        ("program_us = 1268.0", "program_us = \"slow\"", ["program_us", "expected a number"]),
        ("units_per_block = 256", "units_per_block = 100", ["`units_per_block` is 100", "a power of two"]),
        ("over_provisioning = 1.108", "over_provisioning = 1.0", ["`over_provisioning` is 1", "1.001"]),
        ("sense_us = [[1.0, 60.0]]", "sense_us = [[0.5, 60.0]]", ["`sense_us`", "the last of share 1"]),
        ("cleaning = \"greedy\"", "cleaning = \"broom\"", ["broom", "cost-benefit"]),
        ("cleaning = \"greedy\"", "cleaning = { choices = 0 }", ["cleaning", "0 choices"]),
        ("amplification = \"mech\"", "amplification = \"none\"", ["none", "`curve`"]),
        ("small = 5.15", "small = 0.5", ["`curve.small` is 0.5", "from 1"]),
        ("large_bytes = 262_144", "large_bytes = 4096", ["`curve.large_bytes` is 4096", "4097"]),
        ("precondition_overwrites = 3.0", "precondition_overwrites = nan", ["precondition_overwrites", "from 0"]),
        ("capacity_bytes = 256_060_514_304", "capacity_bytes = 0", ["`capacity_bytes` is 0", "1 to"]),
        ("capacity_bytes = 256_060_514_304", "capacity_bytes = 9_000_000_000_000_000", ["`capacity_bytes`", "1 to"]),
        ("endurance_cycles = 3000", "endurance_cycles = 3000\nname = \"x\"\nspeed = 1", ["speed", "expected one of"]),
    ] {
        let error = Profile::from_toml("bad.toml", &changed("840-pro", from, to)).expect_err(to).to_string();
        assert!(error.contains("bad.toml") && !error.contains('\n'), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{to}: '{error}' lacks '{part}'"));
    }
    let unmeasured = changed("p3700-2tb", "amplification = \"mech\"", "amplification = \"curve\"");
    let error = Profile::from_toml("bad.toml", &unmeasured).expect_err("a curve of nothing").to_string();
    assert!(error.contains("`curve` is missing"), "{error}");
}

#[test]
fn a_flash_drive_is_at_most_as_large_as_it_is_and_comes_used_but_not_worn() {
    let profile = load("840-pro").expect("a profile");
    let error = profile.build(256_060_514_305, 1).err().expect("larger than the drive").to_string();
    assert_eq!(error, "device '840-pro': holds 256060514304 B, and 256060514305 B are asked of it");
    let mut drive = profile.build(2 << 30, 1).expect("a part of it");
    assert_eq!((drive.capacity_bytes(), drive.wear()), (2 << 30, crate::Wear::default()));
    // Every page was written before: each is read from flash, and overwriting at random amplifies from the start.
    let read = crate::load::closed_loop(&mut drive, 1, 1, |_| Io::read(1 << 29, 4096));
    assert!(read.parts.media > 0);
    let mut random = entresol_core::Random::new(5);
    let next = |_| Io::write(random.below(1 << 19) * 4096, 4096);
    crate::load::closed_loop_from(&mut drive, read.finished(), 32, 260_000, next);
    let waf = drive.wear().write_amplification();
    assert!((4.9..5.4).contains(&waf), "{waf} where 001 measured 5.15 (seed 5)");
}

/// A part of a drive has the drive's write amplification, however few blocks there are for each of its dies.
#[test]
fn a_small_part_of_a_drive_amplifies_writes_as_the_drive_does() {
    let amplification = |name: &str, mib: u64| {
        let mut drive = load(name).expect("a profile").build(mib << 20, 1).expect("a part of it");
        let mut random = entresol_core::Random::new(mib);
        let next = |_| Io::write(random.below(mib << 8) * 4096, 4096);
        crate::load::closed_loop(&mut drive, 32, 50_000, next);
        drive.wear().write_amplification()
    };
    for name in ["840-pro", "850-evo", "s3500", "p3700"] {
        let whole = amplification(name, 2048);
        for mib in [24, 46, 64, 100, 200, 512] {
            let part = amplification(name, mib);
            println!("{name}, {mib} MiB: {part:.2}, of 2 GiB {whole:.2} (seed {mib})");
            assert!((0.6..1.3).contains(&(part / whole)), "{name}, {mib} MiB: {part}, of 2 GiB {whole} (seed {mib})");
        }
    }
}

/// One word in the profile chooses the mode of write amplification, and the device reports it, through the host as
/// well.
#[test]
fn both_modes_of_write_amplification_are_a_word_in_the_profile() {
    for (mode, name) in [("mech", "840-pro"), ("curve", "840-pro"), ("mech", "p3700-2tb")] {
        let text = changed(name, "amplification = \"mech\"", &format!("amplification = \"{mode}\""));
        let profile = Profile::from_toml("drive.toml", &text).expect("both are possible");
        assert_eq!(profile.build(1 << 24, 1).expect("a drive").amplification(), Some(mode));
    }
    assert_eq!(load("dram").expect("a profile").build(1 << 24, 1).expect("memory").amplification(), None);
    let Model::Nand(drive) = load("840-pro").expect("a profile").device else { panic!("a flash drive") };
    let of_128_gb = drive.scaled_to(128_000_000_000).map_bytes();
    assert!((250 << 20..330 << 20).contains(&of_128_gb), "{of_128_gb} B for the map of 128 GB");
}
