//! The NBD front-end with the clients that people use: libnbd's tools, QEMU's tools, fio, as Debian packages them
//! (`apt-get install libnbd-bin qemu-utils fio`). A test whose tool is missing reports that and passes.

mod support;

use entresol_cache::Block;
use entresol_nbd::{Export, Limits, Listener, Server};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use support::Random;
use support::memory::MemoryBlock;

const SIZE: usize = 64 << 20;

struct Served {
    server: Server,
    block: Arc<MemoryBlock>,
    uri: String,
    directory: tempfile::TempDir,
}

fn serve() -> Served {
    let directory = tempfile::tempdir().unwrap();
    let block = Arc::new(MemoryBlock::new(SIZE));
    let description = "sixty-four MiB of memory".into();
    let export = Export { block: block.clone(), name: "disk".into(), description, read_only: false };
    let listener = Listener::unix(&directory.path().join("s")).unwrap();
    let uri = listener.uri().unwrap();
    let server = Server::start(listener, export, Limits::default(), |error| eprintln!("server: {error}")).unwrap();
    Served { server, block, uri, directory }
}

impl Served {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the server and checks that no client ended a connection without a disconnect.
    fn stop(self) {
        let counts = self.server.stop().unwrap();
        assert!(counts.connections > 0);
        assert_eq!((counts.connections_failed, counts.connections_refused), (0, 0), "{counts:?}");
    }
}

/// Runs a tool; `None`, with a note, when it is not installed.
fn tool(name: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(name).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            entresol_skip::skipped!(name, "{name} is not installed");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// A tool's standard output; the tool must have succeeded.
fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

#[test]
fn nbdinfo_reads_every_fact() {
    let served = serve();
    let Some(info) = tool("nbdinfo", &[&served.uri]) else { return };
    let info = said(&info);
    for fact in [
        "newstyle-fixed",
        "using structured packets",
        "export-size: 67108864 (64M)",
        "sixty-four MiB of memory",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "can_df: true",
        "is_read_only: false",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 8388608",
    ] {
        assert!(info.contains(fact), "{fact} is missing in\n{info}");
    }
    let list = said(&tool("nbdinfo", &["--list", &served.uri]).unwrap());
    assert!(list.contains("export=\"disk\""), "{list}");
    let absent = tool("nbdinfo", &[&served.uri.replace(":///", ":///absent")]).unwrap();
    assert!(!absent.status.success());
    served.stop();
}

#[test]
fn nbdcopy_brings_back_what_it_took_there() {
    let served = serve();
    let bytes = Random(0x0d00_0010).bytes(SIZE);
    let (there, back) = (served.path("there"), served.path("back"));
    std::fs::write(&there, &bytes).unwrap();
    let Some(copied) = tool("nbdcopy", &["--flush", there.to_str().unwrap(), &served.uri]) else { return };
    said(&copied);
    let mut stored = vec![0; SIZE];
    served.block.read(0, &mut stored).unwrap();
    assert!(stored == bytes);
    said(&tool("nbdcopy", &[&served.uri, back.to_str().unwrap()]).unwrap());
    assert!(std::fs::read(&back).unwrap() == bytes);
    served.stop();
}

#[test]
fn qemu_img_makes_copies_and_compares() {
    let served = serve();
    let qcow = served.path("image.qcow2");
    let qcow = qcow.to_str().unwrap();
    served.block.write(1 << 20, &Random(0x0d00_0011).bytes(3 << 20), false).unwrap();
    let Some(info) = tool("qemu-img", &["info", &served.uri]) else { return };
    assert!(said(&info).contains("64 MiB (67108864 bytes)"));
    said(&tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &served.uri, qcow]).unwrap());
    let compare = ["compare", "-f", "qcow2", "-F", "raw", qcow, &served.uri];
    assert!(said(&tool("qemu-img", &compare).unwrap()).contains("identical"));
    served.block.write(5 << 20, b"another byte", false).unwrap();
    assert!(!tool("qemu-img", &compare).unwrap().status.success(), "a difference is seen");
    said(&tool("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", qcow, &served.uri]).unwrap());
    said(&tool("qemu-img", &compare).unwrap());
    served.stop();
}

#[test]
fn qemu_io_writes_zeroes_discards_and_verifies() {
    let served = serve();
    let commands = [
        "write -P 0x5a 4096 65536",
        "write -f -P 0xa5 1M 4k",
        "read -P 0x5a 4096 65536",
        "read -P 0xa5 1M 4k",
        "write -z 8192 4096",
        "read -P 0 8192 4096",
        "read -P 0x5a 12288 4096",
        "discard 1M 4k",
        "write -P 1 513 1023",
        "read -P 1 513 1023",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&served.uri);
    let Some(output) = tool("qemu-io", &arguments) else { return };
    let output = said(&output);
    assert!(!output.contains("failed") && !output.contains("error"), "{output}");
    let mut bytes = [0; 1024];
    served.block.read(513, &mut bytes[..1023]).unwrap();
    assert_eq!(bytes[..1023], [1; 1023]);
    let beyond = tool("qemu-io", &["-f", "raw", "-c", "read 64M 4k", &served.uri]).unwrap();
    assert!(!beyond.status.success() || !said(&beyond).contains("4096/4096"));
    served.stop();
}

#[test]
fn fio_finds_what_it_wrote() {
    let served = serve();
    let uri = format!("--uri={}", served.uri);
    let mut arguments = vec!["--name=verify", "--ioengine=nbd", &uri, "--rw=randrw", "--bsrange=512-64k"];
    arguments.extend(["--blockalign=512", "--iodepth=16", "--size=16M", "--verify=crc32c", "--verify_fatal=1"]);
    arguments.extend(["--randseed=7", "--fsync=32", "--verify_state_save=0", "--output-format=terse"]);
    let Some(output) = tool("fio", &arguments) else { return };
    if String::from_utf8_lossy(&output.stderr).contains("not found") {
        entresol_skip::skipped!("fio", "this fio has no nbd engine");
        return;
    }
    said(&output);
    served.stop();
}
