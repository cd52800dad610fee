//! Values of the oracle: one enum for every type, read from and written to Arrow arrays.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;

/// Why a value does not exist: bits, so that several reasons can be kept.
pub(crate) mod fault {
    pub(crate) const OVERFLOW: u8 = 1;
    pub(crate) const DIVISION: u8 = 2;
    pub(crate) const CAST: u8 = 4;
}

/// A value. Everything that Arrow stores as an integer is an `Int`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum V {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    /// What an operation left that reports an error, by `fault` bit.
    Poison(u8),
}

pub(crate) type Row = Vec<V>;

impl V {
    pub(crate) fn is_null(&self) -> bool {
        *self == V::Null
    }

    /// The value by which rows group and join: -0.0 is 0.0, all NaNs are one.
    pub(crate) fn canonical(self) -> V {
        match self {
            V::Float(0.0) => V::Float(0.0),
            V::Float(x) if x.is_nan() => V::Float(f64::NAN),
            other => other,
        }
    }

    /// A total order over values of one type; floats in IEEE total order.
    pub(crate) fn order(&self, other: &V) -> Ordering {
        match (self, other) {
            (V::Bool(a), V::Bool(b)) => a.cmp(b),
            (V::Int(a), V::Int(b)) => a.cmp(b),
            (V::Float(a), V::Float(b)) => a.total_cmp(b),
            (V::Text(a), V::Text(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            V::Null => 0,
            V::Bool(_) => 1,
            V::Int(_) => 2,
            V::Float(_) => 3,
            V::Text(_) => 4,
            V::Poison(_) => 5,
        }
    }

    /// Equal as a result: floats within 1e-9 relative, any NaN equals any NaN.
    pub(crate) fn is_close(&self, other: &V) -> bool {
        match (self, other) {
            (V::Float(a), V::Float(b)) => {
                a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
            }
            _ => self == other,
        }
    }
}

/// Bounds of a type that is stored as an integer.
pub(crate) fn int_bounds(data_type: &DataType) -> Option<(i128, i128)> {
    use DataType::*;
    Some(match data_type {
        Int8 => (i8::MIN.into(), i8::MAX.into()),
        Int16 => (i16::MIN.into(), i16::MAX.into()),
        Int32 | Date32 | Time32(_) | Decimal32(..) => (i32::MIN.into(), i32::MAX.into()),
        Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) | Decimal64(..) => (i64::MIN.into(), i64::MAX.into()),
        Decimal128(..) => (i128::MIN, i128::MAX),
        UInt8 => (0, u8::MAX.into()),
        UInt16 => (0, u16::MAX.into()),
        UInt32 => (0, u32::MAX.into()),
        UInt64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// Precision and scale of a decimal type.
pub(crate) fn decimal(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => Some((*p, *s)),
        _ => None,
    }
}

pub(crate) fn scale(data_type: &DataType) -> i8 {
    decimal(data_type).map_or(0, |(_, scale)| scale)
}

/// Wraps a number into the bits of an integer type.
pub(crate) fn wrap(value: i128, data_type: &DataType) -> i128 {
    match int_bounds(data_type) {
        Some((i128::MIN, _)) | None => value,
        Some((min, max)) => (value.wrapping_sub(min)).rem_euclid(max - min + 1) + min,
    }
}

macro_rules! for_physical {
    ($data_type:expr, $run:ident) => {{
        use TimeUnit::*;
        match $data_type {
            DataType::Int8 => $run!(Int8Type),
            DataType::Int16 => $run!(Int16Type),
            DataType::Int32 => $run!(Int32Type),
            DataType::Int64 => $run!(Int64Type),
            DataType::UInt8 => $run!(UInt8Type),
            DataType::UInt16 => $run!(UInt16Type),
            DataType::UInt32 => $run!(UInt32Type),
            DataType::UInt64 => $run!(UInt64Type),
            DataType::Date32 => $run!(Date32Type),
            DataType::Date64 => $run!(Date64Type),
            DataType::Decimal32(..) => $run!(Decimal32Type),
            DataType::Decimal64(..) => $run!(Decimal64Type),
            DataType::Decimal128(..) => $run!(Decimal128Type),
            DataType::Duration(Second) => $run!(DurationSecondType),
            DataType::Timestamp(Second, _) => $run!(TimestampSecondType),
            DataType::Timestamp(Millisecond, _) => $run!(TimestampMillisecondType),
            DataType::Timestamp(Microsecond, _) => $run!(TimestampMicrosecondType),
            DataType::Timestamp(Nanosecond, _) => $run!(TimestampNanosecondType),
            other => panic!("no integer type of the oracle: {other}"),
        }
    }};
}

/// All values of an array.
pub(crate) fn values_of(array: &ArrayRef) -> Vec<V> {
    let nulls = array.logical_nulls();
    let is_null = |i: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
    let collect = |value: &dyn Fn(usize) -> V| {
        (0..array.len()).map(|i| if is_null(i) { V::Null } else { value(i) }).collect::<Vec<_>>()
    };
    match array.data_type() {
        DataType::Null => vec![V::Null; array.len()],
        DataType::Boolean => collect(&|i| V::Bool(array.as_boolean().value(i))),
        DataType::Float32 => collect(&|i| V::Float(array.as_primitive::<Float32Type>().value(i).into())),
        DataType::Float64 => collect(&|i| V::Float(array.as_primitive::<Float64Type>().value(i))),
        DataType::Utf8 => collect(&|i| V::Text(array.as_string::<i32>().value(i).into())),
        DataType::LargeUtf8 => collect(&|i| V::Text(array.as_string::<i64>().value(i).into())),
        DataType::Utf8View => collect(&|i| V::Text(array.as_string_view().value(i).into())),
        data_type => {
            macro_rules! read {
                ($type:ty) => {
                    collect(&|i| V::Int(array.as_primitive::<$type>().value(i).into()))
                };
            }
            for_physical!(data_type, read)
        }
    }
}

/// An array of these values.
pub(crate) fn array_of(values: &[V], data_type: &DataType) -> ArrayRef {
    let floats = || values.iter().map(|v| if let V::Float(x) = v { Some(*x) } else { None });
    let texts = || values.iter().map(|v| if let V::Text(x) = v { Some(x.as_str()) } else { None });
    let ints = || values.iter().map(|v| if let V::Int(x) = v { Some(*x) } else { None });
    match data_type {
        DataType::Boolean => {
            let booleans = values.iter().map(|v| if let V::Bool(x) = v { Some(*x) } else { None });
            Arc::new(booleans.collect::<BooleanArray>())
        }
        DataType::Float32 => Arc::new(floats().map(|x| x.map(|x| x as f32)).collect::<Float32Array>()),
        DataType::Float64 => Arc::new(floats().collect::<Float64Array>()),
        DataType::Utf8 => Arc::new(texts().collect::<StringArray>()),
        DataType::LargeUtf8 => Arc::new(texts().collect::<LargeStringArray>()),
        DataType::Utf8View => Arc::new(texts().collect::<StringViewArray>()),
        _ => {
            macro_rules! write {
                ($type:ty) => {
                    Arc::new(
                        ints()
                            .map(|x| x.map(|x| x as _))
                            .collect::<PrimitiveArray<$type>>()
                            .with_data_type(data_type.clone()),
                    )
                };
            }
            for_physical!(data_type, write)
        }
    }
}

/// The rows of batches.
pub(crate) fn rows_of(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows = vec![];
    for batch in batches {
        let columns: Vec<Vec<V>> = batch.columns().iter().map(values_of).collect();
        rows.extend((0..batch.num_rows()).map(|i| columns.iter().map(|column| column[i].clone()).collect()));
    }
    rows
}

/// Compares two multisets of rows; says where they differ.
pub(crate) fn compare(mut got: Vec<Row>, mut wanted: Vec<Row>) -> Result<(), String> {
    if got.len() != wanted.len() {
        return Err(format!("{} rows instead of {}", got.len(), wanted.len()));
    }
    // Floats last, so that a difference in their last bits does not misalign rows.
    let order = |a: &Row, b: &Row| {
        let part = |floats: bool| {
            let pairs =
                a.iter().zip(b).filter(|(x, y)| floats == (matches!(x, V::Float(_)) && matches!(y, V::Float(_))));
            pairs
                .map(|(x, y)| x.clone().canonical().order(&y.clone().canonical()))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        part(false).then_with(|| part(true))
    };
    got.sort_by(order);
    wanted.sort_by(order);
    for (index, (g, w)) in got.iter().zip(&wanted).enumerate() {
        if g.len() != w.len() || !g.iter().zip(w).all(|(a, b)| a.is_close(b)) {
            return Err(format!("sorted row {index} of {}:\n     got {g:?}\n  wanted {w:?}", got.len()));
        }
    }
    Ok(())
}
