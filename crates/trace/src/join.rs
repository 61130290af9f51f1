//! Traces one after the other.

use crate::trace::{Column, Event, EventKind, Object, Trace};

/// Why traces cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// There is none.
    #[error("there is no trace to join")]
    Nothing,
    /// A page is not the same in all of them.
    #[error("a trace of pages of {second} B cannot follow one of {first} B")]
    PageSizes {
        /// Page size of the first trace, in bytes.
        first: u32,
        /// Page size of another one.
        second: u32,
    },
    /// Together they are too long.
    #[error("the traces have {0} requests or pages together; a trace may have {max}", max = u32::MAX - 1)]
    TooLong(usize),
}

impl Trace {
    /// The requests of these traces one after the other. Their objects stay apart, whatever their names: no page of one
    /// trace is a page of another. Times are dropped, for each trace has a clock of its own.
    ///
    /// # Errors
    /// When there is none, their page sizes differ, or their requests or pages are too many together.
    pub fn joined(traces: &[Trace]) -> Result<Trace, JoinError> {
        let first = traces.first().ok_or(JoinError::Nothing)?;
        if let Some(other) = traces.iter().find(|trace| trace.page_bytes != first.page_bytes) {
            return Err(JoinError::PageSizes { first: first.page_bytes, second: other.page_bytes });
        }
        let longest = |of: fn(&Trace) -> usize| traces.iter().map(of).sum::<usize>();
        let size = longest(Trace::len).max(longest(Trace::footprint));
        if size >= u32::MAX as usize {
            return Err(JoinError::TooLong(size));
        }
        let (mut pages, mut ops, mut page_object, mut page_block) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut objects, mut events): (Vec<Object>, Vec<Event>) = (Vec::new(), Vec::new());
        let mut queries = 0;
        for trace in traces {
            let (first_page, first_object) = (page_object.len() as u32, objects.len() as u32);
            let (first_request, first_query) = (pages.len() as u64, queries);
            for event in &trace.events {
                let kind = moved(&event.kind, first_query, first_object);
                if matches!(kind, EventKind::QueryBegin { .. }) {
                    queries += 1;
                }
                events.push(Event { at: event.at + first_request, kind });
            }
            pages.extend(trace.pages.iter().map(|page| page + first_page));
            ops.extend_from_slice(&trace.ops);
            page_object.extend(trace.page_object.iter().map(|object| object + first_object));
            page_block.extend_from_slice(&trace.page_block);
            objects.extend_from_slice(&trace.objects);
        }
        Ok(Trace {
            page_bytes: first.page_bytes,
            pages: Column::Owned(pages),
            ops: Column::Owned(ops),
            times_us: None,
            next_use: None,
            page_object: Column::Owned(page_object),
            page_block: Column::Owned(page_block),
            objects,
            events,
            provenance: traces.iter().map(|trace| trace.provenance.as_str()).collect::<Vec<_>>().join(", then "),
        })
    }
}

/// An event with its query and objects counted on from those of the traces before.
fn moved(kind: &EventKind, first_query: u32, first_object: u32) -> EventKind {
    match kind {
        EventKind::QueryBegin { query, label, objects } => EventKind::QueryBegin {
            query: query + first_query,
            label: label.clone(),
            objects: objects.iter().map(|object| object + first_object).collect(),
        },
        EventKind::QueryEnd { query } => EventKind::QueryEnd { query: query + first_query },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use entresol_core::Page;

    fn generated(spec: &str) -> Trace {
        generate(&spec.parse().expect("a specification"))
    }

    #[test]
    fn requests_follow_each_other_to_pages_of_their_own() {
        let parts = [
            generated("zipf:n=500:pages=100:seed=1:write=30"),
            generated("loop:n=300:pages=50"),
            generated("olap:n=2000:pages=1000"),
        ];
        let joined = Trace::joined(&parts).expect("a trace");
        assert_eq!(joined.len(), parts.iter().map(Trace::len).sum::<usize>());
        assert_eq!(joined.footprint(), parts.iter().map(Trace::footprint).sum::<usize>());
        let (mut at, mut page_base, mut object_base) = (0, 0, 0);
        for part in &parts {
            for i in 0..part.len() {
                let (expected, found) = (part.request(i), joined.request(at + i));
                assert_eq!((found.page.0, found.op), (expected.page.0 + page_base, expected.op));
                let (expected, found) = (part.address(expected.page), joined.address(found.page));
                assert_eq!((found.object.0, found.block), (expected.object.0 + object_base, expected.block));
            }
            at += part.len();
            page_base += part.footprint() as u32;
            object_base += part.objects.len() as u32;
        }
        assert_eq!(joined.events.len(), parts.iter().map(|part| part.events.len()).sum::<usize>());
        assert!(joined.events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert_eq!(joined.address(Page(0)).object.0, 0);
    }

    #[test]
    fn what_cannot_be_joined_is_refused() {
        assert_eq!(Trace::joined(&[]).err(), Some(JoinError::Nothing));
        let (small, mut large) = (generated("loop:n=10:pages=5"), generated("loop:n=10:pages=5"));
        large.page_bytes = 8192;
        let refused = Trace::joined(&[small, large]).err();
        assert_eq!(refused, Some(JoinError::PageSizes { first: 4096, second: 8192 }));
    }
}
