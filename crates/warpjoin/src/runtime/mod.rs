//! What outlives a query: the session, and pipelines that were generated before.
//!
//! Must not know how plans are run.

pub(crate) mod device_strings;
pub(crate) mod dictionary_cache;
pub(crate) mod lookup_copies;
pub(crate) mod pipelines;
pub(crate) mod session;
