//! What group-bys cost: in one table, or by partition.

use super::Costs;
use super::rates::{
    BLOCK_ADD_PS, BLOCK_CLEAR_PS, BLOCK_GROUPS, BLOCK_LOAD_MAX, BLOCK_LOAD_PS, BLOCK_WRITE_PS, GROUP_ADD_PS,
    GROUP_MOVE_PS_PER_BYTE, GROUP_PASS_MOVES, GROUP_SECOND_PASS_MOVES, LONE_BLOCK_PS, PASS_PS_PER_BYTE,
};

impl Costs {
    /// A group-by as far as its keys count: the table that they are looked up in, and moving them.
    pub(in crate::optimize) fn groups_ps(&self, rows: f64, groups: f64, key_bits: f64, calls: usize) -> f64 {
        if key_bits == 0.0 {
            return 0.0;
        }
        let words = (key_bits / 64.0).ceil();
        // Longer keys are found through an index of rows, which hold them.
        let is_wide = words > 1.0;
        let table_bytes = groups * 8.0 * (1.0 + calls as f64 + if is_wide { words + 1.0 } else { 0.0 });
        let lookups = if is_wide { 2.0 } else { 1.0 };
        let launches = if is_wide { self.launch_ps } else { 0.0 };
        let moved = if groups > BLOCK_GROUPS { rows * words * 8.0 * PASS_PS_PER_BYTE } else { 0.0 };
        launches + rows * self.random_read_ps(table_bytes) * lookups + moved + self.written_ps(groups * words * 8.0)
    }
}

/// A group-by, as far as it matters whether its rows are partitioned first. Its costs are picoseconds a row, fitted to an H100
/// (`examples/group_shapes.rs`).
#[derive(Debug, Clone, Copy)]
pub struct GroupCosts {
    pub key_bytes: f64,
    /// Of keys and arguments.
    pub row_bytes: f64,
    /// Words that are added to.
    pub adds: f64,
    pub groups: f64,
    pub rows: f64,
    /// The group table fits L2.
    pub is_cached: bool,
    pub has_probes: bool,
}

/// How the rows of a group-by are partitioned.
#[derive(Debug, Clone, Copy)]
pub struct PartitionPasses {
    /// Bits of the first pass, and of the second if there is one.
    pub bits: (u32, u32),
    /// Blocks that share a multiprocessor.
    pub table_blocks: u32,
    /// Slots of a block's table.
    pub slots: f64,
    /// Some keys are far more frequent than others.
    pub is_skewed: bool,
}

impl GroupCosts {
    /// Adding to the table in global memory.
    fn adding(&self, is_cached: bool) -> f64 {
        let (row_ps, add_ps) = GROUP_ADD_PS[usize::from(!is_cached)];
        row_ps + add_ps * self.adds
    }

    /// One table in global memory.
    pub fn direct(&self) -> f64 {
        self.adding(self.is_cached)
    }

    /// A table for each partition, in shared memory.
    pub fn partitioned(&self, passes: PartitionPasses) -> f64 {
        let PartitionPasses { bits: (first, second), table_blocks, slots, is_skewed } = passes;
        let moves = pass_moves(first)
            + f64::from(u8::from(second > 0)) * GROUP_SECOND_PASS_MOVES
            + f64::from(u8::from(self.has_probes));
        let partition = (self.key_bytes + moves * 2.0 * self.row_bytes) * GROUP_MOVE_PS_PER_BYTE;
        let partitions = f64::from(1u32 << (first + second));
        let groups = self.groups / partitions;
        let words = 1.0 + self.adds;
        // Keys that meet in a table cost more the fuller it is.
        let load = (groups / slots).min(1.0);
        let load = BLOCK_LOAD_PS * words * load * (1.0 + load);
        // What finds no slot goes to the table in global memory.
        let misses = (groups / (slots * BLOCK_LOAD_MAX) - 1.0).clamp(0.0, 1.0);
        // A block writes out and clears its table for each partition.
        let written = (self.groups / self.rows).min(1.0) * BLOCK_WRITE_PS * words;
        let cleared = BLOCK_CLEAR_PS * slots * words * partitions / self.rows;
        // A lone block has nobody to fill its waits, least of all where rows wait for one address.
        let (even, skewed, add) = LONE_BLOCK_PS;
        let lone = match (table_blocks, is_skewed) {
            (1, false) => even + add * self.adds,
            (1, true) => skewed + add * self.adds,
            _ => 0.0,
        };
        let (row, add) = BLOCK_ADD_PS;
        partition + row + add * self.adds + load + lone + written + cleared + misses * self.adding(true)
    }
}

/// What the first pass of a partition costs by its bits, in moves of a row.
fn pass_moves(bits: u32) -> f64 {
    GROUP_PASS_MOVES.iter().find(|(up_to, _)| bits <= *up_to).map_or(0.0, |(_, moves)| *moves)
}
