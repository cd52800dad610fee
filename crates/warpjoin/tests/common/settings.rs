//! How a case is run: devices, distribution, tables that collide, fill up and run over.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use warpjoin::column::StringEncoding;
use warpjoin::exec::{CodeTier, Distribution, GroupByForm, JoinOrder, Materialization, MemoryUse, RuntimeFilters};
use warpjoin::plan::FilterForm;
use warpjoin::{DeviceThreads, ExecOptions, JoinForm};

/// How a case is run. What is not said here is the default.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) devices: usize,
    pub(crate) lanes: Option<u32>,
    pub(crate) distribution: Distribution,
    /// Rows of several devices that come to one; 0 where both sides of joins are exchanged.
    pub(crate) few_rows: Option<u64>,
    pub(crate) hash_bits: u32,
    pub(crate) first_capacity: Option<u64>,
    pub(crate) chunk_rows: Option<u64>,
    pub(crate) device_threads: DeviceThreads,
    pub(crate) load_factor: Option<f64>,
    pub(crate) batch_rows: usize,
    pub(crate) group_by_form: Option<GroupByForm>,
    pub(crate) block_table_slots: Option<u32>,
    pub(crate) join_form: Option<JoinForm>,
    pub(crate) partition_rows: Option<u32>,
    pub(crate) counted_bits: Option<u32>,
    pub(crate) reduced_rows_min: Option<u64>,
    pub(crate) extremes_rows_min: Option<u64>,
    pub(crate) compact_rows_min: Option<u64>,
    pub(crate) ranked_rows_min: Option<u64>,
    pub(crate) swapped_matches_min: Option<u64>,
    pub(crate) sort_few_rows: Option<u32>,
    pub(crate) waste_bytes_max: Option<u64>,
    pub(crate) join_order: JoinOrder,
    pub(crate) runtime_filters: RuntimeFilters,
    pub(crate) filter_bits: Option<u32>,
    pub(crate) materialization: Materialization,
    pub(crate) counts_rows: bool,
    /// Pipelines are interpreted.
    pub(crate) interprets: bool,
    pub(crate) strings: StringEncoding,
    /// Leaves the result on the devices, and downloads it from there.
    pub(crate) keeps: bool,
    /// Of each table four bits: an even number is twice that of the device where it lies alone.
    pub(crate) members: Option<u64>,
    /// Tables lie in the host's memory.
    pub(crate) tables_on_host: bool,
    /// Rows between pipelines lie there.
    pub(crate) writes_to_host: bool,
    /// Rows of a pass of joins and group-bys.
    pub(crate) pass_rows: Option<u64>,
    /// Values or rows from which on the order of a key counts.
    pub(crate) ordered_span_min: Option<u64>,
    pub(crate) memory_use: MemoryUse,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            lanes: None,
            distribution: Distribution::Auto,
            few_rows: None,
            hash_bits: 64,
            first_capacity: None,
            chunk_rows: None,
            device_threads: DeviceThreads::One(0),
            load_factor: None,
            batch_rows: 8192,
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
            sort_few_rows: None,
            waste_bytes_max: None,
            join_order: JoinOrder::AsGiven,
            runtime_filters: RuntimeFilters::Off,
            filter_bits: None,
            materialization: Materialization::Early,
            counts_rows: false,
            interprets: all_interpret(),
            strings: StringEncoding::Dictionary,
            keeps: false,
            members: None,
            tables_on_host: false,
            writes_to_host: false,
            pass_rows: None,
            ordered_span_min: None,
            memory_use: MemoryUse::Auto,
        }
    }
}

impl Settings {
    pub(crate) fn options(&self) -> ExecOptions {
        ExecOptions {
            probe_group_lanes: self.lanes,
            load_factor: self.load_factor,
            batch_rows: self.batch_rows,
            distribution: self.distribution,
            few_rows: if self.distribution == Distribution::Exchange { Some(0) } else { self.few_rows },
            hash_bits: self.hash_bits,
            first_capacity: self.first_capacity,
            chunk_rows: self.chunk_rows,
            writes_to_host: self.writes_to_host,
            pass_rows: self.pass_rows,
            ordered_span_min: self.ordered_span_min,
            memory_use: self.memory_use,
            device_threads: self.device_threads,
            group_by_form: self.group_by_form,
            block_table_slots: self.block_table_slots,
            join_form: self.join_form,
            partition_rows: self.partition_rows,
            counted_bits: self.counted_bits,
            reduced_rows_min: self.reduced_rows_min,
            compact_rows_min: self.compact_rows_min,
            extremes_rows_min: self.extremes_rows_min,
            ranked_rows_min: self.ranked_rows_min,
            swapped_matches_min: self.swapped_matches_min,
            sort_few_rows: self.sort_few_rows,
            waste_bytes_max: self.waste_bytes_max,
            join_order: self.join_order,
            runtime_filters: self.runtime_filters,
            filter_bits: self.filter_bits,
            materialization: self.materialization,
            counts_rows: self.counts_rows,
            code_tier: if self.interprets { CodeTier::Interpreted } else { CodeTier::Compiled },
            ..ExecOptions::default()
        }
    }
}

/// Whether all tests are to run interpreted.
fn all_interpret() -> bool {
    std::env::var_os("WARPJOIN_TEST_INTERPRETED").is_some()
}

/// Random settings.
pub(crate) fn random(rng: &mut StdRng) -> Settings {
    use Distribution::{Auto, Broadcast, Exchange};
    // Drawn aside, so that seeds mean what they did.
    let driving = [DeviceThreads::One(0), DeviceThreads::One(rng.clone().random()), DeviceThreads::Each];
    let device_threads = *driving.choose(&mut rng.clone()).expect("some");
    // In half of the cases all dictionaries are as if they were large.
    let encodings = [StringEncoding::Dictionary, StringEncoding::UnorderedDictionary];
    let mut aside = rng.clone();
    aside.random::<u64>();
    let strings = *encodings.choose(&mut aside).expect("some");
    let (tables_on_host, writes_to_host) = (aside.random_bool(0.25), aside.random_bool(0.25));
    let pass_rows = *[None, None, None, Some(1), Some(30)].choose(&mut aside).expect("some");
    let interprets = aside.random_bool(0.25) || all_interpret();
    // All tables on one device, or some.
    let alone: u64 = aside.random();
    let members = *[None, None, None, Some(0), Some(alone)].choose(&mut aside).expect("some");
    let waste_bytes_max = *[None, Some(0)].choose(&mut aside).expect("some");
    let few_rows = *[None, Some(0), Some(40)].choose(&mut aside).expect("some");
    let ordered_span_min = *[None, Some(1)].choose(&mut aside).expect("some");
    let memory_use = *[MemoryUse::Auto, MemoryUse::Auto, MemoryUse::Least].choose(&mut aside).expect("some");
    let [extremes_rows_min, compact_rows_min, ranked_rows_min, swapped_matches_min] =
        [(); 4].map(|()| *[None, Some(0)].choose(&mut aside).expect("some"));
    let counted_bits = *[None, None, Some(1)].choose(&mut aside).expect("some");
    let settings = Settings {
        memory_use,
        counted_bits,
        extremes_rows_min,
        compact_rows_min,
        ranked_rows_min,
        swapped_matches_min,
        waste_bytes_max,
        few_rows,
        device_threads,
        interprets,
        members,
        strings,
        tables_on_host,
        writes_to_host,
        pass_rows,
        ordered_span_min,
        devices: *[1, 1, 2, 3, 4, 8].choose(rng).expect("some"),
        lanes: *[None, Some(1), Some(2), Some(4), Some(8), Some(16), Some(32)].choose(rng).expect("some"),
        distribution: *[Auto, Broadcast, Exchange, Exchange].choose(rng).expect("some"),
        hash_bits: *[64, 64, 1, 3, 6].choose(rng).expect("some"),
        first_capacity: *[None, None, Some(0), Some(1), Some(40)].choose(rng).expect("some"),
        load_factor: *[None, Some(0.3), Some(0.8), Some(0.95)].choose(rng).expect("some"),
        batch_rows: *[8192, 1, 7, 64].choose(rng).expect("some"),
        keeps: rng.random_bool(0.25),
        group_by_form: *[
            None,
            None,
            Some(GroupByForm::Global),
            Some(GroupByForm::BlockTable),
            Some(GroupByForm::Partitioned),
            Some(GroupByForm::Partitioned),
        ]
        .choose(rng)
        .expect("some"),
        block_table_slots: *[None, Some(0), Some(100)].choose(rng).expect("some"),
        join_form: *[None, Some(JoinForm::HashTable), Some(JoinForm::Direct), Some(JoinForm::Partitioned)]
            .choose(rng)
            .expect("some"),
        partition_rows: *[None, Some(1), Some(7), Some(50)].choose(rng).expect("some"),
        reduced_rows_min: *[None, Some(0), Some(20)].choose(rng).expect("some"),
        sort_few_rows: *[None, Some(0), Some(20)].choose(rng).expect("some"),
        join_order: *[JoinOrder::Auto, JoinOrder::AsGiven, JoinOrder::Seeded(rng.random())].choose(rng).expect("some"),
        runtime_filters: *[
            RuntimeFilters::Auto,
            RuntimeFilters::Off,
            RuntimeFilters::Always,
            RuntimeFilters::AlwaysBy(FilterForm::Table),
            RuntimeFilters::AlwaysBy(FilterForm::Bitmap),
            RuntimeFilters::AlwaysBy(FilterForm::Bloom),
        ]
        .choose(rng)
        .expect("some"),
        filter_bits: *[None, Some(1), Some(3)].choose(rng).expect("some"),
        counts_rows: {
            let counts_rows = rng.random_bool(0.1);
            // Of a setting that is gone: kept seeds stand for their cases.
            let _: bool = rng.random_bool(0.1);
            counts_rows
        },
        materialization: *[Materialization::Auto, Materialization::Early, Materialization::Late, Materialization::Late]
            .choose(rng)
            .expect("some"),
        chunk_rows: *[None, None, Some(128), Some(256)].choose(rng).expect("some"),
    };
    // Kernels that interpret take long to compile, for each number of bits.
    Settings { interprets: settings.interprets && [64, 3].contains(&settings.hash_bits), ..settings }
}
