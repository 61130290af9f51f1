use super::*;
use crate::target::{Pace, Pattern};

fn options(engine: Engine) -> RealOptions {
    RealOptions { size: Some(32 << 20), buffered: true, engine, ..RealOptions::default() }
}

/// A filled file in a scratch directory, for each engine that this host has.
fn targets() -> Vec<(tempfile::TempDir, RealTarget)> {
    let engines = match ring::available() {
        Ok(()) => vec![Engine::Uring, Engine::Threads],
        Err(error) => {
            entresol_skip::skipped!("kernel", "io_uring: {error}");
            vec![Engine::Threads]
        }
    };
    let make = |engine| {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let mut target = RealTarget::in_directory(scratch.path(), &options(engine)).expect("a file");
        let samples = target.run(&[whole()], 1).expect("room");
        assert_eq!(samples[0].bytes, 32 << 20);
        (scratch, target)
    };
    engines.into_iter().map(make).collect()
}

/// A stream that writes the whole file.
fn whole() -> Stream {
    let (bytes, range) = (1 << 20, 0..32 << 20);
    Stream {
        write_share: 1.0,
        bytes,
        align: bytes,
        range,
        pattern: Pattern::Sequential,
        until: Until::Count(32),
        ..stream()
    }
}

fn stream() -> Stream {
    Stream {
        write_share: 0.0,
        bytes: 4096,
        align: 4096,
        range: 0..16 << 20,
        pattern: Pattern::Random,
        pace: Pace::Closed { depth: 4 },
        until: Until::Count(300),
        flush_every: None,
        keep_raw: true,
    }
}

#[test]
fn every_io_is_counted_once_and_its_latency_lies_within_the_run() {
    for (_scratch, mut target) in targets() {
        let mixed = Stream { write_share: 0.5, flush_every: Some(7), ..stream() };
        let samples = target.run(&[mixed, stream()], 3).expect("a run");
        for each in &samples {
            assert_eq!((each.completions, each.bytes), (300, 300 * 4096), "{}", target.describe());
            assert_eq!(each.reads.count() + each.writes.count(), 300);
            assert_eq!(each.raw.len(), 300);
            assert!(each.raw.is_sorted() && each.raw.iter().all(|(at, latency)| latency <= at));
            assert!(each.elapsed > 0 && each.elapsed <= each.raw[299].0);
        }
        assert_eq!(samples[1].writes.count(), 0);
        assert!((100..200).contains(&samples[0].writes.count()), "seed 3");
    }
}

#[test]
fn what_was_written_is_on_the_file_where_it_was_meant_to_be() {
    for (_scratch, target) in targets() {
        let read = |target: &RealTarget, offset| {
            let mut page = Buffers::new(1, 4096, 9);
            target.file.read_exact_at(page.slice(0), offset).expect("within the file");
            page.slice(0).to_vec()
        };
        let mut target = target;
        let before: Vec<_> = [0, 4096, 8192].map(|offset| read(&target, offset)).into();
        assert!(before.iter().all(|page| page.iter().any(|byte| *byte != 0)), "it was filled");
        let second =
            Stream { write_share: 1.0, range: 4096..8192, pattern: Pattern::Same, until: Until::Count(3), ..stream() };
        target.run(&[second], 1).expect("a run");
        assert_eq!((&read(&target, 0), &read(&target, 8192)), (&before[0], &before[2]));
        assert_ne!(read(&target, 4096), before[1]);
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_a_background_ends_with_the_foreground() {
    for (_scratch, mut target) in targets() {
        let open = Stream { pace: Pace::Open { per_second: 2000.0 }, until: Until::Elapsed(200_000_000), ..stream() };
        let pace = Pace::Open { per_second: 500.0 };
        let behind = Stream { pace, until: Until::First, range: 16 << 20..32 << 20, ..stream() };
        let samples = target.run(&[open, behind], 1).expect("a run");
        assert_eq!(samples[0].completions, 400, "{}", target.describe());
        assert!(samples[0].elapsed >= 199_000_000, "{}", samples[0].elapsed);
        assert!((90..=400).contains(&samples[1].completions), "{} in the background", samples[1].completions);
    }
}

#[test]
fn an_open_loop_that_cannot_keep_up_shows_its_delay() {
    for (_scratch, mut target) in targets() {
        // The rate exceeds any device's: the last I/O was due at once and waits for all before it.
        let flood = Stream { pace: Pace::Open { per_second: 1e9 }, until: Until::Count(5000), ..stream() };
        let samples = target.run(&[flood], 1).expect("a run");
        let slowest = samples[0].reads.max();
        assert!(slowest as f64 > 0.9 * samples[0].elapsed as f64, "{slowest} of {}", samples[0].elapsed);
    }
}

#[test]
fn an_interrupted_run_ends_soon_and_says_so() {
    for (scratch, mut target) in targets() {
        let interrupted = target.interrupted.clone();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            interrupted.store(true, Ordering::Relaxed);
        });
        let started = Instant::now();
        let slow = Stream { pace: Pace::Open { per_second: 2.0 }, until: Until::Elapsed(60_000_000_000), ..stream() };
        let error = target.run(&[slow], 1).expect_err("it was stopped");
        stopper.join().expect("no panic");
        assert!(matches!(error, TargetError::Interrupted) && started.elapsed() < Duration::from_secs(5), "{error}");
        assert!(matches!(target.idle(1 << 40), Err(TargetError::Interrupted)));
        // The file never had a name.
        assert_eq!(std::fs::read_dir(scratch.path()).expect("the directory").count(), 0);
    }
}

#[test]
fn streams_that_cannot_be_carried_out_are_refused_with_the_targets_name() {
    for (scratch, mut target) in targets() {
        for (stream, part) in [
            (Stream { range: 0..1 << 30, ..stream() }, "do not fit"),
            (Stream { until: Until::First, ..stream() }, "would not end"),
        ] {
            let error = target.run(&[stream], 1).expect_err(part).to_string();
            assert!(error.contains(part) && error.contains(&scratch.path().display().to_string()), "{error}");
        }
    }
}

#[test]
fn a_failed_io_is_named() {
    for (scratch, target) in targets() {
        target.file.set_len(1 << 20).expect("a shorter file");
        let mut target = target;
        let beyond = Stream { range: 8 << 20..16 << 20, ..stream() };
        let error = target.run(&[beyond], 1).expect_err("beyond the end").to_string();
        assert!(error.contains(&scratch.path().display().to_string()) && error.contains("reading"), "{error}");
    }
}

#[test]
fn places_that_cannot_be_measured_are_named() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("file");
    std::fs::write(&file, "x").expect("a file");
    let error =
        |path: &Path, options: &RealOptions| RealTarget::in_directory(path, options).expect_err("refused").to_string();
    let usual = options(Engine::Auto);
    assert!(error(&file, &usual).contains("is no directory"));
    let none = error(&scratch.path().join("none"), &usual);
    assert!(none.contains("none: looking at it: No such file"), "{none}");
    let huge = error(scratch.path(), &RealOptions { size: Some(1 << 60), ..usual.clone() });
    assert!(huge.contains("does not fit") && huge.contains("are free"), "{huge}");
    let proc = error(Path::new("/proc"), &usual);
    assert!(proc.contains("/proc: "), "{proc}");
}

#[test]
fn shared_memory_is_recognised_and_said() {
    let place = Path::new("/dev/shm");
    match rustix::fs::statfs(place) {
        Ok(found) if found.f_type == 0x0102_1994 => {}
        _ => return entresol_skip::skipped!("/dev/shm", "no shared memory at {}", place.display()),
    }
    let target = RealTarget::in_directory(place, &RealOptions { buffered: false, ..options(Engine::Auto) });
    let target = target.expect("no consent is needed where there is no device");
    assert!(target.describe().contains("32MiB on tmpfs, buffered I/O in shared memory"), "{}", target.describe());
    assert!(target.caveats()[0].contains("shared memory"));
}

/// Runs a program and returns its standard output, or none where it failed.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let done = std::process::Command::new(program).args(arguments).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

#[test]
fn a_loop_device_is_measured_only_with_its_backing_file_typed_and_unused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let image = scratch.path().join("image").canonicalize().unwrap_or(scratch.path().join("image"));
    File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("an image");
    let serial = image.to_str().expect("a path in UTF-8");
    let Some(device) = output("losetup", &["--find", "--show", serial]) else {
        return entresol_skip::skipped!("losetup", "losetup cannot make a loop device here (it takes root)");
    };
    let path = Path::new(&device);
    let open = |serial: &str| RealTarget::block_device(path, serial, &options(Engine::Auto));
    let wrong = open("/tmp/other").map(|_| ()).map_err(|error| error.to_string());
    let in_use =
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path).map(|_claim| open(serial).map(|_| ()));
    let untouched = std::fs::read(&image).expect("the image").iter().all(|byte| *byte == 0);
    let measured = open(serial).and_then(|mut target| {
        target.run(&[whole()], 1)?;
        target.discard(0..1 << 20)?;
        target.run(&[stream()], 1)
    });
    output("losetup", &["--detach", &device]);

    assert!(wrong.expect_err("another serial number").contains("its serial number is not '/tmp/other'"));
    let in_use = in_use.expect("a claim").expect_err("the device is claimed").to_string();
    assert!(in_use.ends_with("is in use"), "{in_use}");
    assert!(untouched, "nothing was written before the serial number was right");
    assert_eq!(measured.expect("the right serial number")[0].completions, 300);
}
