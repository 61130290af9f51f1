//! RAID-5, left-symmetric: the parity of stripe `s` is on member `n - 1 - s mod n`, its data on the members after that.
//!
//! A write of part of a stripe needs the new parity. Either the old data and the old parity are read
//! (read-modify-write) or the data that stays (reconstruct-write). The array chooses the one that reads from fewer
//! members, and reconstruction when both are equal, as `md` does. A stripe that is written whole needs no read.

use super::plan::{Group, Piece, push};
use crate::io::{Io, IoKind};

/// Shape of an array.
#[derive(Clone, Copy, Debug)]
struct Shape {
    members: u64,
    unit: u64,
}

impl Shape {
    /// Data bytes of a stripe.
    fn stripe(&self) -> u64 {
        (self.members - 1) * self.unit
    }

    fn parity_member(&self, stripe: u64) -> u64 {
        self.members - 1 - stripe % self.members
    }

    /// Bytes `from..to` of a unit: data unit `Some(i)` or the parity of a stripe.
    fn piece(&self, kind: IoKind, stripe: u64, unit: Option<u64>, (from, to): (u64, u64)) -> Piece {
        let parity = self.parity_member(stripe);
        let member = unit.map_or(parity, |unit| (parity + 1 + unit) % self.members);
        Piece { member: member as usize, kind, offset: stripe * self.unit + from, bytes: (to - from) as u32 }
    }

    /// The part of data unit `unit` within bytes `from..to` of its stripe, empty where they do not meet.
    fn part(&self, unit: u64, (from, to): (u64, u64)) -> (u64, u64) {
        let start = unit * self.unit;
        let end = to.clamp(start, start + self.unit) - start;
        (from.clamp(start, start + self.unit) - start, end)
    }
}

/// The groups of an I/O. A flush goes to all members; a discard is carried out for whole stripes only, as with `md`.
pub(super) fn split(io: &Io, members: usize, unit: u64) -> Vec<Group> {
    let shape = Shape { members: members as u64, unit };
    let mut whole = Group::default();
    let mut groups = Vec::new();
    let mut at = io.offset;
    while at < io.end() {
        let stripe = at / shape.stripe();
        let start = stripe * shape.stripe();
        let range = (at - start, (io.end() - start).min(shape.stripe()));
        let covered = range == (0, shape.stripe());
        match io.kind {
            IoKind::Read => push_data(&mut whole.first, shape, IoKind::Read, stripe, range),
            IoKind::Write | IoKind::Discard if covered => {
                push_data(&mut whole.first, shape, io.kind, stripe, range);
                push(&mut whole.first, shape.piece(io.kind, stripe, None, (0, unit)));
            }
            IoKind::Write => groups.push(partial(shape, stripe, range)),
            IoKind::Discard | IoKind::Flush => {}
        }
        at = start + range.1;
    }
    if !whole.first.is_empty() || groups.is_empty() {
        groups.push(whole);
    }
    groups
}

/// Pieces for the data of a range of a stripe.
fn push_data(pieces: &mut Vec<Piece>, shape: Shape, kind: IoKind, stripe: u64, range: (u64, u64)) {
    for unit in range.0 / shape.unit..range.1.div_ceil(shape.unit) {
        push(pieces, shape.piece(kind, stripe, Some(unit), shape.part(unit, range)));
    }
}

/// The group of a write that covers part of a stripe.
fn partial(shape: Shape, stripe: u64, range: (u64, u64)) -> Group {
    let touched = range.0 / shape.unit..range.1.div_ceil(shape.unit);
    // The changed bytes of the parity unit, with the bytes between them where the write wraps around in a unit.
    let hull = touched
        .clone()
        .map(|unit| shape.part(unit, range))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .expect("a write touches a unit");
    let kept: Vec<u64> = (0..shape.members - 1).filter(|&unit| !covers(shape.part(unit, range), hull)).collect();
    let mut group = Group::default();
    let touched_units = touched.end - touched.start;
    if touched_units + 1 < kept.len() as u64 {
        push_data(&mut group.first, shape, IoKind::Read, stripe, range);
        group.first.push(shape.piece(IoKind::Read, stripe, None, hull));
    } else {
        group.first.extend(kept.iter().map(|&unit| shape.piece(IoKind::Read, stripe, Some(unit), hull)));
    }
    push_data(&mut group.second, shape, IoKind::Write, stripe, range);
    group.second.push(shape.piece(IoKind::Write, stripe, None, hull));
    group
}

fn covers(part: (u64, u64), hull: (u64, u64)) -> bool {
    part.0 <= hull.0 && hull.1 <= part.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(member: usize, offset: u64, bytes: u32) -> Piece {
        Piece { member, kind: IoKind::Read, offset, bytes }
    }

    fn write(member: usize, offset: u64, bytes: u32) -> Piece {
        Piece { kind: IoKind::Write, ..read(member, offset, bytes) }
    }

    #[test]
    fn data_units_follow_the_parity_of_their_stripe() {
        // The left-symmetric layout of five members, row by row, with P for parity.
        let layout = ["0123P", "567P4", "AB P89", "F P CDE", "P GHIJ"].map(|row| row.replace(' ', ""));
        for (stripe, row) in layout.iter().enumerate() {
            for (member, name) in row.chars().enumerate().filter(|(_, name)| *name != 'P') {
                let unit = name.to_digit(20).expect("a unit");
                let groups = split(&Io::read(u64::from(unit) * 100, 100), 5, 100);
                assert_eq!(groups[0].first, [read(member, stripe as u64 * 100, 100)], "unit {unit}");
            }
        }
    }

    #[test]
    fn a_small_write_reads_old_data_and_parity() {
        let groups = split(&Io::write(510, 20), 6, 100);
        let first = vec![read(5, 110, 20), read(4, 110, 20)];
        let second = vec![write(5, 110, 20), write(4, 110, 20)];
        assert_eq!(groups, [Group { first, second }]);
    }

    #[test]
    fn a_wide_write_reads_what_it_leaves() {
        let groups = split(&Io::write(0, 400), 6, 100);
        assert_eq!(groups[0].first, [read(4, 0, 100)]);
        assert_eq!(groups[0].second.len(), 5);
        // Two units of five: three reads either way.
        let kept = [2, 3, 4].map(|member| read(member, 0, 100));
        assert_eq!(split(&Io::write(0, 200), 6, 100)[0].first, kept);
        // Three members: one unit of two is written, so reading the other one is cheaper than data and parity.
        assert_eq!(split(&Io::write(0, 10), 3, 100)[0].first, [read(1, 0, 10)]);
    }

    #[test]
    fn whole_stripes_are_written_without_reading_one_piece_a_member() {
        let groups = split(&Io::write(500, 1000), 6, 100);
        assert_eq!(groups.len(), 1);
        assert!(groups[0].second.is_empty());
        let mut pieces = groups[0].first.clone();
        pieces.sort_by_key(|piece| piece.member);
        assert_eq!(pieces, (0..6).map(|member| write(member, 100, 200)).collect::<Vec<_>>());
    }

    #[test]
    fn a_write_with_ragged_ends_has_a_group_for_each() {
        let groups = split(&Io::write(490, 530), 6, 100);
        assert_eq!(groups.len(), 3);
        assert_eq!(groups[0].second, [write(4, 90, 10), write(5, 90, 10)]);
        assert_eq!(groups[1].second, [write(4, 200, 20), write(3, 200, 20)]);
        assert_eq!(groups[2].first.len(), 6);
    }

    #[test]
    fn a_discard_reaches_whole_stripes_only() {
        let discard = |offset, bytes| split(&Io { kind: IoKind::Discard, ..Io::read(offset, bytes) }, 6, 100);
        assert_eq!(discard(10, 400), [Group::default()]);
        assert_eq!(discard(10, 1000)[0].first.len(), 6);
    }
}
