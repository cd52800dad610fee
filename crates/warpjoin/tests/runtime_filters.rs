//! Runtime filters by bitmaps, Bloom filters and bounds: when they are chosen, what they drop, and that what they let pass
//! by chance does no harm.

mod common;

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::exec::{self, JoinOrder, RuntimeFilters};
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, FilterForm, JoinKind, JoinPlan, Plan, PlanKind};
use warpjoin::{ExecOptions, QueryMetrics, Session, Table};
use warpjoin_device::{SimOptions, compile_for_architecture, cuda_status};

use common::case::upload;
use common::decisions::assert_announced;
use common::sessions::{Opener, Simulated, in_threads, is_set, say, simulated};
use common::value::{Row, rows_of};

fn column(plan: &Plan, index: usize) -> Expr {
    let field = plan.schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

fn scan(table: &Arc<Table>) -> Plan {
    let projection = (0..table.column_types().len()).collect();
    Plan { kind: PlanKind::Scan { table: Arc::clone(table), projection }, schema: table.schema() }
}

fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    let kind = ExprKind::Compare(op, Box::new(left), Box::new(right));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

fn filter(input: Plan, predicate: Expr) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Filter { input: Box::new(input), predicate }, schema }
}

fn below(input: Plan, index: usize, bound: i128) -> Plan {
    let bound = Expr::literal(Scalar::Int(bound), DataType::Int64);
    let predicate = compare(CompareOp::Less, column(&input, index), bound);
    filter(input, predicate)
}

fn join(build: Plan, probe: Plan, on: &[(usize, usize)], kind: JoinKind, output: Vec<usize>) -> Plan {
    let on = on.iter().map(|&(b, p)| (column(&build, b), column(&probe, p))).collect();
    let both: Vec<Field> =
        build.schema.fields().iter().chain(probe.schema.fields()).map(|field| (**field).clone()).collect();
    let fields: Vec<Field> = output.iter().map(|&index| both[index].clone()).collect();
    let join = JoinPlan { build, probe, on, kind, null_equals_null: false, residual: None, output };
    Plan { kind: PlanKind::Join(Box::new(join)), schema: Arc::new(Schema::new(fields)) }
}

/// Sum of `value` by `key`.
fn sums(input: Plan, key: usize, value: usize) -> Plan {
    let call = AggregateCall::new(AggregateFunction::Sum, Some(column(&input, value)), DataType::Int64);
    let fields = vec![input.schema.field(key).clone(), Field::new("sum", DataType::Int64, true)];
    let group_by = vec![column(&input, key)];
    let kind = PlanKind::Aggregate { input: Box::new(input), group_by, aggregates: vec![call] };
    Plan { kind, schema: Arc::new(Schema::new(fields)) }
}

/// Rows in order, and what they cost.
fn run(session: &Arc<Session>, plan: &Plan, options: &ExecOptions) -> (Vec<Row>, QueryMetrics) {
    let output = exec::run(session, plan, &[], options).expect("rows");
    assert_announced(session, plan, &[], options, &output.metrics);
    let mut rows = rows_of(&output.batches);
    rows.sort_by_key(|row| format!("{row:?}"));
    (rows, output.metrics)
}

fn options(runtime_filters: RuntimeFilters) -> ExecOptions {
    ExecOptions { join_order: JoinOrder::AsGiven, runtime_filters, counts_rows: true, ..ExecOptions::default() }
}

fn by(form: FilterForm) -> ExecOptions {
    options(RuntimeFilters::AlwaysBy(form))
}

fn pruned(metrics: &QueryMetrics) -> u64 {
    metrics.pipelines.iter().map(|pipeline| pipeline.pruned).sum()
}

/// How rows were tested, in the order of the pipelines.
fn tests_of(metrics: &QueryMetrics) -> Vec<String> {
    let steps = metrics.pipelines.iter().flat_map(|pipeline| pipeline.name.split(" -> "));
    let mut tests: Vec<String> = steps
        .filter_map(|step| step.strip_prefix("RuntimeFilter[")?.strip_suffix("]"))
        .filter(|step| !step.contains("bytes"))
        .map(str::to_string)
        .collect();
    // A group-by that was resumed is there twice.
    tests.dedup();
    tests
}

const FACTS: i64 = 60_000;
const KEYS: i64 = 20_000;

/// The keys of tables: in every way in which they become key words.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Keys {
    /// Side by side.
    Dense,
    /// Far apart.
    Sparse,
    /// 64 bits of a float.
    Floats,
    /// Codes of dictionaries of their own.
    Strings,
    /// Two columns of 64 bits: tables hold hashes.
    Pairs,
}

impl Keys {
    fn columns(self, keys: &[Option<i64>]) -> Vec<(Field, ArrayRef)> {
        let ints = |factor: i64| -> ArrayRef {
            Arc::new(keys.iter().map(|key| key.map(|key| key.wrapping_mul(factor))).collect::<Int64Array>())
        };
        let (data_type, values): (DataType, Vec<ArrayRef>) = match self {
            Self::Dense => (DataType::Int64, vec![ints(1)]),
            Self::Sparse => (DataType::Int64, vec![ints(1_000_003)]),
            Self::Floats => {
                let values: Float64Array = keys.iter().map(|key| key.map(|key| key as f64 / 3.0)).collect();
                (DataType::Float64, vec![Arc::new(values)])
            }
            Self::Strings => {
                let values: StringArray = keys.iter().map(|key| key.map(|key| format!("k{key}"))).collect();
                (DataType::Utf8, vec![Arc::new(values)])
            }
            Self::Pairs => (DataType::Int64, vec![ints(0x1234_5678_9abc_def1), ints(0x0fed_cba9_8765_4321)]),
        };
        values.into_iter().map(|values| (Field::new("key", data_type.clone(), true), values)).collect()
    }

    fn on(self) -> Vec<(usize, usize)> {
        if self == Self::Pairs { vec![(0, 0), (1, 1)] } else { vec![(0, 0)] }
    }

    fn width(self) -> usize {
        self.on().len()
    }
}

fn table(session: &Arc<Session>, mut columns: Vec<(Field, ArrayRef)>, values: Vec<i64>) -> Arc<Table> {
    columns.push((Field::new("value", DataType::Int64, false), Arc::new(Int64Array::from(values))));
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    upload(session, &RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch"))
}

/// Facts, and keys once each: their columns, then a value. Every 50th is null where `has_nulls`.
fn tables(session: &Arc<Session>, keys: Keys, has_nulls: bool) -> [Arc<Table>; 2] {
    let valid = |row: i64, key: i64| (!has_nulls || row % 50 != 7).then_some(key);
    let facts: Vec<Option<i64>> = (0..FACTS).map(|row| valid(row, row * 7919 % KEYS)).collect();
    let dimension: Vec<Option<i64>> = (0..KEYS).map(|row| valid(row, row)).collect();
    [
        table(session, keys.columns(&facts), (0..FACTS).collect()),
        table(session, keys.columns(&dimension), (0..KEYS).map(|row| row * 17 % 50).collect()),
    ]
}

/// Facts that match the tenth of the keys with small values.
fn few_facts([facts, dimension]: &[Arc<Table>; 2], keys: Keys) -> Plan {
    let width = keys.width();
    let build = below(scan(dimension), width, 5);
    join(build, scan(facts), &keys.on(), JoinKind::Inner, vec![width, width + 1, 2 * width + 1])
}

/// A device whose L2 holds no table of these tests.
fn little_l2() -> Simulated {
    Simulated(SimOptions { l2_bytes: 16 << 10, ..SimOptions::default() })
}

#[test]
fn every_form_drops_what_matches_nothing() {
    let shares = [Keys::Dense, Keys::Sparse, Keys::Floats, Keys::Strings, Keys::Pairs];
    for (index, keys) in shares.into_iter().enumerate() {
        let devices = [1, 2, 4][index % 3];
        let session = simulated().open(devices).expect("a session");
        let tables = tables(&session, keys, index % 2 == 0);
        let plan = few_facts(&tables, keys);
        let (wanted, _) = run(&session, &plan, &options(RuntimeFilters::Off));
        assert!(!wanted.is_empty());
        let dropped = FACTS as u64 - wanted.len() as u64;
        // Bits for all possible keys would be too many, or their number is not known.
        let has_bitmap = matches!(keys, Keys::Dense | Keys::Strings);
        for form in [FilterForm::Bitmap, FilterForm::Bloom] {
            let (rows, metrics) = run(&session, &plan, &by(form));
            assert_eq!(rows, wanted, "{keys:?} {form}");
            let is_exact = has_bitmap && form == FilterForm::Bitmap;
            let name = if is_exact { "bitmap" } else { "Bloom filter" };
            // Those of more than 63 bits are hashed.
            let bounds = if matches!(keys, Keys::Floats | Keys::Pairs) { "" } else { "bounds, " };
            assert_eq!(tests_of(&metrics), [format!("{bounds}{name}")], "{keys:?} {form}");
            // Of 16 bits a key; all that pass go to the join's table.
            let passed = dropped - pruned(&metrics);
            assert!(if is_exact { passed == 0 } else { passed * 30 < dropped }, "{keys:?} {form}: {passed}");
            let filled = metrics.pipelines.iter().find(|it| it.name.starts_with("Keys -> RuntimeFilter["));
            assert!(filled.is_some_and(|it| it.rows_in == 2000 * devices as u64 || index % 2 == 0));
        }
        // A bit a key: many rows pass that match nothing.
        let few_bits = ExecOptions { filter_bits: Some(1), ..by(FilterForm::Bloom) };
        let (rows, metrics) = run(&session, &plan, &few_bits);
        assert_eq!(rows, wanted, "{keys:?}");
        let passed = dropped - pruned(&metrics);
        assert!(passed * 10 > dropped && passed < dropped, "{keys:?}: {passed} of {dropped}");
        // Hashes of which all are the same take every key for one of the build's.
        let (rows, _) = run(&session, &plan, &ExecOptions { hash_bits: 1, ..by(FilterForm::Bloom) });
        assert_eq!(rows, wanted, "{keys:?}");
    }
}

#[test]
fn a_filter_of_no_keys_drops_all_rows() {
    for (devices, keys) in [(1, Keys::Dense), (2, Keys::Sparse), (4, Keys::Strings)] {
        let session = simulated().open(devices).expect("a session");
        let [facts, dimension] = tables(&session, keys, true);
        for form in [FilterForm::Table, FilterForm::Bitmap, FilterForm::Bloom] {
            let plan = join(below(scan(&dimension), 1, -1), scan(&facts), &[(0, 0)], JoinKind::Inner, vec![0, 3]);
            let (rows, metrics) = run(&session, &plan, &by(form));
            assert!(rows.is_empty());
            assert!(form == FilterForm::Table || pruned(&metrics) == FACTS as u64, "{:?}", metrics.pipelines);
        }
    }
}

/// Facts are summed by key, then joined with few of them: the shape of TPC-H Q17. Filters go below the group-by.
#[test]
fn filters_of_every_form_go_to_other_pipelines() {
    use JoinKind::{Inner, ProbeAnti, ProbeOuter, ProbeSemi};
    for (devices, kind) in [(1, Inner), (2, Inner), (4, ProbeOuter), (1, ProbeSemi), (2, ProbeAnti)] {
        let session = simulated().open(devices).expect("a session");
        let tables = tables(&session, Keys::Dense, false);
        let few = few_facts(&tables, Keys::Dense);
        let output = if kind.is_existence() { vec![2, 4] } else { vec![1, 2, 4] };
        let plan = join(sums(scan(&tables[0]), 0, 1), few, &[(0, 1)], kind, output);
        let (wanted, before) = run(&session, &plan, &options(RuntimeFilters::Off));
        let read = |metrics: &QueryMetrics| {
            metrics.pipelines.iter().find(|it| it.name.starts_with("Groups")).map_or(0, |it| it.rows_out)
        };
        for form in [FilterForm::Table, FilterForm::Bitmap, FilterForm::Bloom] {
            let (rows, metrics) = run(&session, &plan, &by(form));
            assert_eq!(rows, wanted, "{kind:?} {form}");
            assert!(read(&metrics) * 5 < read(&before), "{kind:?} {form}: {:?}", metrics.pipelines);
        }
    }
}

/// The keys of a small probe side could reduce the build side's groups; its table's filter goes below the group-by, which is better.
#[test]
fn groups_that_few_rows_look_up_are_made_of_few_rows() {
    const ROWS: i64 = 6 << 20;
    let session = little_l2().open(1).expect("a session");
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let facts = table(&session, vec![(Field::new("key", DataType::Int64, false), keys)], (0..ROWS).collect());
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..1000).map(|row| row * 4099)));
    let columns = vec![(Field::new("key", DataType::Int64, false), keys)];
    let dimension = table(&session, columns, (0..1000).collect());
    let few = join(below(scan(&dimension), 1, 50), scan(&facts), &[(0, 0)], JoinKind::Inner, vec![2, 3]);
    let plan = join(sums(scan(&facts), 0, 1), few, &[(0, 0)], JoinKind::ProbeSemi, vec![2, 3]);
    let explained = exec::explain(&plan, &session, &options(RuntimeFilters::Auto));
    let is_filtered = |line: &String| line.contains("RuntimeFilter") && line.contains("GroupBy");
    assert!(explained.pipelines.iter().any(is_filtered), "{explained:?}");
}

/// Facts are joined with pairs of which few have a key that is wanted: the shape of TPC-H Q9. The table of wanted keys drops facts
/// before they probe that of the pairs.
#[test]
fn a_table_of_the_build_side_drops_probe_rows() {
    use JoinKind::{Inner, ProbeAnti, ProbeOuter, ProbeSemi};
    let column = |name: &str, nulls: i64, values: &dyn Fn(i64) -> i64, rows: i64| {
        let value = |row: i64| (nulls == 0 || row % nulls != 3).then(|| values(row));
        let array: ArrayRef = Arc::new((0..rows).map(value).collect::<Int64Array>());
        (Field::new(name, DataType::Int64, true), array)
    };
    for devices in [1, 2] {
        let session = little_l2().open(devices).expect("a session");
        let wanted = table(&session, vec![column("key", 0, &|row| row, KEYS)], (0..KEYS).map(|row| row % 50).collect());
        let pair = |row: i64| [row / 4 % KEYS, row % 4 * 1_000_003];
        let [first, second] = [0, 1].map(|at| move |row: i64| pair(row)[at]);
        let columns = vec![column("key", 90, &first, 4 * KEYS), column("other", 0, &second, 4 * KEYS)];
        let pairs = table(&session, columns, (0..4 * KEYS).collect());
        let scattered = |row: i64| row * 7919 % (4 * KEYS);
        let (first, second) = (move |row: i64| pair(scattered(row))[0], move |row: i64| pair(scattered(row))[1]);
        let columns = vec![column("key", 70, &first, FACTS), column("other", 110, &second, FACTS)];
        let facts = table(&session, columns, (0..FACTS).collect());
        let few = join(below(scan(&wanted), 1, 5), scan(&pairs), &[(0, 0)], Inner, vec![2, 3, 4]);
        for kind in [Inner, ProbeSemi, ProbeAnti, ProbeOuter] {
            let output = if kind == Inner { vec![2, 3, 4, 5] } else { vec![3, 4, 5] };
            let plan = join(few.clone(), scan(&facts), &[(0, 0), (1, 1)], kind, output);
            let (rows, _) = run(&session, &plan, &options(RuntimeFilters::Off));
            let (filtered, metrics) = run(&session, &plan, &options(RuntimeFilters::Auto));
            assert_eq!(filtered, rows, "{kind:?}");
            let is_dropped = metrics.decisions.iter().any(|it| it.contains(&format!("{FACTS}, about")));
            assert_eq!(is_dropped, matches!(kind, Inner | ProbeSemi), "{kind:?}: {:?}", metrics.decisions);
            for form in [FilterForm::Table, FilterForm::Bitmap, FilterForm::Bloom] {
                assert_eq!(run(&session, &plan, &by(form)).0, rows, "{kind:?} {form}");
            }
        }
    }
}

#[test]
fn a_filter_is_chosen_where_l2_holds_it_but_not_the_table() {
    for (opener, keys, wanted) in [
        (little_l2(), Keys::Dense, vec!["bitmap"]),
        (little_l2(), Keys::Sparse, vec!["Bloom filter"]),
        // The table is near; but keys are hashed.
        (simulated(), Keys::Dense, vec![]),
        (simulated(), Keys::Sparse, vec!["Bloom filter"]),
    ] {
        for devices in [1, 2] {
            let session = opener.open(devices).expect("a session");
            let tables = tables(&session, keys, false);
            let plan = few_facts(&tables, keys);
            let (rows, metrics) = run(&session, &plan, &options(RuntimeFilters::Auto));
            let (given, _) = run(&session, &plan, &options(RuntimeFilters::Off));
            assert_eq!(rows, given);
            assert_eq!(tests_of(&metrics), wanted, "{keys:?}: {:?}", metrics.decisions);
            let is_said = metrics.decisions.iter().any(|it| it.contains("before they probe it"));
            assert_eq!(is_said, !wanted.is_empty(), "{:?}", metrics.decisions);
            let explained = exec::explain(&plan, &session, &options(RuntimeFilters::Auto)).pipelines;
            let is_shown =
                |test: &&str| explained.iter().any(|it| it.contains(&format!("RuntimeFilter[pipeline 1, {test}]")));
            assert!(wanted.iter().all(is_shown), "{explained:?}");
            // Where all rows match there is nothing to drop.
            let all = join(scan(&tables[1]), scan(&tables[0]), &[(0, 0)], JoinKind::Inner, vec![1, 3]);
            let (_, metrics) = run(&session, &all, &options(RuntimeFilters::Auto));
            assert!(tests_of(&metrics).is_empty(), "{:?}", metrics.decisions);
        }
    }
}

#[test]
fn bounds_are_tested_where_the_keys_that_are_left_are_side_by_side() {
    let session = little_l2().open(1).expect("a session");
    let [facts, dimension] = tables(&session, Keys::Dense, false);
    let plan = join(below(scan(&dimension), 0, 2000), scan(&facts), &[(0, 0)], JoinKind::Inner, vec![1, 3]);
    let (rows, metrics) = run(&session, &plan, &options(RuntimeFilters::Auto));
    let (wanted, _) = run(&session, &plan, &options(RuntimeFilters::Off));
    assert_eq!(rows, wanted);
    assert_eq!(tests_of(&metrics), ["bounds, bitmap"], "{:?}", metrics.decisions);
    assert_eq!(pruned(&metrics), FACTS as u64 - wanted.len() as u64);
    // In front of a table that is near, in another pipeline.
    let session = simulated().open(1).expect("a session");
    let [facts, dimension] = tables(&session, Keys::Dense, false);
    let few = join(below(scan(&dimension), 0, 1000), scan(&facts), &[(0, 0)], JoinKind::Inner, vec![0, 3]);
    let plan = join(sums(scan(&facts), 0, 1), few, &[(0, 0)], JoinKind::Inner, vec![1, 3]);
    let (wanted, _) = run(&session, &plan, &options(RuntimeFilters::Off));
    for filters in [RuntimeFilters::Auto, RuntimeFilters::AlwaysBy(FilterForm::Table)] {
        let (rows, metrics) = run(&session, &plan, &options(filters));
        assert_eq!(rows, wanted);
        assert_eq!(tests_of(&metrics)[..2], ["bounds", "table"], "{:?}", metrics.decisions);
    }
}

/// The plan expects a table by key that L2 would hold; with a load factor there is none.
#[test]
fn a_table_that_turns_out_hashed_gets_a_filter() {
    let session = Simulated(SimOptions { l2_bytes: 128 << 10, ..SimOptions::default() }).open(1).expect("a session");
    let [facts, dimension] = tables(&session, Keys::Dense, false);
    let auto = ExecOptions { load_factor: Some(0.5), ..options(RuntimeFilters::Auto) };
    let float = |plan: &Plan| {
        let operand = Box::new(column(plan, 1));
        Expr { kind: ExprKind::Cast(operand), data_type: DataType::Float64, nullable: false }
    };
    let build = scan(&dimension);
    let predicate = compare(CompareOp::Equal, float(&build), float(&build));
    let few = join(filter(build, predicate), scan(&facts), &[(0, 0)], JoinKind::Inner, vec![0, 3]);
    let plan = join(sums(scan(&facts), 0, 1), few, &[(0, 0)], JoinKind::Inner, vec![1, 3]);
    let explained = exec::explain(&plan, &session, &auto).pipelines;
    assert!(explained.iter().any(|it| it.contains("RuntimeFilter[pipeline 1, table]")), "{explained:?}");
    let (rows, metrics) = run(&session, &plan, &auto);
    let (wanted, _) = run(&session, &plan, &options(RuntimeFilters::Off));
    assert_eq!(rows, wanted);
    assert_eq!(tests_of(&metrics), ["bitmap"], "{:?}", metrics.pipelines);
    let (_, again) = run(&session, &plan, &auto);
    assert_eq!(again.compiled_modules, 0);
}

/// What GPUs get: the kernels that fill filters, and pipelines that test them and stop early, through NVRTC.
#[test]
fn filters_compile_for_gpus() {
    if cuda_status().nvrtc.is_none() {
        assert!(!is_set("WARPJOIN_REQUIRE_NVRTC"), "WARPJOIN_REQUIRE_NVRTC=1 and no NVRTC");
        return say("SKIP filters_compile_for_gpus: no libnvrtc (put its folder on LD_LIBRARY_PATH)");
    }
    let session = simulated().open(1).expect("a session");
    for keys in [Keys::Dense, Keys::Pairs] {
        let few = few_facts(&tables(&session, keys, true), keys);
        let schema = few.schema.clone();
        let kind = PlanKind::Limit { input: Box::new(few), skip: 1, fetch: Some(20) };
        for form in [FilterForm::Bitmap, FilterForm::Bloom] {
            let (rows, _) = run(&session, &Plan { kind: kind.clone(), schema: schema.clone() }, &by(form));
            assert_eq!(rows.len(), 20);
        }
    }
    let sources = session.devices()[0].compiled_sources();
    for part in ["fill_bloom", "is_in_bitmap(", "may_be_in_bloom(", "has_enough("] {
        assert!(sources.iter().any(|source| source.text.contains(part)), "{part}");
    }
    let failures = in_threads(&sources, |source| {
        let entries = source.entries.iter().map(|entry| source.of_entry(entry));
        let failure =
            |module| compile_for_architecture(&module, "sm_90").err().map(|error| format!("{error}\n{}", module.text));
        entries.filter_map(failure).collect::<Vec<String>>()
    });
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
