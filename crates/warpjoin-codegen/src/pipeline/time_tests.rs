//! What it costs the host to generate pipelines: `cargo test -p warpjoin-codegen --lib generation_time -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, TimeUnit};
use warpjoin_columns::column::{ColumnType, Dictionary, Domain};
use warpjoin_columns::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin_columns::function::{DateFunction, DatePart, Function};
use warpjoin_plan::plan::{Fold, SortKey, State, Term};

use crate::{
    Accumulator, GenerateOptions, GroupLimits, JoinShape, PayloadForm, ProbeKey, ProbeKind, ProbeStep, RowSpec, Sink,
    SinkShape, Slots, SourceShape, Step, ValidityForm, bind_pipeline,
};

const OPTIONS: GenerateOptions = GenerateOptions { hash_bits: 64, tested_strings_min: 4096 };
const MONEY: DataType = DataType::Decimal128(15, 2);

fn column(data_type: DataType, max: i128, has_nulls: bool) -> ColumnType {
    ColumnType { data_type, has_nulls, domain: Domain::Int { min: 0, max }, dictionary: None }
}

fn strings(prefix: &str, values: usize, has_nulls: bool) -> ColumnType {
    let array: ArrayRef = Arc::new(StringArray::from_iter_values((0..values).map(|n| format!("{prefix} {n:05}"))));
    let (dictionary, _) = Dictionary::of_array(&array).expect("a dictionary");
    let domain = Domain::Int { min: 0, max: values as i128 - 1 };
    ColumnType { data_type: DataType::Utf8, has_nulls, domain, dictionary: Some(Arc::new(dictionary)) }
}

/// Keys, a quantity, money, a discount, a day, a time, strings, a float.
fn columns() -> Vec<ColumnType> {
    let day = ColumnType { domain: Domain::Int { min: 8000, max: 10600 }, ..column(DataType::Date32, 0, false) };
    let float = ColumnType { domain: Domain::Float64, ..column(DataType::Float64, 0, true) };
    let time = column(DataType::Timestamp(TimeUnit::Microsecond, None), 1 << 50, true);
    vec![
        column(DataType::Int64, 6_000_000, false),
        column(DataType::Int32, 50, true),
        column(MONEY, 10_494_950, false),
        column(MONEY, 10, true),
        day,
        time,
        strings("ship", 7, true),
        strings("flag", 3, false),
        float,
    ]
}

fn of(index: usize) -> Expr {
    let column = &columns()[index];
    Expr::column(index, column.data_type.clone(), column.has_nulls)
}

fn number(value: i128, data_type: DataType) -> Expr {
    Expr::literal(Scalar::Int(value), data_type)
}

fn expr(kind: ExprKind, data_type: DataType) -> Expr {
    Expr { kind, data_type, nullable: true }
}

fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr, data_type: DataType) -> Expr {
    expr(ExprKind::Arithmetic(op, Box::new(left), Box::new(right)), data_type)
}

fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    expr(ExprKind::Compare(op, Box::new(left), Box::new(right)), DataType::Boolean)
}

fn and(left: Expr, right: Expr) -> Expr {
    expr(ExprKind::And(Box::new(left), Box::new(right)), DataType::Boolean)
}

fn or(left: Expr, right: Expr) -> Expr {
    expr(ExprKind::Or(Box::new(left), Box::new(right)), DataType::Boolean)
}

/// `price * (1 - discount)`.
fn revenue() -> Expr {
    let left = arithmetic(ArithmeticOp::Subtract, number(100, MONEY), of(3), DataType::Decimal128(16, 2));
    arithmetic(ArithmeticOp::Multiply, of(2), left, DataType::Decimal128(32, 4))
}

fn filter() -> Step {
    let text = |value: &str| Expr::literal(Scalar::Bytes(value.as_bytes().into()), DataType::Utf8);
    let days = and(
        compare(CompareOp::GreaterOrEqual, of(4), number(9000, DataType::Date32)),
        compare(CompareOp::Less, of(4), number(9365, DataType::Date32)),
    );
    let modes = or(
        compare(CompareOp::Equal, of(6), text("ship 00002")),
        compare(CompareOp::Greater, of(6), text("ship 00004")),
    );
    let list = (1..7).map(Scalar::Int).collect();
    let list = expr(ExprKind::InList { operand: Box::new(of(1)), list, negated: true }, DataType::Boolean);
    Step::Filter(and(days, and(modes, list)))
}

/// Eleven columns of every kind of expression.
fn project() -> Step {
    let year = Function::Date(DateFunction::Part(DatePart::Year));
    let year = |column| expr(ExprKind::Function(year, vec![of(column)]), DataType::Int32);
    let is_flag = compare(CompareOp::Equal, of(7), of(6));
    let zero = number(0, DataType::Decimal128(32, 4));
    let case = ExprKind::Case { branches: vec![(is_flag, revenue())], otherwise: Some(Box::new(zero)) };
    let ratio = arithmetic(ArithmeticOp::Divide, of(2), number(7, MONEY), DataType::Decimal128(25, 8));
    let float = expr(ExprKind::Cast(Box::new(revenue())), DataType::Float64);
    let float = arithmetic(ArithmeticOp::Multiply, float, of(8), DataType::Float64);
    let whole = expr(ExprKind::TryCast(Box::new(of(8))), DataType::Int32);
    let round = expr(ExprKind::Function(Function::Round { places: 1 }, vec![revenue()]), DataType::Decimal128(32, 1));
    let greatest = expr(ExprKind::Function(Function::Greatest, vec![of(6), of(7)]), DataType::Utf8);
    let sum = arithmetic(ArithmeticOp::Add, of(0), of(0), DataType::Int64);
    let exprs = vec![of(0), year(4), year(5), expr(case, DataType::Decimal128(32, 4)), ratio, float, whole, round];
    Step::Project(exprs.into_iter().chain([greatest, sum, of(7)]).collect())
}

fn aggregate() -> Sink {
    let state =
        |fold, argument: Option<Expr>, data_type| State { fold, argument, second: None, term: Term::Value, data_type };
    let states = [
        state(Fold::Sum, Some(of(1)), DataType::Int64),
        state(Fold::Sum, Some(of(2)), DataType::Decimal128(25, 2)),
        state(Fold::Sum, Some(revenue()), DataType::Decimal128(38, 4)),
        state(Fold::Max, Some(of(8)), DataType::Float64),
        state(Fold::Min, Some(of(6)), DataType::Utf8),
        state(Fold::Count, None, DataType::Int64),
    ];
    let limits = GroupLimits {
        rows_bits: 23,
        shared_bytes_max: 232_448,
        form: None,
        block_slots: None,
        table_blocks: 2,
        is_skewed: false,
        is_sorted: false,
        by_range: false,
        is_scarce: false,
        is_cut: false,
    };
    let accumulators = states.map(|state| Accumulator { state, is_merge: false }).to_vec();
    Sink::Aggregate { keys: vec![of(6), of(7)], accumulators, limits }
}

fn probe(source: &SourceShape, unique: bool) -> Step {
    let sink = Sink::Build { keys: vec![of(0)], null_equals_null: false, payload: vec![1, 4, 7] };
    let SinkShape::Build { packing, payload, .. } = bind_pipeline(source, &[], &sink, OPTIONS).expect("a build").sink
    else {
        panic!("a build sink builds");
    };
    assert!(matches!(payload, PayloadForm::Packed(_)), "a short payload is packed");
    Step::Probe(ProbeStep {
        shape: Arc::new(JoinShape { packing, payload, unique, slots: Slots::Pairs { lanes: 1 } }),
        key: ProbeKey::Exprs(vec![of(0)]),
        kind: ProbeKind::Matches,
        null_equals_null: false,
        residual: None,
        output: (0..18).filter(|column| ![0, 2, 3, 5, 6, 8].contains(column)).collect(),
        payload_of: vec![None, Some(0), None, None, Some(1), None, None, Some(2), None],
        filter: None,
        is_counted: false,
    })
}

#[test]
#[ignore = "prints times"]
fn generation_time() {
    const TURNS: u32 = 2000;
    let source = SourceShape::Columns(columns(), ValidityForm::Bits);
    let key = |index, descending| SortKey { expr: of(index), descending, nulls_first: false };
    let all = |width: usize| Sink::Materialise((0..width).collect());
    let rows = RowSpec { keys: vec![of(0), of(6)], like: None, keeps_null_keys: false, payload: vec![1, 2, 4] };
    let threads = 384;
    let stage = crate::PartitionStage::Scatter { threads, threads_of_one_word: threads };
    let sort = Sink::Sort { keys: vec![key(6, false), key(2, true), key(8, false)], columns: vec![0, 1], window: None };
    let pipelines = [
        ("rows", vec![filter(), project()], all(11)),
        ("groups", vec![filter()], aggregate()),
        ("probe", vec![filter(), probe(&source, true)], all(12)),
        ("lists", vec![probe(&source, false)], all(12)),
        ("sort", vec![filter()], sort),
        ("partition", vec![filter()], Sink::Partition { stage, rows }),
    ];
    for (name, steps, sink) in pipelines {
        let mut bytes = 0;
        let mut best = u128::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            for _ in 0..TURNS / 5 {
                bytes = bind_pipeline(&source, &steps, &sink, OPTIONS).expect("a kernel").module().text.len();
            }
            best = best.min(started.elapsed().as_nanos() / u128::from(TURNS / 5));
        }
        println!("{name:10} {best:8} ns, {bytes} bytes");
    }
}
