//! Traces joined one after the other, or mixed at the same time.

use crate::trace::{Column, Event, EventKind, Object, Trace};

/// Reason for which traces cannot be joined.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// There is no trace.
    #[error("there is no trace to join")]
    Nothing,
    /// The page sizes differ.
    #[error("a trace of pages of {second} B cannot follow one of {first} B")]
    PageSizes {
        /// Page size of the first trace, in bytes.
        first: u32,
        /// Page size of another one.
        second: u32,
    },
    /// The joined trace would be too long.
    #[error("the traces have {0} requests or pages together; a trace may have {max}", max = u32::MAX - 1)]
    TooLong(usize),
    /// The number of shares is not that of the traces.
    #[error("{shares} shares for {traces} traces")]
    Shares {
        /// Shares given.
        shares: usize,
        /// Traces.
        traces: usize,
    },
    /// A share that is not a number above 0.
    #[error("a share of {0}: a number above 0 is expected")]
    Share(f64),
    /// A trace so short that its share is not one request.
    #[error("the trace '{0}' is too short for its share")]
    TooShort(String),
}

impl Trace {
    /// The requests of these traces one after the other. Their objects stay apart, whatever their names: no page of
    /// one trace is a page of another. Times are dropped, because each trace has a clock of its own.
    ///
    /// # Errors
    /// When there is no trace, their page sizes differ, or their requests or pages are too many together.
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

const NOWHERE: u32 = u32::MAX;

impl Trace {
    /// The requests of these traces at the same time, as of a machine that serves all of them. Each trace has its
    /// share of all requests, evenly spread, in its own order, from its first one on; shares are weights and need not
    /// add up to 1. The mix ends when one of the traces is used up. Pages that are never requested are left out.
    /// Otherwise as [`Trace::joined`].
    ///
    /// # Errors
    /// Those of [`Trace::joined`]; also when there is not one share above 0 for each trace, or a trace contributes no
    /// request.
    pub fn mixed(traces: &[Trace], shares: &[f64]) -> Result<Trace, JoinError> {
        if shares.len() != traces.len() {
            return Err(JoinError::Shares { shares: shares.len(), traces: traces.len() });
        }
        if let Some(&share) = shares.iter().find(|share| !(share.is_finite() && **share > 0.0)) {
            return Err(JoinError::Share(share));
        }
        let joined = Trace::joined(traces)?;
        let requests =
            traces.iter().zip(shares).map(|(trace, share)| trace.len() as f64 / share).fold(f64::INFINITY, f64::min);
        let counts: Vec<usize> = traces
            .iter()
            .zip(shares)
            .map(|(trace, share)| ((requests * share).round() as usize).min(trace.len()))
            .collect();
        if let Some(at) = counts.iter().position(|&count| count == 0) {
            return Err(JoinError::TooShort(traces[at].provenance.clone()));
        }
        let provenance = traces.iter().zip(shares).map(|(trace, share)| format!("{} ({share})", trace.provenance));
        let provenance = provenance.collect::<Vec<_>>().join(" with ");
        Ok(Trace { provenance, ..reordered(&joined, &evenly(traces, &counts)) })
    }
}

/// Positions in the joined trace: the first `counts[i]` requests of trace `i`, evenly spread.
fn evenly(traces: &[Trace], counts: &[usize]) -> Vec<u32> {
    let firsts: Vec<usize> =
        traces.iter().scan(0, |next, trace| Some(std::mem::replace(next, *next + trace.len()))).collect();
    let mut taken = vec![0; counts.len()];
    // Each next request stands at its middle, as a share of its trace's count; the earliest comes next.
    let earlier = |taken: &[usize], a: usize, b: usize| {
        (2 * taken[a] as u128 + 1) * (counts[b] as u128) < (2 * taken[b] as u128 + 1) * (counts[a] as u128)
    };
    let next = |taken: &mut Vec<usize>| {
        let left = (0..counts.len()).filter(|&at| taken[at] < counts[at]);
        let at = left.reduce(|best, at| if earlier(taken, at, best) { at } else { best }).expect("one is left");
        taken[at] += 1;
        (firsts[at] + taken[at] - 1) as u32
    };
    (0..counts.iter().sum()).map(|_| next(&mut taken)).collect()
}

/// The requests of a trace in another order, without those not in `order` and without pages that no request uses.
fn reordered(trace: &Trace, order: &[u32]) -> Trace {
    let (mut page_object, mut page_block) = (Vec::new(), Vec::new());
    let mut page_of = vec![NOWHERE; trace.footprint()];
    let mut place_of = vec![NOWHERE; trace.len()];
    let mut pages = Vec::with_capacity(order.len());
    for (at, &from) in order.iter().enumerate() {
        place_of[from as usize] = at as u32;
        let old = trace.pages[from as usize] as usize;
        if page_of[old] == NOWHERE {
            page_of[old] = page_object.len() as u32;
            page_object.push(trace.page_object[old]);
            page_block.push(trace.page_block[old]);
        }
        pages.push(page_of[old]);
    }
    // An event before a request that is left out is left out too, as in a trace cut off there.
    let place = |event: &Event| place_of.get(event.at as usize).copied().filter(|&place| place != NOWHERE);
    let mut events: Vec<Event> = trace
        .events
        .iter()
        .filter_map(|event| Some(Event { at: u64::from(place(event)?), kind: event.kind.clone() }))
        .collect();
    events.sort_by_key(|event| event.at);
    Trace {
        page_bytes: trace.page_bytes,
        pages: Column::Owned(pages),
        ops: Column::Owned(order.iter().map(|&from| trace.ops[from as usize]).collect()),
        times_us: None,
        next_use: None,
        page_object: Column::Owned(page_object),
        page_block: Column::Owned(page_block),
        objects: trace.objects.iter().map(Object::of_part).collect(),
        events,
        provenance: trace.provenance.clone(),
    }
}

/// An event with its query and object numbers moved behind those of the traces before.
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
    fn at_the_same_time_each_has_its_share_in_its_own_order() {
        let parts = [
            generated("zipf:n=900:pages=100:seed=1:write=30"),
            generated("scan:n=4000"),
            generated("olap:n=2000:pages=1000"),
        ];
        let mixed = Trace::mixed(&parts, &[3.0, 1.0, 2.0]).expect("a trace");
        // The first trace is used up: 900 of 3 sixths.
        assert_eq!(mixed.len(), 900 + 300 + 600);
        let mut taken = [0usize; 3];
        let object_base = [0, parts[0].objects.len() as u32, (parts[0].objects.len() + parts[1].objects.len()) as u32];
        let (mut newest, mut pages) = (0, std::collections::HashSet::new());
        for i in 0..mixed.len() {
            let found = mixed.request(i);
            let address = mixed.address(found.page);
            let part = object_base.iter().rposition(|&base| base <= address.object.0).expect("a part");
            let expected = parts[part].request(taken[part]);
            let was = parts[part].address(expected.page);
            assert_eq!((address.object.0 - object_base[part], address.block), (was.object.0, was.block));
            assert_eq!(found.op, expected.op);
            taken[part] += 1;
            assert!(found.page.0 <= newest, "numbered in order of first appearance");
            newest = newest.max(found.page.0 + 1);
            pages.insert(found.page.0);
            for (at, share) in [3, 1, 2].into_iter().enumerate() {
                let due = (i + 1) as f64 * f64::from(share) / 6.0;
                assert!((taken[at] as f64 - due).abs() <= 1.5, "request {i}: part {at} has {} of {due}", taken[at]);
            }
        }
        assert_eq!(pages.len(), mixed.footprint());
        assert!(mixed.events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let begun = parts[2].events.iter().filter(|event| event.at < 600).count();
        assert!(begun > 0 && mixed.events.len() == begun, "{begun} events of the part that is there");
    }

    #[test]
    fn shares_that_make_no_mixture_are_refused() {
        let parts = || [generated("loop:n=10:pages=5"), generated("loop:n=1000:pages=5")];
        assert_eq!(Trace::mixed(&parts(), &[1.0]).err(), Some(JoinError::Shares { shares: 1, traces: 2 }));
        assert_eq!(Trace::mixed(&parts(), &[1.0, 0.0]).err(), Some(JoinError::Share(0.0)));
        assert!(matches!(Trace::mixed(&parts(), &[1.0, 1e-6]), Err(JoinError::TooShort(_))));
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
