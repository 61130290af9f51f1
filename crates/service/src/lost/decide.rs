//! The decision on a start whose cache is missing or not the expected one.

use super::look::{Look, Remaking};
use crate::keyword::{Entry, Keyword};

/// Action for a cache that is lost or blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLost {
    /// The start is refused.
    Refuse,
    /// The cache is made anew.
    Recreate,
    /// The backing store is served without a cache.
    Bypass,
}

impl Keyword for IfLost {
    const ALL: &'static [Entry<Self>] = &[
        Entry::new(IfLost::Refuse, "refuse", "Refuse the start"),
        Entry::new(
            IfLost::Recreate,
            "recreate",
            "Make the cache anew, empty, over zeros or an earlier cache of this backing store",
        ),
        Entry::new(
            IfLost::Bypass,
            "bypass",
            "Serve the backing store without a cache; this cache is out of date from then on",
        ),
    ];
}

/// Completeness of the backing store without its cache, according to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The backing store has every acknowledged write, or will have it before the next flush is acknowledged.
    Complete,
    /// The cache alone may have acknowledged writes.
    Incomplete,
    /// There is no record.
    NoRecord,
}

/// Decision about a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The cache is opened as it is.
    Open,
    /// The cache is made anew, and opened.
    Recreate,
    /// The backing store is served without a cache.
    Bypass,
    /// Nothing is served and nothing is changed. The [`Way`] tells the user how to go on.
    Refuse(Way),
}

/// A way to go on after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The same command with `--if-lost recreate`.
    Recreate,
    /// The same command with `--if-lost bypass`: the cache cannot be made anew there.
    Bypass,
    /// `entresol format`, with `--force` if it would overwrite something; or the same command with `--if-lost bypass`.
    Format {
        /// True if the place holds something other than zeros.
        force: bool,
    },
    /// No way except to give the right cache and backing store.
    None,
    /// `entresol format` alone: no earlier cache is known.
    First {
        /// True if the place holds something other than zeros.
        force: bool,
    },
}

impl Look {
    /// True if a cache may be made there without `entresol format --force`.
    ///
    /// True over zeros or an earlier cache of this backing store, and where [`Remaking::Allowed`] permits it.
    fn may_be_written(&self) -> bool {
        match self {
            Look::Missing(remaking) => *remaking == Remaking::Allowed,
            Look::Blank | Look::Ours | Look::Damaged(_) | Look::Stale(_) => true,
            Look::Foreign { .. } | Look::Ahead(_) | Look::Version(_) => false,
            Look::Signature(_) | Look::SomethingElse | Look::Unreadable(_) => false,
        }
    }

    /// True if the place cannot hold a wrong cache.
    ///
    /// An older cache may be a wrong one: a user put it there.
    fn is_lost(&self) -> bool {
        self.may_be_written() && !matches!(self, Look::Stale(_))
    }

    /// True if the place holds something that `entresol format` overwrites only with `--force`.
    pub(crate) fn is_something(&self) -> bool {
        !matches!(self, Look::Missing(_) | Look::Blank)
    }

    /// True if `entresol format` can make a cache at this place at all.
    fn can_be_formatted(&self) -> bool {
        !matches!(self, Look::Missing(Remaking::BelowDev | Remaking::NoFolder) | Look::Unreadable(_))
    }
}

/// Decides by the contents of the place, the completeness of the backing store, and the action asked for, if any.
pub(crate) fn decide(look: &Look, mark: Mark, asked: Option<IfLost>) -> Action {
    let force = look.is_something();
    match (mark, asked) {
        _ if *look == Look::Ours => Action::Open,
        // Cache or backing store may be at the wrong place. Which of them is not known, and no mark may be put on the
        // wrong one.
        _ if matches!(look, Look::Foreign { elsewhere: true, .. }) => Action::Refuse(Way::None),
        (Mark::NoRecord, _) if matches!(look, Look::Foreign { .. }) => Action::Refuse(Way::None),
        (Mark::NoRecord, _) => Action::Refuse(Way::First { force }),
        (_, Some(IfLost::Bypass)) => Action::Bypass,
        (_, Some(IfLost::Recreate)) if look.may_be_written() => Action::Recreate,
        (Mark::Complete, None) if look.is_lost() => Action::Recreate,
        _ if look.may_be_written() => Action::Refuse(Way::Recreate),
        // The user is not advised to overwrite pages that only this cache has of another backing store.
        _ if matches!(look, Look::Foreign { dirty_pages: 1.., .. }) => Action::Refuse(Way::Bypass),
        _ if look.can_be_formatted() => Action::Refuse(Way::Format { force }),
        _ => Action::Refuse(Way::Bypass),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMAKINGS: [Remaking; 7] = [
        Remaking::Allowed,
        Remaking::BelowDev,
        Remaking::WasDevice,
        Remaking::OtherPath,
        Remaking::NoFolder,
        Remaking::OtherFileSystem,
        Remaking::Unknown,
    ];

    fn looks() -> Vec<Look> {
        let others = [
            Look::Blank,
            Look::Ours,
            Look::Damaged("why".to_owned()),
            Look::Stale("old".to_owned()),
            Look::Ahead("new".to_owned()),
            Look::Foreign { dirty_pages: 0, elsewhere: false },
            Look::Foreign { dirty_pages: 3, elsewhere: false },
            Look::Foreign { dirty_pages: 3, elsewhere: true },
            Look::Version(4),
            Look::Signature("swap space"),
            Look::SomethingElse,
            Look::Unreadable("EIO".to_owned()),
        ];
        REMAKINGS.map(Look::Missing).into_iter().chain(others).collect()
    }

    const MARKS: [Mark; 3] = [Mark::Complete, Mark::Incomplete, Mark::NoRecord];
    const ASKED: [Option<IfLost>; 4] = [None, Some(IfLost::Refuse), Some(IfLost::Recreate), Some(IfLost::Bypass)];

    /// The whole table, written by hand: for each place a letter for each of `ASKED`, under each mark. o opens, r
    /// recreates, b bypasses. Refusals: R names `--if-lost recreate`, B `--if-lost bypass`, F `format`, G `format
    /// --force`, f and g the same if no earlier cache is known, - names nothing.
    const TABLE: &str = "
        missing, may be made    rRrb RRrb ffff
        missing, below /dev     BBBb BBBb ffff
        missing, was a device   FFFb FFFb ffff
        missing, other path     FFFb FFFb ffff
        missing, no folder      BBBb BBBb ffff
        missing, other system   FFFb FFFb ffff
        missing, unknown        FFFb FFFb ffff
        blank                   rRrb RRrb ffff
        ours                    oooo oooo oooo
        damaged                 rRrb RRrb gggg
        stale                   RRrb RRrb gggg
        ahead                   GGGb GGGb gggg
        foreign                 GGGb GGGb ----
        foreign, dirty          BBBb BBBb ----
        foreign, elsewhere      ---- ---- ----
        version                 GGGb GGGb gggg
        signature               GGGb GGGb gggg
        something else          GGGb GGGb gggg
        unreadable              BBBb BBBb gggg";

    fn letter(action: Action) -> char {
        match action {
            Action::Open => 'o',
            Action::Recreate => 'r',
            Action::Bypass => 'b',
            Action::Refuse(Way::Recreate) => 'R',
            Action::Refuse(Way::Bypass) => 'B',
            Action::Refuse(Way::None) => '-',
            Action::Refuse(Way::Format { force: false }) => 'F',
            Action::Refuse(Way::Format { force: true }) => 'G',
            Action::Refuse(Way::First { force: false }) => 'f',
            Action::Refuse(Way::First { force: true }) => 'g',
        }
    }

    #[test]
    fn every_combination_is_decided_as_the_table_says() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.trim().is_empty()).collect();
        assert_eq!(lines.len(), looks().len());
        for (line, look) in lines.into_iter().zip(looks()) {
            let decided = MARKS.map(|mark| ASKED.iter().map(|&asked| letter(decide(&look, mark, asked))).collect());
            let decided: [String; 3] = decided;
            let expected: Vec<&str> = line.split_whitespace().rev().take(3).collect();
            assert_eq!(decided, [expected[2], expected[1], expected[0]], "{look:?}: {}", line.trim());
        }
    }

    /// The rules behind the table, one by one.
    #[test]
    fn no_combination_breaks_a_rule() {
        for look in looks() {
            for mark in MARKS {
                for asked in ASKED {
                    let action = decide(&look, mark, asked);
                    let what = format!("{look:?}, {mark:?}, {asked:?}: {action:?}");
                    let others = matches!(look, Look::Foreign { .. } | Look::Version(_) | Look::Signature(_))
                        || matches!(look, Look::Ahead(_) | Look::SomethingElse | Look::Unreadable(_));
                    let older = matches!(look, Look::Stale(_)) && asked != Some(IfLost::Recreate);
                    assert!(!(older && action == Action::Recreate), "what somebody gave is kept unless told: {what}");
                    assert!(!(others && action == Action::Recreate), "what is not ours is never written: {what}");
                    let unasked = asked.is_none() && mark != Mark::Complete && look != Look::Ours;
                    assert!(
                        !unasked || matches!(action, Action::Refuse(_)),
                        "a loss is accepted by words alone: {what}"
                    );
                    let unknown = mark == Mark::NoRecord && matches!(action, Action::Recreate | Action::Bypass);
                    assert!(!unknown, "without a record nothing is marked: {what}");
                    assert_eq!(action == Action::Open, look == Look::Ours, "{what}");
                    assert!(action != Action::Bypass || asked == Some(IfLost::Bypass), "{what}");
                }
            }
        }
    }
}
