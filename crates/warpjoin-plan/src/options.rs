//! Settings of one query.

use std::path::Path;
use std::sync::Arc;

use warpjoin_columns::devices::MemoryBudget;
use warpjoin_columns::{Error, Result};
use warpjoin_device::Cancellation;

use crate::plan::FilterForm;

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
    /// Limit of the memory in use on each device, tables and other queries included: the query allocates only below it.
    /// `u64::MAX`: the device's own budget.
    pub memory_budget_bytes: u64,
    /// Limit of the host memory in buffers of all devices, for what does not fit the devices: the query allocates only
    /// below it. 0: no host memory. `u64::MAX`: the devices' own budget.
    pub host_budget_bytes: u64,
    /// A folder for files of rows that joins, group-bys, sorts and windows spill when host memory is full too.
    pub spill_path: Option<Arc<Path>>,
    /// How rows are brought together for joins on several devices.
    pub distribution: Distribution,
    /// Maximum rows on several devices that are gathered on one device; `None`: as long as that is estimated to be
    /// faster. 0: rows are always exchanged.
    pub few_rows: Option<u64>,
    /// How group-bys accumulate; `None`: by the keys.
    pub group_by_form: Option<GroupByForm>,
    /// Slots of the group table in each block's shared memory. `None`: what fits.
    pub block_table_slots: Option<u32>,
    /// How joins find matches; `None`: by the cost rule.
    pub join_form: Option<JoinForm>,
    /// Target build rows of a partition of a partitioned join. `None`: 4096.
    pub partition_rows: Option<u32>,
    /// Most bits of a partition that are counted before the first pass; those of a second pass are counted between the passes if
    /// there are more. `None`: what fits a block's shared memory.
    pub counted_bits: Option<u32>,
    /// Minimum build rows for dropping those without a match before the table is built. `None`: when the probe side is
    /// much smaller.
    pub reduced_rows_min: Option<u64>,
    /// Minimum build rows for deciding existence joins with an inequality by the extremes of each key. `None`: when row
    /// lists are estimated to be slower.
    pub extremes_rows_min: Option<u64>,
    /// Minimum rows of a window for dropping rows that cannot be among the first of their partition, if only those are
    /// needed. `None`: when few rows are estimated to be left.
    pub ranked_rows_min: Option<u64>,
    /// Minimum matches of a probe row for swapping the sides of an outer join. `None`: 64, where the probe side is small.
    pub swapped_matches_min: Option<u64>,
    /// Minimum rows of a table for listing the rows that its first tests leave. `None`: when few of many rows are left.
    pub compact_rows_min: Option<u64>,
    /// Minimum distinct strings of a column for LIKE and comparisons on the devices; `None`: 4096.
    pub tested_strings_min: Option<usize>,
    /// Output buffers with more unused bytes are copied to smaller ones; `None`: 64 MiB.
    pub waste_bytes_max: Option<u64>,
    /// Rows that one block sorts by itself, at most 4096. `None`: 4096.
    pub sort_few_rows: Option<u32>,
    /// Minimum range of a group key for grouping rows sorted by it in a table indexed by the key. `None`: 2^28.
    pub ordered_span_min: Option<u64>,
    /// Whether joins are reordered.
    pub join_order: JoinOrder,
    /// Whether finished join tables filter the rows of other scans.
    pub runtime_filters: RuntimeFilters,
    /// Bits of a Bloom filter for each build row. `None`: 8 to 16, as many as fit the L2 cache.
    pub filter_bits: Option<u32>,
    /// Whether columns of tables are materialized early or late.
    pub materialization: Materialization,
    /// Whether plans that occur several times are run once.
    pub share_subplans: bool,
    /// What runs a pipeline whose kernel is not compiled.
    pub code_tier: CodeTier,
    /// Whether results of functions and tests on dictionaries, and selectivities measured on samples, are kept for
    /// later queries over the same tables. Generated code and compiled kernels are always kept.
    pub remembers_results: bool,
    /// Counts probes of tables and rows that runtime filters drop; slow.
    pub counts_rows: bool,
    /// Keeps only this many bits of every key hash, so that tests meet collisions.
    pub hash_bits: u32,
    /// Minimum slots of one word for a table to use slots of two words; smaller values are for tests. `None`: 2^32.
    pub word_slots_max: Option<u64>,
    /// First guess of a hash table's slots and of an output's rows, so that tests meet retries.
    pub first_capacity: Option<u64>,
    /// Rows that one launch of a pipeline processes, rounded up to a multiple of 128. `None`: all rows of a device.
    pub chunk_rows: Option<u64>,
    /// Writes rows to host memory, as if a device had no room for them; for tests.
    pub writes_to_host: bool,
    /// Maximum build rows, rows to group or rows to sort of a pass; for tests. Joins and group-bys then process some
    /// partitions at a time, sorts and windows some rows, as if the device had no room for more.
    pub pass_rows: Option<u64>,
    /// Threads of the host that drive several devices.
    pub device_threads: DeviceThreads,
    /// Whether the query saves memory.
    pub memory_use: MemoryUse,
}

/// Whether a query saves memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryUse {
    /// No: the fastest plan. If a device runs out of memory, the query begins again with [`Self::Least`].
    #[default]
    Auto,
    /// Yes: one hash table at a time. Rows are materialized between joins, and there are no runtime filters.
    Least,
}

/// What code runs a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CodeTier {
    /// GPUs interpret the pipeline until its kernel is compiled in the background. Simulated devices wait for the
    /// compilation.
    #[default]
    Auto,
    /// The pipeline is interpreted wherever that is supported.
    Interpreted,
    /// The query waits until the pipeline's kernel is compiled.
    Compiled,
}

/// Threads of the host that drive the devices of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceThreads {
    /// One thread for each GPU; one thread for all simulated devices.
    #[default]
    Auto,
    /// One thread drives all devices, in an order drawn from a seed; 0: in device order. Devices still work in
    /// parallel, as kernels run asynchronously.
    One(u64),
    /// One thread for each device.
    Each,
}

/// How a join finds matches on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinForm {
    /// One hash table, probed by the pipeline of the probe side.
    HashTable,
    /// As [`Self::HashTable`], but a perfect hash table, indexed by the key itself, where the key's bounds allow.
    Direct,
    /// Both sides are partitioned by key hash, and matched partition by partition in shared memory.
    Partitioned,
}

/// Order of inner joins, and the choice of their build sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JoinOrder {
    /// The order of least estimated device cost, if that is clearly below the given order's.
    #[default]
    Auto,
    /// As the plan says.
    AsGiven,
    /// Any correct order, drawn from a seed; for tests.
    Seeded(u64),
}

/// Runtime filters: a join's table drops rows of other scans that cannot contribute to the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuntimeFilters {
    /// Where a filter is estimated to save time.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// Wherever a filter is correct; for tests.
    Always,
    /// Wherever a filter is correct, in this form where the keys allow it.
    AlwaysBy(FilterForm),
}

/// When columns are read that a pipeline only passes on to a later pipeline or to the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Materialization {
    /// Late, column by column, if that is estimated to be clearly cheaper.
    #[default]
    Auto,
    /// When their table is scanned; the values travel with the rows.
    Early,
    /// When they are needed, by row id, for all columns that allow it; for tests.
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
            counted_bits: None,
            reduced_rows_min: None,
            extremes_rows_min: None,
            ranked_rows_min: None,
            swapped_matches_min: None,
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
    #[doc(hidden)]
    pub fn form(self) -> Option<FilterForm> {
        match self {
            Self::AlwaysBy(form) => Some(form),
            _ => None,
        }
    }
}

impl ExecOptions {
    /// The query's limits on memory in use.
    pub fn memory_budget(&self) -> MemoryBudget {
        MemoryBudget { device_bytes: self.memory_budget_bytes, host_bytes: self.host_budget_bytes }
    }

    /// The same query with [`MemoryUse::Least`].
    #[doc(hidden)]
    pub fn with_least_memory(&self) -> Self {
        Self {
            memory_use: MemoryUse::Least,
            join_form: Some(JoinForm::HashTable),
            runtime_filters: RuntimeFilters::Off,
            ..self.clone()
        }
    }

    /// Fails once the query was cancelled.
    #[doc(hidden)]
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// How a group-by accumulates. If the keys do not allow a form, another one is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupByForm {
    /// Straight into the group table in global memory.
    Global,
    /// In a hash table in each block's shared memory first.
    BlockTable,
    /// Rows are partitioned by key hash; then as `BlockTable`.
    Partitioned,
}
