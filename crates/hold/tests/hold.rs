//! Servers that end in every way, and what their holder makes of it.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use support::{PATIENT, Running, until};

#[test]
fn two_thousand_descriptors_survive_thirty_kills_and_the_holder_leaks_none() {
    let held = Running::new();
    assert_eq!(held.ask("start"), "First 0 0 0 first");
    assert_eq!(held.ask("name"), "tried");
    assert_eq!((held.ask("make 2000"), held.ask("pipe")), ("ok".into(), "ok".into()));
    let open = held.open_files();
    assert!(open > 2004, "{open}");
    for kill in 1..=30 {
        held.kill();
        assert_eq!(held.ask("start"), format!("Crash {kill} 0 0 first"));
        assert_eq!(held.ask("check 2000"), "2000", "after {kill} kills");
        assert_eq!(held.ask("read"), "in the pipe", "after {kill} kills");
        assert_eq!(held.open_files(), open, "after {kill} kills");
    }
    assert_eq!(held.ask("names"), "counter into out");
}

#[test]
fn a_server_that_is_killed_as_soon_as_keep_returned_has_kept() {
    let held = Running::new();
    let mut names = vec!["counter".to_owned()];
    for i in 10..30 {
        let server = held.ask("pid");
        assert_eq!(held.tell(&format!("die name{i}")), None);
        held.wait_for_another(&server);
        names.push(format!("name{i}"));
        assert_eq!(held.ask("names"), names.join(" "));
    }
}

#[test]
fn a_name_is_kept_once_forgotten_when_asked_and_of_64_bytes_at_most() {
    let held = Running::new();
    assert_eq!((held.ask("keep a"), held.ask("keep b")), ("ok".into(), "ok".into()));
    let open = held.open_files();
    assert_eq!((held.ask("keep a"), held.open_files()), ("ok".into(), open));
    assert_eq!((held.ask("forget b"), held.open_files()), ("ok".into(), open - 1));
    assert_eq!(held.ask("forget nobody"), "ok");
    assert_eq!((held.ask("keep-long 65"), held.ask("keep-long 0")), ("InvalidInput".into(), "InvalidInput".into()));
    assert_eq!(held.ask("keep-long 64"), "ok");
    held.kill();
    assert_eq!(held.ask("names"), format!("a counter {}", "x".repeat(64)));
}

#[test]
fn a_good_end_is_the_end_and_any_other_is_not() {
    let goods = [("end 0", 0), ("stop 0", 0), ("stop 3", 3), ("stop 101", 101), ("stop killed", 137)];
    for (line, code) in goods.into_iter().chain([("done 0", 0), ("done 3", 3), ("done killed", 0)]) {
        let mut held = Running::new();
        assert_eq!((held.tell(line), held.end(), held.starts()), (None, code, 1), "{line}");
    }
    let held = Running::new();
    for line in ["end 1", "end 2", "end 101", "abort"] {
        let server = held.ask("pid");
        assert_eq!(held.tell(line), None);
        held.wait_for_another(&server);
    }
    assert_eq!(held.ask("start"), "Crash 4 0 0 first");
    let log = held.log();
    assert!(log.contains("(exit status: 101); another one is started") && log.contains("(signal: 6 "), "{log}");
}

#[test]
fn an_error_of_the_first_start_is_that_of_the_holder() {
    let fail = |directory: &tempfile::TempDir| fs::write(directory.path().join("fail"), "9").expect("a file");
    let mut held = Running::prepared(PATIENT, &[], fail);
    assert_eq!((held.end(), held.starts()), (9, 1));
    // A program that is not there.
    let remove = |directory: &tempfile::TempDir| fs::remove_file(directory.path().join("program")).expect("a file");
    let mut held = Running::prepared(PATIENT, &[], remove);
    assert_eq!((held.end(), held.starts()), (1, 0));
    assert!(held.log().contains("program: No such file"), "{}", held.log());
}

#[test]
fn the_holder_gives_up_after_some_servers_in_a_row_that_did_not_get_ready() {
    for (settings, attempts) in [(PATIENT, 5), (["60000", "2", "60000", "0"], 2)] {
        let mut held = Running::with(settings, &[]);
        // One that gets ready makes the count begin anew.
        held.kill();
        fs::write(held.path("fail"), "9").expect("a file");
        held.signal_server(Signal::KILL);
        assert_eq!((held.end(), held.starts()), (9, 2 + attempts));
        let words = format!("{attempts} servers in a row ended without getting ready; the holder gives up");
        assert!(held.log().contains(&words), "{}", held.log());
    }
}

#[test]
fn signals_that_ask_for_the_end_go_on_to_the_server() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut held = Running::new();
        held.signal_holder(signal);
        assert_eq!((held.end(), held.starts()), (100 + signal.as_raw(), 1));
    }
}

#[test]
fn a_signal_that_kills_a_server_before_it_heeds_it_is_not_lost() {
    let mut held = Running::new();
    fs::write(held.path("slow"), "").expect("a file");
    let server = held.signal_server(Signal::KILL);
    until("a start", || (held.starts() == 2).then_some(()));
    held.signal_holder(Signal::TERM);
    until("a start", || (held.starts() == 3).then_some(()));
    fs::remove_file(held.path("slow")).expect("a file");
    assert_eq!((held.end(), held.starts()), (115, 3), "{server}");
    assert!(held.log().contains("(signal: 15 "), "{}", held.log());
}

#[test]
fn a_server_that_hangs_is_replaced() {
    let held = Running::with(["2000", "5", "60000", "0"], &[]);
    assert_eq!(held.ask("keep a"), "ok");
    let server = held.signal_server(Signal::STOP);
    held.wait_for_log("no sign of life");
    held.wait_for_another(&server);
    assert_eq!(held.ask("names"), "a counter");
    assert!(held.ask("start").starts_with("Hang "), "{}", held.log());
    let pause: u64 = held.ask("pause").parse().expect("a number");
    assert!(pause >= 2000, "the pause began with the last sign of life: {pause} ms");
}

/// Without the limit of a pause the sixth in a row would begin a second after the fifth.
#[test]
fn servers_that_end_at_once_are_replaced_ever_more_slowly_and_others_are_not() {
    let paused = Running::with(["60000", "5", "60000", "300"], &[]);
    let kill = |held: &Running| {
        let begun = Instant::now();
        held.kill();
        begun.elapsed()
    };
    let took: Vec<Duration> = (0..6).map(|_| kill(&paused)).collect();
    let sum = took.iter().skip(2).sum::<Duration>().as_millis();
    assert!(sum >= 62 + 124 + 248 + 300, "{took:?}");
    assert!(took[..2].iter().all(|took| took.as_millis() < 1500) && sum < 3000, "{took:?}");
    // One that has served for a time makes the count begin anew.
    thread::sleep(Duration::from_millis(260));
    let again: Vec<Duration> = (0..2).map(|_| kill(&paused)).collect();
    let before = &took[5];
    assert!(again.iter().all(|took| took < before), "{again:?}, {took:?}");
}

#[test]
fn who_asks_for_an_upgrade_hears_why_there_is_none() {
    let held = Running::with(["60000", "5", "500", "0"], &[]);
    held.install("early");
    assert_eq!(held.ask("upgrade-reported"), "no upgrade: the new program ended (exit status: 3)\n");
    held.install("mute");
    assert_eq!(held.ask("upgrade-reported"), "no upgrade: the new program is not ready after 500ms\n");
    fs::remove_file(held.path("program")).expect("a file");
    // The one before is gone a little later than its report came.
    until("a refusal", || held.ask("upgrade-reported").contains("No such file").then_some(()));
}

/// The end of a client, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn twenty_upgrades_in_place_lose_no_request() {
    let held = Running::new();
    let ended = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (mut last, mut answered) = (0, 0);
            while !ended.load(SeqCst) {
                let number: u64 = held.ask("add").parse().expect("a number");
                assert!(number > last, "{number} after {last}");
                (last, answered) = (number, answered + 1);
            }
            answered
        });
        let end = End(&ended);
        let open = held.open_files();
        for upgrade in 1..=20 {
            held.install(&format!("good{upgrade}"));
            if upgrade % 2 == 0 {
                held.signal_holder(Signal::USR2);
            } else {
                assert_eq!(held.ask("upgrade"), "ok");
            }
            let start = format!("Upgrade 0 0 {upgrade} good{upgrade}");
            until(&start, || (held.ask("start") == start).then_some(()));
            held.wait_for_open_files(open);
        }
        drop(end);
        client.join().expect("no panic")
    });
    assert!(answered > 20, "{answered}");
    assert_eq!(held.starts(), 21);
    // What is started after a crash is what was running, and not what is on disk.
    held.install("early");
    held.kill();
    assert_eq!(held.ask("start"), "Crash 1 0 20 good20");
}

/// Otherwise one that stood still would write on when it goes on, over what its successor has written.
#[test]
fn a_server_that_is_replaced_is_gone_before_the_next_one_serves() {
    for stays in [false, true] {
        let mutant: &[_] = if stays { &[("ENTRESOL_FORMER_STAYS", "")] } else { &[] };
        let held = Running::with(["2000", "5", "60000", "0"], mutant);
        let took_over = |former: &str, what: &str| {
            assert_eq!(held.path("beside").exists(), stays, "{what}");
            // One that stays is ended here: nobody else knows of it.
            fs::remove_file(held.path("beside")).and_then(|()| end(former)).ok();
        };
        let server = held.signal_server(Signal::STOP);
        held.wait_for_log("no sign of life");
        held.wait_for_another(&server);
        took_over(&server, "a hang");
        // The next one has the lock.
        held.kill();
        let server = held.ask("pid");
        held.install("good");
        held.signal_holder(Signal::USR2);
        held.wait_for_log(entresol_hold::UPGRADED);
        took_over(&server, "an upgrade");
    }
}

/// Kills a process.
fn end(process: &str) -> std::io::Result<()> {
    let process = Pid::from_raw(process.parse().expect("a number")).expect("a process");
    Ok(kill_process(process, Signal::KILL)?)
}

#[test]
fn a_new_program_that_fails_before_its_turn_changes_nothing() {
    let held = Running::with(["60000", "5", "2000", "0"], &[]);
    let (server, open) = (held.ask("pid"), held.open_files());
    held.install("early");
    held.signal_holder(Signal::USR2);
    held.wait_for_log("no upgrade: the new program ended (exit status: 3)");
    held.install("mute");
    held.signal_holder(Signal::USR2);
    held.wait_for_log("no upgrade: the new program is not ready after 2s");
    held.wait_for_open_files(open);
    fs::remove_file(held.path("program")).expect("a file");
    held.signal_holder(Signal::USR2);
    held.wait_for_log("No such file");
    assert_eq!((held.ask("pid"), held.ask("start")), (server, "First 0 0 0 first".into()));
    // The program is not there any more, but a server of it is.
    held.kill();
    assert_eq!(held.ask("start"), "Crash 1 0 0 first");
}

#[test]
fn a_new_program_that_fails_in_its_turn_gives_back_to_the_former_one() {
    let held = Running::new();
    let open = held.open_files();
    for (crashes, (mode, how)) in
        [("late", "exit status: 4)"), ("late0", "exit status: 0)"), ("abort", "signal: 6 (SIGABRT)")]
            .into_iter()
            .enumerate()
    {
        let server = held.ask("pid");
        held.install(mode);
        held.signal_holder(Signal::USR2);
        held.wait_for_another(&server);
        let number = crashes + 1;
        assert_eq!(held.ask("start"), format!("Crash {number} 0 {number} first"));
        let ended = format!("ended before it was ready ({how}");
        let log = held.log();
        assert!(log.contains(&ended) && log.contains("; the program of before the upgrade is started"), "{log}");
        held.wait_for_open_files(open);
    }
}

#[test]
fn a_server_may_crash_while_its_standby_prepares() {
    let held = Running::new();
    held.install("mute");
    held.signal_holder(Signal::USR2);
    until("the standby", || (held.starts() == 2).then_some(()));
    held.kill();
    held.signal_holder(Signal::USR2);
    held.wait_for_log("no upgrade: one is under way");
    assert_eq!((held.ask("start"), held.starts()), ("Crash 1 0 0 first".into(), 3));
}

#[test]
fn the_end_of_a_server_is_that_of_its_standby() {
    let mut held = Running::new();
    held.install("mute");
    held.signal_holder(Signal::USR2);
    until("the standby", || (held.starts() == 2).then_some(()));
    let starts = fs::read_to_string(held.path("starts")).expect("a file");
    let standby = starts.lines().last().expect("a line");
    held.signal_holder(Signal::TERM);
    assert_eq!(held.end(), 115);
    assert!(!fs::exists(format!("/proc/{standby}")).expect("a path"));
    // It was killed, and did not end because the holder was gone.
    assert_ne!(fs::read_to_string(held.path("lost")).unwrap_or_default(), standby);
}

#[test]
fn a_server_hears_that_its_holder_is_gone() {
    let held = Running::new();
    let server = held.ask("pid");
    held.signal_holder(Signal::KILL);
    until("the server", || fs::read_to_string(held.path("lost")).ok().filter(|lost| *lost == server));
}

#[test]
fn the_service_manager_hears_of_the_holder_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("manager");
    let manager = UnixDatagram::bind(&place).expect("a socket");
    manager.set_read_timeout(Some(support::PATIENCE)).expect("a time");
    let heard = || {
        let mut bytes = [0; 64];
        let len = manager.recv(&mut bytes).expect("a report");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let place = place.to_str().expect("a word");
    let mut held = Running::with(PATIENT, &[("NOTIFY_SOCKET", place), ("WATCHDOG_USEC", "1000000")]);
    assert_eq!(held.ask("environment"), "false");
    assert_eq!((heard(), heard(), heard()), ("READY=1".into(), "WATCHDOG=1".into(), "WATCHDOG=1".into()));
    held.kill();
    held.signal_holder(Signal::TERM);
    let ended = until("the end", || Some(heard()).filter(|report| report != "WATCHDOG=1"));
    assert_eq!((ended.as_str(), held.end()), ("STOPPING=1", 115));
    manager.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
    assert!(manager.recv(&mut [0; 64]).is_err(), "nothing is said after the end");
}
