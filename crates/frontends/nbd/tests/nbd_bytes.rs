//! The NBD front-end on arbitrary bytes: no panic, no wait, and exact replies to requests that are in step.

mod support;

use entresol_cache::Block;
use entresol_nbd::{Error, Export, Limits, serve_stream};
use proptest::prelude::*;
use std::sync::Arc;
use support::client::{READ, TRIM, WRITE, WRITE_ZEROES};
use support::memory::MemoryBlock;

const SIZE: usize = 40_000;
const REQUEST_MAX: u32 = 10_000;

/// Flags, then `GO` for the default export.
const HANDSHAKE: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
/// Greeting, size and flags, block sizes, the end of the negotiation.
const HANDSHAKE_REPLY: usize = 18 + (20 + 12) + (20 + 14) + 20;

fn serve(input: &[u8], block: &Arc<MemoryBlock>) -> (Result<u64, Error>, Vec<u8>) {
    let export = Export { block: block.clone(), name: "x".into(), description: "y".into(), read_only: false };
    let limits = Limits { request_bytes_max: REQUEST_MAX, ..Limits::default() };
    let mut output = Vec::new();
    let served = serve_stream(input, &mut output, &export, &limits);
    (served, output)
}

/// Request that a client may send once it has chosen the export.
#[derive(Debug, Clone)]
struct Reply {
    flags: u16,
    command: u16,
    offset: u64,
    length: u32,
    fill: u8,
}

fn sent() -> impl Strategy<Value = Reply> {
    let flags = prop_oneof![8 => Just(0), 2 => Just(1), 1 => any::<u16>()];
    let command = prop_oneof![8 => 0..2_u16, 3 => 3..7_u16, 1 => 7..u16::MAX];
    let offset = prop_oneof![8 => 0..SIZE as u64 + 10, 1 => any::<u64>()];
    let length = prop_oneof![8 => 0..REQUEST_MAX + 2, 1 => any::<u32>()];
    (flags, command, offset, length, any::<u8>()).prop_map(|(flags, command, offset, length, fill)| Reply {
        flags,
        command,
        offset,
        length,
        fill,
    })
}

impl Reply {
    fn bytes(&self, cookie: u64) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        if self.command == WRITE && self.length <= REQUEST_MAX {
            bytes.resize(bytes.len() + self.length as usize, self.fill);
        }
        bytes
    }

    /// Bytes that a successful reply carries.
    fn carries(&self) -> u32 {
        if self.command == READ { self.length } else { 0 }
    }

    /// The error number and the data that a client must get by the protocol's text. The model takes the effect.
    fn expected(&self, model: &mut [u8]) -> (u32, Vec<u8>) {
        let allowed = if self.command == WRITE_ZEROES { 3 } else { 1 };
        if self.flags & !allowed != 0 || ![READ, WRITE, 3, TRIM, WRITE_ZEROES].contains(&self.command) {
            return (22, vec![]);
        }
        if self.command <= WRITE && self.length > REQUEST_MAX {
            return (22, vec![]);
        }
        let end = u128::from(self.offset) + u128::from(self.length);
        if self.command == 3 {
            return (0, vec![]);
        }
        if end > SIZE as u128 {
            return (if self.command == READ { 22 } else { 28 }, vec![]);
        }
        let range = &mut model[self.offset as usize..end as usize];
        match self.command {
            READ => return (0, range.to_vec()),
            WRITE => range.fill(self.fill),
            _ => range.fill(0),
        }
        (0, vec![])
    }
}

/// The simple replies after the negotiation; `data` of a cookie is the length of the data in a successful reply to it.
fn replies(output: &[u8], data: impl Fn(u64) -> u32) -> Vec<(u64, u32, Vec<u8>)> {
    let mut rest = &output[HANDSHAKE_REPLY..];
    let mut replies = Vec::new();
    while !rest.is_empty() {
        assert_eq!(&rest[..4], 0x6744_6698_u32.to_be_bytes());
        let errno = u32::from_be_bytes(rest[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(rest[8..16].try_into().unwrap());
        let data = if errno == 0 { data(cookie) as usize } else { 0 };
        replies.push((cookie, errno, rest[16..16 + data].to_vec()));
        rest = &rest[16 + data..];
    }
    replies
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_gets_the_reply_that_the_protocol_asks_for(requests in prop::collection::vec(sent(), 0..40)) {
        let block = Arc::new(MemoryBlock::new(SIZE));
        let mut model = vec![0; SIZE];
        // One session each: requests in flight together may be carried out in any order.
        for (cookie, request) in (500..).zip(&requests) {
            let (errno, data) = request.expected(&mut model);
            let (_, output) = serve(&[HANDSHAKE, &request.bytes(cookie)].concat(), &block);
            prop_assert_eq!(replies(&output, |_| request.carries()), [(cookie, errno, data)]);
        }
    }

    #[test]
    fn requests_in_flight_together_are_each_answered(
        requests in prop::collection::vec(sent(), 0..40),
        order in Just((0..80_u64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        // Even indices hold any request but writes. Odd ones write a slot of their own, which one may read later.
        let slot = SIZE as u64 / 80;
        let block = Arc::new(MemoryBlock::new(SIZE));
        let mut model = vec![0; SIZE];
        let (mut input, mut expected) = (HANDSHAKE.to_vec(), Vec::new());
        let mut lengths = std::collections::HashMap::new();
        for (cookie, mut request) in order.into_iter().zip(requests) {
            if cookie % 2 == 1 {
                request = Reply { flags: request.flags & 1, command: WRITE, offset: cookie * slot, length: slot as u32, ..request };
            } else if [WRITE, TRIM, WRITE_ZEROES].contains(&request.command) {
                request.command = READ;
            }
            if request.command == READ {
                // Even slots are never written.
                request.offset -= request.offset % (2 * slot);
                request.length %= slot as u32 + 1;
            }
            input.extend(request.bytes(cookie));
            lengths.insert(cookie, request.carries());
            let (errno, data) = request.expected(&mut model);
            expected.push((cookie, errno, data));
        }
        let (served, output) = serve(&input, &block);
        prop_assert_eq!(served.unwrap(), expected.len() as u64);
        let mut replies = replies(&output, |cookie| lengths[&cookie]);
        replies.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(replies, expected);
        let mut bytes = vec![1; SIZE];
        block.read(0, &mut bytes).unwrap();
        prop_assert_eq!(bytes, model);
    }

    #[test]
    fn any_bytes_end_in_order_or_in_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400), agreed in 0..3) {
        let prefix = match agreed {
            0 => &b""[..],
            1 => &HANDSHAKE[..12],
            _ => HANDSHAKE,
        };
        let input = [prefix, &bytes].concat();
        let (served, output) = serve(&input, &Arc::new(MemoryBlock::new(SIZE)));
        prop_assert!(output.starts_with(b"NBDMAGICIHAVEOPT\0\x03"));
        // Random bytes are by chance never a disconnect, and only an empty rest is an end in order.
        prop_assert_eq!(served.is_ok(), agreed == 2 && bytes.is_empty());
    }

    #[test]
    fn a_message_cut_off_anywhere_is_an_error(cut in 0..HANDSHAKE.len() + 28 + 100) {
        let write = Reply { flags: 0, command: WRITE, offset: 5, length: 100, fill: 7 };
        let input = [HANDSHAKE, &write.bytes(1)].concat();
        let (served, output) = serve(&input[..cut], &Arc::new(MemoryBlock::new(SIZE)));
        prop_assert_eq!(served.is_ok(), cut == HANDSHAKE.len());
        let negotiated = if cut >= HANDSHAKE.len() { HANDSHAKE_REPLY } else { 18 };
        prop_assert_eq!(output.len(), negotiated, "half a message is not answered");
    }
}
