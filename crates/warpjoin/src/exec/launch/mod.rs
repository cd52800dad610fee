//! Runs generated pipelines: sinks are opened on each device, take chunk after chunk, and are brought together.
//!
//! Must not know what sinks make of rows.

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
pub(super) use shape::launch_shape;
pub(crate) use shape::{Strides, TileLaunch, partition_launch};
pub(super) use sink::{DeviceSink, Pushed};
pub(super) use target::{GroupPieces, GroupTarget, PartitionTarget, SketchTarget, Target};
