//! Orders of joins: the relations and keys of a plan as a graph, the cheapest order of them, the plan in that order, and orders
//! that were chosen before.
//!
//! Must not know filters, sharing or late columns.

mod graph;
mod memory;
mod planner;
mod rebuild;
mod tree;

pub(super) use graph::{Graph, is_plain_residual};
pub use memory::Orders;
pub(super) use memory::shape_of;
pub(super) use planner::Planner;
pub(super) use rebuild::rebuild;
pub(super) use tree::Tree;
