//! Protocol between a command and the process that serves a cache.
//!
//! Each message is one JSON object on one line, which may begin with blanks. A connection carries any number of messages in
//! both directions. Both sides name the version. A question in another version is refused, with an answer in this one.
//! Fields that are not known are passed over.

use entresol_files::Keep;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read};

/// Version of the protocol.
pub(crate) const VERSION: u32 = 1;
/// Longest question in bytes, its end of line included.
pub(crate) const QUESTION_MAX: u64 = 16 << 10;
/// Longest answer in bytes: an account of 65,536 files takes about 20 MB.
pub(crate) const ANSWER_MAX: u64 = 64 << 20;

/// Names in messages of the version of a file to keep.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Keep", rename_all = "kebab-case")]
enum Kept {
    Cache,
    Below,
}

/// Question of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Question {
    /// Counts and state.
    Stats,
    /// Names and values, applied in this order; if one is wrong, none is applied.
    Set(Vec<(String, String)>),
    /// The version to keep of a file in conflict, named by its path in the backing directory.
    Resolve {
        path: String,
        #[serde(with = "Kept")]
        keep: Keep,
    },
    /// Every request from now on, as the recorder reports it, until the client ends its half of the connection.
    Record,
    /// An upgrade of the server to the program on disk. After the answer comes the outcome, as a line of text from the
    /// holder, and the end of the connection.
    Upgrade,
}

/// A question on the wire.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    version: u32,
    ask: Question,
}

/// Answer to a question: the result, or one line that says why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The question was carried out; the value depends on the question.
    Done(serde_json::Value),
    /// The question was refused.
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Answered {
    version: u32,
    answer: Answer,
}

/// The version alone; other fields are ignored.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("text and numbers");
    bytes.push(b'\n');
    bytes
}

/// Encodes a question.
pub(crate) fn encode_question(ask: Question) -> Vec<u8> {
    line(&Asked { version: VERSION, ask })
}

/// Encodes an answer.
pub(crate) fn encode_answer(answer: Answer) -> Vec<u8> {
    line(&Answered { version: VERSION, answer })
}

fn check_version(bytes: &[u8]) -> Result<(), String> {
    let found: Versioned = serde_json::from_slice(bytes).map_err(|error| format!("no message: {error}"))?;
    match found.version {
        VERSION => Ok(()),
        other => Err(format!("version {other} of the protocol; this program speaks version {VERSION}")),
    }
}

/// Decodes the question in a line; the error describes what is wrong with the line.
pub(crate) fn decode_question(bytes: &[u8]) -> Result<Question, String> {
    check_version(bytes)?;
    let asked: Asked = serde_json::from_slice(bytes).map_err(|error| format!("no question: {error}"))?;
    Ok(asked.ask)
}

/// Decodes the answer in a line; the error describes what is wrong with the line.
pub(crate) fn decode_answer(bytes: &[u8]) -> Result<Answer, String> {
    check_version(bytes)?;
    let answered: Answered = serde_json::from_slice(bytes).map_err(|error| format!("no answer: {error}"))?;
    Ok(answered.answer)
}

/// Reads one line of at most `max` bytes; none at the end of the stream.
///
/// # Errors
/// `InvalidData` for a longer line, `UnexpectedEof` for a truncated line, else the connection's own error.
pub(crate) fn read_line(from: &mut impl BufRead, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(max).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 == max => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of more than {max} bytes")))
        }
        Some(_) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a message was cut off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_sent_is_what_arrives(pairs in prop::collection::vec((".*", ".*"), 0..5), text in ".*") {
            let resolve = Question::Resolve { path: text.clone(), keep: Keep::Below };
            for ask in [Question::Stats, Question::Set(pairs), resolve, Question::Upgrade] {
                let sent = encode_question(ask.clone());
                prop_assert_eq!(sent.iter().filter(|&&byte| byte == b'\n').count(), 1, "one line");
                prop_assert_eq!(decode_question(&sent), Ok(ask));
            }
            for answer in [Answer::Refused(text.clone()), Answer::Done(serde_json::json!({ "text": text }))] {
                prop_assert_eq!(decode_answer(&encode_answer(answer.clone())), Ok(answer));
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode_question(&bytes).is_err(), "noise is no question");
            prop_assert!(decode_answer(&bytes).is_err());
        }

        #[test]
        fn a_question_with_anything_changed_is_the_same_another_or_an_error(
            at in 0usize..60, byte in any::<u8>(), cut in 0usize..60
        ) {
            let ask = Question::Set(vec![("mode".into(), "write-back".into())]);
            let mut sent = encode_question(ask);
            let end = sent.len() - cut.min(sent.len());
            let at = at % sent.len();
            sent[at] = byte;
            if let Ok(Question::Set(pairs)) = decode_question(&sent[..end]) {
                prop_assert!(pairs.len() == 1);
            }
        }

        #[test]
        fn lines_are_read_one_by_one_and_long_ones_refused(lengths in prop::collection::vec(0usize..40, 1..8)) {
            let sent: Vec<u8> = lengths.iter().flat_map(|&len| [vec![b'x'; len], vec![b'\n']].concat()).collect();
            let mut from = io::BufReader::new(&sent[..]);
            for len in lengths {
                let read = read_line(&mut from, 32);
                if len >= 32 {
                    prop_assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
                    return Ok(());
                }
                prop_assert_eq!(read.unwrap().map(|line| line.len()), Some(len + 1));
            }
            prop_assert!(read_line(&mut from, 32).unwrap().is_none());
        }
    }

    #[test]
    fn fields_that_a_later_program_may_add_are_passed_over() {
        assert_eq!(decode_question(br#"{"version":1,"ask":"stats","more":1}"#), Ok(Question::Stats));
        let answer = br#"  {"version":1,"answer":{"done":null},"more":{"than":[]}}"#;
        assert_eq!(decode_answer(answer), Ok(Answer::Done(serde_json::Value::Null)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| decode_question(text.as_bytes()).unwrap_err();
        assert!(wrong(r#"{"version":2,"ask":"whatever"}"#).contains("version 2"));
        assert!(wrong(r#"{"version":1,"ask":"dance"}"#).contains("dance"));
        assert!(wrong(r#"{"ask":"stats"}"#).contains("version"));
        assert!(wrong("").contains("no message"));
        let nested = format!(r#"{{"version":1,"ask":{}"#, "[".repeat(10_000));
        assert!(wrong(&nested).contains("EOF"), "it does not end in a stack overflow");
        let cut = read_line(&mut &b"{\"version\""[..], 100).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
