//! A whole kernel.

use std::sync::Arc;

use super::body::Body;
use super::code::Nodes;
use super::group::{GroupFrame, GroupTarget};
use super::params::{Field, Type};

/// A kernel: everything that its text follows from.
#[derive(Debug)]
pub struct Kernel {
    /// Types of the parameters, in order.
    pub params: Vec<Type>,
    pub(crate) nodes: Nodes,
    pub(crate) body: Body,
    pub(crate) around: Around,
    /// Most threads of a block.
    pub block_threads: u32,
    /// Blocks that a multiprocessor should hold.
    pub blocks_min: Option<u32>,
}

/// What stands around the loop over rows.
#[derive(Debug)]
pub(crate) enum Around {
    Nothing,
    /// Counts the rows that the thread wrote.
    CountRows {
        control: Field,
    },
    Groups {
        target: Arc<GroupTarget>,
        frame: GroupFrame,
    },
}
