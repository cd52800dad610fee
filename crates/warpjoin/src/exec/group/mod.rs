//! Group-bys: the choice of a form by a sample of the rows, group tables and how they grow, grouping sets.
//!
//! Must not know how rows are aggregated within a kernel (`codegen/group/`), nor which group-bys an aggregate takes
//! (`plan/rewrite/`).

mod aggregate;
mod borders;
mod estimate;
mod grouping_sets;
mod passes;
mod pieces;
mod target;
