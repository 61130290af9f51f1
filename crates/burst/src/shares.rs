//! Shares of the buffers: the largest part of all space that one owner may take.

use crate::mutant::{self, Mutant};
use crate::policy::{Choice, Guard, Splitting};
use crate::protocol::{Reservation, Role};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Largest part of all buffer space that one owner may have reserved or stored, copies included: whole percent, 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Share(u8);

impl Share {
    /// All space.
    pub const ALL: Share = Share(100);

    /// Bytes of this part of `capacity` bytes, rounded down.
    pub fn of(self, capacity: u64) -> u64 {
        (u128::from(capacity) * u128::from(self.0) / 100) as u64
    }
}

impl Default for Share {
    fn default() -> Share {
        Share::ALL
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        percent.map(Share).ok_or_else(|| "it must be a part of all space in whole percent, such as 50%".to_owned())
    }
}

/// Bytes that each owner has reserved or stored, by the owner's number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsedBytes {
    by_owner: BTreeMap<u32, u64>,
}

impl UsedBytes {
    pub fn of(&self, uid: u32) -> u64 {
        self.by_owner.get(&uid).copied().unwrap_or(0)
    }

    pub fn add(&mut self, reservation: &Reservation) {
        if reservation.role == Role::Copy && mutant::is(Mutant::ShareCopiesUncounted) {
            return;
        }
        *self.by_owner.entry(reservation.owner.uid).or_default() += reservation.bytes();
    }

    /// Removes bytes of a reservation. An owner without bytes is forgotten.
    pub fn remove(&mut self, reservation: &Reservation, bytes: u64) {
        if let Some(used) = self.by_owner.get_mut(&reservation.owner.uid) {
            *used = used.saturating_sub(bytes);
            if *used == 0 {
                self.by_owner.remove(&reservation.owner.uid);
            }
        }
    }

    /// Bytes by owner, added up anew.
    pub fn sum<'a>(reservations: impl Iterator<Item = &'a Reservation>) -> UsedBytes {
        let mut used = UsedBytes::default();
        for reservation in reservations.filter(|reservation| reservation.bytes() > 0) {
            *used.by_owner.entry(reservation.owner.uid).or_default() += reservation.bytes();
        }
        used
    }
}

impl Choice {
    /// The choice as far as it and its guard fit into `left` bytes of an owner; none if nothing fits, or an object that may
    /// not be split does not fit whole.
    pub(crate) fn within(self, left: u64, splitting: Splitting) -> Option<Choice> {
        let copies = match self.guard {
            Guard::None | Guard::Join(_) => 1,
            Guard::Copy(_) | Guard::Parity(_) => 2,
        };
        let bytes = self.bytes.min(left / copies);
        let fits = match splitting {
            Splitting::Split => bytes > 0,
            Splitting::Whole => bytes == self.bytes,
        };
        fits.then_some(Choice { bytes, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::NodeId;

    #[test]
    fn a_share_is_what_it_prints() {
        for text in ["1%", "50%", "100%"] {
            assert_eq!(text.parse::<Share>().expect(text).to_string(), text);
        }
        for text in ["0%", "101%", "50", "%", "-1%", "1.5%", ""] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!((Share::ALL.of(u64::MAX), Share(50).of(u64::MAX), Share(33).of(10)), (u64::MAX, u64::MAX / 2, 3));
    }

    #[test]
    fn a_choice_is_cut_to_the_share_with_its_copy() {
        let choice = |guard| Choice { node: NodeId(0), bytes: 10, guard };
        assert_eq!(choice(Guard::None).within(7, Splitting::Split).map(|it| it.bytes), Some(7));
        assert_eq!(choice(Guard::Copy(NodeId(1))).within(7, Splitting::Split).map(|it| it.bytes), Some(3));
        assert!(choice(Guard::Copy(NodeId(1))).within(1, Splitting::Split).is_none());
        assert!(choice(Guard::Copy(NodeId(1))).within(19, Splitting::Whole).is_none());
        assert_eq!(choice(Guard::Copy(NodeId(1))).within(20, Splitting::Whole).map(|it| it.bytes), Some(10));
    }
}
