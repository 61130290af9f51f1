//! Common part of all text formats: one line in, at most one record out, with names of objects and a clock.

use crate::input::{Input, Lines};
use crate::parse::Bad;
use crate::record::{Record, Source, TraceError, Unit};
use crate::trace::ObjectKind;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::path::Path;

/// A text format, given line by line.
pub trait LineFormat: Send {
    /// Parses one line that is not blank; `None` when the line has no record (a header, a comment).
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad>;

    /// See [`Source::unit`].
    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    /// See [`Source::page_bytes`].
    fn page_bytes(&self) -> Option<u32> {
        None
    }

    /// See [`Source::has_time`].
    fn has_time(&self) -> bool {
        true
    }

    /// See [`Source::has_marks`].
    fn has_marks(&self) -> bool {
        false
    }
}

impl LineFormat for Box<dyn LineFormat> {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        (**self).line(line, context)
    }
    fn unit(&self) -> Unit {
        (**self).unit()
    }
    fn page_bytes(&self) -> Option<u32> {
        (**self).page_bytes()
    }
    fn has_time(&self) -> bool {
        (**self).has_time()
    }
    fn has_marks(&self) -> bool {
        (**self).has_marks()
    }
}

/// State that a format keeps between lines.
#[derive(Default)]
pub struct Context {
    /// Times.
    pub clock: Clock,
    /// Objects.
    pub names: Names,
}

/// Turns the times of a trace into microseconds since its first record, never running backwards.
#[derive(Default)]
pub struct Clock {
    first: Option<i64>,
    last_us: u64,
    reversals: u64,
}

impl Clock {
    /// A time in ticks of which there are `ticks_per_us` in a microsecond.
    ///
    /// Traces written at completion, or merged from several queues, are slightly out of order. Their order is kept; a
    /// time before the previous one is raised to it and counted.
    #[inline]
    pub fn us(&mut self, ticks: i64, ticks_per_us: i64) -> u64 {
        let first = *self.first.get_or_insert(ticks);
        let us = ticks.saturating_sub(first) / ticks_per_us;
        if us < 0 || (us as u64) < self.last_us {
            self.reversals += 1;
            return self.last_us;
        }
        self.last_us = us as u64;
        self.last_us
    }

    /// Number of times that were raised to the one before them.
    pub fn reversals(&self) -> u64 {
        self.reversals
    }
}

/// Numbers objects in order of first appearance and declares each once.
#[derive(Default)]
pub struct Names {
    numbers: HashMap<Box<[u8]>, u32>,
    /// Key and number of the object asked for last: most lines name the same one as the line before.
    last_key: Vec<u8>,
    last: Option<u32>,
    declared: VecDeque<Record>,
}

impl Names {
    /// The number of a data object, keyed by its bytes in the line. `,` is written as `_` in its name.
    #[inline]
    pub fn number(&mut self, key: &[u8]) -> Result<u32, Bad> {
        self.number_as(key, |key| {
            let name = String::from_utf8_lossy(key.trim_ascii()).replace(',', "_");
            (name, ObjectKind::Data)
        })
    }

    /// The number of an object; `describe` names it when it is new.
    #[inline]
    pub fn number_as(&mut self, key: &[u8], describe: impl FnOnce(&[u8]) -> (String, ObjectKind)) -> Result<u32, Bad> {
        if let Some(number) = self.last
            && self.last_key == key
        {
            return Ok(number);
        }
        let number = match self.numbers.get(key) {
            Some(&number) => number,
            None => {
                let number = u32::try_from(self.numbers.len()).map_err(|_| Bad::from("more than 2^32 objects"))?;
                let (name, kind) = describe(key);
                self.numbers.insert(key.into(), number);
                self.declared.push_back(Record::Object { object: number, name, kind });
                number
            }
        };
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last = Some(number);
        Ok(number)
    }
}

/// A text trace as a source.
pub struct TextSource<F> {
    lines: Lines,
    format: F,
    context: Context,
    /// A record that waits until the declarations of its objects have been returned.
    waiting: Option<Record>,
    header: bool,
}

impl<F: LineFormat> TextSource<F> {
    /// Reads an input; `header` when its first line that is not blank was consumed before.
    pub fn new(input: Input, format: F, header: bool) -> Self {
        TextSource { lines: Lines::new(input), format, context: Context::default(), waiting: None, header }
    }
}

impl<F: LineFormat> Source for TextSource<F> {
    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        if let Some(object) = self.context.names.declared.pop_front() {
            return Ok(Some(object));
        }
        if let Some(record) = self.waiting.take() {
            return Ok(Some(record));
        }
        loop {
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            if line.trim_ascii().is_empty() || std::mem::take(&mut self.header) {
                continue;
            }
            match self.format.line(line, &mut self.context) {
                Ok(None) => {}
                Ok(Some(record)) => {
                    return Ok(Some(match self.context.names.declared.pop_front() {
                        None => record,
                        Some(object) => {
                            self.waiting = Some(record);
                            object
                        }
                    }));
                }
                Err(Bad(what)) => return Err(malformed_line(&self.lines, &what)),
            }
        }
    }

    fn unit(&self) -> Unit {
        self.format.unit()
    }

    fn page_bytes(&self) -> Option<u32> {
        self.format.page_bytes()
    }

    fn has_time(&self) -> bool {
        self.format.has_time()
    }

    fn has_marks(&self) -> bool {
        self.format.has_marks()
    }

    fn clock_reversals(&self) -> u64 {
        self.context.clock.reversals()
    }

    fn place(&self) -> String {
        format!("line {}", self.lines.number())
    }
}

#[cold]
fn malformed_line(lines: &Lines, what: &str) -> TraceError {
    let path: &Path = lines.path();
    TraceError::malformed(path, format!("line {}", lines.number()), what)
}

/// Number of these lines that a format accepts, for detection. Lines must not be blank.
pub fn accepted(mut format: impl LineFormat, lines: &[&[u8]]) -> usize {
    let mut context = Context::default();
    lines.iter().filter(|line| format.line(line, &mut context).is_ok()).count()
}
