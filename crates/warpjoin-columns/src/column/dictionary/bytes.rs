//! The bytes of rows of arrays of the string types.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type,
};

use super::interner::StringRows;

/// The bytes of a row of an array of a string type; `None` for other types.
pub(crate) fn bytes_at(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().bytes(row),
        DataType::LargeUtf8 => array.as_string::<i64>().bytes(row),
        DataType::Utf8View => array.as_string_view().bytes(row),
        DataType::Binary => array.as_binary::<i32>().bytes(row),
        DataType::LargeBinary => array.as_binary::<i64>().bytes(row),
        DataType::BinaryView => array.as_binary_view().bytes(row),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().bytes(row),
        _ => return None,
    })
}

/// The bytes of some rows of an array of a string type, one behind the other; `None` where they do not lie so.
pub(in crate::column) fn adjacent_bytes(array: &ArrayRef, rows: Range<usize>) -> Option<&[u8]> {
    fn between<T: ByteArrayType>(array: &ArrayRef, rows: Range<usize>) -> Option<&[u8]> {
        let array = array.as_bytes::<T>();
        let offset = |row: usize| array.value_offsets().get(row)?.to_usize();
        array.value_data().get(offset(rows.start)?..offset(rows.end)?)
    }
    // Rows that are null may have bytes, which nobody visits.
    if array.null_count() > 0 {
        return None;
    }
    match array.data_type() {
        DataType::Utf8 => between::<Utf8Type>(array, rows),
        DataType::LargeUtf8 => between::<LargeUtf8Type>(array, rows),
        DataType::Binary => between::<BinaryType>(array, rows),
        DataType::LargeBinary => between::<LargeBinaryType>(array, rows),
        _ => None,
    }
}

/// Visits the bytes of some rows of an array of a string type, each with its place among them.
pub(in crate::column) fn visit_bytes(
    array: &ArrayRef,
    rows: Range<usize>,
    visit: &mut impl FnMut(usize, &[u8]) -> Option<()>,
) -> Option<()> {
    let first = rows.start;
    match array.data_type() {
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            rows.into_iter().try_for_each(|row| visit(row - first, array.value(row)))
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            rows.into_iter().try_for_each(|row| visit(row - first, array.value(row).as_bytes()))
        }
        _ => rows.into_iter().try_for_each(|row| visit(row - first, bytes_at(array, row)?)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray, StringArray};

    use super::*;

    #[test]
    fn adjacent_bytes_are_those_of_the_rows() {
        let texts = ["", "one", "two", "", "three"];
        let arrays: [ArrayRef; 2] = [
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(LargeBinaryArray::from_iter_values(texts.iter().map(|text| text.as_bytes()))),
        ];
        // A slice begins within its buffer.
        for array in arrays.iter().map(|array| array.slice(1, 4)) {
            for (first, end) in [(0, 4), (1, 3), (2, 2), (4, 4)] {
                let expected: Vec<u8> = (first..end).flat_map(|row| bytes_at(&array, row).unwrap()).copied().collect();
                assert_eq!(adjacent_bytes(&array, first..end).unwrap(), expected, "{first}..{end}");
            }
            assert_eq!(adjacent_bytes(&array, 0..5), None);
        }
        let others: [ArrayRef; 3] = [
            Arc::new(BinaryViewArray::from_iter_values(["one"])),
            Arc::new(FixedSizeBinaryArray::try_from_iter(["one"].iter()).unwrap()),
            Arc::new(StringArray::from(vec![Some("one"), None])),
        ];
        assert!(others.iter().all(|array| adjacent_bytes(array, 0..1).is_none()));
    }
}
