//! Window functions: rows sorted by partition and order, scans over them, and a column for each call.
//!
//! Must not know how rows are sorted or exchanged (`exec/sort/`).

mod calls;
mod evaluate;
mod fold;
mod frames;
mod kernels;

pub(super) use frames::check_frame;
