//! Stored columns of a Parquet scan, for devices that decode them.
//!
//! Owns which columns devices can decode, their bounds from the files' statistics, and where their bytes are. Must not
//! know how they are decoded.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, TimeUnit};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::DefaultParquetFileReaderFactory;
use datafusion::execution::TaskContext;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::basic::{Compression as Codec, Encoding, Type};
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::parquet::schema::types::ColumnDescriptor;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::{StreamExt, TryStreamExt, stream};
use warpjoin::column::Domain;
use warpjoin::parquet::{ColumnChunk, Compression, Stored, StoredColumn};

use super::arriving::{Arriving, ArrivingChunk};
use super::codecs;
use super::source::ParquetScan;

/// Maximum footers read concurrently.
const FILES_AT_ONCE: usize = 32;
/// Maximum pieces of a column read concurrently.
const READS_AT_ONCE: usize = 16;
/// Bytes of a piece, unless a row group has more: enough for one request to a store.
const PIECE_BYTES: u64 = 8 << 20;

/// The footers of a scan's files.
pub(super) struct Footers {
    files: Vec<PartitionedFile>,
    factory: Arc<dyn ParquetFileReaderFactory>,
    /// The footer of each file, in the order of the scan.
    pub(super) all: Vec<Footer>,
}

/// The columns of a scan that devices can decode.
pub(crate) struct StoredScan {
    footers: Footers,
    pub(crate) columns: Vec<Arc<StoredPages>>,
    /// Columns that the CPU decodes.
    pub(crate) others: Vec<usize>,
}

/// A column, and where its row groups are.
pub(crate) struct StoredPages {
    /// Position in the table.
    pub(crate) column: usize,
    stored: Stored,
    is_nullable: bool,
    /// Bounds of the values from the files' statistics, if they have any.
    domain: Option<Domain>,
    chunks: Vec<Chunk>,
}

struct Chunk {
    file: usize,
    range: Range<u64>,
    compression: Compression,
    rows: u64,
}

impl Footers {
    /// Reads the footers of the files of a scan.
    ///
    /// # Errors
    /// When one can't be read.
    pub(super) async fn of(scan: &ParquetScan, context: &TaskContext) -> Result<Self> {
        let factory = match scan.reader_factory() {
            Some(factory) => factory,
            None => Arc::new(DefaultParquetFileReaderFactory::new(scan.store(context)?)),
        };
        let mut footers = Self { files: scan.files(), factory, all: vec![] };
        let read = (0..footers.files.len()).map(|file| footers.footer(file));
        footers.all = stream::iter(read).buffered(FILES_AT_ONCE).try_collect().await?;
        Ok(footers)
    }

    async fn footer(&self, file: usize) -> Result<Footer> {
        let mut reader = self.reader(file)?;
        let metadata = reader.get_metadata(None).await.map_err(from_parquet)?;
        let facts = metadata.file_metadata();
        let schema = parquet_to_arrow_schema(facts.schema_descr(), facts.key_value_metadata()).map_err(from_parquet)?;
        Ok(Footer { metadata, schema })
    }

    fn reader(&self, file: usize) -> Result<Box<dyn datafusion::parquet::arrow::async_reader::AsyncFileReader + Send>> {
        self.factory.create_reader(0, self.files[file].clone(), None, &ExecutionPlanMetricsSet::new())
    }
}

impl StoredScan {
    /// Finds the columns, among some columns of a scan, that devices can decode.
    ///
    /// # Errors
    /// When a footer can't be read.
    pub(crate) async fn of(scan: &ParquetScan, columns: &[usize], context: &TaskContext) -> Result<Self> {
        let footers = Footers::of(scan, context).await?;
        let mut scanned = Self { footers, columns: vec![], others: vec![] };
        let columns_in_files = scan.columns_in_files();
        for &column in columns {
            let pages = if column < columns_in_files {
                pages_of(&scanned.footers.all, column, scan)
            } else {
                // A file may have another column of the same name.
                Err("its values are in the names of folders".into())
            };
            match pages {
                Ok(pages) => scanned.columns.push(Arc::new(pages)),
                Err(why) => {
                    log::debug!("column {} is decoded on the CPU: {why}", scan.key.schema().field(column).name());
                    scanned.others.push(column);
                }
            }
        }
        Ok(scanned)
    }

    /// Reads the bytes of a column's row groups, and passes each to `arriving` as soon as it is read.
    ///
    /// # Errors
    /// When they can't be read.
    pub(crate) async fn read(&self, pages: &StoredPages, arriving: &Arriving) -> Result<()> {
        let mut first = 0;
        let read = |chunks: &[Chunk]| {
            let (reader, number) = (self.footers.reader(chunks[0].file), first);
            first += chunks.len();
            let ranges = chunks.iter().map(|chunk| chunk.range.clone()).collect();
            async move { reader?.get_byte_ranges(ranges).await.map(|bytes| (number, bytes)).map_err(from_parquet) }
        };
        let read: Vec<_> = pieces(&pages.chunks).into_iter().map(read).collect();
        let mut read = stream::iter(read).buffered(READS_AT_ONCE);
        while let Some((number, bytes)) = read.try_next().await? {
            if arriving.is_stopped() {
                break;
            }
            arriving.put(number, bytes);
        }
        Ok(())
    }
}

impl StoredPages {
    /// A buffer for the bytes of its row groups.
    pub(crate) fn arriving(&self) -> Arriving {
        Arriving::new(self.chunks.len())
    }

    /// Calls `decode` with the column while its bytes arrive.
    pub(crate) fn decode_with<T>(&self, arriving: &Arriving, decode: impl FnOnce(&StoredColumn<'_>) -> T) -> T {
        let bytes: Vec<ArrivingChunk<'_>> = (0..self.chunks.len()).map(|number| arriving.chunk(number)).collect();
        let chunks = self.chunks.iter().zip(&bytes);
        let chunks: Vec<ColumnChunk<'_>> = chunks
            .map(|(chunk, bytes)| ColumnChunk { bytes, compression: chunk.compression, rows: chunk.rows })
            .collect();
        let Self { stored, is_nullable, domain, .. } = *self;
        decode(&StoredColumn { stored, is_nullable, domain, chunks: &chunks })
    }
}

/// Neighboring row groups of one file, which are read together.
fn pieces(chunks: &[Chunk]) -> Vec<&[Chunk]> {
    let mut bytes = 0;
    let pieces = chunks.chunk_by(|before, chunk| {
        bytes += before.range.end - before.range.start;
        let is_one = before.file == chunk.file && bytes < PIECE_BYTES;
        if !is_one {
            bytes = 0;
        }
        is_one
    });
    pieces.collect()
}

/// The footer of a file.
pub(super) struct Footer {
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) schema: Schema,
}

/// Smallest and largest value of row groups.
#[derive(Clone, Copy)]
enum Bounds {
    /// All values are null, or there are no rows.
    NoValues,
    Known(i128, i128),
    /// Statistics are missing.
    Unknown,
}

impl Bounds {
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::NoValues, known) | (known, Self::NoValues) => known,
            (Self::Known(min, max), Self::Known(low, high)) => Self::Known(min.min(low), max.max(high)),
        }
    }
}

/// The positions of a column's pages in the files, or the reason why devices can't decode it.
fn pages_of(footers: &[Footer], column: usize, scan: &ParquetScan) -> Result<StoredPages, String> {
    let field = scan.key.schema().field(column);
    let (mut facts, mut chunks) = (None, vec![]);
    let mut bounds = Bounds::NoValues;
    for (file, Footer { metadata, schema }) in footers.iter().enumerate() {
        let descriptor = metadata.file_metadata().schema_descr();
        let is_it = |at: &usize| *descriptor.column(*at).path().parts() == [field.name().clone()];
        let at = (0..descriptor.num_columns()).find(is_it).ok_or("a file lacks it")?;
        let of_file = schema.field_with_name(field.name()).map_err(|_| "a file lacks it")?;
        if !are_alike(of_file.data_type(), field.data_type()) {
            return Err(format!("it is {} in a file", of_file.data_type()));
        }
        let stored = stored_of(&descriptor.column(at), field.data_type())?;
        if *facts.get_or_insert(stored) != stored {
            return Err("files store it in different ways".into());
        }
        let groups = metadata.row_groups().iter().enumerate().filter(|(group, _)| scan.key.has(file, *group));
        for (_, group) in groups {
            let (bounds_of_group, chunk) = chunk_of(group, at, file, stored.0)?;
            bounds = bounds.with(bounds_of_group);
            chunks.push(chunk);
        }
    }
    let (stored, is_nullable) = facts.ok_or("there is no file")?;
    let domain = match (stored, bounds) {
        (Stored::Float, _) => Some(Domain::Float32),
        (Stored::Double, _) => Some(Domain::Float64),
        // Nothing checks those of booleans while they are decoded, so they are found afterwards.
        (Stored::Strings | Stored::Bits, _) | (_, Bounds::Unknown) => None,
        (_, Bounds::NoValues) => Some(Domain::Int { min: 0, max: 0 }),
        (_, Bounds::Known(min, max)) => Some(Domain::Int { min, max }),
    };
    Ok(StoredPages { column, stored, is_nullable, domain, chunks })
}

/// Whether a file's type holds the values of a table's type: the same type, or another type of text, or of bytes.
pub(super) fn are_alike(of_file: &DataType, of_table: &DataType) -> bool {
    of_file == of_table || [is_text, is_bytes].iter().any(|is_kind| is_kind(of_file) && is_kind(of_table))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// How a column is stored, and whether it has definition levels.
fn stored_of(column: &ColumnDescriptor, data_type: &DataType) -> Result<(Stored, bool), String> {
    use DataType as T;
    if column.max_rep_level() > 0 || column.max_def_level() > 1 {
        return Err("it is nested".into());
    }
    let stored = match (column.physical_type(), data_type) {
        (Type::BOOLEAN, T::Boolean) => Stored::Bits,
        (Type::INT32, T::UInt8 | T::UInt16 | T::UInt32) => Stored::Int32 { signed: false },
        (
            Type::INT32,
            T::Int8
            | T::Int16
            | T::Int32
            | T::Date32
            | T::Time32(_)
            | T::Decimal32(..)
            | T::Decimal64(..)
            | T::Decimal128(..),
        ) => Stored::Int32 { signed: true },
        (Type::INT64, T::UInt64) => Stored::Int64 { signed: false },
        (Type::INT64, T::Int64 | T::Timestamp(..) | T::Time64(_) | T::Decimal64(..) | T::Decimal128(..)) => {
            Stored::Int64 { signed: true }
        }
        (Type::INT96, T::Timestamp(TimeUnit::Nanosecond, _)) => Stored::Int96,
        (Type::FLOAT, T::Float32) => Stored::Float,
        (Type::DOUBLE, T::Float64) => Stored::Double,
        (Type::BYTE_ARRAY, data_type) if is_text(data_type) || is_bytes(data_type) => Stored::Strings,
        (Type::FIXED_LEN_BYTE_ARRAY, T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..)) => {
            let bytes = u32::try_from(column.type_length()).ok().filter(|bytes| (1..=16).contains(bytes));
            Stored::Fixed { bytes: bytes.ok_or("its values have a strange length")? }
        }
        (physical, data_type) => return Err(format!("{data_type} stored as {physical}")),
    };
    Ok((stored, column.max_def_level() == 1))
}

/// A row group of a column, with the bounds of its values.
fn chunk_of(group: &RowGroupMetaData, column: usize, file: usize, stored: Stored) -> Result<(Bounds, Chunk), String> {
    let column = group.column(column);
    let compression = match column.compression() {
        Codec::UNCOMPRESSED => Compression::None,
        Codec::SNAPPY => Compression::Snappy,
        Codec::ZSTD(_) => Compression::OnHost(codecs::zstd),
        Codec::LZ4_RAW => Compression::OnHost(codecs::lz4),
        Codec::GZIP(_) => Compression::OnHost(codecs::gzip),
        other => return Err(format!("compression {other}")),
    };
    if column.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY) {
        return Err("encoding DELTA_BYTE_ARRAY".into());
    }
    let rows = u64::try_from(group.num_rows()).map_err(|_| "a row group has a negative number of rows")?;
    let (start, length) = column.byte_range();
    let range = start..start.checked_add(length).ok_or("a column that ends nowhere")?;
    let chunk = Chunk { file, range, compression, rows };
    let statistics = column.statistics();
    let bounds = match statistics.and_then(|statistics| bounds_of(statistics, stored)) {
        Some((min, max)) => Bounds::Known(min, max),
        None if rows == 0 || statistics.and_then(Statistics::null_count_opt) == Some(rows) => Bounds::NoValues,
        None => Bounds::Unknown,
    };
    Ok((bounds, chunk))
}

fn bounds_of(statistics: &Statistics, stored: Stored) -> Option<(i128, i128)> {
    if !statistics.min_is_exact() || !statistics.max_is_exact() {
        return None;
    }
    // Older writers compared everything as signed integers of as many bits.
    let is_reliable = !statistics.is_min_max_deprecated();
    Some(match (statistics, stored) {
        (Statistics::Boolean(values), Stored::Bits) => (i128::from(*values.min_opt()?), i128::from(*values.max_opt()?)),
        (Statistics::Int32(values), Stored::Int32 { signed: true }) => {
            ((*values.min_opt()?).into(), (*values.max_opt()?).into())
        }
        (Statistics::Int32(values), Stored::Int32 { signed: false }) if is_reliable => {
            ((*values.min_opt()? as u32).into(), (*values.max_opt()? as u32).into())
        }
        (Statistics::Int64(values), Stored::Int64 { signed: true }) => {
            ((*values.min_opt()?).into(), (*values.max_opt()?).into())
        }
        (Statistics::Int64(values), Stored::Int64 { signed: false }) if is_reliable => {
            ((*values.min_opt()? as u64).into(), (*values.max_opt()? as u64).into())
        }
        (Statistics::FixedLenByteArray(values), Stored::Fixed { .. }) if is_reliable => {
            (big_endian(values.min_opt()?.data())?, big_endian(values.max_opt()?.data())?)
        }
        _ => return None,
    })
    .filter(|(min, max)| min <= max)
}

/// A signed integer, the highest byte first.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = if *bytes.first()? > 127 { -1 } else { 0 };
    (bytes.len() <= 16).then(|| bytes.iter().fold(sign, |value, byte| value << 8 | i128::from(*byte)))
}

fn from_parquet(error: datafusion::parquet::errors::ParquetError) -> DataFusionError {
    DataFusionError::ParquetError(Box::new(error))
}
