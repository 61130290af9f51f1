//! Policies that know the future. No cache can be built of them; they say how good one could be.

mod min;
mod min_clean;

pub use min::Min;
pub use min_clean::MinClean;
