//! Lines of the hash tables of the Arrow-native API: build, find and probe, over load factors and sizes.
//!
//! Owns their shapes, designs and checks. Must not know how a hash table works.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin::Table;
use warpjoin::hash_table::{HashTable, HashTableOptions, TableKind};

use super::rows_name;
use crate::checksum::{checksum_of_columns, poison};
use crate::work::slot_bytes;
use crate::{
    AccessKind, Bench, Case, Checksum, ColumnSpec, Design, Error, Line, Numbering, Numbers, Result, Sample, Scale,
    SetUp, Unit, Value, Work, checksum_of, table,
};

const GROUP: &str = "table";
const CUCOLLECTIONS: &str = "cuCollections";
const BGHT: &str = "BGHT";

/// The measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Build,
    /// Answers are in the order of the keys.
    Find {
        hits: bool,
    },
    /// Answers are in any order.
    Probe {
        hits: bool,
    },
}

/// A map of random rows with one key and one value.
#[derive(Debug, Clone, Copy)]
struct TableSpec {
    rows: u64,
    /// Number of keys to look up.
    probe_rows: u64,
    /// Bytes of the key, and of the value.
    bytes: u64,
    load_factor: f64,
    operation: Operation,
    /// Bucket bytes and lanes per probe; `None`: chosen by the cost model.
    shape: Option<(u32, u32)>,
}

impl TableSpec {
    fn columns(&self) -> [ColumnSpec; 2] {
        let (key, data_type) = match self.bytes {
            4 => (Value::Key32, DataType::Int32),
            _ => (Value::Key64, DataType::Int64),
        };
        // The value is a function of the key, so that answers can be checked.
        [ColumnSpec::new("key", key, data_type.clone(), 0), ColumnSpec::new("value", Value::KeySecond, data_type, 1)]
    }

    fn options(&self) -> HashTableOptions {
        HashTableOptions {
            load_factor: self.load_factor,
            bucket_bytes: self.shape.map(|(bytes, _)| bytes),
            probe_group_lanes: self.shape.map(|(_, lanes)| lanes),
            ..HashTableOptions::default()
        }
    }

    fn set_up<'a>(&self, bench: &'a Bench) -> Result<Box<dyn Case + 'a>> {
        let columns = self.columns();
        let input = table(bench, self.rows, &Numbers::new(Numbering::Cyclic, self.rows), &columns)?;
        let (hits, in_order) = match self.operation {
            Operation::Build => {
                return Ok(Box::new(BuildCase { bench, input, options: self.options(), built: None }));
            }
            Operation::Find { hits } => (hits, true),
            Operation::Probe { hits } => (hits, false),
        };
        let map = HashTable::build(bench.session(), TableKind::Map, &input, 1, self.options())?;
        // Keys that are not in the map have key numbers from `rows` on.
        let mut numbers = Numbers::new(Numbering::Permuted, self.rows);
        numbers.hit_rows = if hits { u64::MAX } else { 0 };
        let keys = table(bench, self.probe_rows, &numbers, &columns[..1])?;
        let expected = match hits {
            true => checksum_of(bench, &*table(bench, self.probe_rows, &numbers, &columns)?)?,
            false => Checksum { rows: 0, sum: 0, exclusive: 0 },
        };
        Ok(Box::new(FindCase { bench, map, keys, hits, in_order, expected, found: OnceCell::new() }))
    }

    fn name(&self) -> String {
        let Self { rows, bytes, load_factor, .. } = self;
        let operation = match self.operation {
            Operation::Build => "build",
            Operation::Find { hits: true } => "find hit",
            Operation::Find { hits: false } => "find miss",
            Operation::Probe { hits: true } => "probe hit",
            Operation::Probe { hits: false } => "probe miss",
        };
        let shape = self.shape.map_or(String::new(), |(bytes, lanes)| format!(", {bytes} B buckets, {lanes} lanes"));
        let few = self.operation != Operation::Build && self.probe_rows < *rows;
        let keys = if few { format!(" of {} keys", rows_name(self.probe_rows)) } else { String::new() };
        format!("{}, {bytes}+{bytes} B, load factor {load_factor}, {operation}{keys}{shape}", rows_name(*rows))
    }

    /// Possible designs.
    fn designs(&self) -> Vec<Design> {
        let row_bytes = 2 * self.bytes;
        let table_bytes = (self.rows as f64 * slot_bytes(row_bytes) as f64 / self.load_factor) as u64;
        match self.operation {
            Operation::Build => {
                let insert =
                    Work::streams(self.rows * row_bytes, table_bytes).and(AccessKind::Cas, self.rows, table_bytes);
                let passes = Work::streams(self.rows * (row_bytes + self.bytes), table_bytes)
                    .and_copy(2 * self.rows * row_bytes);
                vec![
                    Design { name: "one by one", work: insert },
                    Design { name: "two passes, then segments", work: passes },
                ]
            }
            Operation::Find { .. } => {
                let bytes = self.probe_rows * self.bytes;
                let direct = Work::streams(bytes, bytes).and(AccessKind::Read, self.probe_rows, table_bytes);
                // Row numbers of 4 bytes are partitioned with the keys, and read again to restore the order.
                let parts = Work::streams(table_bytes, 0).and_copy(3 * bytes).and_copy(4 * self.probe_rows).and(
                    AccessKind::Read,
                    self.probe_rows,
                    table_bytes.min(8 << 20),
                );
                vec![
                    Design { name: "one access", work: direct },
                    Design { name: "one pass, then L2, and back", work: parts },
                ]
            }
            Operation::Probe { hits } => {
                let out = if hits { self.probe_rows * row_bytes } else { 0 };
                let work = Work::streams(self.probe_rows * self.bytes, out);
                let direct = work.clone().and(AccessKind::Read, self.probe_rows, table_bytes);
                let parts = Work::streams(2 * self.probe_rows * self.bytes, out)
                    .and_copy(self.probe_rows * self.bytes)
                    .and(AccessKind::Read, self.probe_rows, table_bytes.min(8 << 20));
                vec![Design { name: "one access", work: direct }, Design { name: "one pass, then L2", work: parts }]
            }
        }
    }

    fn line(self) -> Line {
        let set_up = SetUp::Ready(Box::new(move |bench| self.set_up(bench)));
        let mut line = Line::new(GROUP, self.name(), set_up);
        let rows = if self.operation == Operation::Build { self.rows } else { self.probe_rows };
        line.axes.extend([
            ("rows", self.rows as f64),
            ("key_bytes", self.bytes as f64),
            ("payload_bytes", self.bytes as f64),
            ("load_factor", self.load_factor),
        ]);
        if let Some((bytes, lanes)) = self.shape {
            line.axes.extend([("bucket_bytes", bytes.into()), ("lanes", lanes.into())]);
        }
        line.rows = rows;
        line.moved_bytes = rows * 2 * self.bytes;
        line.designs = self.designs();
        line.unit = Unit::GigaRowsPerSecond;
        line
    }
}

/// Lines with a target.
pub(super) fn targets(scale: Scale) -> Vec<Line> {
    use Operation::{Build, Find, Probe};
    let (hit, miss) = (Find { hits: true }, Find { hits: false });
    let large = |load_factor, operation| TableSpec {
        rows: scale.rows(27),
        probe_rows: scale.rows(27),
        bytes: 4,
        load_factor,
        operation,
        shape: None,
    };
    let small = |operation| TableSpec { rows: scale.rows(20), ..large(0.5, operation) };
    let of = |spec: TableSpec, target, peer| spec.line().against(Unit::GigaRowsPerSecond, target, peer);
    vec![
        of(large(0.5, Build), 28.0, Some((10.7, CUCOLLECTIONS))),
        of(large(0.5, hit), 27.0, Some((24.6, CUCOLLECTIONS))),
        of(large(0.5, miss), 24.0, Some((19.4, CUCOLLECTIONS))),
        of(large(0.9, Build), 11.0, Some((9.5, CUCOLLECTIONS))),
        of(large(0.9, hit), 21.0, Some((16.6, CUCOLLECTIONS))),
        of(large(0.9, miss), 15.0, Some((9.5, BGHT))),
        of(large(0.95, Build), 10.5, Some((8.8, CUCOLLECTIONS))),
        of(large(0.95, hit), 19.0, Some((14.2, BGHT))),
        of(large(0.95, miss), 12.0, Some((8.8, BGHT))),
        of(small(Build), 35.0, Some((21.8, CUCOLLECTIONS))),
        of(small(hit), 85.0, Some((54.0, BGHT))),
        of(large(0.5, Probe { hits: true }), 50.0, None),
        of(large(0.5, Probe { hits: false }), 42.0, None),
    ]
}

/// Lines over load factors, sizes, and shapes other than the cost model's.
pub(super) fn sweeps(scale: Scale) -> Vec<Line> {
    let operations = [Operation::Build, Operation::Find { hits: true }, Operation::Find { hits: false }];
    let series = ["build", "find hit", "find miss"];
    let spec = |rows_bits, bytes, load_factor, operation| TableSpec {
        rows: scale.rows(rows_bits),
        probe_rows: scale.rows(rows_bits.max(26)),
        bytes,
        load_factor,
        operation,
        shape: None,
    };
    let mut lines = vec![];
    for (operation, series) in operations.into_iter().zip(series) {
        for load_factor in [0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
            for bytes in [4, 8] {
                let line = spec(26, bytes, load_factor, operation).line();
                lines.push(line.plotted("table_load_factor", format!("{bytes}+{bytes} B, {series}"), load_factor));
            }
        }
        for bits in [16, 18, 20, 22, 24] {
            let line = spec(bits, 4, 0.5, operation).line();
            lines.push(line.plotted("table_rows", series, f64::from(bits)));
        }
    }
    // Fewer keys than the table has cache lines.
    for bits in [20, 22, 24] {
        let few = TableSpec { probe_rows: scale.rows(bits), ..spec(26, 4, 0.5, Operation::Find { hits: true }) };
        lines.push(few.line());
    }
    for rows_bits in [20, 26] {
        for bytes in [4, 8] {
            for load_factor in [0.5, 0.9] {
                for shape in [(16, 1), (32, 1), (32, 2), (64, 1), (64, 2), (64, 4), (128, 4), (128, 8)] {
                    for operation in &operations[1..] {
                        let spec = spec(rows_bits, bytes, load_factor, *operation);
                        lines.push(TableSpec { shape: Some(shape), ..spec }.line());
                    }
                }
            }
        }
    }
    lines
}

struct BuildCase<'a> {
    bench: &'a Bench,
    input: Arc<Table>,
    options: HashTableOptions,
    built: Option<HashTable>,
}

impl Case for BuildCase<'_> {
    fn run(&mut self) -> Result<Sample> {
        self.built = None;
        let map = HashTable::build(self.bench.session(), TableKind::Map, &self.input, 1, self.options.clone())?;
        let device_ns = map.last_device_ns();
        self.built = Some(map);
        Ok(Sample { device_ns, kernel_ns: device_ns, ..Sample::default() })
    }

    fn check(&mut self) -> Result<()> {
        let Some(map) = self.built.take() else { return Ok(()) };
        let entries = map.entries()?;
        checksum_of(self.bench, &self.input)?.check(checksum_of(self.bench, &entries)?)?;
        poison(self.bench, &entries)
    }
}

struct FindCase<'a> {
    bench: &'a Bench,
    map: HashTable,
    keys: Arc<Table>,
    hits: bool,
    /// Whether answers are in the order of the keys.
    in_order: bool,
    expected: Checksum,
    found: OnceCell<Table>,
}

impl Case for FindCase<'_> {
    fn run(&mut self) -> Result<Sample> {
        self.found.take();
        let found = if self.in_order { self.map.find(&self.keys)? } else { self.map.probe(&self.keys)? };
        let device_ns = self.map.last_device_ns();
        let _ = self.found.set(found);
        Ok(Sample { device_ns, kernel_ns: device_ns, ..Sample::default() })
    }

    fn check(&mut self) -> Result<()> {
        let Some(found) = self.found.take() else { return Ok(()) };
        let nulls = found.statistics().iter().map(|statistics| statistics.null_count).sum::<u64>();
        match (self.in_order, self.hits) {
            (true, false) if nulls != self.keys.rows() => {
                return Err(Error::Unexpected(format!("{nulls} misses, expected {}", self.keys.rows())));
            }
            (true, true) if nulls > 0 => return Err(Error::Unexpected(format!("{nulls} misses, expected none"))),
            (true, false) => {}
            // Each row is a key and its answer.
            (true, true) => self.expected.check(checksum_of_columns(self.bench, &[&self.keys, &found])?)?,
            (false, _) => self.expected.check(checksum_of(self.bench, &found)?)?,
        }
        poison(self.bench, &found)
    }
}
