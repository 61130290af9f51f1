//! Data structures of policies: lists, bit sets, heaps, frequency lists and runs over page handles, and groups of
//! neighbouring pages. Flat arrays and indices, sized once; nothing here allocates after construction.

mod bits;
mod frequency;
mod frequency_lists;
mod groups;
mod heap;
mod lists;
mod ring;
mod runs;
mod sampler;

pub use bits::Bits;
pub use frequency::FrequencyList;
pub use frequency_lists::FrequencyLists;
pub use groups::{Group, GroupLists, GroupTable};
pub use heap::IndexHeap;
pub use lists::{ListId, Lists};
pub use ring::Ring;
pub use runs::{Run, Runs};
pub use sampler::Sampler;
