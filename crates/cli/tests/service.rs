//! The server as a service: its notices to systemd, and the units supplied.

mod common;

use common::says;
use common::served::{formatted, reached, terminate};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SERVE: &str = "serve nbd --backing disk --cache cache --socket s --policy lru";

fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 100];
    let length = socket.recv(&mut bytes).expect("a datagram in time");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn the_service_manager_is_told_when_it_is_ready_and_when_it_ends() {
    let scratch = formatted();
    let place = scratch.path("notify");
    let name = format!("entresol-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
    let sockets = [
        (UnixDatagram::bind(&place).expect("a socket"), place.display().to_string()),
        (UnixDatagram::bind_addr(&abstract_name).expect("a socket"), format!("@{name}")),
    ];
    for (socket, place) in sockets {
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let mut command = scratch.command(&SERVE.split(' ').collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("NOTIFY_SOCKET", &place);
        let mut child = command.spawn().expect("the command runs");
        assert_eq!(told(&socket), "READY=1");
        assert!(scratch.path("s").exists(), "it can be reached");
        drop(reached(&scratch, &mut child));
        terminate(child);
        assert_eq!(told(&socket), "STOPPING=1");
    }
    // A missing listener is no reason not to serve.
    let mut command = scratch.command(&SERVE.split(' ').collect::<Vec<_>>());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("NOTIFY_SOCKET", "nobody");
    let mut child = command.spawn().expect("the command runs");
    drop(reached(&scratch, &mut child));
    says(&terminate(child), &["$NOTIFY_SOCKET, nobody: ", "does not know 'READY=1'"]);
}

/// Checks the units, with this command in place of the installed one and without parts that need a whole machine.
#[test]
fn the_units_are_what_systemd_takes_them_for() {
    let scratch = common::Scratch::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    for name in ["entresol@.service", "entresol-nbd@.service"] {
        let unit = std::fs::read_to_string(folder.join(name)).expect("the unit");
        let command =
            unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/entresol ")).expect("a command");
        // Without a file of that name the command is refused for that alone: every word is known.
        let words: Vec<&str> = command.split(' ').collect();
        says(&scratch.refused(&words), &["/etc/entresol/%i.toml: No such file"]);
        let unit = unit.replace("/usr/bin/entresol", env!("CARGO_BIN_EXE_entresol"));
        let instance = name.replace('@', "@test");
        scratch.file(&instance, unit);
        let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(scratch.path(&instance)).output();
        match verify {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() && said.is_empty(), "{name}: {said}");
            }
            Err(error) => entresol_skip::skipped!("systemd-analyze", "systemd-analyze: {error}"),
        }
    }
}

/// A refusal while a file system is not mounted yet is retried without end, not five times. The line that waits for
/// mounts is present, to be filled in.
#[test]
fn units_try_again_without_end_and_name_the_line_that_waits_for_mounts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    for name in ["entresol@.service", "entresol-nbd@.service"] {
        let unit = std::fs::read_to_string(folder.join(name)).expect("the unit");
        let has = |line: &str| unit.lines().any(|found| found == line);
        assert!(has("StartLimitIntervalSec=0") && has("Restart=on-failure"), "{name}");
        assert!(unit.contains("# RequiresMountsFor="), "{name}");
    }
}

/// The installer puts everything under the given directory, and the units there start the program there.
#[test]
fn what_is_installed_is_whole_and_refers_to_itself() {
    let scratch = common::Scratch::new();
    let installer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/install.sh");
    for (prefix, units) in [("/usr", "usr/lib/systemd/system"), ("/usr/local", "etc/systemd/system")] {
        let root = scratch.path("root");
        let mut command = Command::new(&installer);
        command.arg(env!("CARGO_BIN_EXE_entresol")).arg(&root).arg(prefix);
        let output = command.output().expect("the installer runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let at = |name: &str| root.join(&prefix[1..]).join(name);
        let text = |path: std::path::PathBuf| {
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        assert!(at("bin/entresol").exists());
        says(&text(at("share/man/man1/entresol-mount.1")), &[".TH entresol-mount 1"]);
        for shell in [
            "bash-completion/completions/entresol",
            "zsh/site-functions/_entresol",
            "fish/vendor_completions.d/entresol.fish",
        ] {
            says(&text(at("share").join(shell)), &["mount", "dirty-age"]);
        }
        for unit in ["entresol@.service", "entresol-nbd@.service"] {
            says(&text(root.join(units).join(unit)), &[&format!("ExecStart={prefix}/bin/entresol ")]);
        }
    }
}
