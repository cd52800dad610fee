//! Rows of relations: materializing, slicing, appending, sharing by several readers, late materialization, keeping as a
//! table, and fetching as record batches.
//!
//! Must not know how joins, group-bys, sorts and windows compute rows.

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
