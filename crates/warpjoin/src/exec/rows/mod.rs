//! Rows of relations: written by pipelines, cut to a range, appended to each other, shared by several readers, completed by
//! late columns, left on the devices as a table or fetched as record batches.
//!
//! Must not know how joins, group-bys, sorts and windows make rows.

mod append;
mod fetch;
mod materialize;
mod number;
mod resident;
mod result;
mod room;
mod shared;
mod union;

pub(super) use append::AppendedRows;
pub(super) use room::{allocate, allocate_in_order, copy_rows, row_bytes};
