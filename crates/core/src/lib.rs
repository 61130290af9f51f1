//! The nouns of Entresol: what a page, a request, a tier and a movement are, and sizes with units.
//! No logic of caching lives here; every other crate may depend on this one, and it on none of them.

mod movement;
mod random;
mod request;
mod size;

pub use movement::{Movement, Verb};
pub use random::Random;
pub use request::{Address, Hint, NEVER, ObjectId, Op, Outcome, Page, Request, Tier};
pub use size::{Size, SizeError};
