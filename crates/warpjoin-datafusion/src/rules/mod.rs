//! Optimizer rules: which parts of a plan run on the devices, what the CPU may do beside them, and what is told of it.

pub(crate) mod host_work;
pub(crate) mod placement;
pub(crate) mod reason;
pub(crate) mod rule;
pub(crate) mod strict;
pub(crate) mod subqueries;
pub(crate) mod window_filters;
