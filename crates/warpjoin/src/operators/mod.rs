//! The Arrow-native API: joins and group-bys of tables, without a plan.

pub(crate) mod group_by;
pub(crate) mod hash_join;
