//! RAID-0: stripe units go round the members.

use super::plan::{Group, Piece, push};
use crate::io::Io;

/// The pieces of an I/O: at most one for each member, because a member's units of consecutive stripes are neighbours.
pub(super) fn split(io: &Io, members: usize, unit: u64) -> Vec<Group> {
    let mut group = Group::default();
    let mut at = io.offset;
    while at < io.end() {
        let (number, within) = (at / unit, at % unit);
        let bytes = (unit - within).min(io.end() - at);
        let member = (number % members as u64) as usize;
        let offset = number / members as u64 * unit + within;
        push(&mut group.first, Piece { member, kind: io.kind, offset, bytes: bytes as u32 });
        at += bytes;
    }
    vec![group]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoKind;

    #[test]
    fn units_go_round_and_neighbours_are_merged() {
        let pieces = |io| split(&io, 3, 100).remove(0).first;
        let piece = |member, offset, bytes| Piece { member, kind: IoKind::Read, offset, bytes };
        assert_eq!(pieces(Io::read(250, 30)), [piece(2, 50, 30)]);
        assert_eq!(pieces(Io::read(290, 20)), [piece(2, 90, 10), piece(0, 100, 10)]);
        assert_eq!(pieces(Io::read(50, 700)), [piece(0, 50, 250), piece(1, 0, 250), piece(2, 0, 200)]);
        assert_eq!(pieces(Io::read(50, 0)), []);
    }
}
