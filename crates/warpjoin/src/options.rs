//! Settings of one query.

use std::path::Path;
use std::sync::Arc;

use warpjoin_device::Cancellation;

use crate::devices::MemoryBudget;
use crate::plan::FilterForm;
use crate::{Error, Result};

/// Settings of one query. The default chooses everything by itself.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// Lanes that probe a hash table together: 1, 2, 4, 8, 16 or 32. `None`: by load factor and footprint.
    pub probe_group_lanes: Option<u32>,
    /// Share of slots of a hash table that may be filled, in (0, 1). `None`: 0.5 to 0.7 by footprint.
    pub load_factor: Option<f64>,
    /// Rows of a result batch.
    pub batch_rows: usize,
    /// Stops the query: at its next step on the host, and in kernels that may run long.
    pub cancel: Arc<Cancellation>,
    /// The most that may be in use on each device for the query to allocate more, tables and other queries included.
    /// `u64::MAX`: the device's own budget.
    pub memory_budget_bytes: u64,
    /// The most that buffers of all devices may take of the host's memory for the query to put more there: what a device has no
    /// room for. 0: nothing. `u64::MAX`: the devices' own budget.
    pub host_budget_bytes: u64,
    /// A folder for files of rows that joins, group-bys, sorts and windows spill when the host's memory has no room for them either.
    pub spill_path: Option<Arc<Path>>,
    /// How rows are brought together for joins on several devices.
    pub distribution: Distribution,
    /// Rows of several devices up to which they come to one; `None`: as many as take less time there. Set it to 0 to have them
    /// exchanged, as large ones are.
    pub few_rows: Option<u64>,
    /// How group-bys accumulate; `None`: by the keys.
    pub group_by_form: Option<GroupByForm>,
    /// Slots of the group table in each block's shared memory. `None`: what fits.
    pub block_table_slots: Option<u32>,
    /// How joins find matches; `None`: by the cost rule.
    pub join_form: Option<JoinForm>,
    /// Build rows of a partition that a partitioned join aims at. `None`: 4096.
    pub partition_rows: Option<u32>,
    /// Build rows from which on those that match nothing are dropped before a table is made of them. `None`: where the
    /// side that probes is much smaller.
    pub reduced_rows_min: Option<u64>,
    /// Build rows from which on existence joins with an inequality are told by the extremes of each key. `None`: where lists
    /// of rows take longer.
    pub extremes_rows_min: Option<u64>,
    /// Rows of a table from which on blocks list the rows that its first tests leave. `None`: where few are left of many.
    pub compact_rows_min: Option<u64>,
    /// Distinct strings of a column from which on devices evaluate LIKE and comparisons; `None`: 4096.
    pub tested_strings_min: Option<usize>,
    /// Output buffers that leave more unused are copied to smaller ones; `None`: 64 MiB.
    pub waste_bytes_max: Option<u64>,
    /// Rows that one block sorts by itself, at most 4096. `None`: 4096.
    pub sort_few_rows: Option<u32>,
    /// Values that a group key spans from which on rows in its order are grouped by a table of all of them. `None`: 2^28.
    pub ordered_span_min: Option<u64>,
    /// Whether joins are reordered.
    pub join_order: JoinOrder,
    /// Whether finished tables drop rows of other scans.
    pub runtime_filters: RuntimeFilters,
    /// Bits of a Bloom filter for each build row. `None`: 8 to 16, by what L2 has room for.
    pub filter_bits: Option<u32>,
    /// Where the columns of tables are read.
    pub materialization: Materialization,
    /// Whether plans that occur several times are run once.
    pub share_subplans: bool,
    /// What runs a pipeline whose kernel is not compiled.
    pub code_tier: CodeTier,
    /// Whether results of functions and tests on dictionaries, and rows of samples that conditions keep, are remembered
    /// for later queries over the same tables. Generated code and compiled kernels are remembered anyway.
    pub remembers_results: bool,
    /// Counts lookups in tables and rows that runtime filters drop: for finding out, as it takes time.
    pub counts_rows: bool,
    /// Keeps only this many bits of every key hash, so that tests meet collisions.
    pub hash_bits: u32,
    /// Slots of one word from which on a table has slots of two, so that tests meet it. `None`: 2^32.
    pub word_slots_max: Option<u64>,
    /// First guess of a hash table's slots and of an output's rows, so that tests meet retries.
    pub first_capacity: Option<u64>,
    /// Rows of a chunk: what one launch of a pipeline goes over, rounded up to a multiple of 128. `None`: all rows of a device.
    pub chunk_rows: Option<u64>,
    /// Writes rows to the host's memory, as where a device has no room for them, so that tests meet it.
    pub writes_to_host: bool,
    /// Joins and group-bys go over some partitions at a time, sorts and windows over some rows, as where these have no room, so that
    /// tests meet it. The most build rows, rows to group, or rows to sort of a pass.
    pub pass_rows: Option<u64>,
    /// Threads of the host that drive several devices.
    pub device_threads: DeviceThreads,
    /// What the query spends memory on.
    pub memory_use: MemoryUse,
}

/// What a query spends memory on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryUse {
    /// Whatever makes it fast. If a device has no room for that, the query begins again with [`Self::Least`].
    #[default]
    Auto,
    /// Hash tables alone, of one join at a time: rows are written down between joins, and no table drops rows of other scans.
    Least,
}

/// What code runs a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CodeTier {
    /// On GPUs kernels that interpret it, until a kernel of its own is compiled in the background. Simulated devices wait for
    /// that.
    #[default]
    Auto,
    /// Kernels that interpret it, wherever they can.
    Interpreted,
    /// A kernel of its own, which a query waits for.
    Compiled,
}

/// Threads of the host that drive the devices of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceThreads {
    /// Of GPUs each has its own; one drives all simulated devices.
    #[default]
    Auto,
    /// One drives all, in an order drawn from a seed; 0: the order of the devices. As kernels run beside the host, devices
    /// work at the same time all the same.
    One(u64),
    /// Each device has its own.
    Each,
}

/// How a join finds matches on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinForm {
    /// One hash table, probed by the pipeline of the probe side.
    HashTable,
    /// As the hash table, indexed by the key itself where its bounds allow.
    Direct,
    /// Both sides are partitioned by key hash, and matched partition by partition in shared memory.
    Partitioned,
}

/// In which order inner joins are run, and which side of them a table is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JoinOrder {
    /// By estimated cost on a device, where that is plainly less than the given order's.
    #[default]
    Auto,
    /// As the plan says.
    AsGiven,
    /// Any order that is right, drawn from a seed, so that tests meet all of them.
    Seeded(u64),
}

/// Where the table of a join drops rows that others read, because no row of the result can need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuntimeFilters {
    /// Where that is estimated to pay.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// Wherever it is right, so that tests meet it.
    Always,
    /// Wherever it is right, and in this form where the keys allow it.
    AlwaysBy(FilterForm),
}

/// Where columns of tables are read that are only carried to a later pipeline, or to the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Materialization {
    /// Late where that is estimated to be plainly cheaper, column by column.
    #[default]
    Auto,
    /// Where their table is scanned: they go with the rows.
    Early,
    /// Where they are needed, by the row's number: whatever can be, so that tests meet it.
    Late,
}

/// How rows are brought together for joins on several devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// By the cost rule.
    #[default]
    Auto,
    /// Every device gets the whole build side.
    Broadcast,
    /// Both sides are partitioned by key hash.
    Exchange,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            probe_group_lanes: None,
            load_factor: None,
            batch_rows: 8192,
            cancel: Arc::default(),
            memory_budget_bytes: u64::MAX,
            host_budget_bytes: u64::MAX,
            spill_path: None,
            distribution: Distribution::Auto,
            few_rows: None,
            group_by_form: None,
            block_table_slots: None,
            join_form: None,
            partition_rows: None,
            reduced_rows_min: None,
            extremes_rows_min: None,
            compact_rows_min: None,
            tested_strings_min: None,
            waste_bytes_max: None,
            sort_few_rows: None,
            ordered_span_min: None,
            join_order: JoinOrder::Auto,
            runtime_filters: RuntimeFilters::Auto,
            filter_bits: None,
            materialization: Materialization::Auto,
            share_subplans: true,
            code_tier: CodeTier::Auto,
            remembers_results: true,
            counts_rows: false,
            hash_bits: 64,
            word_slots_max: None,
            first_capacity: None,
            chunk_rows: None,
            writes_to_host: false,
            pass_rows: None,
            device_threads: DeviceThreads::Auto,
            memory_use: MemoryUse::Auto,
        }
    }
}

impl RuntimeFilters {
    /// Wherever it is right.
    pub(crate) fn is_always(self) -> bool {
        matches!(self, Self::Always | Self::AlwaysBy(_))
    }

    /// The form that was asked for.
    pub(crate) fn form(self) -> Option<FilterForm> {
        match self {
            Self::AlwaysBy(form) => Some(form),
            _ => None,
        }
    }
}

impl ExecOptions {
    /// What the query may use of memory.
    pub fn memory_budget(&self) -> MemoryBudget {
        MemoryBudget { device_bytes: self.memory_budget_bytes, host_bytes: self.host_budget_bytes }
    }

    /// The same query with [`MemoryUse::Least`].
    pub(crate) fn with_least_memory(&self) -> Self {
        Self {
            memory_use: MemoryUse::Least,
            join_form: Some(JoinForm::HashTable),
            runtime_filters: RuntimeFilters::Off,
            ..self.clone()
        }
    }

    /// Fails once the query was cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// How a group-by accumulates. What a form can't do for the keys at hand is done by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupByForm {
    /// Straight into the group table in global memory.
    Global,
    /// In a hash table in each block's shared memory first.
    BlockTable,
    /// Rows are partitioned by key hash; then as `BlockTable`.
    Partitioned,
}
