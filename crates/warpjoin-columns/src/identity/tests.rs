//! Parts that differ in one field only are not the same: for every field of every part.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::{Identify, Identity, with_each_field_changed};
use crate::expr::{
    ArithmeticOp, CompareOp, DeferredScalar, Expr, ExprKind, HostFunction, KeyPiece, Moment, OrderPart, Scalar, SortKey,
};
use crate::function::{DateFunction, DatePart, Function};

/// All differ from each other, and each is the same as its copy.
fn assert_all_differ<T: Identify + Clone>(what: &str, parts: &[T]) {
    for (at, part) in parts.iter().enumerate() {
        assert!(Identity::in_query(part) == Identity::in_query(&part.clone()), "{what} {at} is not its copy");
        for (other_at, other) in parts.iter().enumerate().skip(at + 1) {
            assert!(Identity::in_query(part) != Identity::in_query(other), "{what} {at} is taken for {other_at}");
            if let (Some(part), Some(other)) = (Identity::in_session(part), Identity::in_session(other)) {
                assert!(part != other, "{what} {at} is taken for {other_at} across queries");
            }
        }
    }
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, true)
}

fn boxed(index: usize) -> Box<Expr> {
    Box::new(column(index))
}

fn key() -> SortKey {
    SortKey { expr: column(0), descending: false, nulls_first: false }
}

/// A function whose text tells nothing.
#[derive(Debug)]
struct Named {
    #[allow(dead_code, reason = "shown by Debug")]
    name: &'static str,
    is_fixed: bool,
}

impl HostFunction for Named {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::clone(&operands[0]))
    }

    fn is_same(&self, other: &dyn HostFunction) -> bool {
        let other = (other as &dyn std::any::Any).downcast_ref::<Self>();
        other.is_some_and(|other| self.is_fixed && other.is_fixed)
    }

    fn data_type(&self) -> DataType {
        DataType::Int64
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("f")
    }
}

fn function(is_fixed: bool) -> Arc<dyn HostFunction> {
    Arc::new(Named { name: "f", is_fixed })
}

fn tabulated(function: &Arc<dyn HostFunction>, operand: usize) -> Expr {
    let kind = ExprKind::Tabulated { operands: vec![column(operand)], function: Arc::clone(function) };
    Expr { kind, data_type: DataType::Int64, nullable: true }
}

/// A constant whose text tells nothing.
#[derive(Debug)]
struct Subquery;

impl std::fmt::Display for Subquery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("subquery 1")
    }
}

impl DeferredScalar for Subquery {
    fn value(&self) -> Result<Scalar, ArrowError> {
        Err(ArrowError::ComputeError("not known yet".into()))
    }
}

/// A constant that is known.
#[derive(Debug)]
struct Known(i128);

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("subquery 1")
    }
}

impl DeferredScalar for Known {
    fn value(&self) -> Result<Scalar, ArrowError> {
        Ok(Scalar::Int(self.0))
    }
}

fn deferred(value: Arc<dyn DeferredScalar>) -> Expr {
    Expr { kind: ExprKind::Deferred(value), data_type: DataType::Int64, nullable: true }
}

/// Kinds of expression, each with one part changed after the other.
fn kinds() -> Vec<ExprKind> {
    let float = |value: f64| ExprKind::Literal(Scalar::Float(value));
    let bytes = |text: &str| ExprKind::Literal(Scalar::Bytes(text.as_bytes().into()));
    let list = |values: &[i128], negated, operand| ExprKind::InList {
        operand: boxed(operand),
        list: values.iter().map(|&value| Scalar::Int(value)).collect(),
        negated,
    };
    let case = |branches: &[(usize, usize)], otherwise: Option<usize>| ExprKind::Case {
        branches: branches.iter().map(|&(when, then)| (column(when), column(then))).collect(),
        otherwise: otherwise.map(boxed),
    };
    let moment = |moment, scale, sums: &[usize]| ExprKind::Moment {
        moment,
        scale,
        sums: sums.iter().map(|&sum| column(sum)).collect(),
    };
    let part = |key, piece, bits| OrderPart { key, piece, bits, least: 0 };
    let call = |function, operands: &[usize]| {
        ExprKind::Function(function, operands.iter().map(|&operand| column(operand)).collect())
    };
    vec![
        ExprKind::Column(0),
        ExprKind::Column(1),
        ExprKind::Literal(Scalar::Null),
        ExprKind::Literal(Scalar::Boolean(false)),
        ExprKind::Literal(Scalar::Boolean(true)),
        ExprKind::Literal(Scalar::Int(0)),
        ExprKind::Literal(Scalar::Int(1)),
        float(0.0),
        float(-0.0),
        float(f64::NAN),
        bytes(""),
        bytes("a"),
        bytes("ab"),
        deferred(Arc::new(Subquery)).kind,
        deferred(Arc::new(Subquery)).kind,
        deferred(Arc::new(Known(5))).kind,
        deferred(Arc::new(Known(6))).kind,
        ExprKind::Arithmetic(ArithmeticOp::Add, boxed(0), boxed(1)),
        ExprKind::Arithmetic(ArithmeticOp::Subtract, boxed(0), boxed(1)),
        ExprKind::Arithmetic(ArithmeticOp::Add, boxed(1), boxed(0)),
        ExprKind::Compare(CompareOp::Equal, boxed(0), boxed(1)),
        ExprKind::Compare(CompareOp::Identical, boxed(0), boxed(1)),
        ExprKind::Compare(CompareOp::Equal, boxed(1), boxed(0)),
        ExprKind::And(boxed(0), boxed(1)),
        ExprKind::And(boxed(1), boxed(0)),
        ExprKind::Or(boxed(0), boxed(1)),
        ExprKind::Average(boxed(0), boxed(1)),
        ExprKind::Not(boxed(0)),
        ExprKind::Not(boxed(1)),
        ExprKind::IsNull(boxed(0)),
        ExprKind::Negative(boxed(0)),
        ExprKind::Cast(boxed(0)),
        ExprKind::TryCast(boxed(0)),
        case(&[(0, 1)], Some(2)),
        case(&[(0, 2)], Some(2)),
        case(&[(1, 1)], Some(2)),
        case(&[(0, 1)], None),
        case(&[(0, 1)], Some(3)),
        case(&[(0, 1), (2, 3)], None),
        call(Function::Date(DateFunction::Part(DatePart::Year)), &[0]),
        call(Function::Date(DateFunction::Part(DatePart::Month)), &[0]),
        call(Function::Date(DateFunction::Part(DatePart::Year)), &[1]),
        call(Function::Date(DateFunction::Part(DatePart::Year)), &[0, 1]),
        list(&[1, 2], false, 0),
        list(&[1, 2], true, 0),
        list(&[1, 2], false, 1),
        list(&[1], false, 0),
        list(&[2, 1], false, 0),
        tabulated(&function(false), 0).kind,
        tabulated(&function(false), 0).kind,
        tabulated(&function(true), 0).kind,
        tabulated(&function(true), 1).kind,
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Whole, 8)]),
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Whole, 9)]),
        ExprKind::OrderWord(vec![OrderPart { least: 1, ..part(key(), KeyPiece::Whole, 9) }]),
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Null, 8)]),
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Whole, 8), part(key(), KeyPiece::Whole, 8)]),
        ExprKind::OrderWord(vec![part(SortKey { descending: true, ..key() }, KeyPiece::Whole, 8)]),
        ExprKind::RowNumber { max: 7 },
        ExprKind::RowNumber { max: 8 },
        moment(Moment::Correlation, 0, &[0, 1]),
        moment(Moment::Correlation, 1, &[0, 1]),
        moment(Moment::Correlation, 0, &[0, 2]),
        moment(Moment::Correlation, 0, &[0]),
    ]
}

#[test]
fn kinds_of_expressions_differ() {
    assert_all_differ("kind", &kinds());
}

#[test]
fn expressions_differ_by_each_field() {
    let exprs = with_each_field_changed!(
        column(0),
        Expr { kind: ExprKind::Column(1), data_type: DataType::Int32, nullable: false }
    );
    assert_all_differ("expression", &exprs);
    assert!(column(0).is_same(&column(0)) && !column(0).is_same(&column(1)));
    // A zone is part of the type.
    let of_zone = |zone: Option<&str>| {
        Expr::column(0, DataType::Timestamp(arrow::datatypes::TimeUnit::Second, zone.map(Into::into)), true)
    };
    assert_all_differ("zone", &[of_zone(None), of_zone(Some("UTC")), of_zone(Some("+01:00"))]);
}

#[test]
fn sort_keys_differ_by_each_field() {
    let keys = with_each_field_changed!(key(), SortKey { expr: column(1), descending: true, nulls_first: true });
    assert_all_differ("key", &keys);
}

#[test]
fn host_functions_of_one_name_are_told_apart() {
    let (one, other) = (function(false), function(false));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert!(!tabulated(&one, 0).is_same(&tabulated(&other, 0)));
    assert!(tabulated(&one, 0).is_same(&tabulated(&one, 0)), "one object, in one query");
    let across = |function| Identity::in_session(&tabulated(function, 0));
    assert!(across(&one) != across(&one), "it may be another function in the next query");
    assert!(across(&function(true)) == across(&function(true)), "both say that they are the same");
}

#[test]
fn constants_that_are_not_known_yet_are_told_apart() {
    let later = || Arc::new(Subquery) as Arc<dyn DeferredScalar>;
    let (one, other) = (later(), later());
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert!(!deferred(Arc::clone(&one)).is_same(&deferred(other)));
    assert!(deferred(Arc::clone(&one)).is_same(&deferred(Arc::clone(&one))));
    assert!(Identity::in_session(&deferred(one)).is_none(), "nothing that lasts is known of it");
    let known = |value| Identity::in_session(&deferred(Arc::new(Known(value))));
    assert!(known(5).is_some() && known(5) == known(5) && known(5) != known(6));
}
