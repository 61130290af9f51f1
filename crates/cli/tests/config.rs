//! One configuration for all commands of a live cache.

mod common;

use common::served::client::FUA;
use common::served::{formatted, terminate};
use common::{Scratch, says};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const CONFIG: &str = "\
cache = 'cache'
backing = 'disk'
policy = 'arc'
mode = 'writethrough'
cache-size = '50%'

[serve.nbd]
socket = 's'
connections = 2
";

#[test]
fn every_command_takes_its_part_and_the_command_line_overrides() {
    let scratch = formatted();
    scratch.file("entresol.toml", CONFIG);
    let with = ["--config", "entresol.toml"];
    let mut command = scratch.command(&[&["serve", "nbd", "--policy", "lru"], &with[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    says(&line, &["nbd+unix:///?socket=s"]);
    let mut client = common::served::client::Client::connect(&scratch.path("s"), false).expect("a connection");
    client.write(0, &[5; 4096], FUA);
    assert_eq!(scratch.bytes("disk")[..4096], [5; 4096], "it is written through");
    let stats = scratch.ok(&[&["stats", "--json"], &with[..]].concat());
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!((&stats["policy"], &stats["mode"]), (&"lru".into(), &"write-through".into()));
    assert_eq!(stats["tiers_pages"][0].as_u64(), stats["room_pages"].as_u64().map(|space| space / 2));
    scratch.ok(&[&["set", "mode=writearound"], &with[..]].concat());
    drop(client);
    terminate(child);
    says(&scratch.ok(&[&["check"], &with[..]].concat()), &["0 dirty"]);
    scratch.ok(&[&["drain", "-q"], &with[..]].concat());
}

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    let scratch = formatted();
    let refused = |text: &str| {
        scratch.file("c.toml", text);
        scratch.refused(&["serve", "nbd", "--config", "c.toml"])
    };
    says(&refused("cache = 'cache'\npolcy = 'lru'\n"), &["c.toml:2: no option 'polcy' here; there are cache, "]);
    says(&refused("\n[serve.nbd]\nsockets = 's'\n"), &["c.toml:3: no option 'sockets' here", "socket"]);
    says(&refused("socket = 's'\n"), &["c.toml:1: no option 'socket' here"]);
    says(&refused("[serve.nfs]\n"), &["c.toml:1: no command 'serve.nfs'; there are [serve.nbd]", "[format]"]);
    says(&refused("[mount]\ncolour = 1\n"), &["c.toml:2: no option 'colour' here"]);
    says(&refused("cache = 'cache'\ncache = 'c'\n"), &["c.toml:2: duplicate key"]);
    says(&refused("cache = \n"), &["c.toml:1: "]);
    says(&refused("cache = ['a']\n"), &["c.toml:1: cache must be a text, a number, true or false"]);
    let rest = "cache = 'cache'\nbacking = 'disk'\n";
    says(&refused(&format!("{rest}mode = 'fast'\n")), &["c.toml:3: ", "'fast'", "write-back"]);
    for name in ["max-connections", "connections"] {
        let text = format!("{rest}[serve.nbd]\nsocket = 's'\n{name} = 0\n");
        says(&refused(&text), &["c.toml:5: ", "--max-connections"]);
    }
    says(&refused(&format!("{rest}policy = 'face-gcs'\n[serve.nbd]\nsocket = 's'\n")), &["face-gcs", "face-gsc"]);
    says(&scratch.refused(&["stats", "--config", "absent.toml"]), &["absent.toml: No such file"]);
}

#[test]
fn the_printed_configuration_is_one_that_works() {
    let scratch = formatted();
    let text = Scratch::new().ok(&["config"]);
    says(
        &text,
        &[
            "# policy = \"POLICY\"",
            "# mode = \"MODE\"",
            "# One of write-back, ",
            "[serve.nbd]",
            "max-connections = 16",
            "# socket = ",
        ],
    );
    scratch.file("c.toml", text.replace("# cache = \"FILE\"", "cache = \"cache\""));
    says(&scratch.ok(&["stats", "--config", "c.toml"]), &["closed in good order"]);
}
