//! Files and messages that the command line program reads: configurations, journals of unfinished sweeps, questions and
//! answers of a control socket, and records beside a backing store.

use crate::config;
use crate::journal::Journal;
use crate::protocol::{self, QUESTION_MAX};
use clap::{Arg, ArgAction, Command};
use entresol_files::record::Record;
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufRead, Cursor};
use std::path::PathBuf;
use tempfile::TempDir;

thread_local! {
    /// Directory for input that has to be read from a file.
    static SCRATCH: RefCell<TempDir> = RefCell::new(tempfile::tempdir().expect("a scratch directory"));
}

/// Path of a file with this name and these bytes.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    SCRATCH.with_borrow(|scratch| {
        let path = scratch.path().join(name);
        std::fs::write(&path, bytes).expect("room");
        path
    })
}

/// A command line with an option of each kind.
fn cli() -> Command {
    let option = |name: &'static str| Arg::new(name).long(name).value_name("X");
    let mount = Command::new("mount")
        .arg(Arg::new("backing").value_name("BACKING"))
        .arg(option("cache"))
        .arg(option("policy").default_value("lru"))
        .arg(option("dirty-high").value_parser(clap::value_parser!(f64)))
        .arg(option("direct").action(ArgAction::Append))
        .arg(Arg::new("writers-ok").long("writers-ok").action(ArgAction::SetTrue));
    config::with_option(Command::new("entresol").subcommand(mount).subcommand(Command::new("set")))
}

/// A configuration. The words that it adds to a command line are accepted or refused by the parser.
pub(crate) fn configuration(data: &[u8]) {
    let path = file("entresol.toml", data);
    let cli = cli();
    let words = ["entresol", "mount", "--config"].map(OsString::from);
    let arguments: Vec<OsString> = words.into_iter().chain([path.into_os_string()]).collect();
    let given = arguments.len();
    if let Ok((extended, origins)) = config::extended(&cli, arguments) {
        assert!(extended.len() >= given);
        if let Err(error) = cli.try_get_matches_from(extended) {
            let _ = (error.to_string(), origins.of(&error));
        }
    }
}

/// A journal of an unfinished sweep, with a valid beginning where the first byte is odd. A second open resumes as many
/// cells as the first.
pub(crate) fn resumed(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let head: &[u8] = if choice % 2 == 1 { b"a sweep\n" } else { b"" };
    let partial = file("results.json.partial", &[head, rest].concat());
    let results = partial.with_extension("");
    let open = || Journal::<serde_json::Value>::open(Some(&results), "a sweep").expect("any journal opens");
    let first = open();
    let count = first.len();
    drop(first);
    assert_eq!(open().len(), count, "the same cells the second time");
}

/// Lines of a control socket: each is a question, an answer, both or neither. A decoded line survives another encoding.
pub(crate) fn control(data: &[u8]) {
    let mut from = Cursor::new(data);
    while let Ok(Some(line)) = protocol::read_line(&mut from, QUESTION_MAX) {
        assert!(line.len() as u64 <= QUESTION_MAX);
        if let Ok(question) = protocol::decode_question(&line) {
            assert_eq!(protocol::decode_question(&protocol::encode_question(question.clone())), Ok(question));
        }
        if let Ok(answer) = protocol::decode_answer(&line) {
            let again = protocol::decode_answer(&protocol::encode_answer(answer.clone()));
            assert_eq!(again, Ok(answer));
        }
    }
    assert!(from.fill_buf().is_ok());
}

/// A record beside a backing store, with a valid checksum. A decoded record survives another encoding.
pub(crate) fn record(data: &[u8]) {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32;
    if let Ok(record) = Record::decode(&[data, &crc.to_le_bytes()].concat()) {
        assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(&record));
    }
}
