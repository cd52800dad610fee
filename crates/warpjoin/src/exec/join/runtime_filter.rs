//! Runtime filters: bitmaps, Bloom filters and bounds of the keys of a shared build table, and the steps that test them.
//!
//! Every device has its own filter, made from the build rows of its table. Must not know why rows are dropped
//! (`optimize/filters.rs`).

use std::sync::Arc;

use warpjoin_codegen::{Constants, FilterTest, ProbeKey, ProbeKind, ProbeStep, Slots};
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_device::{Kernel, ModuleSource, Ptr};
use warpjoin_kernels::join::FilterParams;
use warpjoin_plan::optimize::costs::Costs;
use warpjoin_plan::plan::{FilterForm, ReductionTest};

use super::build_probe::append_probe;
use crate::exec::decision::RuntimeDecision;
use crate::exec::launch::Strides;
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Pending, Query};
use crate::exec::relation::{JoinShard, JoinTable, Relation};

/// Maximum bytes of a bitmap, unless the table is larger.
const BITMAP_BYTES_MAX: u64 = 64 << 20;

impl Query<'_> {
    /// Drops rows without a match in a shared build table; a Bloom filter lets some of them pass.
    pub(in crate::exec) fn reduced(
        &mut self,
        mut relation: Relation,
        number: usize,
        keys: &[Expr],
        planned: ReductionTest,
    ) -> Result<Relation> {
        let table = self.shared_table(number, &relation, keys)?;
        let mut test = self.filter_test(&table, planned);
        let mut filter = match test {
            FilterTest::Table => Arc::clone(&table),
            _ => self.filter_of(number, &table, test)?,
        };
        if test == FilterTest::Bounds {
            let step = self.filter_step(&relation, &table, keys, test);
            relation = append_probe(relation, step, filter);
            (test, filter) = (FilterTest::Table, Arc::clone(&table));
        }
        let step = self.filter_step(&relation, &table, keys, test);
        Ok(append_probe(relation, step, filter))
    }

    fn filter_step(&self, relation: &Relation, table: &JoinTable, keys: &[Expr], test: FilterTest) -> ProbeStep {
        ProbeStep {
            shape: Arc::clone(&table.shape),
            key: ProbeKey::Exprs(keys.to_vec()),
            kind: ProbeKind::Semi,
            null_equals_null: false,
            residual: None,
            output: (0..relation.width).collect(),
            payload_of: vec![],
            filter: Some(test),
            is_counted: self.options.counts_rows,
        }
    }

    /// How keys are tested: as planned if keys and memory allow it. A planned probe of the table is reconsidered now
    /// that the table's size is known.
    fn filter_test(&mut self, table: &JoinTable, planned: ReductionTest) -> FilterTest {
        let is_short = !table.shape.is_hashed();
        let span = table.shape.packing.span().filter(|_| is_short);
        let has_keys = !table.build.columns.is_empty();
        // A bitmap is its own filter.
        let is_table = !has_keys || table.shape.slots == Slots::Bits;
        let mut form = if is_table { FilterForm::Table } else { planned.form };
        if form == FilterForm::Table && self.options.runtime_filters.form().is_none() {
            form = self.form_of(table, span, &planned);
        }
        let table_bytes = table.shards.iter().map(|shard| shard.slots.bytes()).max().unwrap_or(0);
        let is_small = |span: u64| span / 8 <= BITMAP_BYTES_MAX.max(table_bytes);
        let has_bounds = planned.has_bounds && is_short && has_keys;
        let test = match form {
            FilterForm::Table if has_bounds => FilterTest::Bounds,
            FilterForm::Table => FilterTest::Table,
            FilterForm::Bitmap if span.is_some_and(is_small) => FilterTest::Bitmap { has_bounds },
            FilterForm::Bitmap | FilterForm::Bloom => FilterTest::Bloom { has_bounds },
        };
        let test = if self.has_room(table, test) { test } else { FilterTest::Table };
        self.note_decision(RuntimeDecision::Filter(test));
        test
    }

    /// Whether every device has room for a filter.
    fn has_room(&self, table: &JoinTable, test: FilterTest) -> bool {
        let of_devices = table.build.shards.iter().zip(&self.streams);
        of_devices.into_iter().all(|(rows, stream)| stream.make_room(self.filter_size(table, test, rows.rows).1))
    }

    /// The cheapest form for a finished table.
    fn form_of(&self, table: &JoinTable, span: Option<u64>, planned: &ReductionTest) -> FilterForm {
        let keys = table.build.shards.iter().map(|shard| shard.rows).max().unwrap_or(0) as f64;
        let table_bytes = table.shards.iter().map(|shard| shard.slots.bytes()).max().unwrap_or(0) as f64;
        // In the order of its keys a table that is indexed by them is always near, which the plan knew.
        if matches!(table.shape.slots, Slots::Direct(_) | Slots::Bits) {
            return FilterForm::Table;
        }
        let span = span.map(|span| span as f64);
        Costs::of(self.session.device_set()).filter_of_table(keys, span, table_bytes, planned)
    }

    /// The filter of a table of a shared build side, made on first use.
    fn filter_of(&mut self, number: usize, table: &Arc<JoinTable>, test: FilterTest) -> Result<Arc<JoinTable>> {
        let filters = &self.joins.shared_build(number)?.filters;
        let is_of_table = |filter: &JoinTable| Arc::ptr_eq(&filter.build, &table.build);
        if let Some((_, filter)) = filters.iter().find(|(known, filter)| *known == test && is_of_table(filter)) {
            return Ok(Arc::clone(filter));
        }
        let module = filter_module(self.options.hash_bits);
        let kernels = self.compile(&module, entry_of(test))?;
        let shards = self.fill(table, test, &kernels)?;
        let filter = Arc::new(JoinTable { shape: Arc::clone(&table.shape), shards, build: Arc::clone(&table.build) });
        if let Some(shared_build) = self.joins.shared_build_mut(number) {
            shared_build.filters.push((test, Arc::clone(&filter)));
        }
        Ok(filter)
    }

    /// Enqueues the filling of a filter on every device, without waiting.
    fn fill(&mut self, table: &JoinTable, test: FilterTest, kernels: &[Kernel]) -> Result<Vec<JoinShard>> {
        self.options.check_cancelled()?;
        let (mut shards, mut events) = (vec![], vec![]);
        let mut filter_bytes = 0;
        for (device, rows) in table.build.shards.iter().enumerate() {
            let stream = &self.streams[device];
            let (count, bytes) = self.filter_size(table, test, rows.rows);
            filter_bytes = bytes.max(filter_bytes);
            stream.wait_for_permit()?;
            let begin = stream.record()?;
            let words = stream.alloc_filled(bytes.max(8), 0)?;
            let bounds = if test.has_bounds() { Some(stream.alloc_filled(16, 0)?) } else { None };
            if let Some(keys) = rows.columns.first().and_then(|keys| keys.values.as_ref()).filter(|_| rows.rows > 0) {
                let params = FilterParams {
                    rows: rows.rows,
                    keys: Ptr::of(keys),
                    words: Some(Ptr::of(&words)),
                    count,
                    bounds: bounds.as_ref().map(Ptr::of),
                };
                let launch = Strides::ROWS.over(rows.rows, stream);
                self.launch(device, &kernels[device], launch, &params)?;
            }
            events.push((begin, self.streams[device].record()?));
            shards.push(JoinShard { slots: words, windows: count, row_list: None, bounds });
        }
        self.pending.push(Pending::timed(self.metrics.pipelines.len(), events));
        let rows = table.build.rows();
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("Keys -> RuntimeFilter[{}, {filter_bytes} bytes]", test.describe()),
            rows_in: rows,
            rows_out: rows,
            read_bytes: rows * 8,
            ..PipelineMetrics::default()
        });
        Ok(shards)
    }

    /// Words of a Bloom filter, and bytes of the words of any filter of `rows` keys.
    fn filter_size(&self, table: &JoinTable, test: FilterTest, rows: u64) -> (u64, u64) {
        match test {
            FilterTest::Table | FilterTest::Bounds => (0, 0),
            FilterTest::Bitmap { .. } => (0, table.shape.packing.bitmap_bytes()),
            FilterTest::Bloom { .. } => {
                let bits = match self.options.filter_bits {
                    Some(bits) => f64::from(bits.max(1)),
                    None => Costs::of(self.session.device_set()).bloom_bits(rows as f64),
                };
                let count = ((rows as f64 * bits / 64.0).ceil() as u64).max(1);
                (count, count * 8)
            }
        }
    }
}

fn entry_of(test: FilterTest) -> &'static str {
    match test {
        FilterTest::Table | FilterTest::Bounds => "fill_bounds",
        FilterTest::Bitmap { .. } => "fill_bitmap",
        FilterTest::Bloom { .. } => "fill_bloom",
    }
}

pub(super) fn filter_module(hash_bits: u32) -> ModuleSource {
    let entries = FilterParams::<()>::ENTRIES.iter().copied();
    Constants { hash_bits, ..Constants::USUAL }.module(warpjoin_kernels::RUNTIME_FILTER, entries)
}
