//! Data structures of policies: lists, bit sets, heaps, frequency lists and runs over page handles, groups of
//! neighbouring pages, samples. Flat arrays and indices, sized once. Nothing here allocates after construction
//! but the slots of a sample by address, and the buckets of more than 1,024 distinct frequencies.

mod bits;
mod frequency;
mod frequency_lists;
mod groups;
mod heap;
mod lists;
mod ring;
mod runs;
mod sampler;
pub(crate) mod slots;

pub use bits::Bits;
pub use frequency::FrequencyList;
pub use frequency_lists::FrequencyLists;
pub use groups::{Group, GroupLists, GroupTable};
pub use heap::IndexHeap;
pub use lists::{ListId, Lists};
pub use ring::Ring;
pub use runs::{Run, Runs};
pub use sampler::Sampler;
