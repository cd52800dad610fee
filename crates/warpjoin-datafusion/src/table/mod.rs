//! Resident tables in DataFusion: table provider, scan node and statistics. Also tables that show a runtime's state.
//!
//! Owns what DataFusion sees of a resident table. Must not know the matcher or how parts run.

pub(crate) mod active_queries;
pub(crate) mod cached_columns;
pub(crate) mod load;
pub(crate) mod provider;
pub(crate) mod scan;
pub(crate) mod statistics;
mod system;
