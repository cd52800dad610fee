//! The `warpjoin.*` options of a session: what they are, how they parse, how `SHOW` lists them.
//!
//! Must not know what the options do to a plan.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use warpjoin::exec::{GroupByForm, JoinOrder, Materialization, RuntimeFilters};
use warpjoin::plan::FilterForm;
use warpjoin::{JoinForm, Session};

/// Rows below which a subtree stays on the CPU by default.
const MINIMUM_ROWS_DEFAULT: u64 = 100_000;
/// Rows that the CPU may handle by default when strict: what a query shows on a screen or two.
const STRICT_ROWS_DEFAULT: u64 = 4096;

/// The options under `warpjoin.` of one session. `SET warpjoin.strict = true` changes one,
/// `SHOW warpjoin.strict` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarpjoinOptions {
    /// Whether plans are put on devices at all.
    pub enabled: bool,
    /// Kind of device.
    pub device: DeviceChoice,
    /// Number of devices; 0: all GPUs of the host, or two simulated devices.
    pub devices: usize,
    /// The most that may be in use on a device for this session's queries and loads to allocate more; 0, and all that is
    /// more: what the device starts with.
    pub memory_budget_bytes: u64,
    /// Lanes that probe a hash table together, a power of two from 1 to 32; 0: chosen per table.
    pub group_size_lanes: u32,
    /// Whether work that stays on the CPU, or falls back to it, is an error: joins, aggregates, filters, computations, sorts,
    /// windows, unions, and rows fetched between two parts on the devices. Reading and moving rows is not.
    pub strict: bool,
    /// Rows that a node on the CPU may handle when `strict`.
    pub strict_rows: u64,
    /// What becomes of a query when the devices fail by a fault, rather than for lack of memory or because of the data.
    pub on_fault: OnFault,
    /// A subtree whose inputs are all estimated below this stays on the CPU. Ignored when `strict`.
    pub minimum_rows: u64,
    /// Seed of the simulated devices' schedule; `None`: their default.
    pub simulate_seed: Option<u64>,
    /// How joins find matches; `None`: by the cost rule.
    pub join_form: Option<JoinForm>,
    /// How group-bys accumulate; `None`: by the keys and the estimated number of groups.
    pub group_by_form: Option<GroupByForm>,
    /// In which order inner joins are run.
    pub join_order: JoinOrder,
    /// Where finished tables drop rows of other scans.
    pub runtime_filters: RuntimeFilters,
    /// Where columns of tables are read that are only carried.
    pub materialization: Materialization,
    /// Whether lookups in tables, and rows that runtime filters drop, are counted; slow.
    pub count_rows: bool,
    /// Whether kernels first run in a form that compiles faster; `None`: on GPUs.
    pub quick_kernels: Option<bool>,
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

const QUICK_KERNELS: [(&str, Option<bool>); 3] = [("auto", None), ("on", Some(true)), ("off", Some(false))];

/// Which kind of device queries run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceChoice {
    /// GPUs if there are some, else none.
    #[default]
    Auto,
    /// GPUs; none there is an error.
    Cuda,
    /// Devices simulated on the CPU.
    Simulated,
}

/// What becomes of a query when the devices fail by a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFault {
    /// The CPU answers it; the fault is logged and counted.
    #[default]
    Fallback,
    /// It ends with an error.
    Error,
}

impl Default for WarpjoinOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            device: DeviceChoice::Auto,
            devices: 0,
            memory_budget_bytes: 0,
            group_size_lanes: 0,
            strict: false,
            strict_rows: STRICT_ROWS_DEFAULT,
            on_fault: OnFault::Fallback,
            minimum_rows: MINIMUM_ROWS_DEFAULT,
            simulate_seed: None,
            join_form: None,
            group_by_form: None,
            join_order: JoinOrder::Auto,
            runtime_filters: RuntimeFilters::Auto,
            materialization: Materialization::Auto,
            count_rows: false,
            quick_kernels: None,
        }
    }
}

impl WarpjoinOptions {
    /// The budget as a limit.
    pub(crate) fn memory_budget(&self) -> u64 {
        if self.memory_budget_bytes == 0 { u64::MAX } else { self.memory_budget_bytes }
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
            "memory_budget" => self.memory_budget_bytes = parse::<Bytes>(key, value, "bytes, such as 8GB or 512MiB")?.0,
            "group_size" => {
                let allowed = |&lanes: &u32| lanes == 0 || (lanes.is_power_of_two() && lanes <= 32);
                self.group_size_lanes = parse_in(key, value, "0 (auto), 1, 2, 4, 8, 16 or 32", allowed)?;
            }
            "strict" => self.strict = parse_bool(key, value)?,
            "strict_rows" => self.strict_rows = parse(key, value, "a number of rows")?,
            "on_fault" => self.on_fault = named(key, value, &ON_FAULT)?,
            "minimum_rows" => self.minimum_rows = parse(key, value, "a number of rows")?,
            "join_form" => self.join_form = named(key, value, &JOIN_FORMS)?,
            "group_by_form" => self.group_by_form = named(key, value, &GROUP_BY_FORMS)?,
            "join_order" => self.join_order = named(key, value, &JOIN_ORDERS)?,
            "count_rows" => self.count_rows = parse_bool(key, value)?,
            "quick_kernels" => self.quick_kernels = named(key, value, &QUICK_KERNELS)?,
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
                    "there is no option warpjoin.{key}; there are {}",
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
            entry("enabled", Some(self.enabled.to_string()), "Whether joins and group-bys are put on devices"),
            entry(
                "device",
                Some(self.device.to_string()),
                "Kind of device: auto (GPUs if there are some), cuda, sim (simulated on the CPU)",
            ),
            entry("devices", Some(self.devices.to_string()), "Number of devices; 0 means all (two when simulated)"),
            entry(
                "memory_budget",
                Some(self.memory_budget_bytes.to_string()),
                "Bytes that may be used on each device, such as 8GB; 0 means the device's own limit",
            ),
            entry(
                "group_size",
                Some(self.group_size_lanes.to_string()),
                "Lanes that probe a hash table together: a power of two up to 32; 0 means by load factor and footprint",
            ),
            entry(
                "strict",
                Some(self.strict.to_string()),
                "Whether work that can't run on the devices is an error: anything but reading, moving and writing rows",
            ),
            entry(
                "strict_rows",
                Some(self.strict_rows.to_string()),
                "Rows that each node on the CPU may handle when warpjoin.strict is set",
            ),
            entry(
                "on_fault",
                Some(name_of(self.on_fault, &ON_FAULT)),
                "What a fault of the devices (driver, kernel, internal) leads to: fallback (to the CPU, logged) or error",
            ),
            entry(
                "minimum_rows",
                Some(self.minimum_rows.to_string()),
                "Subtrees whose inputs are all estimated below this many rows stay on the CPU",
            ),
            entry(
                "simulate_seed",
                self.simulate_seed.map(|seed| seed.to_string()),
                "Seed of the order in which simulated devices run their work",
            ),
            entry(
                "join_form",
                Some(name_of(self.join_form, &JOIN_FORMS)),
                "How joins find matches: auto (by cost), hash_table, direct (indexed by the key) or partitioned",
            ),
            entry(
                "group_by_form",
                Some(name_of(self.group_by_form, &GROUP_BY_FORMS)),
                "How group-bys accumulate: auto (by the groups), global, block_table or partitioned",
            ),
            entry(
                "join_order",
                Some(name_of(self.join_order, &JOIN_ORDERS)),
                "Order of inner joins: auto (by cost on a device) or as_given (by DataFusion)",
            ),
            entry(
                "count_rows",
                Some(self.count_rows.to_string()),
                "Whether EXPLAIN ANALYZE counts lookups in tables and rows that runtime filters drop; takes time",
            ),
            entry(
                "quick_kernels",
                Some(name_of(self.quick_kernels, &QUICK_KERNELS)),
                "Whether kernels that take long to compile first run in a form that compiles faster: auto (on GPUs), on or off",
            ),
            entry(
                "runtime_filters",
                Some(name_of(self.runtime_filters, &RUNTIME_FILTERS)),
                "Where the table of a join drops rows of other scans: auto (by cost), off or always (where it is right); \
                 table, bitmap and bloom: always, and by what",
            ),
            entry(
                "materialization",
                Some(name_of(self.materialization, &MATERIALIZATIONS)),
                "Where columns are read: auto (by cost), early (where their table is scanned) or late (by row number)",
            ),
        ]
    }
}

impl FromStr for DeviceChoice {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "cuda" => Ok(Self::Cuda),
            "sim" => Ok(Self::Simulated),
            _ => Err(()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Simulated => "sim",
        })
    }
}

/// A size in bytes: a number and, if wanted, one of the units B, KB, MB, GB, TB (powers of 1000)
/// and KiB, MiB, GiB, TiB, K, M, G, T (powers of 1024).
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit_bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit_bytes).map(Self).ok_or(());
        }
        let bytes = number.parse::<f64>().map_err(|_| ())? * unit_bytes as f64;
        if bytes < u64::MAX as f64 { Ok(Self(bytes as u64)) } else { Err(()) }
    }
}

/// The value of a name in a list of them.
fn named<T: Copy>(key: &str, value: &str, names: &[(&str, T)]) -> Result<T> {
    names.iter().find(|(name, _)| name.eq_ignore_ascii_case(value)).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        DataFusionError::Configuration(format!("warpjoin.{key} takes {}, not '{value}'", names.join(", ")))
    })
}

fn name_of<T: Copy + PartialEq>(value: T, names: &[(&str, T)]) -> String {
    names.iter().find(|(_, named)| *named == value).map_or_else(String::new, |(name, _)| (*name).to_string())
}

/// As DataFusion takes them, and 1 and 0.
fn parse_bool(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "t" | "on" | "1" => Ok(true),
        "false" | "f" | "off" | "0" => Ok(false),
        _ => Err(DataFusionError::Configuration(format!("warpjoin.{key} takes true or false, not '{value}'"))),
    }
}

fn parse<T: FromStr>(key: &str, value: &str, expected: &str) -> Result<T> {
    parse_in(key, value, expected, |_| true)
}

fn parse_in<T: FromStr>(key: &str, value: &str, expected: &str, allowed: impl Fn(&T) -> bool) -> Result<T> {
    value
        .parse()
        .ok()
        .filter(allowed)
        .ok_or_else(|| DataFusionError::Configuration(format!("warpjoin.{key} takes {expected}, not '{value}'")))
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
            ("device", "tpu"),
            ("devices", "-1"),
            ("strict", "maybe"),
            ("strict_rows", "-1"),
            ("on_fault", "panic"),
            ("simulate_seed", "x"),
            ("join_form", "merge"),
            ("group_by_form", "sorted"),
            ("join_order", "random"),
            ("runtime_filters", "some"),
            ("materialization", "never"),
        ] {
            let message = options.set(key, value).unwrap_err().to_string();
            assert!(message.contains(&format!("warpjoin.{key} takes")), "{message}");
        }
        let message = options.set("colour", "red").unwrap_err().to_string();
        assert!(message.contains("warpjoin.minimum_rows"), "{message}");
        assert_eq!(options, WarpjoinOptions::default());
    }

    #[test]
    fn forms_have_names() {
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
    fn entries_carry_full_keys() {
        let options = WarpjoinOptions::default();
        assert_eq!(options.entries().len(), 17);
        assert!(options.entries().iter().all(|entry| entry.key.starts_with("warpjoin.")));
    }
}
