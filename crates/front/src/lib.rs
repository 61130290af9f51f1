//! Doors into the engine: each serves a [`Block`](entresol_engine::Block) by a protocol that others speak.
