//! The exact command by which a user can go on after a refusal.

use super::decide::IfLost;
use crate::chosen::DEFAULT_MODE;
use crate::hold::hex;
use crate::identity::Identity;
use crate::keyword::Keyword;
use crate::words::{format_command, quoted};
use entresol_files::record::Choices;
use std::ffi::OsString;
use std::path::Path;

/// Commands that have `--if-lost`.
const WITH_IF_LOST: &[&str] = &["mount", "run", "nbd", "ublk"];

/// The command line with another `--if-lost`, inserted after the command's name because the program that `run` starts
/// has options of its own. None for a command without that option.
pub fn again(words: &[OsString], if_lost: IfLost) -> Option<String> {
    let name = words.iter().position(|given| WITH_IF_LOST.iter().any(|name| given == name))?;
    let mut text = vec!["entresol".to_owned()];
    let mut rest = words.iter().enumerate().skip(1);
    let mut own = true;
    while let Some((at, given)) = rest.next() {
        let given = given.to_string_lossy();
        own &= given != "--";
        if own && given == "--if-lost" {
            rest.next();
        } else if !(own && given.starts_with("--if-lost=")) {
            text.push(quoted(&given));
        }
        if at == name {
            text.push(format!("--if-lost {}", if_lost.keyword()));
        }
    }
    Some(text.join(" "))
}

/// The command that makes the cache with its earlier choices, as far as they are known. The size of a file that is not
/// there is the user's to say.
pub fn format(
    cache: &Path,
    backing: &Path,
    identity: Option<Identity>,
    choices: Option<&Choices>,
    force: bool,
) -> String {
    let mut text = format_command(cache, backing);
    if let Some(identity) = identity {
        text += &format!(" --identity {}", hex(&identity));
    }
    if let Some(choices) = choices {
        let segment = u64::from(choices.geometry.segment_pages) * u64::from(choices.geometry.page_bytes);
        text += &format!(" --size {}", choices.size_bytes);
        text += &format!(" --page-size {} --segment-size {segment}", choices.geometry.page_bytes);
        text += &format!(" --layout {}", choices.geometry.layout.name());
        if let Some(policy) = &choices.policy {
            text += &format!(" --policy {}", quoted(policy));
        }
        if let Some(mode) = choices.mode.as_ref().filter(|mode| **mode != DEFAULT_MODE.keyword()) {
            text += &format!(" --mode {mode}");
        }
        if let Some(wear) = &choices.wear {
            text += &format!(" --wear {wear}");
        }
    } else if !cache.exists() {
        text += " --size SIZE";
    }
    text + if force { " --force" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_files::record::CacheKind;
    use entresol_store::{Geometry, Layout};

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_same_command_gets_another_if_lost_behind_its_name() {
        for (given, expected) in [
            ("e mount b m --cache c", "entresol mount --if-lost recreate b m --cache c"),
            ("e -q serve nbd --cache=c", "entresol -q serve nbd --if-lost recreate --cache=c"),
            (
                "e run --if-lost refuse --cache c -- x --if-lost y",
                "entresol run --if-lost recreate --cache c -- x --if-lost y",
            ),
            ("e serve ublk --if-lost=refuse --cache c", "entresol serve ublk --if-lost recreate --cache c"),
        ] {
            assert_eq!(again(&words(given), IfLost::Recreate).as_deref(), Some(expected));
        }
        assert_eq!(again(&words("e drain --cache c --backing b"), IfLost::Recreate), None);
    }

    #[test]
    fn format_is_told_what_it_was_told_before() {
        let geometry = Geometry { page_bytes: 8192, segment_pages: 16, segments: 20, layout: Layout::Segments };
        let choices = Choices {
            geometry,
            size_bytes: 4 << 20,
            path: None,
            kind: CacheKind::File,
            device: 1,
            policy: Some("arc".to_owned()),
            mode: Some("write-back".to_owned()),
            wear: Some("1DWPD".to_owned()),
        };
        let (cache, backing) = (Path::new("a cache"), Path::new("disk"));
        let all = "entresol format --cache 'a cache' --backing disk --size 4194304 --page-size 8192 --segment-size 131072 \
                   --layout segments --policy arc --mode write-back --wear 1DWPD --force";
        assert_eq!(format(cache, backing, None, Some(&choices), true), all);
        let plain = Choices { geometry: geometry.with(Layout::Log), policy: None, mode: None, wear: None, ..choices };
        let fewer = "entresol format --cache 'a cache' --backing disk --identity 00000000000000000000000000000007 --size 4194304 \
                     --page-size 8192 --segment-size 131072 --layout log";
        assert_eq!(format(cache, backing, Some(7_u128.to_be_bytes()), Some(&plain), false), fewer);
    }
}
