//! Measured rates that costs are made of, and sizes at which forms change.
//!
//! Times are picoseconds on an H100, measured with random keys and 2^20 to 2^28 rows. What decides is their ratio, which other
//! GPUs share. Sources: the lines of `benches` for partitions and joins, and `crates/warpjoin/examples/group_shapes.rs`.

/// A launch on a GPU.
pub(crate) const LAUNCH_PS: f64 = 5e6;
/// Reading bytes in order, at the rate of device memory; a byte.
pub(super) const STREAM_PS_PER_BYTE: f64 = 0.3;
/// Writing rows down and reading them again, a byte.
pub(super) const WRITTEN_PS_PER_BYTE: f64 = 0.7;
/// Clearing a table or a filter, a byte.
pub(super) const CLEAR_PS_PER_BYTE: f64 = 0.4;
/// Share of L2 that a table may take so that its lines stay there.
pub(super) const HELD_L2_SHARE: f64 = 0.7;

/// An insert into a table in L2, and into one in device memory.
pub(super) const INSERT_PS: (f64, f64) = (30.0, 140.0);
/// An insert into a direct table in the order of its keys.
pub(super) const ORDERED_INSERT_PS: f64 = 5.0;
/// A probe by the table's share of L2: up to so much of it, so long.
pub(super) const PROBE_PS: [(f64, f64); 5] = [(0.1, 5.0), (0.35, 8.0), (0.7, 10.5), (1.5, 20.0), (f64::INFINITY, 32.0)];
/// A probe of a direct table in the order of its keys: neighbors read one line.
pub(super) const ORDERED_PROBE_PS: f64 = 3.0;
/// Lookups by the key itself in tables that L2 holds: no filter is plainly faster.
pub(super) const NEAR_PS: f64 = 10.5;
/// Hashing a key, and looking at what its slot has: a bitmap of 750 KB tested 180 M keys in 1.31 ms where a hash table of 6,095 keys
/// took 2.20 (an H100).
pub(super) const HASHED_PS: f64 = 5.0;
/// A row that is not alive any more while others of its warp probe; but never more than a probe.
pub(super) const WAITING_PS: f64 = 4.0;
/// A row of a warp that has nothing left to probe.
pub(super) const IDLE_PS: f64 = 0.2;
/// Lists of the rows of each key take as long as this number of inserts a row: the table is made twice, and counted.
pub(super) const LIST_INSERTS: f64 = 2.5;
/// Launches that lists take beside those of a table of unique keys.
pub(super) const LIST_LAUNCHES: f64 = 3.0;
/// A match that is read from a list.
pub(super) const LISTED_PS: f64 = 10.0;
/// A further match of a probe row that a thread reads from a list and writes: 2^24 probe rows with 4 matches each took 5.4 ms.
pub(super) const REPEATED_MATCH_PS: f64 = 80.0;
/// The same where both sides are partitioned and a warp shares the matches of its rows: 2^26 matches took 1.2 ms.
pub(super) const SHARED_MATCH_PS: f64 = 18.0;
/// A match whose payload is not in the slot.
pub(super) const PAYLOAD_PS: f64 = 6.0;
/// Reading probe rows and writing matches, a byte.
pub(super) const MATCHED_PS_PER_BYTE: f64 = 0.36;

/// Most bits of one pass of a partition: with more, runs get shorter than the memory's sectors.
pub const PASS_BITS_MAX: u32 = 11;
/// One pass of a partition, a byte of a row: read, written, its key read once more.
pub(super) const PASS_PS_PER_BYTE: f64 = 1.1;
/// A byte out of a device to another: 390 GB/s over the links of an H200.
pub(super) const LINK_PS_PER_BYTE: f64 = 2.6;
/// A byte of a row that is written for that: read and written once.
pub(super) const ROUTED_PS_PER_BYTE: f64 = 0.6;
/// Matching in shared memory, a byte of both rows: read, looked up, written.
pub(super) const MATCH_PS_PER_BYTE: f64 = 0.75;

/// Setting a bit of a filter in L2, and of one in device memory.
pub(super) const FILL_PS: (f64, f64) = (10.0, 60.0);
/// Reading a key of the build for that.
pub(super) const FILL_READ_PS: f64 = 3.0;

/// What a runtime filter saves for a row that it drops in front of a group-by. Estimated.
pub(in crate::optimize) const SAVED_GROUP_PS: f64 = 40.0;
/// The same in front of a build side. Estimated.
pub(in crate::optimize) const SAVED_BUILD_PS: f64 = 40.0;
/// The same in front of a probe of a table in L2. Estimated.
pub(in crate::optimize) const SAVED_PROBE_PS: f64 = 4.0;
/// A probe row of a join that may be partitioned instead. Estimated.
pub(in crate::optimize) const PARTITIONED_PROBE_PS: f64 = 20.0;

// Rates of group-bys, a row unless they say otherwise, were fitted together to the times of `group_shapes.rs` on an H100.

/// Adding a row to a group table in L2, and one in device memory: finding the group, and each word that is added to.
pub(super) const GROUP_ADD_PS: [(f64, f64); 2] = [(20.0, 12.0), (90.0, 20.0)];
/// Moving rows of a group-by to their partitions, a byte that is read or written.
pub(super) const GROUP_MOVE_PS_PER_BYTE: f64 = 0.5;
/// Cost of the first pass of a partition, in plain moves of a row: (maximum bits of the pass, cost). More bits make shorter runs.
pub(super) const GROUP_PASS_MOVES: [(u32, f64); 5] = [(6, 0.67), (7, 0.75), (9, 0.88), (10, 1.12), (u32::MAX, 1.55)];
/// The same of a second pass.
pub(super) const GROUP_SECOND_PASS_MOVES: f64 = 0.87;
/// Adding a row to a block's table: finding the group, and each word that is added to.
pub(super) const BLOCK_ADD_PS: (f64, f64) = (3.5, 1.6);
/// What a full table of a block adds to that for each word of a row, and as much again for keys that meet.
pub(super) const BLOCK_LOAD_PS: f64 = 2.0;
/// Writing a group of a block's table out, a word.
pub(super) const BLOCK_WRITE_PS: f64 = 4.8;
/// Clearing a block's table, a word of a slot.
pub(super) const BLOCK_CLEAR_PS: f64 = 0.6;
/// What a row takes longer where no other block shares the multiprocessor: where keys are about as frequent, where some are far
/// more frequent, and for each word that is added to.
pub(super) const LONE_BLOCK_PS: (f64, f64, f64) = (2.5, 10.0, 0.4);
/// Groups that blocks hold in shared memory, so that rows are not moved for them. Estimated.
pub(super) const BLOCK_GROUPS: f64 = 4096.0;
/// Share of the slots of a block's table that groups of a partition may take.
pub(super) const BLOCK_LOAD_MAX: f64 = 0.73;
