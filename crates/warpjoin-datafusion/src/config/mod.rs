//! The `warpjoin.*` settings of a session: values, parsing, and the list that `SHOW` prints.
//!
//! Must not know how settings affect plans.

mod cache_settings;
mod device_choice;
mod distribute;
mod memory_share;
mod parquet_decode;
mod parse;
mod query_timeout;

use std::any::Any;
use std::path::PathBuf;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use warpjoin::exec::{GroupByForm, JoinOrder, Materialization, RuntimeFilters};
use warpjoin::plan::FilterForm;
use warpjoin::{CodeTier, JoinForm, MemoryBudget, Session};
use warpjoin_device::usable_host_bytes;

pub(crate) use cache_settings::{CacheLimits, CacheSettings};
pub use device_choice::DeviceChoice;
pub use distribute::Distribute;
pub use memory_share::MemoryShare;
pub use parquet_decode::ParquetDecode;
use parse::{Bytes, name_of, named, parse, parse_bool, parse_folder, parse_in};
pub(crate) use query_timeout::QueryTimeout;

/// Default of [`WarpjoinOptions::minimum_rows`].
const MINIMUM_ROWS_DEFAULT: u64 = 100_000;
/// Default of [`WarpjoinOptions::kept_plans`]: more queries than a dashboard has.
const KEPT_PLANS_DEFAULT: usize = 256;
/// Default of [`WarpjoinOptions::strict_rows`]: about what a query prints on a few screens.
const STRICT_ROWS_DEFAULT: u64 = 4096;

/// The `warpjoin.*` settings of one session. `SET warpjoin.strict = true` changes a setting, `SHOW warpjoin.strict` shows
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarpjoinOptions {
    /// Whether plans are offloaded to devices.
    pub enabled: bool,
    /// Kind of device.
    pub device: DeviceChoice,
    /// Number of devices; 0: all usable GPUs, or two simulated devices.
    pub devices: usize,
    /// Whether tables lie on one device or on all.
    pub distribute: Distribute,
    /// This session allocates on a device only up to this total in use, counted over all sessions of the process. At most,
    /// and with 0, the device's own limit.
    pub memory_budget_bytes: u64,
    /// Host memory for columns and rows that do not fit the devices, for all sessions together: a share of what the
    /// process may use, half at most.
    pub host_memory: MemoryShare,
    /// A folder for files of rows that queries spill when `host_memory` is full; `None`: such a query fails on the
    /// devices.
    pub spill_path: Option<PathBuf>,
    /// Lanes that probe a hash table together, a power of two from 1 to 32; 0: chosen for each table.
    pub group_size_lanes: u32,
    /// Whether work on the CPU is an error: joins, aggregates, filters, computations, sorts, windows, unions, and rows fetched
    /// between two device parts. Reading and moving rows is not work.
    pub strict: bool,
    /// Rows that each CPU node may take if `strict`.
    pub strict_rows: u64,
    /// Maximum time of a query with a part on the devices, including waiting for admission; `None`: no limit.
    pub query_timeout: Option<Duration>,
    /// What a device fault leads to. Running out of memory and errors in the data are not faults.
    pub on_fault: OnFault,
    /// A subtree stays on the CPU if all its inputs are estimated to have fewer rows. Ignored if `strict`.
    pub minimum_rows: u64,
    /// Seed of the simulated devices' schedule; `None`: their default schedule.
    pub simulate_seed: Option<u64>,
    /// How joins find matches; `None`: chosen by cost.
    pub join_form: Option<JoinForm>,
    /// How group-bys accumulate; `None`: chosen by the keys and the estimated number of groups.
    pub group_by_form: Option<GroupByForm>,
    /// Order of inner joins.
    pub join_order: JoinOrder,
    /// Which runtime filters are used.
    pub runtime_filters: RuntimeFilters,
    /// Whether columns are materialized early or late.
    pub materialization: Materialization,
    /// Whether results of functions and tests on dictionaries, and selectivities measured on samples, are kept for later
    /// queries.
    pub remember: bool,
    /// Limit of device memory for cached columns of Parquet files.
    pub cache: MemoryShare,
    /// Share of `host_memory` for cached Parquet columns evicted from the devices.
    pub host_cache: MemoryShare,
    /// Where pages of Parquet files are decoded for the cache.
    pub parquet_decode: ParquetDecode,
    /// Whether to count probes and the rows that runtime filters drop; slow.
    pub count_rows: bool,
    /// What runs a pipeline whose kernel is not compiled.
    pub code_tier: CodeTier,
    /// Maximum plans kept for later queries, of all sessions of a runtime; 0: none.
    pub kept_plans: usize,
    /// Whether a query that finds a kept plan is planned again, to compare both plans.
    pub check_plans: bool,
}

const JOIN_ORDERS: [(&str, JoinOrder); 2] = [("auto", JoinOrder::Auto), ("as_given", JoinOrder::AsGiven)];
const RUNTIME_FILTERS: [(&str, RuntimeFilters); 6] = [
    ("auto", RuntimeFilters::Auto),
    ("off", RuntimeFilters::Off),
    ("always", RuntimeFilters::Always),
    ("table", RuntimeFilters::AlwaysBy(FilterForm::Table)),
    ("bitmap", RuntimeFilters::AlwaysBy(FilterForm::Bitmap)),
    ("bloom", RuntimeFilters::AlwaysBy(FilterForm::Bloom)),
];
const MATERIALIZATIONS: [(&str, Materialization); 3] =
    [("auto", Materialization::Auto), ("early", Materialization::Early), ("late", Materialization::Late)];

const JOIN_FORMS: [(&str, Option<JoinForm>); 4] = [
    ("auto", None),
    ("hash_table", Some(JoinForm::HashTable)),
    ("direct", Some(JoinForm::Direct)),
    ("partitioned", Some(JoinForm::Partitioned)),
];
const GROUP_BY_FORMS: [(&str, Option<GroupByForm>); 4] = [
    ("auto", None),
    ("global", Some(GroupByForm::Global)),
    ("block_table", Some(GroupByForm::BlockTable)),
    ("partitioned", Some(GroupByForm::Partitioned)),
];

const ON_FAULT: [(&str, OnFault); 2] = [("fallback", OnFault::Fallback), ("error", OnFault::Error)];

const CODE_TIERS: [(&str, CodeTier); 3] =
    [("auto", CodeTier::Auto), ("interpreted", CodeTier::Interpreted), ("compiled", CodeTier::Compiled)];

/// What a device fault leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFault {
    /// The CPU runs the query. The fault is logged and counted.
    #[default]
    Fallback,
    /// The query fails.
    Error,
}

impl Default for WarpjoinOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            device: DeviceChoice::Auto,
            devices: 0,
            distribute: Distribute::Auto,
            memory_budget_bytes: 0,
            host_memory: MemoryShare::OF_HOST,
            spill_path: None,
            group_size_lanes: 0,
            strict: false,
            strict_rows: STRICT_ROWS_DEFAULT,
            query_timeout: None,
            on_fault: OnFault::Fallback,
            minimum_rows: MINIMUM_ROWS_DEFAULT,
            simulate_seed: None,
            join_form: None,
            group_by_form: None,
            join_order: JoinOrder::Auto,
            runtime_filters: RuntimeFilters::Auto,
            materialization: Materialization::Auto,
            remember: true,
            cache: MemoryShare::OF_CACHE,
            host_cache: MemoryShare::OF_CACHE,
            parquet_decode: ParquetDecode::Auto,
            count_rows: false,
            code_tier: CodeTier::Auto,
            kept_plans: KEPT_PLANS_DEFAULT,
            check_plans: false,
        }
    }
}

impl WarpjoinOptions {
    /// Limits on memory in use.
    pub fn memory_budget(&self) -> MemoryBudget {
        let device_bytes = if self.memory_budget_bytes == 0 { u64::MAX } else { self.memory_budget_bytes };
        MemoryBudget { device_bytes, host_bytes: self.host_memory.of(usable_host_bytes()) }
    }
}

impl ConfigExtension for WarpjoinOptions {
    const PREFIX: &'static str = "warpjoin";
}

impl ExtensionOptions for WarpjoinOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let value = value.trim();
        match key {
            "enabled" => self.enabled = parse_bool(key, value)?,
            "device" => self.device = parse(key, value, "auto, cuda or sim")?,
            "devices" => {
                let expected = format!("0 (all) to {}", Session::DEVICES_MAX);
                self.devices = parse_in(key, value, &expected, |&devices: &usize| devices <= Session::DEVICES_MAX)?;
            }
            "distribute" => self.distribute = named(key, value, &Distribute::NAMES)?,
            "memory_budget" => self.memory_budget_bytes = parse::<Bytes>(key, value, "bytes, such as 8GB or 512MiB")?.0,
            "host_memory" => {
                self.host_memory =
                    parse(key, value, "a share of the host's memory, such as 50%, bytes, such as 64GB, or off")?
            }
            "spill_path" => self.spill_path = parse_folder(key, value)?,
            "host_cache" => {
                self.host_cache =
                    parse(key, value, "a share of warpjoin.host_memory, such as 60%, bytes, such as 8GB, or off")?
            }
            "group_size" => {
                let allowed = |&lanes: &u32| lanes == 0 || (lanes.is_power_of_two() && lanes <= 32);
                self.group_size_lanes = parse_in(key, value, "0 (auto), 1, 2, 4, 8, 16 or 32", allowed)?;
            }
            "strict" => self.strict = parse_bool(key, value)?,
            "strict_rows" => self.strict_rows = parse(key, value, "a number of rows")?,
            "query_timeout" => {
                let expected = "milliseconds, a time such as 30s, 5m or 1h, or off";
                self.query_timeout = parse::<QueryTimeout>(key, value, expected)?.time();
            }
            "on_fault" => self.on_fault = named(key, value, &ON_FAULT)?,
            "minimum_rows" => self.minimum_rows = parse(key, value, "a number of rows")?,
            "join_form" => self.join_form = named(key, value, &JOIN_FORMS)?,
            "group_by_form" => self.group_by_form = named(key, value, &GROUP_BY_FORMS)?,
            "join_order" => self.join_order = named(key, value, &JOIN_ORDERS)?,
            "remember" => self.remember = parse_bool(key, value)?,
            "cache" => {
                self.cache =
                    parse(key, value, "a share of the devices' memory, such as 60%, bytes, such as 8GB, or off")?
            }
            "parquet_decode" => self.parquet_decode = named(key, value, &ParquetDecode::NAMES)?,
            "count_rows" => self.count_rows = parse_bool(key, value)?,
            "kept_plans" => self.kept_plans = parse(key, value, "a number of plans")?,
            "check_plans" => self.check_plans = parse_bool(key, value)?,
            "code_tier" => self.code_tier = named(key, value, &CODE_TIERS)?,
            "runtime_filters" => self.runtime_filters = named(key, value, &RUNTIME_FILTERS)?,
            "materialization" => self.materialization = named(key, value, &MATERIALIZATIONS)?,
            "simulate_seed" => {
                self.simulate_seed = match value {
                    "" | "none" | "NULL" | "null" => None,
                    seed => Some(parse(key, seed, "a number, or none")?),
                }
            }
            _ => {
                let known: Vec<String> = self.entries().into_iter().map(|entry| entry.key).collect();
                return Err(DataFusionError::Configuration(format!(
                    "unknown setting warpjoin.{key}; known settings are {}",
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: Option<String>, description| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value,
            description,
        };
        vec![
            entry("enabled", Some(self.enabled.to_string()), "Whether plans are offloaded to devices"),
            entry(
                "device",
                Some(self.device.to_string()),
                "Kind of device: auto (GPUs if any are usable, else the CPU), cuda or sim (simulated on the CPU)",
            ),
            entry(
                "devices",
                Some(self.devices.to_string()),
                "Number of devices; 0 means all GPUs, or two simulated devices",
            ),
            entry(
                "distribute",
                Some(name_of(self.distribute, &Distribute::NAMES)),
                "Devices that tables lie on: auto (the first GPU as long as it has room, else all), one or all",
            ),
            entry(
                "memory_budget",
                Some(self.memory_budget_bytes.to_string()),
                "Bytes that may be in use on each device, such as 8GB; 0 means the device's own limit",
            ),
            entry(
                "host_memory",
                Some(self.host_memory.to_string()),
                "Memory of the host for columns and rows for which devices have no room: a share, such as 50%, bytes, such as 64GB, \
                 or off",
            ),
            entry(
                "spill_path",
                Some(self.spill_path.as_ref().map_or("off".into(), |folder| folder.display().to_string())),
                "Folder for files of rows that queries spill when warpjoin.host_memory has no room for them either, or off",
            ),
            entry(
                "group_size",
                Some(self.group_size_lanes.to_string()),
                "Lanes that probe a hash table together: a power of two up to 32; 0 means chosen by load factor and size",
            ),
            entry(
                "strict",
                Some(self.strict.to_string()),
                "Whether work on the CPU is an error: anything but reading, moving and writing rows",
            ),
            entry(
                "strict_rows",
                Some(self.strict_rows.to_string()),
                "Rows that each CPU node may take with warpjoin.strict",
            ),
            entry(
                "query_timeout",
                Some(QueryTimeout::new(self.query_timeout).to_string()),
                "How long a query with a part on the devices may run, waiting for admission included: milliseconds, a time such \
                 as 30s, 5m or 1h, or off",
            ),
            entry(
                "on_fault",
                Some(name_of(self.on_fault, &ON_FAULT)),
                "What a device fault (driver, kernel, internal) leads to: fallback (the CPU runs the query) or error",
            ),
            entry(
                "minimum_rows",
                Some(self.minimum_rows.to_string()),
                "Subtrees whose inputs are all estimated to have fewer rows stay on the CPU",
            ),
            entry(
                "simulate_seed",
                self.simulate_seed.map(|seed| seed.to_string()),
                "Seed of the simulated devices' schedule",
            ),
            entry(
                "join_form",
                Some(name_of(self.join_form, &JOIN_FORMS)),
                "How joins find matches: auto (by cost), hash_table, direct (perfect hash table) or partitioned",
            ),
            entry(
                "group_by_form",
                Some(name_of(self.group_by_form, &GROUP_BY_FORMS)),
                "How group-bys accumulate: auto (by keys and estimated groups), global, block_table or partitioned",
            ),
            entry(
                "join_order",
                Some(name_of(self.join_order, &JOIN_ORDERS)),
                "Order of inner joins: auto (by cost on a device) or as_given (DataFusion's)",
            ),
            entry(
                "remember",
                Some(self.remember.to_string()),
                "Whether results of functions and tests on dictionaries, and selectivities of samples, are kept for later \
                 queries; false to measure what a query costs by itself",
            ),
            entry(
                "cache",
                Some(self.cache.to_string()),
                "Device memory that columns of Parquet files may take, to be there for later queries: a share, such as 60%, bytes, \
                 such as 8GB, or off",
            ),
            entry(
                "host_cache",
                Some(self.host_cache.to_string()),
                "Share of warpjoin.host_memory for cached Parquet columns evicted from the devices: a share, such as \
                 60%, bytes, such as 8GB, or off",
            ),
            entry(
                "parquet_decode",
                Some(name_of(self.parquet_decode, &ParquetDecode::NAMES)),
                "Where Parquet is decoded for the cache: gpu (what devices can't decode on the CPU), cpu, or auto (gpu on GPUs)",
            ),
            entry(
                "count_rows",
                Some(self.count_rows.to_string()),
                "Whether EXPLAIN ANALYZE counts probes and rows that runtime filters drop; slow",
            ),
            entry(
                "kept_plans",
                Some(self.kept_plans.to_string()),
                "Most plans of queries over resident tables that are kept for later queries; 0: each query is planned anew",
            ),
            entry(
                "check_plans",
                Some(self.check_plans.to_string()),
                "Whether a query that finds its plan is planned anew all the same; an error if the plans differ",
            ),
            entry(
                "code_tier",
                Some(name_of(self.code_tier, &CODE_TIERS)),
                "What runs a pipeline whose kernel is not compiled: auto (on GPUs it is interpreted, and its kernel compiled \
                 in the background), interpreted or compiled",
            ),
            entry(
                "runtime_filters",
                Some(name_of(self.runtime_filters, &RUNTIME_FILTERS)),
                "Runtime filters from build sides: auto (by cost), off, or always; table, bitmap or bloom: always, in that \
                 form",
            ),
            entry(
                "materialization",
                Some(name_of(self.materialization, &MATERIALIZATIONS)),
                "When columns are read: auto (by cost), early (when their table is scanned) or late (by row id)",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units() {
        let mut options = WarpjoinOptions::default();
        for (text, bytes) in
            [("8GB", 8_000_000_000), ("512MiB", 512 << 20), ("1.5 kb", 1500), ("123", 123), ("2g", 2 << 30)]
        {
            options.set("memory_budget", text).unwrap();
            assert_eq!(options.memory_budget_bytes, bytes, "{text}");
        }
    }

    #[test]
    fn bad_values_say_what_is_expected() {
        let mut options = WarpjoinOptions::default();
        for (key, value) in [
            ("group_size", "3"),
            ("group_size", "64"),
            ("memory_budget", "many"),
            ("memory_budget", "99999999999TB"),
            ("memory_budget", "0.5B"),
            ("device", "tpu"),
            ("devices", "-1"),
            ("strict", "maybe"),
            ("strict_rows", "-1"),
            ("on_fault", "panic"),
            ("spill_path", "/no/such/folder"),
            ("query_timeout", "soon"),
            ("query_timeout", "-1"),
            ("query_timeout", "3 parsecs"),
            ("simulate_seed", "x"),
            ("join_form", "merge"),
            ("group_by_form", "sorted"),
            ("join_order", "random"),
            ("runtime_filters", "some"),
            ("materialization", "never"),
            ("cache", "much"),
            ("cache", "101%"),
        ] {
            let message = options.set(key, value).unwrap_err().to_string();
            assert!(message.contains(&format!("warpjoin.{key} takes")), "{message}");
        }
        let message = options.set("colour", "red").unwrap_err().to_string();
        assert!(message.contains("warpjoin.minimum_rows"), "{message}");
        assert_eq!(options, WarpjoinOptions::default());
    }

    #[test]
    fn names_parse_and_print() {
        let mut options = WarpjoinOptions::default();
        for (name, form) in JOIN_FORMS {
            options.set("join_form", name).unwrap();
            assert_eq!((options.join_form, name_of(form, &JOIN_FORMS).as_str()), (form, name));
        }
        for (name, filters) in RUNTIME_FILTERS {
            options.set("runtime_filters", name).unwrap();
            assert_eq!((options.runtime_filters, name_of(filters, &RUNTIME_FILTERS).as_str()), (filters, name));
        }
        for (name, form) in GROUP_BY_FORMS {
            options.set("group_by_form", name).unwrap();
            assert_eq!((options.group_by_form, name_of(form, &GROUP_BY_FORMS).as_str()), (form, name));
        }
    }

    #[test]
    fn entries_have_full_keys() {
        let options = WarpjoinOptions::default();
        assert_eq!(options.entries().len(), 27);
        assert!(options.entries().iter().all(|entry| entry.key.starts_with("warpjoin.")));
    }
}
