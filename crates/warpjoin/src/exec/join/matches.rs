//! Joins by partition: both sides partitioned by key hash, then matched partition by partition.

use std::sync::Arc;

use warpjoin_codegen::{MatchForm, RowSpec, Step, partition_module};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Launch, Ptr};
use warpjoin_kernels::common::BLOCK_SUMS;
use warpjoin_kernels::partition::{ItemsParams, SAMPLE_SLOTS, SampleParams};
use warpjoin_plan::plan::JoinKind;
use warpjoin_plan::plan::join::JoinNode;

use crate::exec::decision::RuntimeDecision;
use crate::exec::partition::{one_block, row_words};
use crate::exec::query::Query;
use crate::exec::relation::{
    LONG_PARTITION_BITS_MAX, Matches, PartitionedRows, PassBits, Relation, Source, bits_for, item_table,
};

/// Target build rows of a partition, and number of chain heads.
const PARTITION_ROWS: u64 = 4096;
/// Room of a partition beyond the mean, in standard deviations of its rows.
const SPREADS: f64 = 8.0;
/// Number of partitions whose keys are sampled.
const SAMPLED_PARTITIONS: u32 = 16;
/// Rows are put in lists by key if at least this fraction of build rows repeats a key (1 / divisor).
const REPEATED_SHARE: u64 = 4;

impl Query<'_> {
    /// Joins two relations by partition. `None` if their rows can't be partitioned. Also `None` for a semi join if a
    /// partition has more build rows than one work item takes: a probe row could then match in several items.
    pub(crate) fn join_partitioned(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
    ) -> Result<Option<Relation>> {
        let build_width = build.width;
        let columns = plan.needed_columns();
        let (of_build, of_probe): (Vec<usize>, Vec<usize>) = columns.iter().partition(|&&column| column < build_width);
        let rows = build.source.shard_rows_max(self.devices());
        let partition_rows = self.options.partition_rows.map_or(PARTITION_ROWS, u64::from);
        let bits = bits_for(rows.div_ceil(partition_rows)).min(LONG_PARTITION_BITS_MAX);
        let bits = match self.options.counted_bits {
            Some(counted) if bits > counted => PassBits::halves(bits),
            _ => PassBits::of(bits),
        };
        let spec = RowSpec {
            keys: plan.on.iter().map(|(build, _)| build.clone()).collect(),
            like: None,
            keeps_null_keys: plan.null_equals_null,
            payload: of_build,
        };
        let build = self.plan_partition(build, spec, bits)?;
        let spec = RowSpec {
            keys: plan.on.iter().map(|(_, probe)| probe.clone()).collect(),
            like: Some(build.shape.clone()),
            keeps_null_keys: plan.null_equals_null,
            payload: of_probe.into_iter().map(|column| column - build_width).collect(),
        };
        let probe = self.plan_partition(probe, spec, bits)?;
        if let Some(obstacle) = self.obstacle(&[&build, &probe], false) {
            log::debug!("a join without a partition: {obstacle:?}");
            self.note_decision(RuntimeDecision::Matches(None));
            return Ok(None);
        }
        let (build, probe) = (self.partition(build)?, self.partition(probe)?);
        let is_semi = plan.kind == JoinKind::ProbeSemi;
        let Some((matches, form)) = self.matches(build, probe, is_semi, bits.total(), partition_rows)? else {
            return Ok(None);
        };
        let mut relation = Relation::new(Source::Matches(Arc::new(matches), form));
        relation.steps.extend(plan.residual.clone().map(Step::Filter));
        let fields = plan.build.schema.fields().iter().chain(plan.probe.schema.fields()).collect::<Vec<_>>();
        let column = |&index: &usize| {
            let field = fields.get(index).ok_or_else(|| Error::internal(format!("column {index} of a join")))?;
            Ok(Expr::column(index, field.data_type().clone(), field.is_nullable()))
        };
        relation.steps.push(Step::Project(plan.output.iter().map(column).collect::<Result<_>>()?));
        relation.width = plan.output.len();
        Ok(Some(relation))
    }

    /// Sizes the work items and counts them.
    fn matches(
        &mut self,
        build: PartitionedRows,
        probe: PartitionedRows,
        is_semi: bool,
        bits: u32,
        partition_rows: u64,
    ) -> Result<Option<(Matches, MatchForm)>> {
        let rows_max = build.shards.iter().map(|shard| shard.rows_max).max().unwrap_or(0);
        let mean = (rows_max >> bits).clamp(partition_rows / 2, u64::from(u16::MAX) / 2);
        let asked = mean + (SPREADS * (mean as f64).sqrt()) as u64;
        let chain_bits = bits_for(mean).max(5);
        let shared_max = self.session.devices().iter().map(|d| d.info().shared_bytes_per_block_max).min().unwrap_or(0);
        let build_shape = Arc::clone(&build.shape);
        let capacity_of = |form| {
            // A multiple, so that all words are aligned; places fit 16 bits.
            let mut capacity = u32::try_from(asked).unwrap_or(u32::MAX).clamp(32, 0x7ff0) & !3;
            // Few blocks a multiprocessor rather than twice the probe work.
            while item_table(&build_shape, form, chain_bits, capacity).shared_bytes > shared_max && capacity > 32 {
                capacity = (capacity * 7 / 8).max(32) & !3;
            }
            capacity
        };
        let probe_rows = probe.shards.iter().map(|shard| shard.rows_max).max().unwrap_or(0);
        // Items of several times the mean, for skew alone to be cut; but enough of them to go round.
        let blocks = self.session.devices().iter().map(|d| u64::from(d.info().multiprocessors)).max().unwrap_or(1);
        let even = (4 * (probe_rows >> bits)).min(probe_rows / (16 * blocks));
        let chunk_rows_of = |capacity| u32::try_from(even).unwrap_or(u32::MAX).clamp(2 * capacity, 1 << 30);
        // Chains take less room than lists, so that a partition is one item more often.
        let capacity = capacity_of(MatchForm::Chains);
        let chunk_rows = chunk_rows_of(capacity);
        let mut matches = Matches { build, probe, is_semi, bits, capacity, chain_bits, chunk_rows, items: vec![] };
        let build_rows = self.items(&mut matches)?;
        let form = match (is_semi, build_rows.is_oversize) {
            (true, true) => None,
            (true, false) => Some(MatchForm::Semi),
            (false, true) => Some(MatchForm::Lists),
            (false, false) if build_rows.repeated > build_rows.sampled / REPEATED_SHARE => Some(MatchForm::Lists),
            (false, false) => Some(MatchForm::Chains),
        };
        let of_lists = capacity_of(MatchForm::Lists);
        if form == Some(MatchForm::Lists) && of_lists < capacity {
            (matches.capacity, matches.chunk_rows) = (of_lists, chunk_rows_of(of_lists));
            matches.items.clear();
            self.items(&mut matches)?;
        }
        self.note_decision(RuntimeDecision::Matches(form));
        Ok(form.map(|form| (matches, form)))
    }

    /// Counts the work items before each partition, and samples the keys of some partitions.
    fn items(&mut self, matches: &mut Matches) -> Result<BuildRows> {
        let module = partition_module(self.options.hash_bits);
        let [count, sample] = self.compile_all(["match_items", "match_sample"].map(|entry| (&module, entry)))?;
        let mut counters = vec![];
        for (device, (build, probe)) in matches.build.shards.iter().zip(&matches.probe.shards).enumerate() {
            let stream = &self.streams[device];
            let items = stream.alloc(((1u64 << matches.bits) + 1) * 8)?;
            let oversize = stream.alloc_filled(8, 0)?;
            let sampled = stream.alloc_filled(16, 0)?;
            let params = ItemsParams {
                partitions: 1 << matches.bits,
                build_offsets: Ptr::of(&build.offsets),
                probe_offsets: Ptr::of(&probe.offsets),
                capacity: matches.capacity.into(),
                chunk_rows: matches.chunk_rows.into(),
                items: Ptr::of(&items),
                oversize: Ptr::of(&oversize),
            };
            self.launch(device, &count[device], one_block(stream, BLOCK_SUMS * 8), &params)?;
            // A semi join takes no notice.
            if !matches.is_semi {
                let params = SampleParams {
                    rows: row_words(&matches.build.shape, &build.words),
                    offsets: Ptr::of(&build.offsets),
                    partitions: 1 << matches.bits,
                    counters: Ptr::of(&sampled),
                };
                let blocks = SAMPLED_PARTITIONS.min(1 << matches.bits);
                let launch = Launch { blocks, ..one_block(&self.streams[device], 4 * SAMPLE_SLOTS) };
                self.launch(device, &sample[device], launch, &params)?;
            }
            counters.push((oversize, sampled));
            matches.items.push(items);
        }
        let mut rows = BuildRows::default();
        for (stream, (oversize, sampled)) in self.streams.iter().zip(&counters) {
            let mut words = [[0u8; 8]; 3];
            let (first, others) = words.split_at_mut(1);
            stream.read_all(&mut [(oversize, 0, first.as_flattened_mut()), (sampled, 0, others.as_flattened_mut())])?;
            let [oversize, sampled, repeated] = words.map(u64::from_ne_bytes);
            rows.is_oversize |= oversize != 0;
            rows.sampled += sampled;
            rows.repeated += repeated;
        }
        self.settle()?;
        Ok(rows)
    }
}

/// Statistics of the build rows.
#[derive(Debug, Default)]
struct BuildRows {
    /// A partition has more rows than an item takes: most likely a key that occurs often.
    is_oversize: bool,
    sampled: u64,
    /// Sampled rows with the key of another row.
    repeated: u64,
}
