//! From encoded columns, and results of queries, back to Arrow arrays.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, DictionaryArray, LargeStringArray,
    NullArray, PrimitiveArray, StringArray, StringViewArray, UInt32Array, make_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};

use super::dictionary::Dictionary;
use super::transcode::{Words, add_and_resize};
use super::types::{ColumnType, Domain, Physical};
use crate::{Error, Reason, Result};

/// Which rows are valid.
#[derive(Debug, Clone, Copy)]
pub enum Validity<'a> {
    /// A bit a row, least significant first, set where valid.
    Bits(&'a [u8]),
    /// A byte a row, 0 where null.
    Bytes(&'a [u8]),
}

/// Encoded rows of a column, as they came from a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedRows<'a> {
    /// Rows x width; for raw strings the bytes.
    pub values: &'a [u8],
    /// Raw strings: rows + 1 u64.
    pub offsets: Option<&'a [u8]>,
    /// `None`: no nulls.
    pub validity: Option<Validity<'a>>,
}

/// Turns `rows` encoded rows into an array (rows x 1) of the declared type. The exact inverse of
/// encoding; layouts wider than the data ask for are fine. What lies in the slots of null rows
/// does not matter.
///
/// # Errors
/// When buffers are too short, a code is not in the dictionary, bytes are no UTF-8, or the result
/// does not fit the declared type (2 GiB of Utf8, too many dictionary values for its keys).
pub fn decode(
    column_type: &ColumnType,
    rows: usize,
    values: &[u8],
    offsets: Option<&[u8]>,
    validity: Option<Validity<'_>>,
) -> Result<ArrayRef> {
    decode_rows(column_type, 0, rows, EncodedRows { values, offsets, validity })
}

/// As [`decode`], for `rows` rows of `encoded` from row `first` on.
pub(crate) fn decode_rows(
    column_type: &ColumnType,
    first: usize,
    rows: usize,
    encoded: EncodedRows<'_>,
) -> Result<ArrayRef> {
    let nulls = decode_validity(encoded.validity, first, rows)?;
    let data_type = &column_type.data_type;
    if *data_type == DataType::Null {
        return Ok(Arc::new(NullArray::new(rows)));
    }
    if column_type.domain == Domain::Bytes {
        return decode_raw(data_type, first, rows, encoded, nulls);
    }
    let layout = column_type.layout();
    let width = layout.width_bytes as usize;
    let source = Words { bytes: slice(encoded.values, first * width, rows * width)?, width_bytes: layout.width_bytes };
    if let Some(dictionary) = &column_type.dictionary {
        let codes = checked_codes(source, layout.base, rows, dictionary.len(), nulls.as_ref())?;
        return decode_codes(data_type, dictionary, codes, nulls);
    }
    if *data_type == DataType::Boolean {
        return Ok(Arc::new(BooleanArray::new(decode_booleans(source, layout.base, rows), nulls)));
    }
    let physical = Physical::of(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let target_width = physical.width_bytes();
    // Aligned for every native type, unlike a vector of bytes.
    let target = if target_width == 16 {
        let mut target = vec![0i128; rows];
        add_and_resize(source, layout.base, bytemuck::must_cast_slice_mut(&mut target), target_width);
        Buffer::from_vec(target)
    } else {
        let mut target = vec![0u64; (rows * target_width as usize).div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::must_cast_slice_mut(&mut target);
        add_and_resize(source, layout.base, &mut bytes[..rows * target_width as usize], target_width);
        Buffer::from_vec(target).slice_with_length(0, rows * target_width as usize)
    };
    let data = ArrayData::builder(data_type.clone()).len(rows).add_buffer(target).nulls(nulls).build()?;
    Ok(make_array(data))
}

/// An array (n x 1) of a type that is stored as an integer, without nulls.
pub fn integers(data_type: &DataType, values: &[i128]) -> Result<ArrayRef> {
    let domain = Domain::Int { min: i128::MIN, max: i128::MAX };
    let column_type = ColumnType { data_type: data_type.clone(), has_nulls: false, domain, dictionary: None };
    decode(&column_type, values.len(), bytemuck::must_cast_slice(values), None, None)
}

/// The values (n x 1), and null as one more.
pub fn with_null(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(concat(&[values, &new_null_array(values.data_type(), 1)])?)
}

fn slice(bytes: &[u8], start: usize, len: usize) -> Result<&[u8]> {
    bytes.get(start..start + len).ok_or_else(|| {
        Error::InvalidArgument(format!("a column buffer of {} bytes, but {} are asked for", bytes.len(), start + len))
    })
}

fn decode_validity(validity: Option<Validity<'_>>, first: usize, rows: usize) -> Result<Option<NullBuffer>> {
    let bits = match validity {
        None => return Ok(None),
        Some(Validity::Bits(bits)) => {
            let bits = slice(bits, first / 8, (first % 8 + rows).div_ceil(8))?;
            BooleanBuffer::new(Buffer::from(bits), first % 8, rows)
        }
        Some(Validity::Bytes(bytes)) => {
            let bytes = slice(bytes, first, rows)?;
            BooleanBuffer::collect_bool(rows, |row| bytes[row] != 0)
        }
    };
    Ok(Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0))
}

fn decode_booleans(source: Words<'_>, base: i128, rows: usize) -> BooleanBuffer {
    if source.width_bytes == 1 && base == 0 {
        return BooleanBuffer::collect_bool(rows, |row| source.bytes[row] != 0);
    }
    let mut bytes = vec![0u8; rows];
    add_and_resize(source, base, &mut bytes, 1);
    BooleanBuffer::collect_bool(rows, |row| bytes[row] != 0)
}

/// Codes that are all in the dictionary: 0 where null.
fn checked_codes(
    source: Words<'_>,
    base: i128,
    rows: usize,
    dictionary_len: usize,
    nulls: Option<&NullBuffer>,
) -> Result<Vec<u32>> {
    let mut codes = vec![0u32; rows];
    add_and_resize(source, base, bytemuck::must_cast_slice_mut(&mut codes), size_of::<u32>() as u32);
    let in_dictionary = |code: u32| (code as usize) < dictionary_len;
    if codes.iter().fold(0, |max, code| max.max(*code)) as usize >= dictionary_len {
        for (row, code) in codes.iter_mut().enumerate().filter(|(_, code)| !in_dictionary(**code)) {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                return Err(Error::internal(format!("code {code} in a dictionary of {dictionary_len} values")));
            }
            *code = 0;
        }
    }
    Ok(codes)
}

fn decode_codes(
    data_type: &DataType,
    dictionary: &Dictionary,
    codes: Vec<u32>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    if let DataType::Dictionary(key_type, _) = data_type {
        return decode_keys(key_type, dictionary.values(), codes, nulls);
    }
    let offsets = match data_type {
        DataType::Utf8 => dictionary.values().as_string::<i32>().value_offsets(),
        DataType::Binary => dictionary.values().as_binary::<i32>().value_offsets(),
        _ => &[],
    };
    let bytes_of = |code: u32| (offsets[code as usize + 1] - offsets[code as usize]) as u64;
    if offsets.len() > 1 && codes.iter().map(|code| bytes_of(*code)).sum::<u64>() > i32::MAX as u64 {
        let what = format!("more than 2 GiB of strings in a {data_type} array; ask for smaller batches");
        return Err(Reason::Limit(what).into());
    }
    dictionary.take(&UInt32Array::new(ScalarBuffer::from(codes), nulls))
}

/// An array of a dictionary type. Values that no row refers to are left out only where the key
/// type could not number them all.
fn decode_keys(
    key_type: &DataType,
    values: &ArrayRef,
    mut codes: Vec<u32>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let mut values = values.clone();
    let keys_max = match key_type {
        DataType::Int8 => i8::MAX as u64,
        DataType::UInt8 => u8::MAX.into(),
        DataType::Int16 => i16::MAX as u64,
        DataType::UInt16 => u16::MAX.into(),
        DataType::Int32 => i32::MAX as u64,
        _ => u32::MAX.into(),
    };
    if values.len() as u64 > keys_max + 1 {
        let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let valid = codes.iter().enumerate().filter(|(row, _)| !is_null(*row));
        let mut used: Vec<u32> = valid.map(|(_, code)| *code).collect();
        used.sort_unstable();
        used.dedup();
        if used.len() as u64 > keys_max + 1 {
            return Err(Reason::Limit(format!("{} dictionary values for keys of type {key_type}", used.len())).into());
        }
        for (row, code) in codes.iter_mut().enumerate() {
            *code = if is_null(row) { 0 } else { used.partition_point(|known| *known < *code) as u32 };
        }
        values = take(&values, &UInt32Array::from(used), None)?;
    }
    match key_type {
        DataType::Int8 => dictionary_array::<Int8Type>(codes, nulls, values),
        DataType::Int16 => dictionary_array::<Int16Type>(codes, nulls, values),
        DataType::Int32 => dictionary_array::<Int32Type>(codes, nulls, values),
        DataType::Int64 => dictionary_array::<Int64Type>(codes, nulls, values),
        DataType::UInt8 => dictionary_array::<UInt8Type>(codes, nulls, values),
        DataType::UInt16 => dictionary_array::<UInt16Type>(codes, nulls, values),
        DataType::UInt32 => dictionary_array::<UInt32Type>(codes, nulls, values),
        DataType::UInt64 => dictionary_array::<UInt64Type>(codes, nulls, values),
        other => Err(Reason::Type(other.clone()).into()),
    }
}

fn dictionary_array<K: ArrowDictionaryKeyType>(
    codes: Vec<u32>,
    nulls: Option<NullBuffer>,
    values: ArrayRef,
) -> Result<ArrayRef> {
    let keys: ScalarBuffer<<K as ArrowPrimitiveType>::Native> =
        codes.into_iter().map(|code| <K as ArrowPrimitiveType>::Native::usize_as(code as usize)).collect();
    Ok(Arc::new(DictionaryArray::<K>::try_new(PrimitiveArray::new(keys, nulls), values)?))
}

fn decode_raw(
    data_type: &DataType,
    first: usize,
    rows: usize,
    encoded: EncodedRows<'_>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    const OFFSET_BYTES: usize = size_of::<u64>();
    let offsets = encoded.offsets.ok_or_else(|| Error::InvalidArgument("raw strings without offsets".into()))?;
    let offsets = slice(offsets, first * OFFSET_BYTES, (rows + 1) * OFFSET_BYTES)?;
    let offsets = offsets.as_chunks::<OFFSET_BYTES>().0.iter().map(|raw| u64::from_le_bytes(*raw));
    let (mut start, mut end, mut ascending) = (None, 0, true);
    for offset in offsets.clone() {
        start.get_or_insert(offset);
        ascending &= offset >= end;
        end = offset;
    }
    let start = start.unwrap_or(0);
    if !ascending {
        return Err(Error::InvalidArgument("offsets of raw strings descend".into()));
    }
    let bytes = Buffer::from(slice(encoded.values, start as usize, (end - start) as usize)?);
    if *data_type == DataType::Utf8 {
        if i32::try_from(end - start).is_err() {
            let what = format!("{} bytes of strings in a Utf8 array; ask for smaller batches", end - start);
            return Err(Reason::Limit(what).into());
        }
        let offsets: Vec<i32> = offsets.map(|offset| (offset - start) as i32).collect();
        return Ok(Arc::new(StringArray::try_new(OffsetBuffer::new(offsets.into()), bytes, nulls)?));
    }
    let offsets: Vec<i64> = offsets.map(|offset| (offset - start) as i64).collect();
    let large = LargeStringArray::try_new(OffsetBuffer::new(offsets.into()), bytes, nulls)?;
    Ok(match data_type {
        DataType::Utf8View => Arc::new(StringViewArray::from(&large)),
        DataType::LargeUtf8 => Arc::new(large),
        other => return Err(Reason::Type(other.clone()).into()),
    })
}
