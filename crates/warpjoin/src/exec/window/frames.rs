//! Frames of windows whose length in rows is not fixed: RANGE bounds by distances of keys (`window_frames.cu`), and
//! trees that fold frames of any length.

use arrow::datatypes::{DataType, TimeUnit};
use warpjoin_codegen::{Range, range_of_type};
use warpjoin_columns::column::{ColumnType, Domain};
use warpjoin_columns::{Reason, Result};
use warpjoin_device::{Buffer, Ptr};
use warpjoin_kernels::window::{WINDOW_FANOUT, WindowRangeParams, WindowTreeParams, window_kind as kind};
use warpjoin_plan::plan::SortKey;
use warpjoin_plan::window::{Distance, Frame, FrameBound};

use super::fold::ScanOp;
use super::kernels::{Bounds, FrameOf, Values, WindowLaunches};

/// Maximum distance: added to a value of at most 2^126, it does not overflow 128 bits.
const UNITS_MAX: i128 = 10i128.pow(38);
/// First and last day of the calendar supported for keys: -262143-01-01 and 262142-12-31.
const CALENDAR_DAYS: (i128, i128) = (-96_465_292, 95_026_236);

/// The key of an order with RANGE bounds.
#[derive(Debug, Clone)]
pub(super) struct RangeKey {
    pub nulls_first: bool,
    pub descending: bool,
    /// Bounds of valid keys.
    limits: Range,
    is_unsigned: bool,
}

/// Bounds of the keys of a type that has distances; `None`: the type has none.
fn limits_of(data_type: &DataType) -> Option<Range> {
    let of_calendar = |a_day: i128| {
        let (least, most) = CALENDAR_DAYS;
        Range::new(least * a_day, (most + 1) * a_day - 1)
    };
    match data_type {
        DataType::Date32 => Some(of_calendar(1)),
        DataType::Timestamp(TimeUnit::Second, _) => Some(of_calendar(86_400)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Some(of_calendar(86_400_000)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Some(of_calendar(86_400_000_000)),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => range_of_type(data_type),
        data_type if data_type.is_integer() || data_type.is_decimal() => range_of_type(data_type),
        data_type if data_type.is_floating() => Some(Range::new(0, 0)),
        _ => None,
    }
}

/// Checks that devices support the RANGE bounds of a frame over rows of this order.
///
/// # Errors
/// The reason why not.
pub(in crate::exec) fn check_frame(frame: Frame, order_by: &[SortKey]) -> Result<(), Reason> {
    [frame.start, frame.end].into_iter().try_for_each(|bound| check_bound(bound, order_by))
}

/// Whether one of the bounds of a frame is a RANGE bound.
pub(super) fn is_range(frame: Frame) -> bool {
    frame.start.is_range() || frame.end.is_range()
}

fn check_bound(bound: FrameBound, order_by: &[SortKey]) -> Result<(), Reason> {
    let FrameBound::Range { distance, .. } = bound else { return Ok(()) };
    let [key] = order_by else {
        return Err(Reason::Aggregate(format!("over a RANGE frame with {} order keys", order_by.len())));
    };
    let data_type = &key.expr.data_type;
    let fits = limits_of(data_type).is_some()
        && match distance {
            Distance::Units(units) => !data_type.is_floating() && (0..=UNITS_MAX).contains(&units),
            Distance::Months(months, days) => {
                *data_type == DataType::Date32 && months <= i32::MAX as u32 && days <= i32::MAX as u32
            }
            Distance::Double(bits) => {
                let value = f64::from_bits(bits);
                let is_of_type = *data_type == DataType::Float64 || f64::from(value as f32) == value;
                // A half is stored as no float of devices.
                *data_type != DataType::Float16
                    && data_type.is_floating()
                    && is_of_type
                    && value.is_finite()
                    && value >= 0.0
            }
        };
    if fits { Ok(()) } else { Err(Reason::Aggregate(format!("over a RANGE frame of {data_type}"))) }
}

impl RangeKey {
    /// The range key for keys that are stored as `column`.
    ///
    /// # Errors
    /// When keys may lie outside the calendar.
    pub(super) fn of(key: &SortKey, column: &ColumnType) -> Result<Self> {
        let data_type = &key.expr.data_type;
        let limits = limits_of(data_type).unwrap_or(Range::new(0, 0));
        if let Domain::Int { min, max } = column.domain
            && (min < limits.min || max > limits.max)
        {
            return Err(Reason::Limit(format!("RANGE frame of {data_type} beyond the calendar")).into());
        }
        Ok(Self {
            nulls_first: key.nulls_first,
            descending: key.descending,
            limits,
            is_unsigned: data_type.is_unsigned_integer(),
        })
    }
}

/// The levels of a tree: for each value, the fold of its run up to it (`forward`) and from it on (`backward`); and the
/// values themselves, for levels from 1 (`totals`).
pub(super) struct Tree {
    pub forward: Buffer,
    pub backward: Buffer,
    pub totals: Buffer,
}

/// The low word, and the high one.
fn wide(value: i128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

impl WindowLaunches<'_> {
    /// The RANGE bound of each row's frame: its first row, or the row after its last.
    pub(super) fn range(
        &mut self,
        (bound, is_end): (FrameBound, bool),
        (key, values): (&RangeKey, &Values<'_>),
        bounds: &Bounds,
    ) -> Result<Buffer> {
        let FrameBound::Range { is_following, distance } = bound else {
            return Err(warpjoin_columns::Error::internal("a RANGE bound without a distance"));
        };
        let out = self.on.stream.alloc(self.rows * 4)?;
        let (form, amount) = match distance {
            Distance::Units(units) => (kind::UNITS, wide(units)),
            Distance::Months(months, days) => (kind::MONTHS, [months.into(), days.into()]),
            Distance::Double(bits) => (kind::DOUBLE, [bits, 0]),
        };
        let params = WindowRangeParams {
            w: self.rows_and_frame(bounds, &FrameOf::PARTITION),
            key: values.params(0),
            is_nulls_first: key.nulls_first,
            is_descending: key.descending,
            is_following,
            is_end,
            form,
            amount,
            least: wide(key.limits.min),
            most: wide(key.limits.max),
            is_unsigned: key.is_unsigned,
            out: Ptr::of(&out),
            control: Ptr::of(self.control),
        };
        self.stride("window_range", &params)?;
        Ok(out)
    }

    /// The tree over the values of an argument.
    pub(super) fn tree(&mut self, op: ScanOp, values: &Values<'_>) -> Result<Tree> {
        let entry =
            op.tree_entry().ok_or_else(|| warpjoin_columns::Error::internal("a tree for an operation without one"))?;
        // Levels of more than one run, and behind the last of them its totals.
        let mut levels = vec![self.rows];
        while let Some(&rows) = levels.last().filter(|rows| **rows > WINDOW_FANOUT) {
            levels.push(rows.div_ceil(WINDOW_FANOUT));
        }
        let top = levels.pop().unwrap_or(0);
        let below: u64 = levels.iter().sum();
        let width_bytes = op.width_bytes();
        let room = |values: u64| self.on.stream.alloc(values.max(1) * width_bytes);
        let totals = room((below + top).saturating_sub(self.rows))?;
        let tree = Tree { forward: room(below)?, backward: room(below)?, totals };
        let mut level_first = 0;
        for rows in levels {
            let own = level_first * width_bytes;
            let next = own + rows * width_bytes;
            // Totals begin with those of level 1.
            let level_0 = self.rows * width_bytes;
            let params = WindowTreeParams {
                v: values.params(op.flip()),
                values: (level_first > 0).then(|| Ptr::at(&tree.totals, own - level_0)),
                rows,
                forward: Ptr::at(&tree.forward, own),
                backward: Ptr::at(&tree.backward, own),
                totals: Ptr::at(&tree.totals, next - level_0),
            };
            self.stride_over(rows, entry, &params)?;
            level_first += rows;
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, NaiveDate};

    use super::*;

    #[test]
    fn the_calendar_ends_where_arrows_does() {
        let days = |date: NaiveDate| i128::from(date.num_days_from_ce()) - 719_163;
        assert_eq!(CALENDAR_DAYS, (days(NaiveDate::MIN), days(NaiveDate::MAX)));
    }
}
