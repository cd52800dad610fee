//! From record batches to encoded columns.
//!
//! Rows are cut into chunks. Threads of rayon's pool encode a chunk of a column at a time, in any order; once all rows are
//! there, the chunks of a column are joined in the order of the rows.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use rayon::prelude::*;

use super::bits;
use super::dictionary::SORTED_LEN_MAX;
use super::numbers::{Bits, Numbers};
use super::strings::{DictionaryStrings, RawStrings};
use super::tasks::Tasks;
use super::types::{ColumnType, Physical, check_type, is_text};
use crate::{Error, Result};

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
    /// Codes, and the distinct values on the host. Up to 65,536 values have codes in their order.
    #[default]
    Dictionary,
    /// The same, with codes in no order: it takes less to load, and more to compare, sort and find extremes.
    UnorderedDictionary,
    /// Offsets and bytes.
    Raw,
}

/// Encodes batches into columns, on all threads of rayon's pool. Holds narrowed copies only: no batch is kept for long.
/// After an error it is of no more use.
///
/// Rows come in one or several parts, each of which is a stream of batches. The table has the rows of part 0 first, then
/// those of part 1, and so on, whichever part a batch was pushed to first.
pub struct TableEncoder {
    schema: SchemaRef,
    strings: StringEncoding,
    chunk_rows: usize,
    columns: Option<Columns>,
    parts: Vec<Part>,
    tasks: Tasks,
    rows: u64,
}

type Columns = Arc<Vec<Box<dyn Column>>>;

/// Rows of a part that no task has yet.
#[derive(Default)]
struct Part {
    batches: Vec<RecordBatch>,
    rows: usize,
    /// Chunks that tasks have.
    chunks: usize,
}

/// Position of a chunk: its part, then its number there.
pub(super) type Place = (usize, usize);

/// Rows of a chunk: enough work for a task from batches of 8,192 rows, few enough that all threads get some.
const CHUNK_ROWS: usize = 1 << 17;

impl TableEncoder {
    /// An encoder of batches of this schema.
    pub fn new(schema: SchemaRef, strings: StringEncoding) -> Self {
        let (columns, parts, tasks) = (None, vec![], Tasks::default());
        Self { schema, strings, chunk_rows: CHUNK_ROWS, columns, parts, tasks, rows: 0 }
    }

    /// Cuts rows into chunks of at least this many rows. Call it before the first [`Self::push`].
    #[must_use]
    pub fn with_chunk_rows(mut self, rows: usize) -> Self {
        self.chunk_rows = rows.max(1);
        self
    }

    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes the rows of a batch (rows x columns of the schema), as the next ones of part 0.
    ///
    /// # Errors
    /// [`Reason::Type`](crate::Reason::Type) for a column type that devices can't hold, an invalid argument when the
    /// batch has other types than the schema, a limit when a dictionary grows too large.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.push_to(0, batch)
    }

    /// The same, as the next rows of a part.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_to(&mut self, part: usize, batch: &RecordBatch) -> Result<()> {
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
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows() as u64;
        if self.parts.len() <= part {
            self.parts.resize_with(part + 1, Part::default);
        }
        let pending = &mut self.parts[part];
        pending.rows += batch.num_rows();
        pending.batches.push(batch.clone());
        if pending.rows >= self.chunk_rows { self.encode_pending(part) } else { Ok(()) }
    }

    /// The columns, in schema order, with all rows that were pushed.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(self) -> Result<Vec<EncodedColumn>> {
        self.finish_columns()?.1.collect()
    }

    /// As [`Self::finish`], one column after the other, so that the caller can drop each before it takes the next. Before them about
    /// what a row of all takes, in bytes.
    pub(crate) fn finish_columns(mut self) -> Result<(u64, impl Iterator<Item = Result<EncodedColumn>>)> {
        let columns = self.columns()?;
        for part in 0..self.parts.len() {
            self.encode_pending(part)?;
        }
        self.tasks.wait()?;
        self.columns = None;
        let columns = Arc::into_inner(columns).ok_or_else(|| Error::internal("a chunk is still being encoded"))?;
        let types: Vec<DataType> = self.schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let sealed: Vec<Sealed> = columns
            .into_par_iter()
            .zip(types)
            .map(|(column, data_type)| column.seal(data_type))
            .collect::<Result<_>>()?;
        let row_bytes = sealed.iter().map(|column| column.row_bytes).sum();
        Ok((row_bytes, sealed.into_iter().map(|column| (column.finish)())))
    }

    fn columns(&mut self) -> Result<Columns> {
        if let Some(columns) = &self.columns {
            return Ok(Arc::clone(columns));
        }
        let new = |field: &arrow::datatypes::FieldRef| column_of(field.data_type(), self.strings);
        let columns = Arc::new(self.schema.fields().iter().map(new).collect::<Result<_>>()?);
        Ok(Arc::clone(self.columns.insert(columns)))
    }

    /// Gives the pending rows of a part to a task.
    fn encode_pending(&mut self, part: usize) -> Result<()> {
        let columns = self.columns()?;
        let pending = &mut self.parts[part];
        let batches = std::mem::take(&mut pending.batches);
        if batches.is_empty() {
            return Ok(());
        }
        let place = (part, pending.chunks);
        pending.rows = 0;
        pending.chunks += 1;
        self.tasks.run(move || {
            columns.par_iter().enumerate().try_for_each(|(index, column)| {
                let arrays: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(index)).collect();
                column.encode(place, &arrays)
            })
        })
    }
}

/// How a column is encoded. Dispatched once a chunk, never once a row.
pub(super) trait Encoding: Send + Sync + 'static {
    /// The rows of a chunk.
    type Run: Send;

    /// Encodes the rows of a chunk: at least one array, each of at least one row.
    fn encode(&self, arrays: &[&ArrayRef]) -> Result<Self::Run>;

    /// Finds what all rows tell: dictionary, layout, statistics. `runs` are all rows, in order.
    fn seal(&self, runs: Vec<Self::Run>, data_type: DataType) -> Result<Sealed>;
}

/// A column of which it is known how it is laid out.
pub(super) struct Sealed {
    /// About what a row takes.
    pub row_bytes: u64,
    /// Brings all rows to the final layout.
    pub finish: Finish,
}

type Finish = Box<dyn FnOnce() -> Result<EncodedColumn> + Send>;

/// A column whose chunks are being encoded.
trait Column: Send + Sync {
    fn encode(&self, place: Place, arrays: &[&ArrayRef]) -> Result<()>;

    fn seal(self: Box<Self>, data_type: DataType) -> Result<Sealed>;
}

struct Runs<E: Encoding> {
    encoding: E,
    runs: Mutex<Vec<(Place, E::Run)>>,
}

impl<E: Encoding> Column for Runs<E> {
    fn encode(&self, place: Place, arrays: &[&ArrayRef]) -> Result<()> {
        let run = self.encoding.encode(arrays)?;
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push((place, run));
        Ok(())
    }

    fn seal(self: Box<Self>, data_type: DataType) -> Result<Sealed> {
        let mut runs = self.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        runs.sort_by_key(|(place, _)| *place);
        self.encoding.seal(runs.into_iter().map(|(_, run)| run).collect(), data_type)
    }
}

fn column_of(data_type: &DataType, strings: StringEncoding) -> Result<Box<dyn Column>> {
    fn column(encoding: impl Encoding) -> Box<dyn Column> {
        Box::new(Runs { encoding, runs: Mutex::default() })
    }
    check_type(data_type)?;
    let sorted_len_max = if strings == StringEncoding::UnorderedDictionary { 0 } else { SORTED_LEN_MAX };
    let dictionary = |values: &DataType| column(DictionaryStrings::new(values.clone(), sorted_len_max));
    Ok(match (data_type, Physical::of(data_type)) {
        (_, Some(Physical::I8)) => column(Numbers::<i8>::default()),
        (_, Some(Physical::I16)) => column(Numbers::<i16>::default()),
        (_, Some(Physical::I32)) => column(Numbers::<i32>::default()),
        (_, Some(Physical::I64)) => column(Numbers::<i64>::default()),
        (_, Some(Physical::I128)) => column(Numbers::<i128>::default()),
        (_, Some(Physical::U8)) => column(Numbers::<u8>::default()),
        (_, Some(Physical::U16)) => column(Numbers::<u16>::default()),
        (_, Some(Physical::U32)) => column(Numbers::<u32>::default()),
        (_, Some(Physical::U64)) => column(Numbers::<u64>::default()),
        (_, Some(Physical::F32)) => column(Numbers::<f32>::default()),
        (_, Some(Physical::F64)) => column(Numbers::<f64>::default()),
        (DataType::Boolean | DataType::Null, None) => column(Bits),
        (DataType::Dictionary(_, values), None) => dictionary(values),
        (_, None) if strings == StringEncoding::Raw && is_text(data_type) => column(RawStrings),
        (_, None) => dictionary(data_type),
    })
}

/// The validity bitmap of an array, and its nulls; `None` without nulls.
pub(super) fn validity_of(array: &dyn Array) -> Option<(Vec<u8>, u64)> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    Some((bits::packed_bytes(nulls.inner()), nulls.null_count() as u64))
}
