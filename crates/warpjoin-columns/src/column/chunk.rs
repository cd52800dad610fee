//! A run of encoded rows: what a pushed batch becomes until the column's final layout is known.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::ArrowNativeType;
use bytemuck::Pod;
use rayon::prelude::*;

use super::bits;
use super::order::Ordered;
use super::transcode::{Words, add_and_resize};
use super::types::{Domain, Layout};

/// Rows of one column, narrowed by their own bounds.
#[derive(Debug)]
pub(crate) struct Chunk {
    rows: usize,
    layout: Layout,
    /// Rows x width; 0 in the slots of null rows.
    values: Vec<u8>,
    /// A bit a row, set where the row is valid; `None` without nulls.
    validity: Option<Vec<u8>>,
}

/// The number types that Arrow keeps values in.
pub(crate) trait Number: ArrowNativeType + Pod + Ordered {
    /// Smallest and largest valid value; `None` without one, and for floats.
    fn bounds(values: &[Self], validity: Option<&[u8]>) -> Option<(i128, i128)>;

    /// Domain of a column with these bounds.
    fn domain(bounds: Option<(i128, i128)>) -> Domain;
}

macro_rules! int {
    ($($int:ty),*) => {$(
        impl Number for $int {
            fn bounds(values: &[Self], validity: Option<&[u8]>) -> Option<(i128, i128)> {
                let widest = (<$int>::MAX, <$int>::MIN);
                let widen = |(min, max): ($int, $int), value: $int| (min.min(value), max.max(value));
                let (min, max) = match validity {
                    None => values.iter().copied().fold(widest, widen),
                    Some(bitmap) => values.chunks(8).zip(bitmap).fold(widest, |bounds, (values, bits)| match bits {
                        0xff => values.iter().copied().fold(bounds, widen),
                        _ => values.iter().enumerate().fold(bounds, |(min, max), (bit, &value)| {
                            let valid = bits >> bit & 1 == 1;
                            let (low, high) = if valid { (value, value) } else { widest };
                            (min.min(low), max.max(high))
                        }),
                    }),
                };
                (min <= max).then_some((min as i128, max as i128))
            }

            fn domain(bounds: Option<(i128, i128)>) -> Domain {
                let (min, max) = bounds.unwrap_or((0, 0));
                Domain::Int { min, max }
            }
        }
    )*};
}
int!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

impl Number for f32 {
    fn bounds(_: &[Self], _: Option<&[u8]>) -> Option<(i128, i128)> {
        None
    }

    fn domain(_: Option<(i128, i128)>) -> Domain {
        Domain::Float32
    }
}

impl Number for f64 {
    fn bounds(_: &[Self], _: Option<&[u8]>) -> Option<(i128, i128)> {
        None
    }

    fn domain(_: Option<(i128, i128)>) -> Domain {
        Domain::Float64
    }
}

impl Chunk {
    /// Narrows `values` to `domain`, which must hold every valid one.
    pub(crate) fn new<T: Number>(values: &[T], validity: Option<Vec<u8>>, domain: Domain) -> Self {
        let layout = Layout::of(domain);
        let mut narrowed = vec![0; values.len() * layout.width_bytes as usize];
        let source = Words { bytes: bytemuck::must_cast_slice(values), width_bytes: size_of::<T>() as u32 };
        add_and_resize(source, -layout.base, &mut narrowed, layout.width_bytes);
        let chunk = Self { rows: values.len(), layout, values: narrowed, validity };
        chunk.with_nulls_zeroed()
    }

    fn with_nulls_zeroed(mut self) -> Self {
        if let Some(validity) = &self.validity {
            zero_nulls(&mut self.values, self.layout.width_bytes, validity, self.rows);
        }
        self
    }

    /// Writes the rows in the column's layout, which must hold all of them. 0 where null.
    fn place(&self, layout: Layout, target: &mut [u8]) {
        let delta = self.layout.base - layout.base;
        let source = Words { bytes: &self.values, width_bytes: self.layout.width_bytes };
        add_and_resize(source, delta, target, layout.width_bytes);
        if let Some(validity) = self.validity.as_ref().filter(|_| delta != 0) {
            zero_nulls(target, layout.width_bytes, validity, self.rows);
        }
    }

    /// Replaces every code by its entry of `codes`; null rows keep 0.
    fn remap(self, codes: &[u32]) -> Self {
        let mut old = vec![0; self.rows * size_of::<u32>()];
        let source = Words { bytes: &self.values, width_bytes: self.layout.width_bytes };
        add_and_resize(source, self.layout.base, &mut old, size_of::<u32>() as u32);
        let old = old.as_chunks::<4>().0.iter().map(|code| u32::from_le_bytes(*code) as usize);
        let new: Vec<u32> = match &self.validity {
            None => old.map(|code| codes[code]).collect(),
            Some(validity) => {
                old.enumerate().map(|(row, code)| if bits::is_set(validity, row) { codes[code] } else { 0 }).collect()
            }
        };
        let domain = u32::domain(u32::bounds(&new, self.validity.as_deref()));
        Self::new(&new, self.validity, domain)
    }
}

fn zero_nulls(values: &mut [u8], width_bytes: u32, validity: &[u8], rows: usize) {
    let width = width_bytes as usize;
    if width > 0 {
        bits::for_each_unset(validity, rows, |row| values[row * width..(row + 1) * width].fill(0));
    }
}

/// Values that integers span for each row, up to which it is found out whether they are different.
pub const DISTINCT_SPAN_MAX: i128 = 8;

/// Whether all integers of these bounds, none of them null, are different: a bit for each number between the bounds.
/// `None` where these are too many. Most columns that are no key end it early.
pub(crate) fn are_distinct(chunks: &[Chunk], (min, max): (i128, i128)) -> Option<bool> {
    let rows: usize = chunks.iter().map(|chunk| chunk.rows).sum();
    let span = max.checked_sub(min)?.checked_add(1)?;
    if span > DISTINCT_SPAN_MAX * rows as i128 {
        return None;
    }
    if span < rows as i128 {
        return Some(false);
    }
    let mut seen = Vec::new();
    seen.resize_with((span as usize).div_ceil(64), || AtomicU64::new(0));
    let is_new = |offset: usize| {
        let bit = 1 << (offset % 64);
        seen[offset / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    };
    Some(chunks.par_iter().all(|chunk| {
        let width = chunk.layout.width_bytes as usize;
        let first = chunk.layout.base.wrapping_sub(min) as usize;
        match width {
            // All rows of the chunk have one value.
            0 => (0..chunk.rows).all(|_| is_new(first)),
            // A chunk that keeps values as they are has no base to count from.
            16 => chunk.values.chunks_exact(16).all(|bytes| {
                let value = i128::from_le_bytes(bytes.try_into().unwrap_or_default());
                is_new(value.wrapping_sub(min) as usize)
            }),
            _ => chunk.values.chunks_exact(width).all(|bytes| {
                let mut word = [0; 8];
                word[..width].copy_from_slice(bytes);
                is_new(first + u64::from_le_bytes(word) as usize)
            }),
        }
    }))
}

/// Values (rows x width) and validity of a whole column.
pub(crate) struct Joined {
    pub rows: usize,
    pub values: Vec<u8>,
    pub validity: Option<Vec<u8>>,
}

/// Brings chunks to the column's layout, in parallel, dropping them as it goes.
pub(crate) fn join(chunks: Vec<Chunk>, layout: Layout) -> Joined {
    let codes = chunks.iter().map(|_| None).collect();
    join_codes(chunks, codes, layout)
}

/// The same of the chunks of a dictionary column: each with the final codes by those that it has, where they differ.
pub(crate) fn join_codes(chunks: Vec<Chunk>, codes: Vec<Option<&[u32]>>, layout: Layout) -> Joined {
    let rows = chunks.iter().map(|chunk| chunk.rows).sum();
    let has_nulls = chunks.iter().any(|chunk| chunk.validity.is_some());
    let validity =
        has_nulls.then(|| bits::join(chunks.iter().map(|chunk| (chunk.validity.as_deref(), chunk.rows)), rows));
    let width = layout.width_bytes as usize;
    let mut values = vec![0u8; rows * width];
    if width > 0 {
        let mut rest = values.as_mut_slice();
        let mut targets = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            let (target, after) = rest.split_at_mut(chunk.rows * width);
            targets.push(target);
            rest = after;
        }
        chunks.into_par_iter().zip(codes).zip(targets).for_each(|((chunk, codes), target)| {
            let chunk = match codes {
                Some(codes) => chunk.remap(codes),
                None => chunk,
            };
            chunk.place(layout, target);
        });
    }
    Joined { rows, values, validity }
}
