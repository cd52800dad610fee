//! How fast a GPU decodes the columns of a Parquet file: `decode_parquet FILE [RUNS]`.
//!
//! Prints for each column that kernels can decode its bytes in the file, the median time of its kernels over some runs, and
//! both as a rate; for the others why not. The file is in memory, and goes to the GPU in each run.
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

use std::fs::File;

use arrow::datatypes::DataType;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{Compression as Codec, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use warpjoin::column::Domain;
use warpjoin::parquet::{ColumnChunk, Compression, DecodeError, Stored, StoredColumn, decode_column};
use warpjoin_device::{CudaOptions, SimOptions, open_simulated, open_usable_cuda};

/// Smallest and largest value by the statistics of all row groups.
fn bounds(metadata: &ParquetMetaData, column: usize) -> Option<(i128, i128)> {
    let of = |statistics: &Statistics| match statistics {
        Statistics::Boolean(_) => Some((0, 1)),
        Statistics::Int32(values) => Some(((*values.min_opt()?).into(), (*values.max_opt()?).into())),
        Statistics::Int64(values) => Some(((*values.min_opt()?).into(), (*values.max_opt()?).into())),
        Statistics::FixedLenByteArray(values) => {
            let number =
                |bytes: &[u8]| bytes.iter().fold(if bytes[0] > 127 { -1 } else { 0 }, |n, b| n << 8 | i128::from(*b));
            Some((number(values.min_opt()?.data()), number(values.max_opt()?.data())))
        }
        _ => None,
    };
    let groups = metadata.row_groups().iter().map(|group| of(group.column(column).statistics()?));
    groups.reduce(|a, b| Some((a?.0.min(b?.0), a?.1.max(b?.1)))).flatten()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a file");
    let runs: usize = arguments.next().map_or(5, |runs| runs.parse().expect("a number of runs"));
    let bytes = std::fs::read(&path).unwrap();
    let metadata = SerializedFileReader::new(File::open(&path).unwrap()).unwrap().metadata().clone();
    let descriptor = metadata.file_metadata().schema_descr();
    let schema = parquet_to_arrow_schema(descriptor, None).unwrap();
    let device = match open_usable_cuda(&CudaOptions { devices: Some(1), ..CudaOptions::default() }) {
        Ok(mut opened) if !opened.devices.is_empty() => opened.devices.swap_remove(0),
        _ => open_simulated(&SimOptions::default()).unwrap().swap_remove(0),
    };
    println!("{path} on {}", device.label());
    let (mut all_bytes, mut all_ms) = (0.0, 0.0);
    for (index, field) in schema.fields().iter().enumerate() {
        let column = descriptor.column(index);
        let signed = !matches!(field.data_type(), DataType::UInt32 | DataType::UInt64);
        let stored = match column.physical_type() {
            Type::BOOLEAN => Stored::Bits,
            Type::INT32 => Stored::Int32 { signed },
            Type::INT64 => Stored::Int64 { signed },
            Type::FLOAT => Stored::Float,
            Type::DOUBLE => Stored::Double,
            Type::BYTE_ARRAY => Stored::Strings,
            Type::FIXED_LEN_BYTE_ARRAY => Stored::Fixed { bytes: column.type_length() as u32 },
            other => {
                println!("{:20} {other}", field.name());
                continue;
            }
        };
        let domain = match stored {
            Stored::Float => Some(Domain::Float32),
            Stored::Double => Some(Domain::Float64),
            _ => bounds(&metadata, index).map(|(min, max)| Domain::Int { min, max }),
        };
        let ranges = metadata.row_groups().iter().map(|group| group.column(index).byte_range());
        let chunk_bytes: Vec<Vec<u8>> =
            ranges.map(|(start, length)| bytes[start as usize..(start + length) as usize].to_vec()).collect();
        let groups = metadata.row_groups().iter().zip(&chunk_bytes).map(|(group, bytes)| {
            let compression = match group.column(index).compression() {
                Codec::UNCOMPRESSED => Some(Compression::None),
                Codec::SNAPPY => Some(Compression::Snappy),
                _ => None,
            };
            Some(ColumnChunk { bytes, compression: compression?, rows: group.num_rows() as u64 })
        });
        let Some(chunks) = groups.collect::<Option<Vec<_>>>() else {
            println!("{:20} another compression", field.name());
            continue;
        };
        let column = StoredColumn { stored, is_nullable: field.is_nullable(), domain, chunks: &chunks };
        let stream = device.create_stream().unwrap();
        let decoded = (0..runs.max(1)).map(|_| {
            let data_type = if stored == Stored::Strings { &DataType::BinaryView } else { field.data_type() };
            decode_column(&stream, &column, data_type).map(|decoded| decoded.kernel_ns)
        });
        match decoded.collect::<Result<Vec<u64>, DecodeError>>() {
            Err(why) => println!("{:20} {why}", field.name()),
            Ok(mut ns) => {
                ns.sort_unstable();
                let ms = ns[ns.len() / 2] as f64 / 1e6;
                let compressed: usize = chunk_bytes.iter().map(Vec::len).sum();
                let rows: u64 = chunks.iter().map(|chunk| chunk.rows).sum();
                println!(
                    "{:20} {:8.1} MB {ms:8.3} ms {:7.1} GB/s in the file {:7.2} G values/s",
                    field.name(),
                    compressed as f64 / 1e6,
                    compressed as f64 / 1e6 / ms,
                    rows as f64 / 1e6 / ms,
                );
                (all_bytes, all_ms) = (all_bytes + compressed as f64, all_ms + ms);
            }
        }
    }
    println!(
        "{:20} {:8.1} MB {all_ms:8.3} ms {:7.1} GB/s in the file",
        "together",
        all_bytes / 1e6,
        all_bytes / 1e6 / all_ms
    );
}
