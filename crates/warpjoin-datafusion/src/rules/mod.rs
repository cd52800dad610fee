//! Optimizer rules: replace parts of plans by device nodes, check `warpjoin.strict`, and annotate plans for EXPLAIN.
//!
//! Owns when plans change. Must not know which nodes devices support ([`crate::matcher`]) or how parts run
//! ([`crate::exec`]).

pub(crate) mod host_work;
pub(crate) mod placement;
pub(crate) mod reason;
pub(crate) mod rule;
pub(crate) mod strict;
pub(crate) mod subqueries;
pub(crate) mod window_filters;
