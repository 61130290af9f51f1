//! Pieces of a host's I/O: the I/Os of the members into which it is split.

use crate::io::{Io, IoKind};

/// An I/O of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) member: usize,
    pub(super) kind: IoKind,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

impl Piece {
    pub(super) fn io(&self, tag: u64) -> Io {
        Io { kind: self.kind, offset: self.offset, bytes: self.bytes, tag }
    }
}

/// Pieces that belong together: all of `first` start at once, all of `second` when the last of `first` is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) first: Vec<Piece>,
    pub(super) second: Vec<Piece>,
}

/// Adds a piece, merged into an earlier one of the same member that it continues.
pub(super) fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    let last = pieces.iter_mut().rev().find(|earlier| earlier.member == piece.member);
    match last {
        Some(earlier) if earlier.offset + u64::from(earlier.bytes) == piece.offset => earlier.bytes += piece.bytes,
        _ => pieces.push(piece),
    }
}
