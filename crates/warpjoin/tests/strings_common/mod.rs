//! Tests of strings on devices against Arrow's kernels: random strings, patterns and constants.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow::compute::kernels::{cmp, comparison};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::error::ArrowError;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpjoin::exec::{QueryOutput, run};
use warpjoin::expr::{CompareOp, Expr, ExprKind, HostFunction, StringTest};
use warpjoin::plan::{Plan, PlanKind};
use warpjoin::{ExecOptions, Session, Table, TableBuilder};

/// Distinct strings about the bounds of tiles, and of several tiles.
pub(crate) const SIZES: [usize; 8] = [1, 2, 31, 255, 256, 257, 700, 1300];

/// A test whose host side is Arrow's kernels.
#[derive(Debug)]
pub(crate) struct ArrowTest(pub(crate) StringTest);

impl fmt::Display for ArrowTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl HostFunction for ArrowTest {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(evaluate(&self.0, &operands[0])?))
    }

    fn test(&self) -> Option<StringTest> {
        Some(self.0.clone())
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

fn evaluate(test: &StringTest, values: &ArrayRef) -> Result<BooleanArray, ArrowError> {
    let views: StringViewArray = match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().collect(),
        _ => values.as_string_view().clone(),
    };
    let views = &views;
    match test {
        StringTest::Like { pattern, ignores_case } => {
            let pattern = StringViewArray::new_scalar(pattern);
            if *ignores_case { comparison::ilike(views, &pattern) } else { comparison::like(views, &pattern) }
        }
        StringTest::Compare(op, constant) => {
            let constant = StringViewArray::new_scalar(String::from_utf8_lossy(constant));
            match op {
                CompareOp::Equal | CompareOp::Identical => cmp::eq(views, &constant),
                CompareOp::NotEqual => cmp::neq(views, &constant),
                CompareOp::Less => cmp::lt(views, &constant),
                CompareOp::LessOrEqual => cmp::lt_eq(views, &constant),
                CompareOp::Greater => cmp::gt(views, &constant),
                CompareOp::GreaterOrEqual => cmp::gt_eq(views, &constant),
            }
        }
        StringTest::Not(test) => arrow::compute::not(&evaluate(test, values)?),
        StringTest::And(tests) => combine(tests, values, true, arrow::compute::and),
        StringTest::Or(tests) => combine(tests, values, false, arrow::compute::or),
    }
}

fn combine(
    tests: &[StringTest],
    values: &ArrayRef,
    neutral: bool,
    with: impl Fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>,
) -> Result<BooleanArray, ArrowError> {
    let start: BooleanArray = (0..values.len()).map(|row| values.is_valid(row).then_some(neutral)).collect();
    tests.iter().try_fold(start, |so_far, test| with(&so_far, &evaluate(test, values)?))
}

/// Characters of one to four bytes, wildcards, and a few letters often, so that patterns match.
const CHARACTERS: [char; 14] = ['a', 'b', 'a', 'b', 'A', 'c', 'é', '語', '😀', '%', '_', '\\', '\n', ' '];

fn random_text(rng: &mut StdRng, length_max: usize, characters: &[char]) -> String {
    let length = rng.random_range(0..=length_max);
    (0..length).map(|_| *characters.choose(rng).expect("characters")).collect()
}

fn random_pattern(rng: &mut StdRng) -> String {
    // More elements than a word has bits, or two.
    if rng.random_bool(0.2) {
        let pieces = rng.random_range(10..90);
        return (0..pieces).map(|_| *["%", "%a", "%b", "_", "%_"].choose(rng).expect("pieces")).collect();
    }
    // Runs of bytes between %.
    if rng.random_bool(0.3) {
        let (shortest, longest) = [(1, 6), (4, 9), (7, 12)][rng.random_range(0..3)];
        let run = |rng: &mut StdRng| {
            let length = rng.random_range(shortest..=longest);
            (0..length).map(|_| *['a', 'a', 'b'].choose(rng).expect("letters")).collect::<String>()
        };
        let end =
            |rng: &mut StdRng| if rng.random_bool(0.3) { random_text(rng, 2, &['a', 'b']) } else { String::new() };
        let between: Vec<String> = (0..rng.random_range(0..4)).map(|_| run(rng)).collect();
        return [vec![end(rng)], between, vec![end(rng)]].concat().join("%");
    }
    let pieces = rng.random_range(0..5);
    let piece = |rng: &mut StdRng| match rng.random_range(0..6) {
        0 | 1 => "%".to_string(),
        2 => "_".to_string(),
        3 => "\\%".to_string(),
        _ => random_text(rng, 2, &CHARACTERS),
    };
    (0..pieces).map(|_| piece(rng)).collect()
}

pub(crate) fn random_test(rng: &mut StdRng, depth: u32) -> StringTest {
    let many = |rng: &mut StdRng| (0..rng.random_range(0..3)).map(|_| random_test(rng, depth + 1)).collect();
    match rng.random_range(0..if depth > 2 { 6 } else { 9 }) {
        0..=3 => StringTest::Like { pattern: random_pattern(rng).into(), ignores_case: rng.random_bool(0.3) },
        4 | 5 => {
            use CompareOp as C;
            let ops = [C::Equal, C::NotEqual, C::Less, C::LessOrEqual, C::Greater, C::GreaterOrEqual];
            let constant = random_text(rng, 3, &CHARACTERS);
            StringTest::Compare(*ops.choose(rng).expect("ops"), constant.into_bytes().into())
        }
        6 => StringTest::Not(Box::new(random_test(rng, depth + 1))),
        7 => StringTest::And(many(rng)),
        _ => StringTest::Or(many(rng)),
    }
}

/// Distinct strings; some repeat, some rows are null, some strings are longer than a tile's stage.
pub(crate) fn random_strings(rng: &mut StdRng, distinct: usize) -> Vec<Option<String>> {
    let is_ascii = rng.random_bool(0.5);
    let characters = if is_ascii { &CHARACTERS[..6] } else { &CHARACTERS[..] };
    let long = rng.random_bool(0.3);
    let mut rows: Vec<Option<String>> = (0..distinct)
        .map(|index| {
            let length_max = if long && index % 97 == 5 { 9000 } else { 12 };
            // A number at the end makes it distinct; without it most are the same few.
            let suffix = if rng.random_bool(0.5) { String::new() } else { index.to_string() };
            Some(random_text(rng, length_max, characters) + &suffix)
        })
        .collect();
    let has_nulls = rng.random_bool(0.5);
    for index in 0..distinct {
        match rng.random_range(0..8) {
            0 if has_nulls => rows.push(None),
            1 => rows.push(rows[index].clone()),
            _ => {}
        }
    }
    rows
}

pub(crate) fn table(session: &Arc<Session>, rows: &[Option<String>], data_type: &DataType) -> Arc<Table> {
    let strings: ArrayRef = match data_type {
        DataType::Utf8 => Arc::new(rows.iter().map(Option::as_deref).collect::<StringArray>()),
        _ => Arc::new(rows.iter().map(Option::as_deref).collect::<StringViewArray>()),
    };
    let schema = Arc::new(Schema::new(vec![
        Field::new("row", DataType::Int64, false),
        Field::new("string", data_type.clone(), true),
    ]));
    let numbers = Int64Array::from_iter_values(0..rows.len() as i64);
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(numbers), strings]).expect("a batch");
    let mut builder = TableBuilder::new(session.device_set(), schema);
    builder.push(&batch).expect("fits");
    Arc::new(builder.finish().expect("fits"))
}

/// Numbers of the rows for which a test is true, and whether devices tested.
fn passing(session: &Arc<Session>, table: &Arc<Table>, test: &StringTest, options: &ExecOptions) -> (Vec<i64>, bool) {
    let operands = vec![Expr::column(1, table.schema().field(1).data_type().clone(), true)];
    let kind = ExprKind::Tabulated { operands, function: Arc::new(ArrowTest(test.clone())) };
    let (rows, output) = filtered(session, table, kind, options);
    (rows, output.metrics.pipelines.iter().any(|pipeline| pipeline.name.contains("Test")))
}

/// Numbers of the rows for which a boolean expression is true.
pub(crate) fn filtered(
    session: &Arc<Session>,
    table: &Arc<Table>,
    kind: ExprKind,
    options: &ExecOptions,
) -> (Vec<i64>, QueryOutput) {
    let schema = table.schema();
    let scan = PlanKind::Scan { table: Arc::clone(table), projection: vec![0, 1] };
    let input = Box::new(Plan { kind: scan, schema: Arc::clone(&schema) });
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: true };
    let plan = Plan { kind: PlanKind::Filter { input, predicate }, schema };
    let output = run(session, &plan, &[], options).expect("runs");
    let numbers = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    let mut rows: Vec<i64> = output.batches.iter().flat_map(numbers).collect();
    rows.sort_unstable();
    (rows, output)
}

/// Random tests of random strings; how many of them devices made.
pub(crate) fn check(session: &Arc<Session>, seed: u64, distinct: usize, tests: usize) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let rows = random_strings(&mut rng, distinct);
    let data_type = if rng.random_bool(0.5) { DataType::Utf8 } else { DataType::Utf8View };
    let table = table(session, &rows, &data_type);
    let options = ExecOptions { tested_strings_min: Some(1), ..ExecOptions::default() };
    let strings: ArrayRef = Arc::new(rows.iter().map(Option::as_deref).collect::<StringViewArray>());
    let mut on_devices = 0;
    for _ in 0..tests {
        let test = random_test(&mut rng, 0);
        let expected = evaluate(&test, &strings).expect("Arrow can");
        let expected: Vec<i64> = (0..rows.len())
            .filter(|&row| expected.is_valid(row) && expected.value(row))
            .map(|row| row as i64)
            .collect();
        let (actual, was_tested) = passing(session, &table, &test, &options);
        assert_eq!(actual, expected, "seed {seed}, {distinct} strings, {test}");
        on_devices += usize::from(was_tested);
    }
    on_devices
}
