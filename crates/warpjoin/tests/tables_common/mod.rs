//! A model of hash tables, and random operations on both.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int32Array, Int64Array, RecordBatch, UInt64Array,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int32Type, Int64Type, Schema,
    SchemaRef, UInt64Type,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpjoin::hash_table::{HashTable, HashTableOptions, TableKind};
use warpjoin::{Error, Session, Table, TableBuilder};
use warpjoin_device::DeviceError;

use crate::common::sessions::{Opener, in_threads};

/// A value: a number, or the bits of a float; `None`: null.
pub(crate) type Cell = Option<i128>;
pub(crate) type Row = Vec<Cell>;

const TYPES: [DataType; 9] = [
    DataType::Int32,
    DataType::Int64,
    DataType::Int8,
    DataType::UInt64,
    DataType::Boolean,
    DataType::Date32,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal128(15, 2),
];
const WIDE: DataType = DataType::Decimal128(38, 3);

/// An array of cells.
fn array(data_type: &DataType, cells: &[Cell]) -> ArrayRef {
    let cells = cells.iter().copied();
    match data_type {
        DataType::Int32 => Arc::new(cells.map(|c| c.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::Int64 => Arc::new(cells.map(|c| c.map(|v| v as i64)).collect::<Int64Array>()),
        DataType::Int8 => Arc::new(cells.map(|c| c.map(|v| v as i8)).collect::<Int8Array>()),
        DataType::UInt64 => Arc::new(cells.map(|c| c.map(|v| v as u64)).collect::<UInt64Array>()),
        DataType::Date32 => Arc::new(cells.map(|c| c.map(|v| v as i32)).collect::<Date32Array>()),
        DataType::Boolean => Arc::new(cells.map(|c| c.map(|v| v != 0)).collect::<BooleanArray>()),
        DataType::Float32 => Arc::new(cells.map(|c| c.map(|v| f32::from_bits(v as u32))).collect::<Float32Array>()),
        DataType::Float64 => Arc::new(cells.map(|c| c.map(|v| f64::from_bits(v as u64))).collect::<Float64Array>()),
        DataType::Decimal128(precision, scale) => Arc::new(
            cells.collect::<Decimal128Array>().with_precision_and_scale(*precision, *scale).expect("a decimal"),
        ),
        other => panic!("no cells of {other}"),
    }
}

fn cells(array: &ArrayRef) -> Vec<Cell> {
    macro_rules! primitive {
        ($t:ty, $to:expr) => {
            array.as_primitive::<$t>().iter().map(|v| v.map($to)).collect()
        };
    }
    match array.data_type() {
        DataType::Int32 => primitive!(Int32Type, i128::from),
        DataType::Int64 => primitive!(Int64Type, i128::from),
        DataType::Int8 => primitive!(Int8Type, i128::from),
        DataType::UInt64 => primitive!(UInt64Type, i128::from),
        DataType::Date32 => primitive!(Date32Type, i128::from),
        DataType::Float32 => primitive!(Float32Type, |v: f32| i128::from(v.to_bits())),
        DataType::Float64 => primitive!(Float64Type, |v: f64| i128::from(v.to_bits())),
        DataType::Decimal128(..) => primitive!(Decimal128Type, |v| v),
        DataType::Boolean => array.as_boolean().iter().map(|v| v.map(i128::from)).collect(),
        other => panic!("no cells of {other}"),
    }
}

/// The cell as a key: one zero, one not-a-number.
fn canonical(data_type: &DataType, cell: Cell) -> Cell {
    match data_type {
        DataType::Float32 => cell.map(|bits| match f32::from_bits(bits as u32) {
            0.0 => 0,
            v if v.is_nan() => i128::from(f32::NAN.to_bits()),
            v => i128::from(v.to_bits()),
        }),
        DataType::Float64 => cell.map(|bits| match f64::from_bits(bits as u64) {
            0.0 => 0,
            v if v.is_nan() => i128::from(f64::NAN.to_bits()),
            v => i128::from(v.to_bits()),
        }),
        _ => cell,
    }
}

/// A random value of the type; of few or of all.
fn cell(rng: &mut StdRng, field: &Field, few: bool) -> Cell {
    if field.is_nullable() && rng.random_bool(0.1) {
        return None;
    }
    let small = rng.random_range(-40i128..40);
    let any: u64 = rng.random();
    Some(match field.data_type() {
        DataType::Boolean => small & 1,
        DataType::Int8 => i128::from(any as i8),
        DataType::Float32 if few => i128::from((small as f32 * 0.5).to_bits() ^ if any & 7 == 0 { 1 << 31 } else { 0 }),
        DataType::Float64 if few => i128::from((small as f64 * 0.5).to_bits() ^ if any & 7 == 0 { 1 << 63 } else { 0 }),
        DataType::Float32 => i128::from(any as u32),
        DataType::Float64 => i128::from(any),
        DataType::UInt64 if few => small + 40,
        _ if few => small,
        DataType::Int32 | DataType::Date32 => match any & 63 {
            0 => i128::from(i32::MIN),
            1 => i128::from(i32::MAX),
            _ => i128::from(any as i32),
        },
        DataType::Int64 => match any & 63 {
            0 => i128::from(i64::MIN),
            1 => i128::from(i64::MAX),
            _ => i128::from(any as i64),
        },
        DataType::UInt64 => i128::from(if any & 63 == 0 { u64::MAX } else { any }),
        DataType::Decimal128(precision, _) => {
            let most = 10i128.pow(u32::from(*precision)) - 1;
            match any & 63 {
                0 => most,
                1 => -most,
                _ => (i128::from(any) << 50 | i128::from(any >> 3)) % most,
            }
        }
        other => panic!("no values of {other}"),
    })
}

/// A table of rows.
pub(crate) fn table(session: &Arc<Session>, schema: &SchemaRef, rows: &[Row]) -> Table {
    let column = |(index, field): (usize, &Arc<Field>)| {
        array(field.data_type(), &rows.iter().map(|row| row[index]).collect::<Vec<_>>())
    };
    let columns = schema.fields().iter().enumerate().map(column).collect();
    let mut builder = TableBuilder::new(session.device_set(), schema.clone());
    builder.push(&RecordBatch::try_new(schema.clone(), columns).expect("a batch")).expect("rows");
    builder.finish().expect("a table")
}

/// The rows of a table.
pub(crate) fn rows(table: &Table) -> Vec<Row> {
    let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
    let batches = table.download(&columns, 1 << 16).expect("batches");
    let mut rows = vec![];
    for batch in batches {
        let columns: Vec<Vec<Cell>> = batch.columns().iter().map(cells).collect();
        rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row]).collect::<Row>()));
    }
    rows
}

/// A table under test beside what it should hold: of each key, the rows' values.
struct Pair {
    session: Arc<Session>,
    kind: TableKind,
    schema: SchemaRef,
    key_schema: SchemaRef,
    keys: usize,
    few: bool,
    /// Bytes that the next operation may allocate at first; after it failed, it is made again without a limit.
    budget: Option<u64>,
    /// Whether nobody else uses the device.
    is_alone: bool,
    table: HashTable,
    model: BTreeMap<Row, Vec<Row>>,
}

impl Pair {
    fn random(session: &Arc<Session>, rng: &mut StdRng) -> Self {
        let kind = *[TableKind::Map, TableKind::Map, TableKind::Multimap, TableKind::Set].choose(rng).expect("kinds");
        let keys = *[1, 1, 1, 2, 3].choose(rng).expect("counts");
        let values = if kind == TableKind::Set { 0 } else { *[0, 1, 1, 1, 2, 3].choose(rng).expect("counts") };
        let mut fields = vec![];
        for index in 0..keys + values {
            let data_type = if rng.random_bool(0.05) { WIDE } else { TYPES.choose(rng).expect("types").clone() };
            // Half of all: 4-byte keys and values.
            let data_type = if rng.random_bool(0.4) { DataType::Int32 } else { data_type };
            fields.push(Field::new(format!("c{index}"), data_type, rng.random_bool(0.4)));
        }
        let key_schema = Arc::new(Schema::new(fields[..keys].to_vec()));
        let schema = Arc::new(Schema::new(fields));
        let lanes = [None, Some(1), Some(2), Some(4), Some(8), Some(32)];
        let options = HashTableOptions {
            load_factor: *[0.5, 0.5, 0.75, 0.9, 0.95].choose(rng).expect("factors"),
            capacity: *[0, 0, 10, 500].choose(rng).expect("capacities"),
            probe_group_lanes: *lanes.choose(rng).expect("lanes"),
            bucket_bytes: None,
            seed: rng.random_range(0..3),
            hash_bits: *[64, 64, 64, 5, 12].choose(rng).expect("bits"),
            segment_bytes_max: *[None, Some(512), Some(2048)].choose(rng).expect("sizes"),
        };
        // Few hashes are a matter of long probes, not of many rows.
        let table = HashTable::new(session, kind, schema.clone(), keys, options).expect("a table");
        let few = rng.random_bool(0.5);
        Self {
            session: session.clone(),
            kind,
            schema,
            key_schema,
            keys,
            few,
            budget: None,
            is_alone: true,
            table,
            model: BTreeMap::new(),
        }
    }

    fn row(&self, rng: &mut StdRng) -> Row {
        let fields = self.schema.fields().iter().enumerate();
        fields.map(|(index, field)| cell(rng, field, self.few && index < self.keys)).collect()
    }

    fn rows(&self, rng: &mut StdRng) -> Vec<Row> {
        let count = *[0, 1, 31, 33, 200, 700].choose(rng).expect("counts");
        let mut rows: Vec<Row> = (0..count).map(|_| self.row(rng)).collect();
        let known: Vec<&Row> = self.model.keys().collect();
        for row in &mut rows {
            if let Some(key) = known.choose(rng).filter(|_| rng.random_bool(0.3)) {
                row[..self.keys].clone_from_slice(key);
            }
        }
        rows
    }

    fn key(&self, row: &Row) -> Option<Row> {
        let cells = self.key_schema.fields().iter().zip(row);
        let key: Row = cells.map(|(field, &cell)| canonical(field.data_type(), cell)).collect();
        key.iter().all(Option::is_some).then_some(key)
    }

    fn keys_of(&self, rows: &[Row]) -> Table {
        let keys: Vec<Row> = rows.iter().map(|row| row[..self.keys].to_vec()).collect();
        table(&self.session, &self.key_schema, &keys)
    }

    /// Inserts into both; where several rows of a batch have a key, the table's choice is taken if it is one of them.
    fn insert(&mut self, rows: &[Row], assigns: bool) {
        let input = table(&self.session, &self.schema, rows);
        let (before, added) = self.operate(|table| {
            let before = table.len();
            let added = if assigns { table.insert_or_assign(&input) } else { table.insert(&input) };
            added.map(|added| (before, added))
        });
        assert_eq!(self.table.len(), before + added, "rows that came in");
        let mut candidates: BTreeMap<Row, Vec<Row>> = BTreeMap::new();
        for row in rows {
            if let Some(key) = self.key(row) {
                candidates.entry(key).or_default().push(row[self.keys..].to_vec());
            }
        }
        if self.kind == TableKind::Multimap {
            for (key, values) in candidates {
                self.model.entry(key).or_default().extend(values);
            }
            return;
        }
        let mut held: BTreeMap<Row, Row> = BTreeMap::new();
        for row in self.entries() {
            let (key, value) = row.split_at(self.keys);
            assert!(held.insert(key.to_vec(), value.to_vec()).is_none(), "a key twice: {key:?}");
        }
        for (key, values) in candidates {
            if !assigns && self.model.contains_key(&key) {
                continue;
            }
            let value = held.get(&key).unwrap_or_else(|| panic!("{key:?} is lost"));
            assert!(values.contains(value), "{value:?} of {key:?} is none of {values:?}");
            self.model.insert(key, vec![value.clone()]);
        }
    }

    /// Runs an operation, first on a full device if so asked: what fails then must leave the table right.
    fn operate<T>(&mut self, operation: impl Fn(&mut HashTable) -> warpjoin::Result<T>) -> T {
        if let Some(bytes) = self.budget.take().filter(|_| self.is_alone) {
            let device = self.session.devices()[0].clone();
            let (limit, used) = (device.memory().limit_bytes(), device.memory().used_bytes());
            device.memory().set_limit_bytes(used + bytes);
            let outcome = operation(&mut self.table);
            device.memory().set_limit_bytes(limit);
            match outcome {
                Ok(value) => return value,
                Err(Error::Device(DeviceError::OutOfDeviceMemory { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
        operation(&mut self.table).expect("works")
    }

    fn entries(&self) -> Vec<Row> {
        rows(&self.table.entries().expect("entries"))
    }

    fn erase(&mut self, wanted: &[Row]) {
        let keys = self.keys_of(wanted);
        let erased = self.operate(|table| table.erase(&keys));
        let mut expected = 0;
        for row in wanted {
            expected += self.key(row).and_then(|key| self.model.remove(&key)).map_or(0, |rows| rows.len() as u64);
        }
        assert_eq!(erased, expected, "rows that were erased");
    }

    /// Everything that can be asked.
    fn check(&self, wanted: &[Row]) {
        let mut expected: Vec<Row> = self
            .model
            .iter()
            .flat_map(|(key, values)| values.iter().map(|v| [key.clone(), v.clone()].concat()))
            .collect();
        let mut held = self.entries();
        assert_eq!(self.table.len(), expected.len() as u64, "rows");
        expected.sort();
        held.sort();
        assert_eq!(held, expected, "entries");
        let keys = self.keys_of(wanted);
        let hits: Vec<Option<&Vec<Row>>> =
            wanted.iter().map(|row| self.key(row).and_then(|key| self.model.get(&key))).collect();
        let single = |of: &dyn Fn(&Option<&Vec<Row>>) -> i128| -> Vec<Row> {
            hits.iter().map(|hit| vec![Some(of(hit))]).collect()
        };
        assert_eq!(rows(&self.table.contains(&keys).expect("flags")), single(&|hit| hit.is_some().into()), "contains");
        let counts = rows(&self.table.count(&keys).expect("counts"));
        assert_eq!(counts, single(&|hit| hit.map_or(0, |rows| rows.len() as i128)), "count");
        let values = self.schema.fields().len() - self.keys;
        if self.kind == TableKind::Map && values > 0 {
            let found = rows(&self.table.find(&keys).expect("values"));
            let expected: Vec<Row> =
                hits.iter().map(|hit| hit.map_or(vec![None; values], |rows| rows[0].clone())).collect();
            assert_eq!(found, expected, "find");
        }
        let mut expected: Vec<Row> = vec![];
        for (index, hit) in hits.iter().enumerate() {
            let row = |value: &Row| [vec![Some(index as i128)], value.clone()].concat();
            expected.extend(hit.iter().flat_map(|rows| rows.iter().map(row)));
        }
        let mut retrieved = rows(&self.table.retrieve(&keys).expect("rows"));
        assert!(retrieved.is_sorted_by_key(|row| row[0]), "retrieve answers in the order of the keys");
        retrieved.sort();
        expected.sort();
        assert_eq!(retrieved, expected, "retrieve");
        let mut probed = rows(&self.table.probe(&keys).expect("rows"));
        let mut expected: Vec<Row> = vec![];
        for (row, hit) in wanted.iter().zip(&hits) {
            let key = self.key(row).unwrap_or_default();
            expected.extend(hit.iter().flat_map(|rows| rows.iter().map(|v| [key.clone(), v.clone()].concat())));
        }
        probed.sort();
        expected.sort();
        assert_eq!(probed, expected, "probe");
    }

    fn step(&mut self, rng: &mut StdRng) {
        let rows = self.rows(rng);
        self.budget = rng.random_bool(0.3).then(|| 1 << rng.random_range(4..18));
        match rng.random_range(0..10) {
            0..=3 => self.insert(&rows, false),
            4 if self.kind != TableKind::Multimap => self.insert(&rows, true),
            4..=6 => self.erase(&rows),
            7 => {
                let seed = rng.random();
                self.operate(|table| table.rehash(seed));
            }
            8 => {
                let keys = rng.random_range(0..3000);
                self.operate(|table| table.reserve(keys));
            }
            _ if rng.random_bool(0.3) => {
                self.operate(HashTable::clear);
                self.model.clear();
            }
            _ => self.insert(&rows, false),
        }
        let wanted = self.rows(rng);
        self.check(&wanted);
    }
}

/// Runs random operations on a table of the session and on its model; where nobody else uses the device, with as little
/// memory at times as the seed says.
pub(crate) fn operate(session: &Arc<Session>, seed: u64, steps: usize, is_alone: bool) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut pair = Pair::random(session, &mut rng);
    pair.is_alone = is_alone;
    for _ in 0..steps {
        pair.step(&mut rng);
    }
}

/// Seeds that run one by one where sessions have the same devices.
const ALONE: usize = 20;

/// Runs the operations of these seeds.
pub(crate) fn check(opener: &dyn Opener, seeds: &[u64], steps: usize) {
    let run = |seed: u64, is_alone: bool| {
        let run = || operate(&opener.open(1).expect("a device"), seed, steps, is_alone);
        catch_unwind(AssertUnwindSafe(run)).err().map(|_| seed)
    };
    let has_own_devices = opener.has_own_devices();
    let failures = in_threads(seeds, |&seed| run(seed, has_own_devices));
    let mut failures: Vec<u64> = failures.into_iter().flatten().collect();
    if !has_own_devices {
        failures.extend(seeds.iter().take(ALONE).filter_map(|&seed| run(seed, true)));
    }
    assert!(failures.is_empty(), "hash tables of seeds {failures:?} differ from the model");
}
