//! Functions that the host evaluates: of a dictionary's values, or of all combinations of a few operands' values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema};
use rayon::prelude::*;
use warpjoin_columns::column::{
    ColumnType, Dictionary, Domain, EncodedColumn, StringEncoding, TableEncoder, integers, with_null,
};
use warpjoin_columns::expr::HostFunction;
use warpjoin_columns::{Error, Reason, Result};

use super::lookup::{LookupColumn, plain_statistics};
use crate::value::{Kind, Range, ValueType};

/// Rows that a core evaluates at a time.
const HOST_CHUNK: usize = 1 << 15;

/// Results for all combinations of values, each made once a pipeline.
#[derive(Default)]
pub(crate) struct Tabulations(Vec<Tabulation>);

struct Tabulation {
    function: Arc<dyn HostFunction>,
    axes: Vec<Axis>,
    results: Arc<LookupColumn>,
}

impl Tabulations {
    /// The results, as `make` makes them where they are not there.
    pub(crate) fn get_or_make(
        &mut self,
        function: &Arc<dyn HostFunction>,
        axes: Vec<Axis>,
        make: impl FnOnce(&[Axis]) -> Result<Arc<LookupColumn>>,
    ) -> Result<Arc<LookupColumn>> {
        let is_it = |known: &&Tabulation| {
            let is_function = Arc::ptr_eq(&known.function, function) || known.function.is_same(function.as_ref());
            let is_same = |(own, other): (&Axis, &Axis)| own.is_same(other);
            is_function && known.axes.len() == axes.len() && known.axes.iter().zip(&axes).all(is_same)
        };
        if let Some(known) = self.0.iter().find(is_it) {
            return Ok(Arc::clone(&known.results));
        }
        let results = make(&axes)?;
        self.0.push(Tabulation { function: Arc::clone(function), axes, results: Arc::clone(&results) });
        Ok(results)
    }
}

/// The values that an operand may have.
pub(crate) struct Axis {
    pub values: AxisValues,
    data_type: DataType,
    /// Null is one more, behind the others.
    pub has_null: bool,
}

pub(crate) enum AxisValues {
    Strings(Arc<Dictionary>),
    Numbers(Range),
}

impl Axis {
    pub(crate) fn of(value: &ValueType, function: &Arc<dyn HostFunction>) -> Result<Self> {
        let values = match (&value.dictionary, value.kind) {
            (Some(dictionary), _) => AxisValues::Strings(Arc::clone(dictionary)),
            (None, Kind::Bool) => AxisValues::Numbers(Range::new(0, 1)),
            (None, Kind::Int(range)) => AxisValues::Numbers(range),
            (None, Kind::F32 | Kind::F64) => return Err(Reason::Expression(format!("{function} of a float")).into()),
        };
        Ok(Self { values, data_type: value.data_type.clone(), has_null: value.nullable })
    }

    fn is_same(&self, other: &Self) -> bool {
        let has_same_values = match (&self.values, &other.values) {
            (AxisValues::Strings(own), AxisValues::Strings(other)) => Arc::ptr_eq(own, other),
            (AxisValues::Numbers(own), AxisValues::Numbers(other)) => own == other,
            _ => false,
        };
        has_same_values && self.data_type == other.data_type && self.has_null == other.has_null
    }

    /// Different values, without null.
    pub(crate) fn values(&self) -> u64 {
        match &self.values {
            AxisValues::Strings(dictionary) => dictionary.len() as u64,
            AxisValues::Numbers(range) => {
                let span = range.max.checked_sub(range.min).and_then(|span| u64::try_from(span).ok());
                span.unwrap_or(u64::MAX).saturating_add(1)
            }
        }
    }

    /// Places that it takes in a table of all combinations.
    pub(crate) fn places(&self) -> u64 {
        self.values().saturating_add(self.has_null.into())
    }

    /// All values, then null if that is one.
    fn array(&self) -> Result<ArrayRef> {
        let values = match &self.values {
            AxisValues::Strings(dictionary) => Arc::clone(dictionary.values()),
            AxisValues::Numbers(range) => integers(&self.data_type, &(range.min..=range.max).collect::<Vec<_>>())?,
        };
        if self.has_null { with_null(&values) } else { Ok(values) }
    }
}

/// The results for all combinations of values; those of the last operand change first.
pub(crate) fn encoded(function: &dyn HostFunction, axes: &[Axis]) -> Result<EncodedColumn> {
    let arrays = axes.iter().map(Axis::array).collect::<Result<Vec<_>>>()?;
    let chunks = on_host(function, &arrays)?;
    let is_boolean = chunks.iter().all(|chunk| *chunk.data_type() == DataType::Boolean);
    if is_boolean { Ok(encode_booleans(&chunks)) } else { encode(&chunks) }
}

/// What `function` makes of every combination of the arrays' values, in chunks of [`HOST_CHUNK`]; at least one chunk.
fn on_host(function: &dyn HostFunction, arrays: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let rows = arrays.iter().map(|array| array.len()).product();
    let starts: Vec<usize> = (0..rows).step_by(HOST_CHUNK).chain((rows == 0).then_some(0)).collect();
    let chunks = starts.into_par_iter().map(|start| {
        let chunk = start..rows.min(start + HOST_CHUNK);
        let wanted = chunk.len();
        let results = function.evaluate(&combinations(arrays, chunk)?)?;
        if results.len() != wanted {
            return Err(Error::internal(format!("{function} gave {} results for {wanted} values", results.len())));
        }
        Ok(results)
    });
    chunks.collect()
}

/// Some of all combinations of the arrays' values, those of the last one changing first.
fn combinations(arrays: &[ArrayRef], rows: std::ops::Range<usize>) -> Result<Vec<ArrayRef>> {
    if let [only] = arrays {
        return Ok(vec![only.slice(rows.start, rows.len())]);
    }
    let mut stride = arrays.iter().map(|array| array.len()).product::<usize>();
    let columns = arrays.iter().map(|array| {
        stride /= array.len().max(1);
        let places = rows.clone().map(|row| (row / stride % array.len()) as u32);
        Ok(take(array, &places.collect::<UInt32Array>(), None)?)
    });
    columns.collect()
}

/// Booleans in a layout that does not depend on which of them occur. All chunks but the last have [`HOST_CHUNK`] rows.
fn encode_booleans(chunks: &[ArrayRef]) -> EncodedColumn {
    let has_nulls = chunks.iter().any(|chunk| chunk.null_count() > 0);
    let rows = chunks.iter().map(|chunk| chunk.len()).sum();
    let mut values = vec![0u8; rows];
    values.par_chunks_mut(HOST_CHUNK).zip(chunks).for_each(|(values, chunk)| {
        let booleans = chunk.as_boolean();
        for (value, is_set) in values.iter_mut().zip(booleans.values()) {
            *value = u8::from(is_set);
        }
        // The value of a null may be any.
        for row in booleans.nulls().into_iter().flat_map(|nulls| (0..nulls.len()).filter(|&row| nulls.is_null(row))) {
            values[row] = 0;
        }
    });
    let validity = has_nulls.then(|| {
        let mut bits = vec![0u8; rows.div_ceil(8)];
        bits.par_chunks_mut(HOST_CHUNK / 8).zip(chunks).for_each(|(bits, chunk)| {
            for row in (0..chunk.len()).filter(|&row| chunk.is_valid(row)) {
                bits[row / 8] |= 1 << (row % 8);
            }
        });
        bits
    });
    EncodedColumn {
        column_type: ColumnType {
            data_type: DataType::Boolean,
            has_nulls,
            domain: Domain::Int { min: 0, max: 1 },
            dictionary: None,
        },
        rows,
        values,
        offsets: None,
        validity,
        statistics: plain_statistics(),
    }
}

fn encode(chunks: &[ArrayRef]) -> Result<EncodedColumn> {
    let data_type = chunks.first().map_or(DataType::Null, |chunk| chunk.data_type().clone());
    let schema = Arc::new(Schema::new(vec![Field::new("value", data_type, true)]));
    let encoder = TableEncoder::new(Arc::clone(&schema), StringEncoding::Dictionary);
    let mut encoder = encoder.with_chunk_rows(HOST_CHUNK);
    for chunk in chunks {
        encoder.push(&RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(chunk)])?)?;
    }
    encoder.finish()?.pop().ok_or_else(|| Error::internal("no column encoded"))
}
