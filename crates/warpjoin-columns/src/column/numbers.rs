//! Encodings of primitive types and booleans.

use std::marker::PhantomData;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::chunk::{self, Chunk, Number};
use super::encode::{ColumnStatistics, EncodedColumn, Encoding, Sealed, validity_of};
use super::order::Order;
use super::types::{ColumnType, Layout};
use crate::{Reason, Result};

/// Columns of a primitive type.
pub(super) struct Numbers<T>(PhantomData<T>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Booleans as 0 and 1, and columns of type Null.
pub(super) struct Bits;

/// Rows, narrowed array by array.
pub(super) struct NumberRun<T> {
    chunks: Vec<Chunk>,
    /// Smallest and largest valid value.
    bounds: Option<(i128, i128)>,
    order: Order<T>,
    null_count: u64,
}

impl<T: Number> NumberRun<T> {
    fn new() -> Self {
        Self { chunks: vec![], bounds: None, order: Order::default(), null_count: 0 }
    }

    fn push(&mut self, values: &[T], validity: Option<(Vec<u8>, u64)>) {
        let validity = validity.map(|(bitmap, nulls)| {
            self.null_count += nulls;
            self.order.break_off();
            bitmap
        });
        self.order.offer(values);
        let bounds = T::bounds(values, validity.as_deref());
        self.chunks.push(Chunk::new(values, validity, T::domain(bounds)));
        self.widen(bounds);
    }

    fn widen(&mut self, bounds: Option<(i128, i128)>) {
        self.bounds = match (self.bounds, bounds) {
            (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
            (known, new) => known.or(new),
        };
    }

    /// All rows of several runs.
    fn joined(runs: Vec<Self>) -> Self {
        let mut all = Self::new();
        for Self { chunks, bounds, order, null_count } in runs {
            all.chunks.extend(chunks);
            all.widen(bounds);
            all.order.append(&order);
            all.null_count += null_count;
        }
        all
    }

    /// `None`: it is not known whether a value occurs twice, or is null.
    fn is_unique(&self) -> Option<bool> {
        match self.bounds {
            _ if self.order.strict => Some(true),
            Some(_) if self.null_count == 0 && self.order.sorted => Some(false),
            Some(bounds) if self.null_count == 0 => chunk::are_distinct(&self.chunks, bounds),
            _ => None,
        }
    }

    fn row_bytes(&self) -> u64 {
        Layout::of(T::domain(self.bounds)).width_bytes.into()
    }

    fn finish(self, data_type: DataType, distinct: Option<u64>, unique: Option<bool>) -> EncodedColumn {
        let domain = T::domain(self.bounds);
        let joined = chunk::join(self.chunks, Layout::of(domain));
        EncodedColumn {
            column_type: ColumnType { data_type, has_nulls: joined.validity.is_some(), domain, dictionary: None },
            rows: joined.rows,
            values: joined.values,
            offsets: None,
            validity: joined.validity,
            statistics: ColumnStatistics { null_count: self.null_count, distinct, sorted: self.order.sorted, unique },
        }
    }
}

impl<T: Number> Encoding for Numbers<T> {
    type Run = NumberRun<T>;

    fn encode(&self, arrays: &[&ArrayRef]) -> Result<NumberRun<T>> {
        let mut run = NumberRun::new();
        for array in arrays {
            let data = array.to_data();
            if data.data_type().primitive_width() != Some(size_of::<T>()) {
                return Err(Reason::Type(data.data_type().clone()).into());
            }
            run.push(&data.buffer::<T>(0)[..array.len()], validity_of(array));
        }
        Ok(run)
    }

    fn seal(&self, runs: Vec<NumberRun<T>>, data_type: DataType) -> Result<Sealed> {
        let all = NumberRun::joined(runs);
        let unique = all.is_unique();
        let row_bytes = all.row_bytes();
        Ok(Sealed { row_bytes, finish: Box::new(move || Ok(all.finish(data_type, None, unique))) })
    }
}

impl Encoding for Bits {
    type Run = NumberRun<u8>;

    fn encode(&self, arrays: &[&ArrayRef]) -> Result<NumberRun<u8>> {
        let mut run = NumberRun::new();
        for array in arrays {
            let values: Vec<u8> = match array.as_boolean_opt() {
                Some(booleans) => booleans.values().iter().map(u8::from).collect(),
                None => vec![0; array.len()],
            };
            run.push(&values, validity_of(array));
        }
        Ok(run)
    }

    fn seal(&self, runs: Vec<NumberRun<u8>>, data_type: DataType) -> Result<Sealed> {
        let all = NumberRun::joined(runs);
        let distinct = all.bounds.map_or(0, |(min, max)| (max - min) as u64 + 1);
        let unique = all.order.strict.then_some(true);
        let row_bytes = all.row_bytes();
        Ok(Sealed { row_bytes, finish: Box::new(move || Ok(all.finish(data_type, Some(distinct), unique))) })
    }
}
