//! A loaded trace as records again, and as text.

use crate::record::Record;
use crate::trace::{EventKind, Trace};
use entresol_core::{Op, Page};
use std::io::{self, Write};

impl Trace {
    /// The trace as records in pages: an I/O of one page for each request, each object before its first request, and
    /// the queries.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let mut events = self.events.iter().peekable();
        let mut declared = vec![false; self.objects.len()];
        let mut labels: Vec<(u32, &str)> = Vec::new();
        (0..self.len()).flat_map(move |at| {
            let mut records = Vec::with_capacity(1);
            let time_us = self.times_us.as_ref().map_or(0, |times| times[at]);
            while let Some(event) = events.next_if(|event| event.at <= at as u64) {
                records.push(match &event.kind {
                    EventKind::QueryBegin { query, label, .. } => {
                        labels.push((*query, label));
                        Record::QueryBegin { time_us, label: label.clone() }
                    }
                    EventKind::QueryEnd { query } => {
                        let begun = labels.iter().rposition(|(number, _)| number == query);
                        let label = begun.map_or("", |begun| labels.swap_remove(begun).1).to_owned();
                        Record::QueryEnd { time_us, label }
                    }
                });
            }
            let (request, address) = (self.request(at), self.address(Page(self.pages[at])));
            let object = address.object.0;
            if !std::mem::replace(&mut declared[object as usize], true) {
                let known = &self.objects[object as usize];
                records.push(Record::Object { object, name: known.name.clone(), kind: known.kind });
            }
            let (op, offset) = (request.op, address.block);
            records.push(Record::Io { time_us, op, stream: 0, object, offset, size: 1, next_use: None });
            records
        })
    }

    /// Writes a line for each page request, as csv that the format `csv` reads: time where there is one, operation,
    /// object and page. Queries, runs and the pages of one I/O are not told.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        // A name must stay within its field.
        let plain = |c: char| if c == ',' || c.is_control() { '_' } else { c };
        let names: Vec<String> = self.objects.iter().map(|object| object.name.chars().map(plain).collect()).collect();
        writeln!(out, "{}op,object,page", if self.times_us.is_some() { "ts_us," } else { "" })?;
        for at in 0..self.len() {
            if let Some(times) = &self.times_us {
                write!(out, "{},", times[at])?;
            }
            let (request, address) = (self.request(at), self.address(Page(self.pages[at])));
            let op = match request.op {
                Op::Read => 'R',
                Op::Write => 'W',
                Op::Update => 'U',
            };
            writeln!(out, "{op},{},{}", names[address.object.index()], address.block)?;
        }
        Ok(())
    }
}
