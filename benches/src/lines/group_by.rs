//! Lines of group-bys with materialized output.
//!
//! Owns their shapes and designs. Must not know how a group-by works.

use arrow::datatypes::DataType;
use warpjoin::GroupBy;
use warpjoin::exec::ExecOptions;
use warpjoin::plan::AggregateFunction;

use super::operator::OperatorCase;
use super::{count_name, rows_name};
use crate::{
    AccessKind, Bench, Case, ColumnSpec, Design, ExpectedGroups, GroupAggregate, Line, Numbering, Numbers, Relative,
    Result, Scale, SetUp, Unit, Value, Work, table,
};

const GROUP: &str = "group_by";
const DEVICES: &str = "group_by_devices";
const DECIMALS: &str = "group_by_decimal";
const LIBCUDF: &str = "libcudf";
const CUCOLLECTIONS: &str = "cuCollections";
const CUB_SORT: &str = "CUB sort";
/// Maximum number of groups for pre-aggregation in shared memory.
const SHARED_GROUPS: u64 = 1 << 13;
/// Partitions of a radix partition by 8 bits.
const PARTS: u64 = 256;

/// Aggregates of a group-by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregates {
    /// sum(i64), sum(f64), max(f64), count.
    Four,
    /// sum(i64).
    Sum,
    /// sum(i32).
    SumNarrow,
    /// sum(decimal128(28, 2)).
    SumDecimal,
}

/// A group-by of a random table.
#[derive(Debug, Clone, Copy)]
struct GroupSpec {
    rows: u64,
    groups: u64,
    key_bytes: u64,
    aggregates: Aggregates,
    /// Exponent of Zipf's law of the group keys.
    skew: Option<f64>,
}

impl GroupSpec {
    fn key(&self) -> ColumnSpec {
        match self.key_bytes {
            4 => ColumnSpec::new("key", Value::Key32, DataType::Int32, 0),
            _ => ColumnSpec::new("key", Value::Key64, DataType::Int64, 0),
        }
    }

    fn numbers(&self) -> Numbers {
        let numbering = if self.skew.is_some() { Numbering::Zipf } else { Numbering::Uniform };
        Numbers { exponent: self.skew.unwrap_or(0.0), ..Numbers::new(numbering, self.groups) }
    }

    fn aggregates(&self) -> Vec<GroupAggregate> {
        let int = ColumnSpec::new("int", Value::Random, DataType::Int64, 0x100);
        let float = ColumnSpec::new("float", Value::Float, DataType::Float64, 0x101);
        let decimal = ColumnSpec::new("decimal", Value::Decimal, DataType::Decimal128(28, 2), 0x102);
        match self.aggregates {
            Aggregates::Four => vec![
                GroupAggregate::Sum(int),
                GroupAggregate::SumFloat(float.clone()),
                GroupAggregate::MaxFloat(float),
                GroupAggregate::Count,
            ],
            Aggregates::Sum => vec![GroupAggregate::Sum(int)],
            Aggregates::SumNarrow => {
                vec![GroupAggregate::Sum(ColumnSpec::new("narrow", Value::Random, DataType::Int32, 0x103))]
            }
            Aggregates::SumDecimal => vec![GroupAggregate::SumDecimal(decimal)],
        }
    }

    /// The key, then each value column once.
    fn columns(&self) -> Vec<ColumnSpec> {
        let mut columns = vec![self.key()];
        for aggregate in self.aggregates() {
            let column = aggregate.column().filter(|column| columns.iter().all(|other| other.name != column.name));
            columns.extend(column.cloned());
        }
        columns
    }

    fn set_up<'a>(&self, bench: &'a Bench) -> Result<Box<dyn Case + 'a>> {
        let (key, aggregates) = (self.key(), self.aggregates());
        let mut group_by = GroupBy::new(table(bench, self.rows, &self.numbers(), &self.columns())?).key(&key.name)?;
        for aggregate in &aggregates {
            let function = match aggregate {
                GroupAggregate::Count => AggregateFunction::Count,
                GroupAggregate::MaxFloat(_) => AggregateFunction::Max,
                _ => AggregateFunction::Sum,
            };
            group_by = group_by.aggregate(function, aggregate.column().map(|column| column.name.as_str()))?;
        }
        let expected = ExpectedGroups { rows: self.rows, numbers: self.numbers(), key: &key, aggregates: &aggregates };
        let expected = expected.checksum(bench)?;
        Ok(Box::new(OperatorCase::new(bench, group_by.plan()?, ExecOptions::default(), expected)))
    }

    fn row_bytes(&self) -> u64 {
        self.columns().iter().map(ColumnSpec::width_bytes).sum()
    }

    /// Number of words of a group's accumulators.
    fn words(&self) -> u64 {
        match self.aggregates {
            Aggregates::Four => 4,
            Aggregates::Sum | Aggregates::SumNarrow => 1,
            Aggregates::SumDecimal => 2,
        }
    }

    /// Input read once, groups written once.
    fn streams(&self) -> Work {
        Work::streams(self.rows * self.row_bytes(), self.groups * (self.key_bytes + 8 * self.words()))
    }

    /// Tables in shared memory, for few groups or after passes of radix partition; or atomic additions
    /// to one table.
    fn designs(&self) -> Vec<Design> {
        let group_bytes = 8 + 8 * self.words();
        let one_table = self.streams().and(AccessKind::Read, self.rows, self.groups * group_bytes).and(
            AccessKind::Add,
            self.rows * self.words(),
            self.groups * self.words(),
        );
        let mut designs = vec![Design { name: "one table", work: one_table }];
        let passes = [("tables in shared memory", 1), ("one pass", PARTS), ("two passes", PARTS * PARTS)];
        for (pass, (name, parts)) in passes.into_iter().enumerate() {
            if self.groups / parts <= SHARED_GROUPS {
                let copied_bytes = pass as u64 * self.rows * self.row_bytes();
                designs.push(Design { name, work: self.streams().and_copy(copied_bytes) });
            }
        }
        designs
    }

    fn name(&self) -> String {
        let aggregates = match self.aggregates {
            Aggregates::Four => "sum(i64), sum(f64), max(f64), count",
            Aggregates::Sum => "sum(i64)",
            Aggregates::SumNarrow => "sum(i32)",
            Aggregates::SumDecimal => "sum(decimal128)",
        };
        let (rows, groups) = (rows_name(self.rows), count_name(self.groups));
        let zipf = self.skew.map(|exponent| format!(", Zipf {exponent}")).unwrap_or_default();
        format!("{rows}, int{} key, {aggregates}, {groups} groups{zipf}", self.key_bytes * 8)
    }

    fn line(self, group: &'static str) -> Line {
        let set_up = SetUp::Ready(Box::new(move |bench| self.set_up(bench)));
        let mut line = Line::new(group, self.name(), set_up);
        let streams = self.streams();
        line.axes.extend([
            ("rows", self.rows as f64),
            ("groups", self.groups as f64),
            ("key_bytes", self.key_bytes as f64),
            ("skew", self.skew.unwrap_or(0.0)),
        ]);
        line.rows = self.rows;
        line.moved_bytes = streams.read_bytes + streams.write_bytes;
        line.designs = self.designs();
        line
    }
}

fn groups_of(scale: Scale, bits: u32) -> u64 {
    (1u64 << bits).min(scale.rows(27) / 4)
}

/// Lines with a target.
pub(super) fn targets(scale: Scale) -> Vec<Line> {
    let four = |bits| GroupSpec {
        rows: scale.rows(27),
        groups: groups_of(scale, bits),
        key_bytes: 8,
        aggregates: Aggregates::Four,
        skew: None,
    };
    let of_four = [
        (2, 1.5, 35.0),
        (6, 2.5, 38.0),
        (10, 2.5, 50.0),
        (14, 6.0, 25.0),
        (18, 6.0, 27.0),
        (22, 12.0, 36.0),
        (25, 18.0, 69.0),
    ];
    let mut lines = vec![];
    for (bits, target, peer) in of_four {
        let spec = four(bits);
        let line = spec.line(GROUP).against(Unit::Milliseconds, target, Some((peer, LIBCUDF)));
        lines.push(line.plotted("group_by_groups", "int64 key, four aggregates", spec.groups as f64));
    }
    let zipf = GroupSpec { skew: Some(1.0), ..four(22) };
    // No peer was measured with these keys.
    lines.push(zipf.line(GROUP).against(Unit::Milliseconds, 9.0, None));
    let of_sum = [
        (4, 0.75, 0.79, CUCOLLECTIONS),
        (10, 1.0, 1.85, CUCOLLECTIONS),
        (16, 3.0, 4.5, CUB_SORT),
        (20, 3.5, 4.7, CUB_SORT),
        (24, 4.8, 4.9, CUB_SORT),
    ];
    for (bits, target, peer, of) in of_sum {
        let spec = GroupSpec { key_bytes: 4, aggregates: Aggregates::Sum, ..four(bits) };
        let line = spec.line(GROUP).against(Unit::Milliseconds, target, Some((peer, of)));
        lines.push(line.plotted("group_by_groups", "int32 key, one sum", spec.groups as f64));
    }
    lines
}

/// Lines of rows on all devices. Each device sends its groups of the others, once.
pub(super) fn over_devices(scale: Scale, devices: u64) -> Vec<Line> {
    let line = |groups_bits: u32| {
        let (rows, groups) = (scale.rows(32), (1u64 << groups_bits).min(scale.rows(32) / 4));
        let spec = GroupSpec { rows, groups, key_bytes: 4, aggregates: Aggregates::SumNarrow, skew: None };
        let mut line = spec.line(DEVICES);
        let sent_bytes = groups * (devices - 1) * (spec.key_bytes + 8);
        line.designs.iter_mut().for_each(|design| design.work.exchanged_bytes = sent_bytes);
        line
    };
    [10, 16, 20, 26].map(line).into()
}

/// Pairs of sums of integers and of decimals. The target of decimals is twice the time of integers.
pub(super) fn decimals(scale: Scale) -> Vec<Line> {
    let mut lines = vec![];
    for bits in [2, 7, 10, 16, 22] {
        let (rows, groups) = (scale.rows(27), groups_of(scale, bits));
        let sum = GroupSpec { rows, groups, key_bytes: 8, aggregates: Aggregates::Sum, skew: None };
        let decimal = GroupSpec { aggregates: Aggregates::SumDecimal, ..sum };
        let relative = Relative { to: sum.line(DECIMALS).id(), factor: 2.0, write_bytes: 0 };
        lines.extend([sum.line(DECIMALS), Line { relative: Some(relative), ..decimal.line(DECIMALS) }]);
    }
    lines
}
