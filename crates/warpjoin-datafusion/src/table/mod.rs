//! Tables on the devices: their provider, what a scan of one is, and their statistics.

pub(crate) mod provider;
pub(crate) mod scan;
pub(crate) mod statistics;
