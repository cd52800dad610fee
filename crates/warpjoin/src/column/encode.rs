//! From record batches to encoded columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use rayon::prelude::*;

use super::bits;
use super::chunk::{self, Chunk, Number};
use super::order::Order;
use super::strings::{DictionaryEncoder, RawEncoder};
use super::types::{ColumnType, Layout, Physical, check_type, is_text};
use crate::{Error, Reason, Result};

/// One column of a table on the host, in the layout that devices use.
#[derive(Debug)]
pub struct EncodedColumn {
    /// Facts that the layout follows from.
    pub column_type: ColumnType,
    /// Number of rows.
    pub rows: usize,
    /// Rows x width of the layout; raw strings: their bytes, one after the other. 0 where null.
    pub values: Vec<u8>,
    /// Raw strings only: (rows + 1) u64, little endian; string i lies between offsets i and i + 1.
    pub offsets: Option<Vec<u8>>,
    /// A bit a row, least significant first, set where the row is valid; only with nulls.
    pub validity: Option<Vec<u8>>,
    /// What else is known of the rows.
    pub statistics: ColumnStatistics,
}

/// What is known of the rows of a column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnStatistics {
    /// Rows that are null.
    pub null_count: u64,
    /// Distinct values that are not null, where known: for dictionaries and booleans.
    pub distinct: Option<u64>,
    /// No row is smaller than the one before it. Never with nulls.
    pub sorted: bool,
    /// Whether no value occurs twice and none is null; `None`: unknown.
    pub unique: Option<bool>,
}

/// How columns of text are stored. Columns of bytes and of dictionary types are always dictionaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StringEncoding {
    /// Codes, and the distinct values on the host.
    #[default]
    Dictionary,
    /// Offsets and bytes.
    Raw,
}

/// Encodes a stream of batches into columns. Holds narrowed copies only: no batch is kept for
/// long. After an error it is of no more use.
pub struct TableEncoder {
    schema: SchemaRef,
    strings: StringEncoding,
    columns: Option<Vec<Box<dyn ColumnEncoder>>>,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    rows: u64,
}

/// Rows that are encoded at once, so that threads get enough work from small batches.
const FLUSH_ROWS: usize = 1 << 17;

impl TableEncoder {
    /// An encoder of batches of this schema.
    pub fn new(schema: SchemaRef, strings: StringEncoding) -> Self {
        Self { schema, strings, columns: None, pending: vec![], pending_rows: 0, rows: 0 }
    }

    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes the rows of a batch (rows x columns of the schema).
    ///
    /// # Errors
    /// [`Reason::Type`] for a column type that devices can't hold, an invalid argument when the
    /// batch has other types than the schema, a limit when a dictionary grows too large.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let types = |schema: &SchemaRef| schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
        let batch_schema = batch.schema_ref();
        if !Arc::ptr_eq(batch_schema, &self.schema) && types(batch_schema) != types(&self.schema) {
            return Err(Error::InvalidArgument(format!(
                "a batch of columns {:?} in a table of columns {:?}",
                types(batch_schema),
                types(&self.schema)
            )));
        }
        self.columns()?;
        self.rows += batch.num_rows() as u64;
        self.pending_rows += batch.num_rows();
        self.pending.push(batch.clone());
        if self.pending_rows >= FLUSH_ROWS { self.flush() } else { Ok(()) }
    }

    /// The columns, in schema order, with all rows that were pushed.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(self) -> Result<Vec<EncodedColumn>> {
        self.finish_columns()?.collect()
    }

    /// As [`Self::finish`], one column after the other, so that each can be let go before the next.
    pub(crate) fn finish_columns(mut self) -> Result<impl Iterator<Item = Result<EncodedColumn>>> {
        self.columns()?;
        self.flush()?;
        let mut columns = self.columns.unwrap_or_default();
        columns.par_iter_mut().try_for_each(|column| column.seal())?;
        let types: Vec<DataType> = self.schema.fields().iter().map(|field| field.data_type().clone()).collect();
        Ok(columns.into_iter().zip(types).map(|(column, data_type)| column.finish(data_type)))
    }

    fn columns(&mut self) -> Result<()> {
        if self.columns.is_none() {
            let new = |field: &arrow::datatypes::FieldRef| column_encoder(field.data_type(), self.strings);
            self.columns = Some(self.schema.fields().iter().map(new).collect::<Result<_>>()?);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.pending);
        self.pending_rows = 0;
        let columns = self.columns.as_mut().map_or(&mut [][..], Vec::as_mut_slice);
        columns.par_iter_mut().enumerate().try_for_each(|(index, column)| {
            batches.iter().filter(|batch| batch.num_rows() > 0).try_for_each(|batch| column.push(batch.column(index)))
        })
    }
}

/// Encodes one column. Dispatched once a batch, never once a row.
pub(crate) trait ColumnEncoder: Send {
    /// Takes the next rows, at least one.
    fn push(&mut self, array: &ArrayRef) -> Result<()>;

    /// Does what can run beside other columns and needs all rows. Called once, before `finish`.
    fn seal(&mut self) -> Result<()> {
        Ok(())
    }

    /// All rows in the final layout.
    fn finish(self: Box<Self>, data_type: DataType) -> Result<EncodedColumn>;
}

fn column_encoder(data_type: &DataType, strings: StringEncoding) -> Result<Box<dyn ColumnEncoder>> {
    check_type(data_type)?;
    Ok(match (data_type, Physical::of(data_type)) {
        (_, Some(Physical::I8)) => Box::<NumberEncoder<i8>>::default(),
        (_, Some(Physical::I16)) => Box::<NumberEncoder<i16>>::default(),
        (_, Some(Physical::I32)) => Box::<NumberEncoder<i32>>::default(),
        (_, Some(Physical::I64)) => Box::<NumberEncoder<i64>>::default(),
        (_, Some(Physical::I128)) => Box::<NumberEncoder<i128>>::default(),
        (_, Some(Physical::U8)) => Box::<NumberEncoder<u8>>::default(),
        (_, Some(Physical::U16)) => Box::<NumberEncoder<u16>>::default(),
        (_, Some(Physical::U32)) => Box::<NumberEncoder<u32>>::default(),
        (_, Some(Physical::U64)) => Box::<NumberEncoder<u64>>::default(),
        (_, Some(Physical::F32)) => Box::<NumberEncoder<f32>>::default(),
        (_, Some(Physical::F64)) => Box::<NumberEncoder<f64>>::default(),
        (DataType::Boolean | DataType::Null, None) => Box::<BitEncoder>::default(),
        (DataType::Dictionary(_, values), None) => Box::new(DictionaryEncoder::new((**values).clone())),
        (_, None) => match strings {
            _ if !is_text(data_type) => Box::new(DictionaryEncoder::new(data_type.clone())),
            StringEncoding::Dictionary => Box::new(DictionaryEncoder::new(data_type.clone())),
            StringEncoding::Raw => Box::<RawEncoder>::default(),
        },
    })
}

/// The validity bitmap of an array, and its nulls; `None` without nulls.
pub(crate) fn validity_of(array: &dyn Array) -> Option<(Vec<u8>, u64)> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    Some((bits::packed_bytes(nulls.inner()), nulls.null_count() as u64))
}

/// Columns of primitive types.
struct NumberEncoder<T> {
    chunks: Vec<Chunk>,
    bounds: Option<(i128, i128)>,
    order: Order<T>,
    null_count: u64,
    unique: Option<bool>,
}

impl<T> Default for NumberEncoder<T> {
    fn default() -> Self {
        Self { chunks: vec![], bounds: None, order: Order::default(), null_count: 0, unique: None }
    }
}

impl<T: Number> NumberEncoder<T> {
    fn push_values(&mut self, values: &[T], validity: Option<(Vec<u8>, u64)>) {
        let validity = validity.map(|(bitmap, nulls)| {
            self.null_count += nulls;
            self.order.break_off();
            bitmap
        });
        self.order.offer(values);
        let bounds = T::bounds(values, validity.as_deref());
        self.chunks.push(Chunk::new(values, validity, T::domain(bounds)));
        self.bounds = match (self.bounds, bounds) {
            (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
            (known, new) => known.or(new),
        };
    }

    fn into_column(self, data_type: DataType, distinct: Option<u64>) -> EncodedColumn {
        let domain = T::domain(self.bounds);
        let joined = chunk::join(self.chunks, Layout::of(domain), None);
        let has_nulls = joined.validity.is_some();
        EncodedColumn {
            column_type: ColumnType { data_type, has_nulls, domain, dictionary: None },
            rows: joined.rows,
            values: joined.values,
            offsets: None,
            validity: joined.validity,
            statistics: ColumnStatistics {
                null_count: self.null_count,
                distinct,
                sorted: self.order.sorted,
                unique: self.order.strict.then_some(true).or(self.unique),
            },
        }
    }
}

impl<T: Number> ColumnEncoder for NumberEncoder<T> {
    fn push(&mut self, array: &ArrayRef) -> Result<()> {
        let data = array.to_data();
        if data.data_type().primitive_width() != Some(size_of::<T>()) {
            return Err(Reason::Type(data.data_type().clone()).into());
        }
        self.push_values(&data.buffer::<T>(0)[..array.len()], validity_of(array));
        Ok(())
    }

    fn seal(&mut self) -> Result<()> {
        if let (Some(bounds), 0, false) = (self.bounds, self.null_count, self.order.strict) {
            self.unique = if self.order.sorted { Some(false) } else { chunk::are_distinct(&self.chunks, bounds) };
        }
        Ok(())
    }

    fn finish(self: Box<Self>, data_type: DataType) -> Result<EncodedColumn> {
        Ok(self.into_column(data_type, None))
    }
}

/// Booleans as 0 and 1, and columns of type Null.
#[derive(Default)]
struct BitEncoder {
    bytes: NumberEncoder<u8>,
}

impl ColumnEncoder for BitEncoder {
    fn push(&mut self, array: &ArrayRef) -> Result<()> {
        let values: Vec<u8> = match array.as_boolean_opt() {
            Some(booleans) => booleans.values().iter().map(u8::from).collect(),
            None => vec![0; array.len()],
        };
        self.bytes.push_values(&values, validity_of(array));
        Ok(())
    }

    fn finish(self: Box<Self>, data_type: DataType) -> Result<EncodedColumn> {
        let distinct = self.bytes.bounds.map_or(0, |(min, max)| (max - min) as u64 + 1);
        Ok(self.bytes.into_column(data_type, Some(distinct)))
    }
}
