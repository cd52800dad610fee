//! Lines of joins with materialized output.
//!
//! Owns their shapes and designs. Must not know how a join works.

use arrow::datatypes::DataType;
use warpjoin::HashJoin;
use warpjoin::exec::{ExecOptions, JoinForm, RuntimeFilters};
use warpjoin::plan::{FilterForm, JoinKind};

use super::operator::OperatorCase;
use super::{count_name, rows_name};
use crate::work::slot_bytes;
use crate::{
    AccessKind, Bench, Case, ColumnSpec, Design, ExpectedJoin, Line, Numbering, Numbers, Relative, Result, Scale,
    SetUp, Unit, Value, Work, table,
};

/// Groups of lines: with a target, along an axis, with skewed keys, and over several devices.
const TARGETS: &str = "join";
const SWEEPS: &str = "join_sweep";
const SKEW: &str = "join_skew";
const DEVICES: &str = "join_devices";
const GPU_JOINS: &str = "PHJ-OM";
const LIBCUDF: &str = "libcudf";
/// Partitions of a radix partition by 8 bits.
const PARTS: u64 = 256;

/// Key columns of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// One column of 32 bits.
    Int32,
    /// One column of 64 bits.
    Int64,
    /// Two columns of 64 bits.
    Int64Pair,
    /// One column of 32 bits with values from 0 to distinct - 1.
    Dense32,
}

/// Output of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// Keys, and `columns` payload columns of `bytes` bytes from each side.
    Payloads { columns: u64, bytes: u64 },
    /// Row numbers of both sides, from a 4-byte column of each side, without keys.
    Indices,
}

/// A join of random tables.
#[derive(Debug, Clone, Copy)]
struct JoinSpec {
    build_rows: u64,
    probe_rows: u64,
    key: Key,
    output: Output,
    /// Build rows per key.
    multiplicity: u64,
    /// Share of probe rows that match.
    match_rate: f64,
    /// Exponent of Zipf's law for probe keys.
    skew: Option<f64>,
    /// Build and probe rows of one hot key.
    hot_rows: Option<(u64, u64)>,
    /// Load factor of the hash table; `None`: chosen by the operator.
    load_factor: Option<f64>,
    /// Join algorithm; `None`: chosen by the operator.
    form: Option<JoinForm>,
    /// Runtime filter; `None`: no filter.
    filter: Option<FilterForm>,
    /// Whether it is a semi join, which outputs only columns of matching probe rows.
    is_semi: bool,
}

impl JoinSpec {
    fn new(build_rows: u64, probe_rows: u64, key: Key, output: Output) -> Self {
        Self {
            build_rows,
            probe_rows,
            key,
            output,
            multiplicity: 1,
            match_rate: 1.0,
            skew: None,
            hot_rows: None,
            load_factor: None,
            form: None,
            filter: None,
            is_semi: false,
        }
    }

    fn build_numbers(&self) -> Numbers {
        let hot_rows = self.hot_rows.map_or(0, |(build, _)| build);
        Numbers { hot_rows, ..Numbers::new(Numbering::Cyclic, (self.build_rows / self.multiplicity).max(1)) }
    }

    fn probe_numbers(&self) -> Numbers {
        let numbering = if self.skew.is_some() { Numbering::Zipf } else { Numbering::Permuted };
        Numbers {
            hot_rows: self.hot_rows.map_or(0, |(_, probe)| probe),
            hit_rows: (self.probe_rows as f64 * self.match_rate).round() as u64,
            exponent: self.skew.unwrap_or(0.0),
            ..Numbers::new(numbering, self.build_numbers().distinct)
        }
    }

    fn keys(&self) -> Vec<ColumnSpec> {
        let wide = |name, value| ColumnSpec::new(name, value, DataType::Int64, 0);
        match self.key {
            Key::Int32 => vec![ColumnSpec::new("key", Value::Key32, DataType::Int32, 0)],
            Key::Int64 => vec![wide("key", Value::Key64)],
            Key::Int64Pair => vec![wide("key", Value::Key64), wide("key_second", Value::KeySecond)],
            Key::Dense32 => {
                // Keys without a match are larger than those of the build side, but within its declared bounds.
                let misses = if self.match_rate < 1.0 { self.probe_rows } else { 0 };
                let max = self.build_numbers().distinct + misses - 1;
                vec![ColumnSpec::new("key", Value::KeyDense, DataType::Int32, 0).up_to(max)]
            }
        }
    }

    /// Columns of a side other than the keys.
    fn payloads(&self, side: &str, rows: u64, seed: u64) -> Vec<ColumnSpec> {
        match self.output {
            Output::Indices => {
                vec![ColumnSpec::new(&format!("{side}_row"), Value::Row, DataType::Int32, 0).up_to(rows - 1)]
            }
            Output::Payloads { columns, bytes } => {
                let data_type = if bytes == 4 { DataType::Int32 } else { DataType::Int64 };
                let column = |c| ColumnSpec::new(&format!("{side}_{c}"), Value::Random, data_type.clone(), seed + c);
                (0..columns).map(column).collect()
            }
        }
    }

    /// Columns of the build side other than the keys.
    fn build_payloads(&self) -> Vec<ColumnSpec> {
        if self.is_semi { vec![] } else { self.payloads("build", self.build_rows, 0x100) }
    }

    fn set_up<'a>(&self, bench: &'a Bench) -> Result<Box<dyn Case + 'a>> {
        let keys = self.keys();
        let (build_payloads, probe_payloads) = (self.build_payloads(), self.payloads("probe", self.probe_rows, 0x200));
        let side = |rows, numbers: Numbers, payloads: &[ColumnSpec]| {
            table(bench, rows, &numbers, &[keys.clone(), payloads.to_vec()].concat())
        };
        let build = side(self.build_rows, self.build_numbers(), &build_payloads)?;
        let probe = side(self.probe_rows, self.probe_numbers(), &probe_payloads)?;
        let build_width = keys.len() + build_payloads.len();
        let kind = if self.is_semi { JoinKind::ProbeSemi } else { JoinKind::Inner };
        let mut join = HashJoin::new(build, probe).kind(kind);
        for key in &keys {
            join = join.on(&key.name, &key.name)?;
        }
        let output_keys = if self.output == Output::Indices { vec![] } else { keys.clone() };
        let mut output: Vec<usize> = (0..output_keys.len()).map(|key| build_width + key).collect();
        output.extend((0..build_payloads.len()).map(|payload| keys.len() + payload));
        output.extend((0..probe_payloads.len()).map(|payload| build_width + keys.len() + payload));
        let expected = ExpectedJoin {
            build_rows: self.build_rows,
            probe_rows: self.probe_rows,
            build: self.build_numbers(),
            probe: self.probe_numbers(),
            keys: &output_keys,
            build_payloads: &build_payloads,
            probe_payloads: &probe_payloads,
        };
        let expected = expected.checksum(bench)?;
        let options = ExecOptions {
            load_factor: self.load_factor,
            join_form: self.form,
            runtime_filters: self.filter.map_or(RuntimeFilters::Off, RuntimeFilters::AlwaysBy),
            ..ExecOptions::default()
        };
        Ok(Box::new(OperatorCase::new(bench, join.output(output).plan()?, options, expected)))
    }

    /// Number of output rows.
    fn output_rows(&self) -> u64 {
        match self.hot_rows {
            Some((build, probe)) => build * probe + self.probe_rows.saturating_sub(build.max(probe)),
            None => (self.probe_rows as f64 * self.match_rate).round() as u64 * self.multiplicity,
        }
    }

    /// Inputs read once, output written once.
    fn streams(&self) -> Work {
        let [key_bytes, build_bytes, probe_bytes] = self.row_bytes();
        let output_key_bytes = if self.output == Output::Indices { 0 } else { key_bytes };
        Work::streams(self.input_bytes(), self.output_rows() * (output_key_bytes + build_bytes + probe_bytes))
    }

    /// Bytes of a row's keys, of a build row's payloads, of a probe row's payloads.
    fn row_bytes(&self) -> [u64; 3] {
        let bytes = |columns: Vec<ColumnSpec>| columns.iter().map(ColumnSpec::width_bytes).sum();
        [bytes(self.keys()), bytes(self.build_payloads()), bytes(self.payloads("probe", self.probe_rows, 0))]
    }

    fn input_bytes(&self) -> u64 {
        let [key_bytes, build_bytes, probe_bytes] = self.row_bytes();
        self.build_rows * (key_bytes + build_bytes) + self.probe_rows * (key_bytes + probe_bytes)
    }

    /// One table in device memory; one pass of radix partition with tables in L2; two passes with tables
    /// in shared memory.
    fn designs(&self) -> Vec<Design> {
        let [key_bytes, build_bytes, _] = self.row_bytes();
        let keys = self.build_numbers().distinct;
        let slot_bytes = match (self.key, self.multiplicity) {
            (Key::Dense32, 1) => slot_bytes(build_bytes),
            (_, 1) => slot_bytes(key_bytes + build_bytes),
            // The key, and the begin and end of its rows.
            _ => slot_bytes(key_bytes + 8),
        };
        let load_factor = if self.key == Key::Dense32 { 1.0 } else { self.load_factor.unwrap_or(0.5) };
        let table_bytes = (keys as f64 / load_factor) as u64 * slot_bytes;
        // Duplicates are counted in a first pass, and placed in a second.
        let visits = if self.multiplicity > 1 || self.hot_rows.is_some() { 2 } else { 1 };
        let with_accesses = |work: Work, footprint: u64| {
            work.and(AccessKind::Cas, visits * self.build_rows, footprint).and(
                AccessKind::Read,
                self.probe_rows,
                footprint,
            )
        };
        let mut one_table = with_accesses(self.streams(), table_bytes);
        one_table.write_bytes += table_bytes;
        vec![
            Design { name: "one table", work: one_table },
            Design {
                name: "one pass, tables in L2",
                work: with_accesses(self.streams().and_copy(self.input_bytes()), table_bytes / PARTS),
            },
            Design { name: "two passes", work: self.streams().and_copy(2 * self.input_bytes()) },
        ]
    }

    /// Sizes, keys and output as text.
    fn name(&self) -> String {
        let key = match self.key {
            Key::Int32 => "int32",
            Key::Int64 => "int64",
            Key::Int64Pair => "two int64",
            Key::Dense32 => "dense int32",
        };
        let output = match self.output {
            Output::Indices => "indices".to_string(),
            Output::Payloads { columns, bytes } => format!("{columns} x {bytes} B a side"),
        };
        let kind = if self.is_semi { "semi, " } else { "" };
        let rows = format!("{} x {}", rows_name(self.build_rows), rows_name(self.probe_rows));
        let mut name = format!("{kind}{rows}, {key}, {output}");
        if self.multiplicity > 1 {
            name += &format!(", {} rows a key", self.multiplicity);
        }
        if self.match_rate < 1.0 {
            name += &format!(", match rate {}", self.match_rate);
        }
        if let Some(exponent) = self.skew {
            name += &format!(", Zipf {exponent}");
        }
        if let Some((build, probe)) = self.hot_rows {
            name += &format!(", hot key {} x {}", count_name(build), count_name(probe));
        }
        if let Some(load_factor) = self.load_factor {
            name += &format!(", load factor {load_factor}");
        }
        if let Some(form) = self.filter {
            name += &format!(", filtered by {form}");
        }
        match self.form {
            None => name,
            Some(JoinForm::HashTable) => name + ", hash table",
            Some(JoinForm::Direct) => name + ", direct table",
            Some(JoinForm::Partitioned) => name + ", partitioned",
        }
    }

    fn line(self, group: &'static str) -> Line {
        let set_up = SetUp::Ready(Box::new(move |bench| self.set_up(bench)));
        let mut line = Line::new(group, self.name(), set_up);
        let streams = self.streams();
        let [key_bytes, build_bytes, _] = self.row_bytes();
        line.axes.extend([
            ("build_rows", self.build_rows as f64),
            ("probe_rows", self.probe_rows as f64),
            ("key_bytes", key_bytes as f64),
            ("payload_bytes", build_bytes as f64),
            ("multiplicity", self.multiplicity as f64),
            ("match_rate", self.match_rate),
            ("skew", self.skew.unwrap_or(0.0)),
        ]);
        line.axes.extend(self.load_factor.map(|load_factor| ("load_factor", load_factor)));
        line.rows = self.build_rows + self.probe_rows;
        line.moved_bytes = streams.read_bytes + streams.write_bytes;
        line.designs = self.designs();
        line
    }
}

/// Lines of rows on all devices: both sides exchanged, a build side broadcast, several rows a key, skewed keys.
pub(super) fn over_devices(scale: Scale, devices: u64) -> Vec<Line> {
    let join = |build, probe| {
        let output = Output::Payloads { columns: 1, bytes: 8 };
        JoinSpec::new(scale.rows(build), scale.rows(probe), Key::Int64, output)
    };
    // Half of the probe rows have one key.
    let hot_rows = Some((1, scale.rows(27)));
    let specs = [
        join(28, 28),
        join(30, 30),
        join(20, 30),
        JoinSpec { multiplicity: 4, match_rate: 0.25, ..join(26, 28) },
        JoinSpec { skew: Some(1.0), ..join(26, 28) },
        JoinSpec { hot_rows, ..join(26, 28) },
    ];
    let exchanged = |spec: JoinSpec| {
        let [key_bytes, build_bytes, _] = spec.row_bytes();
        let both = spec.input_bytes() / devices * (devices - 1);
        both.min(spec.build_rows * (key_bytes + build_bytes) * (devices - 1))
    };
    let line = |spec: JoinSpec| {
        let mut line = spec.line(DEVICES);
        line.designs.iter_mut().for_each(|design| design.work.exchanged_bytes = exchanged(spec));
        line
    };
    specs.map(line).into()
}

/// Lines with a target, and the same joins with dense keys.
pub(super) fn targets(scale: Scale) -> Vec<Line> {
    let rows = |bits| scale.rows(bits);
    let payloads = |columns, bytes| Output::Payloads { columns, bytes };
    let join = |build, probe, key, output| JoinSpec::new(rows(build), rows(probe), key, output);
    let against = |spec: JoinSpec, target, peer| spec.line(TARGETS).against(Unit::Milliseconds, target, Some(peer));
    let semi = |build, probe| JoinSpec { is_semi: true, ..join(build, probe, Key::Int32, Output::Indices) };
    let quarter = |output| JoinSpec {
        multiplicity: 4,
        match_rate: 0.25,
        ..JoinSpec::new(rows(24), rows(26), Key::Int64, output)
    };
    vec![
        against(join(27, 27, Key::Int32, payloads(1, 4)), 9.0, (12.0, GPU_JOINS)),
        against(join(27, 27, Key::Int32, payloads(2, 4)), 13.0, (18.9, GPU_JOINS)),
        against(join(27, 27, Key::Int32, payloads(4, 4)), 20.0, (31.5, GPU_JOINS)),
        against(join(27, 27, Key::Int32, Output::Indices), 9.0, (27.0, LIBCUDF)),
        against(join(27, 27, Key::Int64, payloads(1, 8)), 15.0, (31.0, LIBCUDF)),
        against(join(20, 27, Key::Int32, Output::Indices), 2.5, (7.7, LIBCUDF)),
        against(join(20, 27, Key::Int32, payloads(1, 8)), 4.0, (10.5, LIBCUDF)),
        against(join(24, 28, Key::Int32, payloads(1, 4)), 9.0, (15.0, GPU_JOINS)),
        against(join(24, 28, Key::Int32, payloads(2, 4)), 14.0, (24.9, GPU_JOINS)),
        against(quarter(Output::Indices), 3.0, (8.3, LIBCUDF)),
        against(quarter(payloads(1, 8)), 5.0, (11.2, LIBCUDF)),
        against(semi(27, 27), 7.0, (18.2, LIBCUDF)),
        against(semi(20, 27), 2.0, (4.4, LIBCUDF)),
        against(semi(24, 28), 8.0, (18.1, LIBCUDF)),
        join(27, 27, Key::Dense32, payloads(1, 4)).line(TARGETS),
        join(20, 27, Key::Dense32, payloads(1, 4)).line(TARGETS),
    ]
}

/// Lines along each axis.
pub(super) fn sweeps(scale: Scale) -> Vec<Line> {
    let base = JoinSpec::new(scale.rows(24), scale.rows(26), Key::Int32, Output::Payloads { columns: 1, bytes: 4 });
    let mut lines = vec![];
    for bits in [10, 14, 17, 20, 21, 22, 23, 24, 25, 26, 27] {
        let chosen = JoinSpec { build_rows: scale.rows(bits), probe_rows: scale.rows(27), ..base };
        let forms =
            [("chosen", None), ("hash table", Some(JoinForm::HashTable)), ("partitioned", Some(JoinForm::Partitioned))];
        for (series, form) in forms {
            let spec = JoinSpec { form, ..chosen };
            lines.push(spec.line(SWEEPS).plotted("join_build_rows", series, spec.build_rows as f64));
        }
    }
    for build_bits in [20, 24] {
        for load_factor in [0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95] {
            let build_rows = scale.rows(build_bits);
            let form = Some(JoinForm::HashTable);
            let spec = JoinSpec { build_rows, load_factor: Some(load_factor), form, ..base };
            let series = format!("{} x {}", rows_name(build_rows), rows_name(spec.probe_rows));
            lines.push(spec.line(SWEEPS).plotted("join_load_factor", series, load_factor));
        }
    }
    for match_rate in [0.0, 0.01, 0.1, 0.25, 0.5, 1.0] {
        let series = format!("{} x {}", rows_name(base.build_rows), rows_name(base.probe_rows));
        let line = JoinSpec { match_rate, ..base }.line(SWEEPS);
        lines.push(line.plotted("join_match_rate", series, match_rate));
    }
    lines.extend(filtered(scale));
    for key in [Key::Int32, Key::Int64, Key::Int64Pair, Key::Dense32] {
        for bytes in [4, 8] {
            lines.push(JoinSpec { key, output: Output::Payloads { columns: 1, bytes }, ..base }.line(SWEEPS));
        }
    }
    for multiplicity in [2, 4, 16, 64] {
        // Keeps the number of output rows.
        let probe_rows = (base.probe_rows / multiplicity).max(64);
        lines.push(JoinSpec { multiplicity, probe_rows, ..base }.line(SWEEPS));
    }
    lines
}

/// Joins with tables larger than L2 and low match rates, with and without runtime filters.
fn filtered(scale: Scale) -> Vec<Line> {
    let payload = Output::Payloads { columns: 1, bytes: 4 };
    let mut lines = vec![];
    for (key, form, filter) in [
        (Key::Int32, JoinForm::HashTable, FilterForm::Bloom),
        (Key::Int64, JoinForm::HashTable, FilterForm::Bloom),
        (Key::Dense32, JoinForm::Direct, FilterForm::Bitmap),
    ] {
        for (bits, match_rate) in [(22, 0.1), (24, 0.01), (24, 0.1), (24, 0.5), (26, 0.1)] {
            for filter in [None, Some(filter)] {
                let of_key = JoinSpec::new(scale.rows(bits), scale.rows(27), key, payload);
                lines.push(JoinSpec { match_rate, filter, form: Some(form), ..of_key }.line(SWEEPS));
            }
        }
    }
    lines
}

/// Lines with skewed keys: Zipf's law, and one hot key with many rows on both sides.
pub(super) fn skew(scale: Scale) -> Vec<Line> {
    let payload = Output::Payloads { columns: 1, bytes: 4 };
    let drawn = JoinSpec::new(scale.rows(24), scale.rows(26), Key::Int32, payload);
    let mut lines: Vec<Line> =
        [0.5, 1.0, 1.5].map(|exponent| JoinSpec { skew: Some(exponent), ..drawn }.line(SKEW)).into();
    let even = JoinSpec::new(scale.rows(24), scale.rows(24), Key::Int32, payload);
    let hot = JoinSpec { hot_rows: Some((scale.rows(20), scale.rows(10))), ..even };
    let (even, write_bytes) = (even.line(SKEW), hot.streams().write_bytes);
    let relative = Relative { to: even.id(), factor: 1.5, write_bytes };
    lines.extend([even, Line { relative: Some(relative), ..hot.line(SKEW) }]);
    lines
}
