//! Joins by partition: both sides partitioned by key hash, then matched partition by partition.

use std::sync::Arc;

use warpjoin_device::{Arg, Buffer, DeviceInfo, DeviceKind, Launch};

use super::join::needed;
use super::partition::{PARTITION_BITS_MAX, PASS_BITS_MAX, PartitionedRows, PassBits, one_block, partition_module};
use super::query::Query;
use super::relation::{Relation, Source};
use crate::codegen::{MATCH_THREADS, RowSpec, Step, shared_row_bytes};
use crate::expr::Expr;
use crate::plan::JoinPlan;
use crate::{Error, Result};

/// Build rows of a partition that are aimed at; the chains' heads are twice as many.
const PARTITION_ROWS: u64 = 4096;
/// Room for this many spreads of the rows of a partition around their mean.
const SPREADS: f64 = 8.0;
/// Shared memory of a block, so that two share a multiprocessor.
const SHARED_BYTES: u32 = 112 << 10;

/// Two relations that were partitioned by the same bits, to be matched.
#[derive(Debug)]
pub(crate) struct Matches {
    pub build: PartitionedRows,
    pub probe: PartitionedRows,
    pub bits: u32,
    /// Build rows of a work item.
    pub capacity: u32,
    pub heads_bits: u32,
    /// Probe rows of a work item.
    pub chunk_rows: u32,
    pub shared_bytes: u32,
    /// A device: work items before each partition.
    pub items: Vec<Buffer>,
}

impl Matches {
    /// Columns of both sides.
    pub(crate) fn width(&self) -> usize {
        self.build.shape.field_of.len() + self.probe.shape.field_of.len()
    }

    /// Bound of the matches.
    pub(crate) fn rows_max(&self) -> u64 {
        self.build.rows_max.max(1).saturating_mul(self.probe.rows_max)
    }
}

/// Threads of a block that joins a work item.
pub(crate) fn match_threads(info: &DeviceInfo) -> u32 {
    if info.kind == DeviceKind::Simulated { 64 } else { MATCH_THREADS }
}

impl Query<'_> {
    /// Joins two relations by partition.
    pub(crate) fn join_partitioned(&mut self, plan: &JoinPlan, build: Relation, probe: Relation) -> Result<Relation> {
        let build_width = build.width;
        let columns = needed(plan);
        let (of_build, of_probe): (Vec<usize>, Vec<usize>) = columns.iter().partition(|&&column| column < build_width);
        let rows = build.source.shard_rows_max(self.devices());
        let partition_rows = self.options.partition_rows.map_or(PARTITION_ROWS, u64::from);
        let mut bits = bits_for(rows.div_ceil(partition_rows));
        // Partitions of twice the rows where that saves a pass.
        if bits == PASS_BITS_MAX + 1 {
            bits -= 1;
        }
        let bits = PassBits::of(bits);
        let spec = RowSpec {
            keys: plan.on.iter().map(|(build, _)| build.clone()).collect(),
            like: None,
            keeps_null_keys: plan.null_equals_null,
            payload: of_build,
        };
        let build = self.partition(build, spec, bits)?;
        let spec = RowSpec {
            keys: plan.on.iter().map(|(_, probe)| probe.clone()).collect(),
            like: Some(build.shape.clone()),
            keeps_null_keys: plan.null_equals_null,
            payload: of_probe.into_iter().map(|column| column - build_width).collect(),
        };
        let probe = self.partition(probe, spec, bits)?;
        let matches = self.matches(build, probe, bits.total(), partition_rows)?;
        let mut relation = Relation::new(Source::Matches(Arc::new(matches)));
        relation.steps.extend(plan.residual.clone().map(Step::Filter));
        let fields = plan.build.schema.fields().iter().chain(plan.probe.schema.fields()).collect::<Vec<_>>();
        let column = |&index: &usize| {
            let field = fields.get(index).ok_or_else(|| Error::internal(format!("column {index} of a join")))?;
            Ok(Expr::column(index, field.data_type().clone(), field.is_nullable()))
        };
        relation.steps.push(Step::Project(plan.output.iter().map(column).collect::<Result<_>>()?));
        relation.width = plan.output.len();
        Ok(relation)
    }

    /// Sizes the work items and counts them.
    fn matches(
        &mut self,
        build: PartitionedRows,
        probe: PartitionedRows,
        bits: u32,
        partition_rows: u64,
    ) -> Result<Matches> {
        let rows_max = build.shards.iter().map(|shard| shard.rows_max).max().unwrap_or(0);
        let mean = (rows_max >> bits).clamp(partition_rows / 2, u64::from(u16::MAX) / 2);
        let asked = mean + (SPREADS * (mean as f64).sqrt()) as u64;
        let row_bytes = shared_row_bytes(&build.shape);
        let heads_bits = bits_for(if row_bytes > 10 || mean > partition_rows { mean } else { 2 * mean }).max(5);
        let heads_bytes = 4u32 << heads_bits;
        // A multiple, so that all words are aligned; places fit 16 bits.
        let shared_max = self.session.devices().iter().map(|d| d.info().shared_bytes_per_block_max).min().unwrap_or(0);
        let room = shared_max.min(SHARED_BYTES).saturating_sub(heads_bytes) / row_bytes;
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        // One block a multiprocessor rather than twice the probe work.
        let room = if room < asked { shared_max.saturating_sub(heads_bytes) / row_bytes } else { room };
        let capacity = asked.min(room).clamp(32, 0xfff0) & !3;
        let probe_rows = probe.shards.iter().map(|shard| shard.rows_max).max().unwrap_or(0);
        let chunk_rows = u32::try_from(4 * (probe_rows >> bits)).unwrap_or(u32::MAX).max(8 * capacity).min(1 << 30);
        let shared_bytes = heads_bytes + capacity * row_bytes;
        let kernels = self.compile(&partition_module(self.options.hash_bits), "match_items")?;
        let mut items = vec![];
        for (device, (build, probe)) in build.shards.iter().zip(&probe.shards).enumerate() {
            let stream = &self.streams[device];
            let counts = stream.alloc(((1u64 << bits) + 1) * 8)?;
            let args = [
                Arg::U64(1 << bits),
                Arg::Buffer(&build.offsets),
                Arg::Buffer(&probe.offsets),
                Arg::U64(capacity.into()),
                Arg::U64(chunk_rows.into()),
                Arg::Buffer(&counts),
            ];
            stream.launch(&kernels[device], Launch { shared_bytes: 33 * 8, ..one_block(stream) }, &args)?;
            self.metrics.launches += 1;
            items.push(counts);
        }
        Ok(Matches { build, probe, bits, capacity, heads_bits, chunk_rows, shared_bytes, items })
    }
}

/// The fewest bits that tell `count` partitions apart, within bounds.
fn bits_for(count: u64) -> u32 {
    (64 - count.max(1).saturating_sub(1).leading_zeros()).min(PARTITION_BITS_MAX)
}
