//! Lines of radix partitions of a table in one pass.
//!
//! Owns their shapes, designs and checks. Must not know how rows are partitioned.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin::Table;
use warpjoin::exec::ExecOptions;
use warpjoin::{PartitionedTable, kernel_definitions, partition_table};
use warpjoin_device::{Arg, ModuleSource};

use super::operator::sample;
use super::rows_name;
use crate::data::POISON;
use crate::shared::{COLUMNS_MAX, module};
use crate::{
    Bench, Case, Checksum, ColumnSpec, Design, Error, Line, Numbering, Numbers, Result, Sample, Scale, SetUp, Unit,
    Value, Work, checksum_of, table,
};

const GROUP: &str = "partition";
const FILE: (&str, &str) = (
    "benches/partition_check.cu",
    concat!(include_str!("../../kernels/totals.cuh"), include_str!("../../kernels/partition_check.cu")),
);
const ENTRY: &str = "check_partitions";

/// A partition of random rows with a key and payload columns.
#[derive(Debug, Clone, Copy)]
struct PartitionSpec {
    rows: u64,
    /// Bytes of the key, then of each payload column.
    bytes: &'static [u64],
    bits: u32,
}

impl PartitionSpec {
    fn columns(&self) -> Vec<ColumnSpec> {
        let column = |(index, &bytes): (usize, &u64)| match (index, bytes) {
            (0, 4) => ColumnSpec::new("key", Value::Key32, DataType::Int32, 0),
            (0, _) => ColumnSpec::new("key", Value::Key64, DataType::Int64, 0),
            (_, 4) => ColumnSpec::new(&format!("payload_{index}"), Value::Random, DataType::Int32, index as u64),
            _ => ColumnSpec::new(&format!("payload_{index}"), Value::Random, DataType::Int64, index as u64),
        };
        self.bytes.iter().enumerate().map(column).collect()
    }

    fn set_up<'a>(&self, bench: &'a Bench) -> Result<Box<dyn Case + 'a>> {
        let columns = self.columns();
        let input = table(bench, self.rows, &Numbers::new(Numbering::Cyclic, self.rows), &columns)?;
        let expected = checksum_of(bench, &input)?;
        Ok(Box::new(PartitionCase { bench, input, columns, bits: self.bits, expected, last: None }))
    }

    fn line(self) -> Line {
        let set_up = SetUp::Ready(Box::new(move |bench| self.set_up(bench)));
        let sizes = self.bytes.iter().map(u64::to_string).collect::<Vec<_>>().join("+");
        let mut line = Line::new(GROUP, format!("{}, {} bits, {sizes} B", rows_name(self.rows), self.bits), set_up);
        let row_bytes: u64 = self.bytes.iter().sum();
        line.axes.extend([
            ("rows", self.rows as f64),
            ("row_bytes", row_bytes as f64),
            ("key_bytes", self.bytes[0] as f64),
            ("bits", self.bits.into()),
        ]);
        line.rows = self.rows;
        line.moved_bytes = 2 * self.rows * row_bytes;
        // The keys are read once more to count the rows of each partition.
        let work = Work::streams(self.rows * self.bytes[0], 0).and_copy(self.rows * row_bytes);
        line.designs = vec![Design { name: "one pass", work }];
        line.unit = Unit::GigaRowsPerSecond;
        if self.bytes.len() == 2 && self.bytes[0] == self.bytes[1] {
            line = line.plotted("partition_bits", format!("{sizes} B"), self.bits.into());
        }
        line
    }
}

/// All lines. Those with a target come first.
pub(super) fn lines(scale: Scale) -> Vec<Line> {
    let spec = |bytes, bits| PartitionSpec { rows: scale.rows(27), bytes, bits };
    let mut lines = vec![
        spec(&[4, 4], 8).line().against(Unit::GigaRowsPerSecond, 100.0, Some((107.0, "CUB"))),
        spec(&[8, 8], 8).line().against(Unit::GigaRowsPerSecond, 55.0, None),
        spec(&[4, 8], 8).line(),
        spec(&[8, 8, 8], 8).line(),
    ];
    for bits in [1, 2, 4, 6, 7, 9, 10, 11] {
        lines.extend([spec(&[4, 4], bits).line(), spec(&[8, 8], bits).line()]);
    }
    lines
}

/// The module of the check.
pub(super) fn check_module() -> ModuleSource {
    let mut source = module(FILE, &[ENTRY]);
    source.defines.extend(kernel_definitions());
    source
}

struct PartitionCase<'a> {
    bench: &'a Bench,
    input: Arc<Table>,
    columns: Vec<ColumnSpec>,
    bits: u32,
    expected: Checksum,
    last: Option<PartitionedTable>,
}

impl Case for PartitionCase<'_> {
    fn run(&mut self) -> Result<Sample> {
        let (rows, metrics) =
            partition_table(self.bench.session(), &self.input, &[0], self.bits, &ExecOptions::default())?;
        self.last = Some(rows);
        Ok(sample(&metrics))
    }

    fn check(&mut self) -> Result<()> {
        let Some(rows) = self.last.take() else { return Ok(()) };
        let (found, misplaced) = self.totals(&rows)?;
        self.expected.check(found)?;
        if misplaced > 0 {
            return Err(Error::Unexpected(format!("{misplaced} rows are in a wrong partition")));
        }
        for words in &rows.shards[0].words {
            self.bench.stream().fill(words, 0, words.bytes(), POISON)?;
        }
        Ok(self.bench.stream().synchronize()?)
    }
}

impl PartitionCase<'_> {
    /// Checksum of the partitioned rows, and the number of rows in a wrong partition.
    fn totals(&self, rows: &PartitionedTable) -> Result<(Checksum, u64)> {
        let (stream, shard) = (self.bench.stream(), &rows.shards[0]);
        let misplaced = stream.alloc_filled(8, 0)?;
        let mut args = vec![Arg::U64(self.input.rows()), Arg::U64(self.bits.into()), Arg::Buffer(&shard.offsets)];
        let mut packed = vec![];
        let mut used_bits: Vec<u64> = vec![];
        for column in &self.columns {
            let bits = column.width_bytes() * 8;
            // The first word with enough free bits.
            let word = used_bits.iter().position(|used| used + bits <= 64).unwrap_or(used_bits.len());
            if word == used_bits.len() {
                used_bits.push(0);
            }
            let Some(words) = shard.words.get(word) else {
                return Err(Error::Unexpected(format!("the rows have only {} words", shard.words.len())));
            };
            let [_, _, base, mask] = column.args();
            packed.extend([Arg::Buffer(words), Arg::U64(rows.word_bytes[word].into()), Arg::U64(used_bits[word])]);
            packed.extend([mask, base]);
            used_bits[word] += bits;
        }
        let totals = Checksum::buffer(self.bench)?;
        args.extend([Arg::Buffer(&totals), Arg::Buffer(&misplaced), Arg::U64(self.columns.len() as u64)]);
        args.extend(packed);
        args.resize(6 + 5 * COLUMNS_MAX, Arg::Null);
        let kernel = self.bench.device().compile(&check_module())?.kernel(ENTRY)?;
        self.bench.launch_rows(&kernel, self.input.rows(), &args)?;
        let found = Checksum::read(self.bench, &totals)?;
        Ok((found, self.bench.read_words::<1>(&misplaced)?[0]))
    }
}

#[cfg(test)]
mod tests {
    use warpjoin::Session;
    use warpjoin_device::{SimOptions, open_simulated};

    use super::*;

    #[test]
    fn lost_or_misplaced_rows_fail() {
        let session = Session::new(open_simulated(&SimOptions::default()).expect("a device")).expect("a session");
        let bench = Bench::new(session, Scale::TINY).expect("a bench");
        let spec = PartitionSpec { rows: 1024, bytes: &[4, 8], bits: 3 };
        let mut case = spec.set_up(&bench).expect("inputs");
        case.run().expect("a run");
        case.check().expect("a correct result");

        let input = table(&bench, 1024, &Numbers::new(Numbering::Cyclic, 1024), &spec.columns()).expect("a table");
        let expected = checksum_of(&bench, &input).expect("totals");
        let broken = |change: &dyn Fn(&PartitionedTable)| {
            let mut case = PartitionCase {
                bench: &bench,
                input: input.clone(),
                columns: spec.columns(),
                bits: 3,
                expected,
                last: None,
            };
            case.run().expect("a run");
            change(case.last.as_ref().expect("rows"));
            case.check()
        };
        let swap = |rows: &PartitionedTable, word: usize, bytes: u64| {
            let words = &rows.shards[0].words[word];
            let (mut first, mut last) = (vec![0; bytes as usize], vec![0; bytes as usize]);
            bench.stream().read(words, 0, &mut first).expect("bytes");
            bench.stream().read(words, 1023 * bytes, &mut last).expect("bytes");
            bench.stream().write(words, 0, &last).expect("bytes");
            bench.stream().write(words, 1023 * bytes, &first).expect("bytes");
        };
        assert!(matches!(broken(&|rows| swap(rows, 1, 8)), Err(Error::Wrong { .. })));
        // Swapping whole rows of the first and the last partition keeps the checksum.
        let whole = |rows: &PartitionedTable| {
            swap(rows, 0, 4);
            swap(rows, 1, 8);
        };
        assert!(matches!(broken(&whole), Err(Error::Unexpected(_))));
    }
}
