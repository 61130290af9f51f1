//! Figures of `stats` and `metrics` about the tables of a cache in use, by the names that their databases give them.

mod common;

use common::mounted::Mounted;
use common::{Scratch, ended_well, says, wait_for};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn stats(scratch: &Scratch, more: &[&str]) -> Value {
    let text = scratch.ok(&[&["stats", "cache", "--json"], more].concat());
    serde_json::from_str(&text).expect("one JSON object")
}

/// The counts of a file.
fn account<'a>(stats: &'a Value, path: &str) -> &'a Value {
    let objects = stats["objects"].as_array().expect("objects");
    objects.iter().find(|object| object["path"] == path).unwrap_or_else(|| panic!("{path} in {stats}"))
}

/// The page of an exporter that is asked twice.
fn metrics(scratch: &Scratch, more: &[&str]) -> String {
    let mut command = scratch.command(&[&["metrics", "cache", "--listen", "127.0.0.1:0"], more].concat());
    let mut exporting = command.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(exporting.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    let address = line.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics\n")).expect("an address");
    let mut page = String::new();
    for _ in 0..2 {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it is sent");
        page.clear();
        stream.read_to_string(&mut page).expect("text");
    }
    exporting.kill().expect("it runs");
    exporting.wait().expect("an end");
    page
}

fn has_line(page: &str, line: &str) {
    assert!(page.lines().any(|other| other == line), "{line} is not in:\n{page}");
}

/// A data directory as MariaDB makes it, reduced to names: tables are files.
fn mariadb(scratch: &Scratch) {
    std::fs::create_dir_all(scratch.path("backing/my/shop")).expect("a data directory");
    scratch.file("backing/my/ibdata1", vec![0; 4 * 16384]);
    scratch.file("backing/my/shop/orders.ibd", vec![1; 20 * PAGE]);
    scratch.file("backing/my/shop/lines#P#p1.ibd", vec![2; 10 * PAGE]);
    scratch.file("backing/my/shop/lines#P#p2.ibd", vec![3; 10 * PAGE]);
    scratch.file("backing/other", vec![4; 5 * PAGE]);
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
}

/// Only the serving process and its command see the files, so they read the names.
#[test]
fn tables_of_a_command_that_is_run_have_names_verdicts_and_queries() {
    let scratch = Scratch::new();
    mariadb(&scratch);
    let script = "cat backing/my/shop/orders.ibd backing/my/shop/lines* backing/other > seen; \
        printf x | dd of=backing/my/shop/lines#P#p2.ibd conv=notrunc,fsync 2>&1; \
        touch ready; while [ ! -e told ]; do sleep 0.05; done";
    let arguments = ["-q", "run", "--backing", "backing", "--cache", "cache", "--policy", "heuristicdb:watched=100"];
    let mut command = scratch.command(&[&arguments[..], &["--hints", "hints", "--", "sh", "-c", script]].concat());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command runs");
    if wait_for(&scratch.path("ready"), &mut running) {
        let socket = UnixDatagram::unbound().expect("a socket");
        let here = scratch.path("backing").canonicalize().expect("it is there");
        let begin = |number, files: &str| format!("entresol-hint 1\nbegin 1 {number}\nd {}\n{files}", here.display());
        let messages = [
            begin(1, "f my/shop/orders.ibd\nf my/shop/none.ibd\n"),
            "noise".to_owned(),
            "entresol-hint 1\nbegin 1 2\nd /elsewhere\n".to_owned(),
            "entresol-hint 1\nend 1 1\n".to_owned(),
            "entresol-hint 1\nend 1 9\n".to_owned(),
            begin(3, "f other\n"),
        ];
        for message in &messages {
            socket.send_to(message.as_bytes(), scratch.path("hints")).expect("somebody hears");
        }
        let start = Instant::now();
        while stats(&scratch, &[])["hints"]["received"] != 6 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let now = stats(&scratch, &[]);
        let hints = &now["hints"];
        let counts =
            ["received", "begins", "ends", "running", "files_known", "files_unknown", "malformed", "elsewhere"];
        let counted: Vec<_> = counts.iter().map(|name| hints[name].as_u64().expect("a count")).collect();
        assert_eq!(counted, [6, 2, 1, 1, 2, 1, 1, 1], "{counts:?}");
        assert_eq!(
            (&now["policy_gauges"]["queries"], &now["policy_gauges"]["query_running"]),
            (&2.0.into(), &1.0.into())
        );

        let orders = account(&now, "my/shop/orders.ibd");
        assert_eq!(
            (&orders["name"], &orders["kind"], &orders["dirty"]),
            (&"shop.orders".into(), &"table".into(), &0.into())
        );
        let part = account(&now, "my/shop/lines#P#p2.ibd");
        assert_eq!((&part["name"], &part["dirty"]), (&"shop.lines".into(), &1.into()));
        assert_eq!(account(&now, "other").get("name"), None);
        let dirty = now["objects"].as_array().expect("objects").iter().filter_map(|object| object["dirty"].as_u64());
        assert_eq!(Some(dirty.sum()), now["dirty_pages"].as_u64(), "no dirty page is left out");

        let text = scratch.ok(&["stats", "cache"]);
        says(
            &text,
            &[
                "queries told   6 messages, 2 queries began and 1 ended, 1 run; 2 files known, 1 unknown",
                "\nshop.lines  ",
            ],
        );
        assert!(!text.contains("#P#"), "partitions are one table: {text}");
        says(&scratch.ok(&["stats", "cache", "--paths"]), &["my/shop/lines#P#p2.ibd"]);

        let page = metrics(&scratch, &["--objects", "2"]);
        for line in [
            "entresol_object_dirty_pages{cache=\"cache\",object=\"shop.lines\",kind=\"table\"} 1",
            "entresol_object_requests_total{cache=\"cache\",object=\"shop.orders\",kind=\"table\",op=\"read\"} 20",
            "entresol_hint_messages_total{cache=\"cache\",what=\"malformed\"} 1",
            "entresol_hint_files_total{cache=\"cache\",known=\"no\"} 1",
        ] {
            has_line(&page, line);
        }
        says(
            &page,
            &["entresol_object_requests_total{cache=\"cache\",object=\"(other)\",kind=\"other\",op=\"read\"} "],
        );
        let shown = page.lines().filter(|line| line.starts_with("entresol_object_dirty_pages{"));
        assert_eq!(shown.count(), 3, "two and the others: {page}");
        scratch.file("told", "");
    }
    ended_well(running);
}

/// A query is announced without waiting, and its table is in the cache a while later.
#[test]
fn the_table_of_a_query_that_is_told_of_is_brought_whole() {
    let scratch = Scratch::new();
    mariadb(&scratch);
    let script = "for f in backing/my/shop/*.ibd; do head -c 1 $f; done > seen; \
        touch ready; while [ ! -e told ]; do sleep 0.05; done; cat backing/my/shop/orders.ibd > seen";
    let arguments = ["-q", "run", "--backing", "backing", "--cache", "cache", "--policy", "table-placement"];
    let mut command = scratch.command(&[&arguments[..], &["--hints", "hints", "--", "sh", "-c", script]].concat());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command runs");
    if wait_for(&scratch.path("ready"), &mut running) {
        let here = scratch.path("backing").canonicalize().expect("it is there");
        let begin = format!("entresol-hint 1\nbegin 1 1\nd {}\nf my/shop/orders.ibd\n", here.display());
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.send_to(begin.as_bytes(), scratch.path("hints")).expect("somebody hears");
        let now = eventually_cached(&scratch, "my/shop/orders.ibd", 20);
        assert_eq!(account(&now, "my/shop/orders.ibd")["verdict"], "placed");
        assert_eq!((&now["requests"]["placed"], &now["requests"]["admissions"]), (&20.into(), &0.into()));
        assert_eq!(account(&now, "my/shop/lines#P#p1.ibd")["resident_device"], 0, "no query asked for it");
        scratch.file("told", "");
    }
    if ended_well(running).is_some() {
        assert_eq!(scratch.bytes("seen"), vec![1; 20 * PAGE]);
    }
}

/// `initdb` of an installed version.
fn initdb() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions.map(|version| version.path().join("bin/initdb")).find(|program| program.is_file())
}

#[test]
fn relations_of_postgresql_have_the_names_of_its_catalogue_under_every_mode() {
    let Some(initdb) = initdb() else {
        entresol_skip::skipped!("postgres", "the package postgresql is not installed");
        return;
    };
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    mounted.unmount();
    let mut made = Command::new(initdb);
    let below = mounted.below();
    if std::fs::metadata("/proc/self").expect("our own process").uid() == 0 {
        // The server's programs refuse to run as root.
        std::fs::set_permissions(mounted.scratch.path("."), PermissionsExt::from_mode(0o755)).expect("its mode");
        chown(&below, Some(65534), Some(65534)).expect("its owner");
        made.uid(65534).gid(65534);
    }
    made.args(["-A", "trust", "--no-sync", "-D"]).arg(below.join("pg")).current_dir("/").env("LC_ALL", "C");
    assert!(made.output().expect("initdb runs").status.success());
    let listed: Value = serde_json::from_str(&mounted.scratch.ok(&["-q", "names", "backing", "--json"])).expect("JSON");
    let files = listed["files"].as_array().expect("files");
    let of = |object: &str| {
        let found = files.iter().find(|file| file["object"] == object && file["database"] == "postgres");
        found.expect("it is listed")["path"].as_str().expect("a path").to_owned()
    };
    let (table, index) = (of("pg_proc"), of("pg_proc_oid_index"));
    let unknown = table.rsplit_once('/').expect("a folder").0.to_owned() + "/4000000000";
    for mode in ["write-back", "write-through"] {
        mounted.change(mode, "lru");
        assert!(mounted.start(), "it could be mounted before");
        for path in [&table, &index] {
            let file = File::open(mounted.above().join(path)).expect("a file");
            file.read_exact_at(&mut [0; 2 * PAGE], 0).expect("pages");
        }
        let strange = File::create(mounted.above().join(&unknown)).expect("a file");
        strange.write_all_at(&[1; PAGE], 0).expect("a page");
        drop(strange);
        let now = stats(&mounted.scratch, &[]);
        let named = |path: &str| (account(&now, path)["name"].clone(), account(&now, path)["kind"].clone());
        assert_eq!(named(&table), ("postgres.pg_catalog.pg_proc".into(), "table".into()));
        assert_eq!(named(&index), ("postgres.pg_catalog.pg_proc_oid_index".into(), "index".into()));
        assert_eq!(account(&now, &unknown).get("name"), None, "no catalogue knows it");
        assert!(account(&stats(&mounted.scratch, &["--paths"]), &table).get("name").is_none());
        says(&mounted.scratch.ok(&["stats", "mount"]), &["postgres.pg_catalog.pg_proc_oid_index  ", " index "]);
        let refused = mounted.scratch.refused(&["stats", "cache", "--ask", "host=/nowhere"]);
        says(&refused, &["--ask", "/nowhere"]);
        mounted.unmount();
    }
}

/// Waits until the cache has this many pages of a file.
fn eventually_cached(scratch: &Scratch, path: &str, pages: u64) -> Value {
    let start = Instant::now();
    loop {
        let now = stats(scratch, &[]);
        if account(&now, path)["resident_device"] == pages {
            return now;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{path}: {}", account(&now, path));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_table_is_placed_and_leaves_by_its_name_while_the_mount_is_in_use() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "table-placement"])) else { return };
    std::fs::create_dir_all(mounted.above().join("my/shop")).expect("directories");
    let paths = ["my/ibdata1", "my/shop/orders.ibd", "my/shop/lines#P#p1.ibd", "my/shop/lines#P#p2.ibd"];
    for (path, pages) in paths.iter().zip([4, 40, 10, 10]) {
        std::fs::write(mounted.above().join(path), vec![7; pages * PAGE]).expect("a file");
    }
    let scratch = &mounted.scratch;
    let set = |setting: &str| scratch.ok(&["set", "--cache", "cache", setting]);
    let refused = |setting: &str| scratch.refused(&["set", "--cache", "cache", setting]);
    assert_eq!(account(&stats(scratch, &[]), paths[1])["resident_device"], 0, "nothing was placed");
    says(&set("place=shop.orders"), &["my/shop/orders.ibd is fetched into the cache, and stays"]);
    says(
        &set("place=lines"),
        &["lines#P#p1.ibd is fetched into the cache", "lines#P#p2.ibd is fetched into the cache"],
    );
    eventually_cached(scratch, paths[1], 40);
    let now = eventually_cached(scratch, paths[3], 10);
    assert_eq!((&now["requests"]["placed"], &account(&now, paths[1])["verdict"]), (&60.into(), &"pinned".into()));
    let bytes = std::fs::read(mounted.above().join(paths[1])).expect("it is read");
    assert!(bytes == vec![7; 40 * PAGE]);
    says(&scratch.ok(&["stats", "cache"]), &[", 60 placed", " pinned "]);
    has_line(&metrics(scratch, &[]), "entresol_placed_pages_total{cache=\"cache\"} 60");
    says(&set("place-rate=10MiB"), &["the rate of placing is 10485760 bytes a second"]);
    says(&set("unplace=shop.orders"), &["my/shop/orders.ibd leaves the cache"]);
    eventually_cached(scratch, paths[1], 0);
    assert!(std::fs::read(mounted.above().join(paths[1])).expect("it is read") == vec![7; 40 * PAGE]);
    says(&refused("place=shop.nothing"), &["place: the cache never had a page of shop.nothing"]);
    says(&refused("place-rate=half"), &["place-rate"]);
    set("policy=lru");
    says(&refused("place=shop.orders"), &["policy 'lru' places no tables; table-placement does"]);
    mounted.unmount();
    assert!(std::fs::read(mounted.below().join(paths[2])).expect("it is there") == vec![7; 10 * PAGE]);
}
