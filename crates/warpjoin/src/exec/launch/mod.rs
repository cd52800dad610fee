//! Runs generated pipelines: a sink is opened on each device, takes chunk after chunk, and the devices' results are
//! combined.
//!
//! Must not know how sinks process rows.

mod binder;
mod drive;
mod interpreted;
mod lane;
mod lookup;
mod members;
mod shape;
mod sink;
mod staging;
mod target;
mod tier;

pub(super) use lane::{Job, Lane};
pub(super) use members::share_of;
pub(crate) use shape::{Strides, TileLaunch, partition_launch};
pub(super) use shape::{launch_shape, slice_bits};
pub(super) use sink::{DeviceSink, Pushed};
pub(super) use target::{GroupPieces, GroupTarget, PartitionTarget, SketchTarget, Target};
