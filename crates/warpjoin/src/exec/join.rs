//! Joins: the build side becomes a hash table on every device, the probe side gets a step.

use std::sync::Arc;

use warpjoin_device::{Arg, Buffer, Kernel, ModuleSource};

use super::exchange::launch;
use super::group_estimate::leaves_other_forms;
use super::launch::{Report, read_report};
use super::options::{Distribution, JoinForm};
use super::query::Query;
use super::relation::{Intermediate, JoinShard, JoinTable, Relation, Source};
use crate::codegen::{
    Constants, DirectSlots, JoinShape, PayloadForm, ProbeKey, ProbeStep, Sink, SinkShape, Step, StoredKey, control,
    status,
};
use crate::expr::{Expr, ExprKind};
use crate::plan::{JoinKind, JoinPlan, Plan, PlanKind};
use crate::{Error, Reason, Result, Table};

/// Load factor where nothing else is asked for: one lane a key is as fast as two up to here. A denser
/// table that just fits L2 is slower: at 0.7, with 52 MB of slots, the probes of TPC-H Q5 at scale 10
/// took 7.5 ms on an H100 instead of 4.4 ms.
const LOAD_FACTOR: f64 = 0.5;
/// Bytes of a slot: key word and value word.
const SLOT_BYTES: u64 = 16;
/// Entries of `join_build.cu`.
const BUILD_ENTRIES: [&str; 7] =
    ["build_unique", "build_set", "build_count", "build_offsets", "build_fill", "build_direct_4", "build_direct_8"];
/// Largest direct table that is made when one is asked for.
const DIRECT_BYTES_MAX: u64 = 4 << 30;
/// Windows that an insert reads before it gives up, at first.
const STEPS_MAX: u64 = 4096;

impl Query<'_> {
    /// Runs the build side, builds the tables, and appends the probe to the probe side.
    pub(crate) fn join(&mut self, plan: &JoinPlan) -> Result<Relation> {
        let build_width = plan.build.schema.fields().len();
        let mut payload = needed(plan);
        payload.retain(|&column| column < build_width);
        let build = self.relation(&plan.build)?;
        let probe = self.relation(&plan.probe)?;
        if self.prefers_partition(plan, &build, &probe) {
            match self.join_partitioned(plan, build.clone(), probe.clone()) {
                Ok(Some(matches)) => return Ok(matches),
                Ok(None) => {}
                Err(error) if leaves_other_forms(&error) => log::debug!("a join without a partition: {error}"),
                Err(error) => return Err(error),
            }
        }
        let keys: Vec<Expr> = plan.on.iter().map(|(build, _)| build.clone()).collect();
        let sink = Sink::Build { keys, null_equals_null: plan.null_equals_null, payload: payload.clone() };
        let (rows, generated) = self.run_rows(&build, &sink, "BuildRows")?;
        drop(build);
        let SinkShape::Build { packing, payload: form, .. } = generated.sink else {
            return Err(Error::internal("a build sink without a build"));
        };
        let is_exchanged = self.exchanges(if self.is_dry() { rows.rows_max } else { rows.rows() }, probe.rows_max);
        let rows = if is_exchanged { self.exchange(rows)? } else { self.broadcast(rows)? };
        let shape = JoinShape { packing, payload: form, unique: true, lanes: 1, direct: None };
        // Where only the presence of a key counts, its first row stands for all.
        let is_set = plan.kind == JoinKind::ProbeSemi && plan.residual.is_none() && !shape.is_hashed();
        let unique = is_set || !self.is_dry() || self.guess_unique(plan);
        let table = self.build_table(JoinShape { unique, ..shape }, rows, is_set)?;
        let mut payload_of = vec![None; build_width];
        for (position, &column) in payload.iter().enumerate() {
            payload_of[column] = Some(position);
        }
        if is_exchanged {
            self.probe_exchanged(plan, probe, table, payload_of)
        } else {
            Ok(probe_here(plan, probe, table, payload_of))
        }
    }

    /// A dry run's guess whether no build key occurs twice: one of the key columns comes from a column
    /// of a table whose values are known to be distinct.
    fn guess_unique(&self, plan: &JoinPlan) -> bool {
        plan.on.iter().any(|(key, _)| match key.kind {
            ExprKind::Column(column) => self.is_distinct(&plan.build, column),
            _ => false,
        })
    }

    fn is_distinct(&self, plan: &Plan, column: usize) -> bool {
        self.traces(plan, column, true, &|table, column| table.statistics()[column].unique == Some(true))
    }

    /// Whether the rows of a side come in the order of a column of a table.
    pub(super) fn is_ordered(&self, plan: &Plan, column: usize) -> bool {
        self.traces(plan, column, false, &|table, column| table.statistics()[column].sorted)
    }

    /// Whether a column is one of a table for which `holds`; `of_group` answers for a single group key.
    fn traces(&self, plan: &Plan, column: usize, of_group: bool, holds: &dyn Fn(&Table, usize) -> bool) -> bool {
        match &plan.kind {
            PlanKind::Scan { table, projection } => holds(table, projection[column]),
            PlanKind::Input { index } => self.inputs.get(*index).is_some_and(|table| holds(table, column)),
            PlanKind::Filter { input, .. } => self.traces(input, column, of_group, holds),
            PlanKind::Project { input, exprs } => match exprs[column].kind {
                ExprKind::Column(column) => self.traces(input, column, of_group, holds),
                _ => false,
            },
            // Right as long as no row of that side matches twice, which a guess may suppose.
            PlanKind::Join(join) => {
                let build_width = join.build.schema.fields().len();
                match join.output[column].checked_sub(build_width) {
                    None => self.traces(&join.build, join.output[column], of_group, holds),
                    Some(probe_column) => self.traces(&join.probe, probe_column, of_group, holds),
                }
            }
            PlanKind::Aggregate { group_by, .. } => of_group && group_by.len() == 1 && column == 0,
        }
    }

    /// Whether both sides are partitioned by key rather than the build side copied to all devices.
    fn exchanges(&self, build_rows: u64, probe_rows_max: u64) -> bool {
        let others = self.devices() as u64 - 1;
        others > 0
            && match self.options.distribution {
                Distribution::Broadcast => false,
                Distribution::Exchange => true,
                Distribution::Auto => probe_rows_max / build_rows.max(1) < others,
            }
    }

    /// Routes the probe rows to the owners of their keys, with the columns that are needed later.
    fn probe_exchanged(
        &mut self,
        plan: &JoinPlan,
        probe: Relation,
        table: Arc<JoinTable>,
        payload_of: Vec<Option<usize>>,
    ) -> Result<Relation> {
        let build_width = payload_of.len();
        let mut columns = needed(plan);
        columns.retain(|&column| column >= build_width);
        let columns: Vec<usize> = columns.into_iter().map(|column| column - build_width).collect();
        let sink = Sink::Route {
            shape: table.shape.clone(),
            keys: plan.on.iter().map(|(_, probe)| probe.clone()).collect(),
            null_equals_null: plan.null_equals_null,
            columns: columns.clone(),
        };
        let (rows, _) = self.run_rows(&probe, &sink, "Partition")?;
        drop(probe);
        let rows = self.exchange(rows)?;
        let packed_words = if table.shape.is_hashed() { table.shape.packing.words() } else { 0 };
        let first_column = 1 + packed_words;
        let moved = |column: usize| match column.checked_sub(build_width) {
            None => column,
            // Only columns in `columns` are asked for.
            Some(probe) => build_width + first_column + columns.iter().position(|&c| c == probe).unwrap_or(0),
        };
        let step = ProbeStep {
            shape: table.shape.clone(),
            key: ProbeKey::Stored(StoredKey { word: 0, packed: (1..first_column).collect() }),
            is_semi: plan.kind == JoinKind::ProbeSemi,
            null_equals_null: plan.null_equals_null,
            residual: plan.residual.as_ref().map(|residual| residual.remap(&moved)),
            output: plan.output.iter().map(|&column| moved(column)).collect(),
            payload_of,
        };
        Ok(append_probe(Relation::new(Source::Intermediate(Arc::new(rows))), step, table))
    }

    /// Builds the hash tables over build rows (key word, then payload): for unique keys first, and
    /// with row lists when a key turns out to occur twice on any device; in a set it may.
    pub(crate) fn build_table(
        &mut self,
        mut shape: JoinShape,
        rows: Intermediate,
        is_set: bool,
    ) -> Result<Arc<JoinTable>> {
        let load_factor = self.options.load_factor.unwrap_or(LOAD_FACTOR).clamp(0.01, 0.99);
        shape.lanes = self.options.probe_group_lanes.unwrap_or_else(|| lanes_for(load_factor));
        if self.is_dry() {
            shape.direct = self.direct_slots(&shape, rows.rows_max).filter(|_| shape.unique);
            self.compile(&build_module(shape.lanes, self.options.hash_bits), BUILD_ENTRIES[0])?;
            return Ok(Arc::new(JoinTable { shape: Arc::new(shape), shards: vec![], build: Arc::new(rows) }));
        }
        let rows_max = rows.shards.iter().map(|shard| shard.rows).max().unwrap_or(0);
        if rows_max > u64::from(u32::MAX) {
            return Err(Reason::Limit(format!("{rows_max} build rows on one device")).into());
        }
        let started = self.streams.iter().map(|stream| stream.record()).collect::<Result<Vec<_>, _>>()?;
        shape.direct = self.direct_slots(&shape, rows_max);
        let direct = shape.direct.map(|slots| self.build_direct(&shape, slots, &rows, is_set)).transpose()?.flatten();
        let mut builder = TableBuild { rows: &rows, shape: &shape, is_set, load_factor, steps_max: STEPS_MAX };
        let (shards, unique) = match direct {
            Some(shards) => (shards, true),
            // A key that occurred twice in a direct table does so here too.
            None => match shape.direct.is_none().then(|| self.build_unique(&mut builder)).transpose()?.flatten() {
                Some(shards) => (shards, true),
                None => (self.build_lists(&mut builder)?, false),
            },
        };
        shape.unique = unique;
        shape.direct = shape.direct.filter(|_| unique);
        let mut kernel_ns = 0;
        for (stream, started) in self.streams.iter().zip(&started) {
            let ended = stream.record()?;
            stream.synchronize()?;
            kernel_ns = kernel_ns.max(ended.elapsed_ns(started)?);
        }
        self.metrics.kernel_ns += kernel_ns;
        self.metrics.pipelines.push(super::metrics::PipelineMetrics {
            name: format!(
                "BuildRows -> {}",
                match (shape.direct, shape.unique) {
                    (Some(slots), _) => format!("DirectTable[{} bytes]", slots.bytes),
                    (None, true) => format!("HashTable[unique, {} lanes]", shape.lanes),
                    (None, false) => format!("HashTable[lists, {} lanes]", shape.lanes),
                }
            ),
            rows_in: rows.rows(),
            rows_out: rows.rows(),
            read_bytes: rows.rows() * 16,
            kernel_ns,
            retries: 0,
        });
        Ok(Arc::new(JoinTable { shape: Arc::new(shape), shards, build: Arc::new(rows) }))
    }

    /// Slots of a table indexed by the packed key, where that takes not much more memory than hashing:
    /// one access finds a key, and rows that are clustered by key stay so.
    fn direct_slots(&self, shape: &JoinShape, rows_max: u64) -> Option<DirectSlots> {
        let is_asked = match self.options.join_form {
            Some(JoinForm::Direct) => true,
            None if self.options.load_factor.is_none() => false,
            _ => return None,
        };
        let slots = DirectSlots::of(&shape.payload);
        let span = shape.packing.span().filter(|_| !shape.is_hashed())?;
        let bytes = span.checked_mul(slots.bytes.into())?;
        let l2_bytes = self.session.devices().iter().map(|device| device.info().l2_bytes).min().unwrap_or(0);
        let hash_bytes = (rows_max as f64 / LOAD_FACTOR) as u64 * SLOT_BYTES;
        let is_small = bytes <= (4 * hash_bytes).max(l2_bytes / 4);
        (is_small || (is_asked && bytes <= DIRECT_BYTES_MAX)).then_some(slots)
    }

    /// Tables indexed by the packed key; `None` when a key occurs twice.
    fn build_direct(
        &mut self,
        shape: &JoinShape,
        slots: DirectSlots,
        rows: &Intermediate,
        is_set: bool,
    ) -> Result<Option<Vec<JoinShard>>> {
        let entry = format!("build_direct_{}", slots.bytes);
        let kernels = self.compile(&build_module(1, self.options.hash_bits), &entry)?;
        let span = shape.packing.span().unwrap_or(0);
        let mut shards = vec![];
        let mut controls = vec![];
        for (device, rows) in rows.shards.iter().enumerate() {
            let stream = &self.streams[device];
            let table = stream.alloc_filled(span * u64::from(slots.bytes), 0)?;
            let control = stream.alloc_filled(control::WORDS as u64 * 8, 0)?;
            if let Some(keys) = &rows.columns[0].values {
                let words = rows.columns.get(1).and_then(|column| column.values.as_ref());
                let args = [
                    Arg::U64(rows.rows),
                    Arg::Buffer(keys),
                    words.filter(|_| slots.holds_payload).map_or(Arg::Null, Arg::Buffer),
                    Arg::Buffer(&table),
                    Arg::Buffer(&control),
                ];
                stream.launch(&kernels[device], launch(rows.rows, stream, 0), &args)?;
                self.metrics.launches += 1;
            }
            shards.push(JoinShard { slots: table, windows: span, row_list: None });
            controls.push(control);
        }
        let reports = self.streams.iter().zip(&controls).map(|(s, c)| read_report(s, c)).collect::<Result<Vec<_>>>()?;
        let is_unique = reports.iter().all(|report| report.status & status::DUPLICATE == 0);
        Ok((is_set || is_unique).then_some(shards))
    }

    /// Tables of unique keys; `None` when a key occurs twice.
    fn build_unique(&mut self, build: &mut TableBuild<'_>) -> Result<Option<Vec<JoinShard>>> {
        let entry = if build.is_set { "build_set" } else { "build_unique" };
        let kernels = self.compile(&build_module(build.shape.lanes, self.options.hash_bits), entry)?;
        loop {
            let (shards, reports) = self.insert_all(build, &kernels, true)?;
            let bits = reports.iter().fold(0, |bits, report| bits | report.status);
            if bits & status::DUPLICATE != 0 {
                return Ok(None);
            }
            if bits & status::FULL == 0 {
                return Ok(Some(shards));
            }
            build.grow()?;
        }
    }

    /// Tables of keys with the rows of each key side by side.
    fn build_lists(&mut self, build: &mut TableBuild<'_>) -> Result<Vec<JoinShard>> {
        let module = build_module(build.shape.lanes, self.options.hash_bits);
        let count = self.compile(&module, "build_count")?;
        let offsets = self.compile(&module, "build_offsets")?;
        let fill = self.compile(&module, "build_fill")?;
        let mut shards = loop {
            let (shards, reports) = self.insert_all(build, &count, false)?;
            if reports.iter().all(|report| report.status & status::FULL == 0) {
                break shards;
            }
            build.grow()?;
        };
        let mut cursors = vec![];
        for (device, shard) in shards.iter_mut().enumerate() {
            let stream = &self.streams[device];
            let rows = build.rows.shards[device].rows;
            let slot_count = shard.windows * u64::from(build.shape.lanes);
            let cursor = stream.alloc(slot_count * 4)?;
            let list = stream.alloc(rows.max(1) * 4)?;
            let control = stream.alloc_filled(control::WORDS as u64 * 8, 0)?;
            let args = [Arg::U64(slot_count), Arg::Buffer(&shard.slots), Arg::Buffer(&cursor), Arg::Buffer(&control)];
            stream.launch(&offsets[device], launch(slot_count, stream, 0), &args)?;
            if let Some(keys) = &build.rows.shards[device].columns[0].values {
                let args = [
                    Arg::U64(rows),
                    Arg::Buffer(keys),
                    Arg::Buffer(&shard.slots),
                    Arg::U64(shard.windows),
                    Arg::Buffer(&cursor),
                    Arg::Buffer(&list),
                ];
                stream.launch(&fill[device], launch(rows, stream, 0), &args)?;
            }
            self.metrics.launches += 2;
            shard.row_list = Some(list);
            cursors.push((cursor, control));
        }
        self.synchronize()?;
        Ok(shards)
    }

    /// Clears tables and inserts all build rows on all devices.
    fn insert_all(
        &mut self,
        build: &TableBuild<'_>,
        kernels: &[Kernel],
        with_values: bool,
    ) -> Result<(Vec<JoinShard>, Vec<Report>)> {
        self.options.check_cancelled()?;
        let mut shards = vec![];
        let mut controls: Vec<Buffer> = vec![];
        for (device, rows) in build.rows.shards.iter().enumerate() {
            let stream = &self.streams[device];
            let windows = build.windows(rows.rows, self.options.first_capacity);
            let slots = stream.alloc_filled(windows * u64::from(build.shape.lanes) * SLOT_BYTES, 0)?;
            let control = stream.alloc_filled(control::WORDS as u64 * 8, 0)?;
            if let Some(keys) = &rows.columns[0].values {
                // Values go into slots for unique keys with packed payload; else the row number does.
                let values = match &build.shape.payload {
                    PayloadForm::Packed(_) if with_values => rows.columns.get(1).and_then(|c| c.values.as_ref()),
                    _ => None,
                };
                let args = [
                    Arg::U64(rows.rows),
                    Arg::Buffer(keys),
                    values.map_or(Arg::Null, Arg::Buffer),
                    Arg::Buffer(&slots),
                    Arg::U64(windows),
                    Arg::U64(build.steps_max.min(windows)),
                    Arg::Buffer(&control),
                ];
                stream.launch(&kernels[device], launch(rows.rows, stream, 0), &args)?;
                self.metrics.launches += 1;
            }
            shards.push(JoinShard { slots, windows, row_list: None });
            controls.push(control);
        }
        let reports = self.streams.iter().zip(&controls).map(|(s, c)| read_report(s, c)).collect::<Result<Vec<_>>>()?;
        Ok((shards, reports))
    }
}

/// What building a table starts from, and how far it has grown.
struct TableBuild<'a> {
    rows: &'a Intermediate,
    shape: &'a JoinShape,
    is_set: bool,
    load_factor: f64,
    steps_max: u64,
}

impl TableBuild<'_> {
    /// Windows of a table for `rows` keys.
    fn windows(&self, rows: u64, first_capacity: Option<u64>) -> u64 {
        let asked = (rows as f64 / self.load_factor).ceil() as u64;
        let slots = match first_capacity {
            // A first guess that is too small, grown as often as the table was full.
            Some(capacity) if self.steps_max == STEPS_MAX => capacity.min(asked),
            _ => asked,
        };
        slots.max(32).div_ceil(u64::from(self.shape.lanes))
    }

    /// After a full table: half the load, and longer probes.
    fn grow(&mut self) -> Result<()> {
        self.load_factor /= 2.0;
        self.steps_max = self.steps_max.saturating_mul(16);
        if self.load_factor < 1e-3 {
            return Err(Error::internal("a hash table stays full however large it is"));
        }
        Ok(())
    }
}

/// Lanes of a probe group by load factor: more lanes pay when probes are long.
fn lanes_for(load_factor: f64) -> u32 {
    match load_factor {
        f if f <= 0.7 => 1,
        f if f <= 0.8 => 2,
        _ => 4,
    }
}

/// Columns of both sides that the join's output or residual reads, in order.
pub(super) fn needed(plan: &JoinPlan) -> Vec<usize> {
    let mut columns = plan.output.clone();
    if let Some(residual) = &plan.residual {
        residual.visit_columns(&mut |column| columns.push(column));
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Appends the probe to a relation whose rows stay where they are.
fn probe_here(plan: &JoinPlan, probe: Relation, table: Arc<JoinTable>, payload_of: Vec<Option<usize>>) -> Relation {
    let step = ProbeStep {
        shape: table.shape.clone(),
        key: ProbeKey::Exprs(plan.on.iter().map(|(_, probe)| probe.clone()).collect()),
        is_semi: plan.kind == JoinKind::ProbeSemi,
        null_equals_null: plan.null_equals_null,
        residual: plan.residual.clone(),
        output: plan.output.clone(),
        payload_of,
    };
    append_probe(probe, step, table)
}

fn append_probe(mut relation: Relation, step: ProbeStep, table: Arc<JoinTable>) -> Relation {
    if !table.shape.unique && !step.is_semi {
        relation.rows_max = relation.rows_max.saturating_mul(table.build.rows_max.max(1));
    }
    relation.width = step.output.len();
    relation.steps.push(Step::Probe(step));
    relation.joins.push(table);
    relation
}

fn build_module(lanes: u32, hash_bits: u32) -> ModuleSource {
    let file = warpjoin_kernels::JOIN_BUILD;
    ModuleSource {
        name: file.name.into(),
        text: file.text.into(),
        entries: BUILD_ENTRIES.map(String::from).to_vec(),
        defines: Constants { hash_bits, lanes }.defines(),
    }
}
