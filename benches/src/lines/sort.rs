//! Lines of sorts and top-k of a table.
//!
//! Owns their shapes, designs and checks. Must not know how rows are sorted.

use arrow::datatypes::DataType;
use warpjoin::Table;
use warpjoin::exec::{self, ExecOptions};
use warpjoin::expr::Expr;
use warpjoin::plan::{Plan, PlanKind, SortKey};
use warpjoin_device::{Arg, ModuleSource};

use super::operator::sample;
use super::{count_name, rows_name};
use crate::checksum::poison;
use crate::shared::module;
use crate::{
    Bench, Case, Checksum, ColumnSpec, Design, Error, Line, Numbering, Numbers, Result, Sample, Scale, SetUp, Value,
    Work, checksum_of, table,
};

const GROUP: &str = "sort";
const FILE: (&str, &str) = (
    "benches/order_check.cu",
    concat!(include_str!("../../kernels/totals.cuh"), include_str!("../../kernels/order_check.cu")),
);
const ENTRY: &str = "check_order";

/// A sort of random rows by a unique key.
#[derive(Debug, Clone, Copy)]
struct SortSpec {
    rows: u64,
    key_bytes: u64,
    /// Bytes of a second column; 0 for none.
    payload_bytes: u64,
    /// Number of first rows to output; `None`: all.
    fetch: Option<u64>,
}

impl SortSpec {
    /// The key, then the payload. With `fetch`, keys are dense, so that the keys of the first rows are known.
    fn columns(&self) -> Vec<ColumnSpec> {
        let mut columns = vec![match (self.fetch, self.key_bytes) {
            (Some(_), _) => ColumnSpec::new("key", Value::KeyDense, DataType::Int64, 0).up_to(self.rows - 1),
            (None, 4) => ColumnSpec::new("key", Value::Key32, DataType::Int32, 0),
            (None, _) => ColumnSpec::new("key", Value::Key64, DataType::Int64, 0),
        }];
        columns.extend(match self.payload_bytes {
            0 => None,
            4 => Some(ColumnSpec::new("payload", Value::Random, DataType::Int32, 1)),
            _ => Some(ColumnSpec::new("payload", Value::Random, DataType::Int64, 1)),
        });
        columns
    }

    fn set_up<'a>(&self, bench: &'a Bench) -> Result<Box<dyn Case + 'a>> {
        let input = table(bench, self.rows, &Numbers::new(Numbering::Permuted, self.rows), &self.columns())?;
        let schema = input.schema().clone();
        let expected = match self.fetch {
            None => Some(checksum_of(bench, &input)?),
            Some(_) => None,
        };
        let width = schema.fields().len();
        let kind = PlanKind::Scan { table: input, projection: (0..width).collect() };
        let scan = Box::new(Plan { kind, schema: schema.clone() });
        let expr = Expr::column(0, schema.field(0).data_type().clone(), schema.field(0).is_nullable());
        let keys = vec![SortKey { expr, descending: false, nulls_first: false }];
        let plan = Plan { kind: PlanKind::Sort { input: scan, keys, skip: 0, fetch: self.fetch }, schema };
        Ok(Box::new(SortCase { bench, plan, expected, rows: self.fetch.unwrap_or(self.rows), last: None }))
    }

    fn line(self) -> Line {
        let set_up = SetUp::Ready(Box::new(move |bench| self.set_up(bench)));
        let payload = if self.payload_bytes == 0 { String::new() } else { format!("+{}", self.payload_bytes) };
        let first = self.fetch.map(|fetch| format!("first {} of ", count_name(fetch))).unwrap_or_default();
        let name = format!("{first}{}, {}{payload} B", rows_name(self.rows), self.key_bytes);
        let mut line = Line::new(GROUP, name, set_up);
        let row_bytes = self.key_bytes + self.payload_bytes;
        line.axes.extend([
            ("rows", self.rows as f64),
            ("key_bytes", self.key_bytes as f64),
            ("row_bytes", row_bytes as f64),
            ("fetch", self.fetch.unwrap_or(self.rows) as f64),
        ]);
        line.rows = self.rows;
        let (read, written) = match self.fetch {
            Some(fetch) => (self.rows * self.key_bytes, fetch * row_bytes),
            None => (self.rows * row_bytes, self.rows * row_bytes),
        };
        line.moved_bytes = read + written;
        line.designs = vec![match self.fetch {
            Some(_) => Design { name: "one read", work: Work::streams(read, written) },
            // One read of the keys for the histograms, then one pass over the rows for each key byte.
            None => {
                let passes = self.key_bytes * self.rows * row_bytes;
                Design { name: "a pass a byte", work: Work::streams(self.rows * self.key_bytes, 0).and_copy(passes) }
            }
        }];
        line
    }
}

/// All lines.
pub(super) fn lines(scale: Scale) -> Vec<Line> {
    let rows = scale.rows(27);
    let all = |key_bytes, payload_bytes| SortSpec { rows, key_bytes, payload_bytes, fetch: None }.line();
    let first = |fetch: u64| SortSpec { rows, key_bytes: 4, payload_bytes: 8, fetch: Some(fetch.min(rows / 8)) }.line();
    vec![all(4, 0), all(4, 4), all(8, 0), all(8, 8), first(10), first(1000), first(1 << 20)]
}

/// The module of the check.
pub(super) fn check_module() -> ModuleSource {
    module(FILE, &[ENTRY])
}

struct SortCase<'a> {
    bench: &'a Bench,
    plan: Plan,
    /// Checksum of all rows; `None` for the first rows, whose keys are 0, 1, 2, ...
    expected: Option<Checksum>,
    rows: u64,
    last: Option<Table>,
}

impl Case for SortCase<'_> {
    fn run(&mut self) -> Result<Sample> {
        let (table, metrics) = exec::run_to_table(self.bench.session(), &self.plan, &[], &ExecOptions::default())?;
        self.last = Some(table);
        Ok(sample(&metrics))
    }

    fn check(&mut self) -> Result<()> {
        let Some(table) = self.last.take() else { return Ok(()) };
        if table.rows() != self.rows {
            return Err(Error::Unexpected(format!("{} rows instead of {}", table.rows(), self.rows)));
        }
        let (column, facts) = (table.shards()[0].columns[0].clone(), &table.column_types()[0]);
        let layout = facts.layout();
        let keys = column.values.as_deref().map_or(Arg::Null, Arg::Buffer);
        let descents = self.bench.stream().alloc_filled(8, 0)?;
        let args = [Arg::U64(self.rows), keys, Arg::U64(layout.width_bytes.into()), Arg::Buffer(&descents)];
        let kernel = self.bench.device().compile(&check_module())?.kernel(ENTRY)?;
        self.bench.launch_rows(&kernel, self.rows, &args)?;
        let descents = self.bench.read_words::<1>(&descents)?[0];
        if descents > 0 {
            return Err(Error::Unexpected(format!("{descents} rows come before a smaller one")));
        }
        match self.expected {
            Some(expected) => expected.check(checksum_of(self.bench, &table)?)?,
            None => self.check_ends(&table)?,
        }
        poison(self.bench, &table)
    }
}

impl SortCase<'_> {
    /// Checks that the first key is 0 and the last is the number of rows minus one. Since keys are unique and ascending, all
    /// keys are then correct.
    fn check_ends(&self, table: &Table) -> Result<()> {
        let (column, facts) = (table.shards()[0].columns[0].clone(), &table.column_types()[0]);
        let (layout, Some(values)) = (facts.layout(), &column.values) else { return Ok(()) };
        let key = |row: u64| -> Result<i128> {
            let mut bytes = [0u8; 8];
            let width = layout.width_bytes.min(8) as usize;
            self.bench.stream().read(values, row * width as u64, &mut bytes[..width])?;
            Ok(layout.base + i128::from(u64::from_le_bytes(bytes)))
        };
        match (key(0)?, key(self.rows - 1)?) {
            (0, last) if last == i128::from(self.rows - 1) => Ok(()),
            ends => Err(Error::Unexpected(format!("the first rows have keys from {} to {}", ends.0, ends.1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use warpjoin::Session;
    use warpjoin_device::{SimOptions, open_simulated};

    use super::*;

    #[test]
    fn unsorted_rows_fail() {
        let session = Session::new(open_simulated(&SimOptions::default()).expect("a device")).expect("a session");
        let bench = Bench::new(session, Scale::TINY).expect("a bench");
        for (fetch, payload_bytes) in [(None, 8), (Some(100), 8)] {
            let spec = SortSpec { rows: 1 << 13, key_bytes: 4, payload_bytes, fetch };
            let mut case = spec.set_up(&bench).expect("inputs");
            case.run().expect("a run");
            case.check().expect("a correct result");
        }
        let spec = SortSpec { rows: 1024, key_bytes: 8, payload_bytes: 8, fetch: None };
        let input = table(&bench, 1024, &Numbers::new(Numbering::Permuted, 1024), &spec.columns()).expect("a table");
        let expected = checksum_of(&bench, &input).expect("totals");
        let schema = input.schema().clone();
        let plan = Plan { kind: PlanKind::Scan { table: input, projection: vec![0, 1] }, schema };
        // Not sorted at all.
        let mut case = SortCase { bench: &bench, plan, expected: Some(expected), rows: 1024, last: None };
        case.run().expect("a run");
        assert!(matches!(case.check(), Err(Error::Unexpected(_))));
    }
}
