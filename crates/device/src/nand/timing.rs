//! Dies and channels in time: the work of each, its waits, and the next event.
//!
//! A die does one thing at a time. Reads come before programs, moves and erasures, which keep their order; nothing is
//! interrupted except, where the drive can, an erasure by a read. A read senses and then moves its units over the
//! die's channel, holding the die until they are across; a program moves them first. Channels serve in order of request.

use super::parameters::{NandParameters, nanos, transfer};
use crate::io::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Itemised time of a read, from its issue to its end, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadTimes {
    pub(super) queue: Nanos,
    pub(super) gc: Nanos,
    pub(super) media: Nanos,
    pub(super) transfer: Nanos,
    pub(super) refresh: Nanos,
}

/// A read or a program that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A read, by its token.
    Read(u32, ReadTimes),
    /// A program, by its number.
    Programmed(u64),
}

#[derive(Clone, Copy, Debug)]
struct Read {
    token: u32,
    units: u32,
    sense: Nanos,
    issued: Nanos,
    /// The die's time in cleaning until then.
    gc_before: Nanos,
    times: ReadTimes,
}

#[derive(Clone, Copy, Debug)]
enum Background {
    Program { number: u64, units: u32 },
    Moves(u32),
    Erase(Nanos),
}

#[derive(Clone, Copy, Debug)]
enum Running {
    Sensing(Read),
    Sending(Read),
    Programming {
        number: u64,
        since: Nanos,
    },
    /// Moves or an erasure; `erase_ends` is the end of an erasure, which a read may suspend, and `None` for moves.
    Cleaning {
        since: Nanos,
        erase_ends: Option<Nanos>,
    },
    /// An erasure is giving way to a read.
    Yielding,
}

#[derive(Clone, Debug, Default)]
struct Die {
    running: Option<Running>,
    /// Distinguishes the event of the running operation from that of a suspended one.
    generation: u32,
    reads: VecDeque<Read>,
    background: VecDeque<Background>,
    /// Time spent in cleaning, without the operation that runs now.
    gc_spent: Nanos,
}

impl Die {
    fn gc_time(&self, now: Nanos) -> Nanos {
        match self.running {
            Some(Running::Cleaning { since, .. }) => self.gc_spent + (now - since),
            _ => self.gc_spent,
        }
    }
}

/// The dies and channels of a drive.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    dies: Vec<Die>,
    /// When each channel is free.
    channels: Vec<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, u32, u32)>>,
    numbered: u64,
    unit_transfer: Nanos,
    program: Nanos,
    erase: Nanos,
    /// A move in a batch that fills a program.
    move_unit: Nanos,
    per_program: u32,
    suspend: Option<Nanos>,
    /// Time that all dies spent cleaning and programming.
    cleaning_total: Nanos,
    programming_total: Nanos,
}

impl Flash {
    pub(super) fn new(p: &NandParameters) -> Self {
        let program = nanos(p.program_us);
        Flash {
            dies: vec![Die::default(); p.dies() as usize],
            channels: vec![0; p.channels as usize],
            events: BinaryHeap::new(),
            numbered: 0,
            unit_transfer: transfer(super::UNIT_BYTES, p.channel_mb_s),
            program,
            erase: nanos(p.erase_us),
            move_unit: nanos(p.gc_read_us) + program / u64::from(p.units_per_program()),
            per_program: p.units_per_program(),
            suspend: p.erase_suspend_us.map(nanos),
            cleaning_total: 0,
            programming_total: 0,
        }
    }

    /// Time of the next end or change.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse(event)| event.0)
    }

    /// Reads units of one physical page.
    pub(super) fn read(&mut self, now: Nanos, die: u32, token: u32, units: u32, sense: Nanos, refresh: Nanos) {
        let at = &mut self.dies[die as usize];
        let times = ReadTimes { media: sense, refresh, ..ReadTimes::default() };
        at.reads.push_back(Read {
            token,
            units,
            sense: sense + refresh,
            issued: now,
            gc_before: at.gc_time(now),
            times,
        });
        match (at.running, self.suspend) {
            (None, _) => self.start(now, die),
            (Some(Running::Cleaning { since, erase_ends: Some(ends) }), Some(suspend)) => {
                at.background.push_front(Background::Erase(ends - now));
                at.gc_spent += now - since;
                self.cleaning_total += now - since;
                at.running = Some(Running::Yielding);
                at.generation += 1;
                self.schedule(now + suspend, die);
            }
            _ => {}
        }
    }

    /// Programs units at once, then moves and erases.
    pub(super) fn program(&mut self, now: Nanos, die: u32, number: u64, units: u32, moves: u32, erases: u32) {
        let queue = &mut self.dies[die as usize].background;
        queue.push_back(Background::Program { number, units });
        if moves > 0 {
            queue.push_back(Background::Moves(moves));
        }
        (0..erases).for_each(|_| queue.push_back(Background::Erase(self.erase)));
        if self.dies[die as usize].running.is_none() {
            self.start(now, die);
        }
    }

    /// The part of a wait for programs that is due to cleaning: cleaning's share of the dies' work so far.
    pub(super) fn blame_cleaning(&self, wait: Nanos) -> Nanos {
        let all = self.cleaning_total + self.programming_total;
        (u128::from(wait) * u128::from(self.cleaning_total) / u128::from(all.max(1))) as Nanos
    }

    /// Runs the next event and returns the outcome that ended with it.
    pub(super) fn step(&mut self) -> Option<Outcome> {
        let Reverse((now, _, number, generation)) = self.events.pop()?;
        let channel = number as usize % self.channels.len();
        let die = &mut self.dies[number as usize];
        if generation != die.generation {
            return None;
        }
        let outcome = match die.running.take() {
            Some(Running::Sensing(mut read)) => {
                let channel = &mut self.channels[channel];
                let begin = now.max(*channel);
                let moving = self.unit_transfer * u64::from(read.units);
                *channel = begin + moving;
                read.times.queue += begin - now;
                read.times.transfer += moving;
                die.running = Some(Running::Sending(read));
                self.schedule(begin + moving, number);
                return None;
            }
            Some(Running::Sending(read)) => Some(Outcome::Read(read.token, read.times)),
            Some(Running::Programming { number, since }) => {
                self.programming_total += now - since;
                Some(Outcome::Programmed(number))
            }
            Some(Running::Cleaning { since, .. }) => {
                die.gc_spent += now - since;
                self.cleaning_total += now - since;
                None
            }
            Some(Running::Yielding) | None => None,
        };
        self.start(now, number);
        outcome
    }

    /// Starts the next operation of an idle die.
    fn start(&mut self, now: Nanos, number: u32) {
        let channel = number as usize % self.channels.len();
        let die = &mut self.dies[number as usize];
        let (running, ends) = if let Some(mut read) = die.reads.pop_front() {
            let gc = die.gc_spent - read.gc_before;
            read.times.gc = gc;
            read.times.queue = now - read.issued - gc;
            (Running::Sensing(read), now + read.sense)
        } else {
            match die.background.pop_front() {
                Some(Background::Program { number: program, units }) => {
                    let channel = &mut self.channels[channel];
                    let begin = now.max(*channel);
                    *channel = begin + self.unit_transfer * u64::from(units);
                    (Running::Programming { number: program, since: now }, *channel + self.program)
                }
                Some(Background::Moves(moves)) => {
                    let batch = moves.min(self.per_program);
                    if moves > batch {
                        die.background.push_front(Background::Moves(moves - batch));
                    }
                    let ends = now + self.move_unit * u64::from(batch);
                    (Running::Cleaning { since: now, erase_ends: None }, ends)
                }
                Some(Background::Erase(time)) => {
                    let ends = now + time;
                    (Running::Cleaning { since: now, erase_ends: Some(ends) }, ends)
                }
                None => return,
            }
        };
        die.running = Some(running);
        die.generation += 1;
        self.schedule(ends, number);
    }

    fn schedule(&mut self, at: Nanos, die: u32) {
        let generation = self.dies[die as usize].generation;
        self.events.push(Reverse((at, self.numbered, die, generation)));
        self.numbered += 1;
    }
}
