//! Random columns, written as Parquet and decoded on a device.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "shared by tests")]

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Int32Type, Int64Type, UInt64Type};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, Encoding, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpjoin::column::{ColumnStatistics, Dictionary, Domain, Layout};
use warpjoin::parquet::{
    ColumnChunk, Compression, DecodeError, DecodedColumn, Stored, StoredColumn, decode_column, decode_table,
};
use warpjoin::{MemoryBudget, Session, Table, TableBuilder};
use warpjoin_device::Device;

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    pub is_compressed: bool,
    /// Compressed pages are decompressed on the host.
    pub on_host: bool,
    pub has_dictionaries: bool,
    pub version: WriterVersion,
    /// Rows of a page, at most.
    pub page_rows: usize,
    pub group_rows: usize,
    /// 0: plain; 1: differences; 2: byte by byte; if there is such an encoding for the type.
    pub encoding: usize,
    /// Where dictionaries end, and other pages begin.
    pub dictionary_bytes: usize,
}

impl Form {
    fn encoding_of(&self, data_type: &DataType) -> Encoding {
        match (self.encoding, data_type) {
            (_, DataType::Boolean) if self.version == WriterVersion::PARQUET_2_0 => Encoding::RLE,
            (_, DataType::Boolean) => Encoding::PLAIN,
            (1, DataType::Utf8 | DataType::Binary) => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            (_, DataType::Utf8 | DataType::Binary) => Encoding::PLAIN,
            (1, DataType::Float32 | DataType::Float64) | (2, _) => Encoding::BYTE_STREAM_SPLIT,
            (1, DataType::Decimal128(precision, _)) if *precision > 18 => Encoding::BYTE_STREAM_SPLIT,
            (1, _) => Encoding::DELTA_BINARY_PACKED,
            _ => Encoding::PLAIN,
        }
    }
}

pub fn random_form(rng: &mut StdRng) -> Form {
    Form {
        is_compressed: rng.random(),
        on_host: rng.random_bool(0.3),
        has_dictionaries: rng.random(),
        version: if rng.random() { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 },
        page_rows: [7, 100, 1000, 20_000][rng.random_range(0..4)],
        group_rows: [50, 1000, 100_000][rng.random_range(0..3)],
        encoding: rng.random_range(0..3),
        dictionary_bytes: [1 << 20, 1 << 20, 500, 5000][rng.random_range(0..4)],
    }
}

fn decompress(page: &[u8], target: &mut [u8]) -> Result<(), String> {
    let decompressed = snap::raw::Decoder::new().decompress(page, target).map_err(|error| error.to_string())?;
    if decompressed == target.len() { Ok(()) } else { Err(format!("a page of {decompressed} bytes")) }
}

pub struct File {
    pub bytes: Vec<u8>,
    pub metadata: ParquetMetaData,
    on_host: bool,
}

impl File {
    pub fn write(column: &ArrayRef, form: Form) -> Self {
        let batch =
            RecordBatch::try_from_iter_with_nullable([("c", Arc::clone(column), column.null_count() > 0)]).unwrap();
        let mut properties = WriterProperties::builder()
            .set_compression(if form.is_compressed { Codec::SNAPPY } else { Codec::UNCOMPRESSED })
            .set_dictionary_enabled(form.has_dictionaries)
            .set_writer_version(form.version)
            .set_data_page_row_count_limit(form.page_rows)
            .set_write_batch_size(form.page_rows.min(64))
            .set_max_row_group_row_count(Some(form.group_rows))
            .set_dictionary_page_size_limit(form.dictionary_bytes)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        // Also behind dictionaries.
        properties = properties.set_encoding(form.encoding_of(column.data_type()));
        let mut bytes = vec![];
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let metadata = SerializedFileReader::new(Bytes::from(bytes.clone())).unwrap().metadata().clone();
        Self { bytes, metadata, on_host: form.on_host }
    }

    /// The bytes of each row group's column.
    pub fn chunk_bytes(&self) -> Vec<Vec<u8>> {
        let bytes = |group: &parquet::file::metadata::RowGroupMetaData| {
            let (start, length) = group.column(0).byte_range();
            self.bytes[start as usize..(start + length) as usize].to_vec()
        };
        self.metadata.row_groups().iter().map(bytes).collect()
    }

    pub fn chunks<'a>(&self, bytes: &'a [Vec<u8>]) -> Vec<ColumnChunk<'a>> {
        let chunk = |(group, bytes): (&parquet::file::metadata::RowGroupMetaData, &'a Vec<u8>)| {
            let column = group.column(0);
            let compression = match column.compression() {
                Codec::UNCOMPRESSED => Compression::None,
                _ if self.on_host => Compression::OnHost(decompress),
                _ => Compression::Snappy,
            };
            ColumnChunk { bytes, compression, rows: group.num_rows() as u64 }
        };
        self.metadata.row_groups().iter().zip(bytes).map(chunk).collect()
    }

    fn stored(&self, data_type: &DataType) -> Stored {
        let column = self.metadata.file_metadata().schema_descr().column(0);
        let signed = !matches!(data_type, DataType::UInt32 | DataType::UInt64);
        match column.physical_type() {
            Type::BOOLEAN => Stored::Bits,
            Type::INT32 => Stored::Int32 { signed },
            Type::INT64 => Stored::Int64 { signed },
            Type::FLOAT => Stored::Float,
            Type::DOUBLE => Stored::Double,
            Type::BYTE_ARRAY => Stored::Strings,
            _ => Stored::Fixed { bytes: column.type_length() as u32 },
        }
    }

    /// A table of the column, decoded on the only device of a session.
    pub fn decode_table(
        &self,
        session: &Session,
        batch: &RecordBatch,
        domain: Option<Domain>,
    ) -> Result<Table, DecodeError> {
        let column = batch.column(0);
        let (stored, is_nullable) = (self.stored(column.data_type()), column.null_count() > 0);
        let bytes = self.chunk_bytes();
        let stored = StoredColumn { stored, is_nullable, domain, chunks: &self.chunks(&bytes) };
        decode_table(session, batch.schema(), &[stored], MemoryBudget::OF_DEVICES)
    }

    pub fn decode(
        &self,
        device: &Device,
        column: &ArrayRef,
        domain: Option<Domain>,
    ) -> Result<DecodedColumn, DecodeError> {
        let (stored, is_nullable) = (self.stored(column.data_type()), column.null_count() > 0);
        let bytes = self.chunk_bytes();
        let stored = StoredColumn { stored, is_nullable, domain, chunks: &self.chunks(&bytes) };
        decode_column(&device.create_stream().unwrap(), &stored, column.data_type())
    }
}

/// The bits of each value as a number; 0 where null.
fn numbers(column: &ArrayRef) -> Vec<i128> {
    let at = |row: usize| -> i128 {
        match column.data_type() {
            DataType::Boolean => column.as_boolean().value(row).into(),
            DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
            DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
            DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
            DataType::UInt32 => column.as_primitive::<arrow::datatypes::UInt32Type>().value(row).into(),
            DataType::Date32 => column.as_primitive::<arrow::datatypes::Date32Type>().value(row).into(),
            DataType::Float32 => column.as_primitive::<arrow::datatypes::Float32Type>().value(row).to_bits().into(),
            DataType::Float64 => column.as_primitive::<arrow::datatypes::Float64Type>().value(row).to_bits().into(),
            DataType::Decimal128(..) => column.as_primitive::<arrow::datatypes::Decimal128Type>().value(row),
            other => panic!("{other}"),
        }
    };
    (0..column.len()).map(|row| if column.is_null(row) { 0 } else { at(row) }).collect()
}

pub fn domain_of(column: &ArrayRef) -> Domain {
    match column.data_type() {
        DataType::Float32 => return Domain::Float32,
        DataType::Float64 => return Domain::Float64,
        DataType::Utf8 | DataType::Binary => return Domain::Bytes,
        _ => {}
    }
    let all = numbers(column);
    let valid = || all.iter().enumerate().filter(|(row, _)| column.is_valid(*row)).map(|(_, value)| *value);
    Domain::Int { min: valid().min().unwrap_or(0), max: valid().max().unwrap_or(0) }
}

/// What is on the device is the column.
pub fn check(decoded: &DecodedColumn, device: &Device, column: &ArrayRef, what: &str) {
    let layout = Layout::of(decoded.domain);
    let (width, rows) = (layout.width_bytes as usize, column.len());
    let stream = device.create_stream().unwrap();
    let mut values = vec![0; rows * width];
    if let Some(buffer) = &decoded.values {
        stream.read(buffer, 0, &mut values).unwrap();
        let mut behind = vec![1; buffer.bytes() as usize - values.len()];
        stream.read(buffer, values.len() as u64, &mut behind).unwrap();
        assert!(behind.iter().all(|byte| *byte == 0), "{what}: bytes behind the rows");
    }
    assert_eq!(decoded.values.is_some(), width > 0 && rows > 0, "{what}");
    assert_eq!(decoded.nulls, column.null_count() as u64, "{what}: nulls");
    let mut bits = vec![0; rows.div_ceil(8)];
    if let Some(validity) = &decoded.validity {
        stream.read(validity, 0, &mut bits).unwrap();
    }
    let is_valid = |row: usize| decoded.validity.is_none() || bits[row / 8] >> (row % 8) & 1 == 1;
    let expected = match &decoded.dictionary {
        Some(dictionary) => codes(column, dictionary, what),
        None => numbers(column),
    };
    for (row, number) in expected.into_iter().enumerate() {
        assert_eq!(is_valid(row), column.is_valid(row), "{what}: row {row}");
        let mut stored = [0; 16];
        stored[..width].copy_from_slice(&values[row * width..(row + 1) * width]);
        let expected = match (column.is_valid(row), width) {
            (false, _) => 0,
            (true, 16) => number,
            (true, _) => number - layout.base,
        };
        assert_eq!(i128::from_le_bytes(stored), expected, "{what}: row {row} of {rows}");
    }
}

/// The codes of strings; every entry of the dictionary is one of them.
fn codes(column: &ArrayRef, dictionary: &Dictionary, what: &str) -> Vec<i128> {
    let strings = arrow::compute::cast(column, &DataType::Binary).unwrap();
    let strings = strings.as_binary::<i32>();
    let known = (0..dictionary.len() as u32).map(|code| (dictionary.bytes(code).unwrap(), i128::from(code)));
    let known: HashMap<&[u8], i128> = known.collect();
    let distinct: HashSet<&[u8]> = strings.iter().flatten().collect();
    assert_eq!((known.len(), distinct.len()), (dictionary.len(), dictionary.len()), "{what}: distinct strings");
    strings.iter().map(|text| text.map_or(0, |text| known[text])).collect()
}

/// A column of some rows whose numbers are below `below`, some of them null.
pub fn column_of(kind: usize, rng: &mut StdRng, rows: usize) -> ArrayRef {
    let below: u64 = [1, 2, 200, 60_000, 1 << 20, u64::MAX][rng.random_range(0..6)];
    let null_share = [0.0, 0.0, 0.1, 0.9, 1.0][rng.random_range(0..5)];
    let run = [1, 1, 40][rng.random_range(0..3)];
    let mut number = 0;
    let numbers: Vec<Option<u64>> = (0..rows)
        .map(|row| {
            if row % run == 0 {
                number = rng.random_range(0..below);
            }
            (!rng.random_bool(null_share)).then_some(number)
        })
        .collect();
    let of = |to: &dyn Fn(u64) -> i64| numbers.iter().map(|n| n.map(to)).collect::<Vec<_>>();
    match kind {
        0 => Arc::new(numbers.iter().map(|n| n.map(|n| n % 2 == 1)).collect::<BooleanArray>()),
        1 => Arc::new(of(&|n| n as i64).into_iter().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        2 => Arc::new(of(&|n| n.wrapping_sub(77) as i64).into_iter().collect::<Int64Array>()),
        3 => Arc::new(numbers.iter().copied().collect::<UInt64Array>()),
        4 => Arc::new(numbers.iter().map(|n| n.map(|n| (n as u32).wrapping_sub(3))).collect::<UInt32Array>()),
        5 => Arc::new(numbers.iter().map(|n| n.map(|n| f32::from_bits(n as u32))).collect::<Float32Array>()),
        6 => Arc::new(numbers.iter().map(|n| n.map(f64::from_bits)).collect::<Float64Array>()),
        7 => Arc::new(numbers.iter().map(|n| n.map(|n| (n % 30_000) as i32)).collect::<Date32Array>()),
        // Of 4, 8 and up to 16 bytes.
        8..=11 => {
            let (precision, most) =
                [(9, 999_999_999), (18, 10_i128.pow(18) - 1), (25, 10_i128.pow(25) - 1), (38, 10_i128.pow(38) - 1)]
                    [kind - 8];
            let scaled =
                |n: u64| i128::from(n).wrapping_mul(i128::from(n)) % most * if n.is_multiple_of(3) { -1 } else { 1 };
            let column: Decimal128Array = numbers.iter().map(|n| n.map(scaled)).collect();
            Arc::new(column.with_precision_and_scale(precision, 2).unwrap())
        }
        // Empty ones, short and long ones among them.
        12 => Arc::new(numbers.iter().map(|n| n.map(text_of)).collect::<StringArray>()),
        // Several runs of bytes in a tile that no page has compressed.
        13 if below == 1 << 20 => Arc::new(numbers.iter().map(|n| n.map(long_run)).collect::<BinaryArray>()),
        13 => Arc::new(
            numbers.iter().map(|n| n.map(|n| n.to_le_bytes()[..n as usize % 9].to_vec())).collect::<BinaryArray>(),
        ),
        _ => panic!("{kind}"),
    }
}
pub const KINDS: usize = 14;

/// Bytes that do not repeat, and then some that do.
fn long_run(number: u64) -> Vec<u8> {
    let mut state = number;
    let mut bytes: Vec<u8> = (0..520 + number % 40)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    bytes.extend(b"the same ".repeat(9));
    bytes
}

fn text_of(number: u64) -> String {
    match number % 7 {
        0 => String::new(),
        1 => format!("{number:x}"),
        2 => format!("{number} {}", "é".repeat(number as usize / 7 % 40)),
        3 if number.is_multiple_of(50) => "long ".repeat(600) + &number.to_string(),
        _ => format!("a string of usual length, number {number}"),
    }
}

/// Columns of some seeds are decoded as they were written.
pub fn check_seeds(device: &Device, seeds: Range<u64>, rows_max: usize) {
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let (form, rows) = (random_form(&mut rng), [1, 65, 3000, 20_000][rng.random_range(0..4)]);
        let rows = rows.min(rows_max);
        let column = column_of(seed as usize % KINDS, &mut rng, rows);
        let file = File::write(&column, form);
        // With statistics and without.
        let domain = rng.random_bool(0.6).then(|| domain_of(&column));
        let what = format!("seed {seed}: {rows} x {} {form:?}, {domain:?}", column.data_type());
        match file.decode(device, &column, domain) {
            Ok(decoded) => {
                if decoded.dictionary.is_none() {
                    assert_eq!(decoded.domain, domain_of(&column), "{what}");
                }
                check(&decoded, device, &column, &what);
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Whatever a byte is changed to, a column is decoded or declined. How many are declined.
pub fn check_damaged(device: &Device, seeds: Range<u64>) -> usize {
    let mut declined = 0;
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(1000 + seed);
        let form = Form { group_rows: 100_000, ..random_form(&mut rng) };
        let column = column_of(seed as usize % KINDS, &mut rng, 300);
        let mut file = File::write(&column, form);
        let (start, length) = file.metadata.row_group(0).column(0).byte_range();
        for _ in 0..10 {
            let at = (start + rng.random_range(0..length)) as usize;
            let before = file.bytes[at];
            file.bytes[at] = rng.random();
            match file.decode(device, &column, (seed % 3 > 0).then(|| domain_of(&column))) {
                Ok(_) => {}
                Err(DecodeError::Declined(_) | DecodeError::NoRoom(_)) => declined += 1,
                Err(DecodeError::Device(error)) => panic!("seed {seed}, byte {at}: {error}"),
            }
            file.bytes[at] = before;
        }
    }
    declined
}

/// Decoded tables are those that a builder makes of the same rows.
pub fn check_tables(session: &Arc<Session>, seeds: Range<u64>) {
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(2000 + seed);
        let form = random_form(&mut rng);
        // Sorted ones and keys among them.
        let rows = [1, 65, 3000][rng.random_range(0..3)];
        let column = match seed % 5 {
            0 => Arc::new(Int64Array::from_iter_values((0..rows).map(|row| (row as i64 * 7919) % rows as i64)))
                as ArrayRef,
            1 => Arc::new(Int32Array::from_iter_values((0..rows).map(|row| row as i32 / (1 + seed as i32 % 3)))),
            // Few repeats, far apart.
            2 => {
                let different = |row: i64| row * 7919 % (2 * rows as i64);
                Arc::new(Int64Array::from_iter_values(
                    (0..rows as i64).map(|row| if row % 500 == 9 { 1 } else { different(row) }),
                ))
            }
            _ => column_of((seed / 5) as usize % KINDS, &mut rng, rows),
        };
        let file = File::write(&column, form);
        let batch =
            RecordBatch::try_from_iter_with_nullable([("c", Arc::clone(&column), column.null_count() > 0)]).unwrap();
        let mut builder = TableBuilder::new(session.device_set(), batch.schema());
        builder.push(&batch).unwrap();
        let built = builder.finish().unwrap();
        let what = format!("seed {seed}: {rows} x {} {form:?}", column.data_type());
        let decoded = file
            .decode_table(session, &batch, (seed % 3 > 0).then(|| domain_of(&column)))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let facts = |table: &Table| {
            let column = &table.column_types()[0];
            let of_floats = matches!(column.domain, Domain::Float32 | Domain::Float64);
            let statistics = table.statistics()[0].clone();
            // The order of floats is not looked for, and neighbors may tell of repeats where bounds are far apart.
            let unique = statistics.unique.filter(|unique| *unique || built.statistics()[0].unique.is_some());
            // Nor that of many strings.
            let has_order = column.dictionary.as_ref().is_none_or(|dictionary| dictionary.is_sorted());
            let sorted = statistics.sorted && !of_floats && has_order;
            let statistics = ColumnStatistics { sorted, unique: unique.filter(|_| !of_floats), ..statistics };
            (
                column.data_type.clone(),
                column.has_nulls,
                column.domain,
                statistics,
                table.rows(),
                table.has_exact_bounds(),
            )
        };
        assert_eq!(facts(&decoded), facts(&built), "{what}");
        let batches = |table: &Table| format!("{:?}", table.download(&[0], 1024).unwrap());
        assert_eq!(batches(&decoded), batches(&built), "{what}");
    }
}
