//! What the tests of the operators share: an oracle, cases, random plans, sessions of every kind.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

pub(crate) mod case;
pub(crate) mod data;
pub(crate) mod decisions;
pub(crate) mod edges;
pub(crate) mod expressions;
pub(crate) mod functions;
pub(crate) mod int_plans;
pub(crate) mod join_trees;
pub(crate) mod mutants;
pub(crate) mod order;
pub(crate) mod plans;
pub(crate) mod random;
pub(crate) mod random_expr;
pub(crate) mod sanitized;
pub(crate) mod schedules;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod value;
pub(crate) mod windows;
