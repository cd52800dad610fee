//! Joins by partition: both sides partitioned by key hash, then matched partition by partition.

use std::sync::Arc;

use warpjoin_device::{Arg, Buffer, DeviceInfo, DeviceKind, Launch};

use super::join::needed;
use super::partition::{PARTITION_BITS_MAX, PartitionedRows, PassBits, one_block, partition_module};
use super::query::Query;
use super::relation::{Relation, Source};
use crate::codegen::{MATCH_THREADS, RowSpec, Step, shared_row_bytes};
use crate::expr::Expr;
use crate::plan::{JoinKind, JoinPlan};
use crate::{Error, Result};

/// Build rows of a partition that are aimed at, and heads of chains.
const PARTITION_ROWS: u64 = 4096;
/// Room for this many spreads of the rows of a partition around their mean.
const SPREADS: f64 = 8.0;

/// Two relations that were partitioned by the same bits, to be matched.
#[derive(Debug)]
pub(crate) struct Matches {
    pub build: PartitionedRows,
    pub probe: PartitionedRows,
    /// A probe row comes out once.
    pub is_semi: bool,
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
        if self.is_semi {
            return self.probe.rows_max;
        }
        self.build.rows_max.max(1).saturating_mul(self.probe.rows_max)
    }
}

/// Threads of a block that joins a work item.
pub(crate) fn match_threads(info: &DeviceInfo) -> u32 {
    if info.kind == DeviceKind::Simulated { 64 } else { MATCH_THREADS }
}

impl Query<'_> {
    /// Joins two relations by partition. `None` for a semi join with so many build rows in a partition
    /// that a probe row would meet them in several work items.
    pub(crate) fn join_partitioned(
        &mut self,
        plan: &JoinPlan,
        build: Relation,
        probe: Relation,
    ) -> Result<Option<Relation>> {
        let build_width = build.width;
        let columns = needed(plan);
        let (of_build, of_probe): (Vec<usize>, Vec<usize>) = columns.iter().partition(|&&column| column < build_width);
        let rows = build.source.shard_rows_max(self.devices());
        let partition_rows = self.options.partition_rows.map_or(PARTITION_ROWS, u64::from);
        let bits = PassBits::of(bits_for(rows.div_ceil(partition_rows)));
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
        let is_semi = plan.kind == JoinKind::ProbeSemi;
        let Some(matches) = self.matches(build, probe, is_semi, bits.total(), partition_rows)? else {
            return Ok(None);
        };
        let mut relation = Relation::new(Source::Matches(Arc::new(matches)));
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
    ) -> Result<Option<Matches>> {
        let rows_max = build.shards.iter().map(|shard| shard.rows_max).max().unwrap_or(0);
        let mean = (rows_max >> bits).clamp(partition_rows / 2, u64::from(u16::MAX) / 2);
        let asked = mean + (SPREADS * (mean as f64).sqrt()) as u64;
        let row_bytes = shared_row_bytes(&build.shape);
        let heads_bits = bits_for(mean).max(5);
        let heads_bytes = 4u32 << heads_bits;
        // A multiple, so that all words are aligned; places fit 16 bits.
        let shared_max = self.session.devices().iter().map(|d| d.info().shared_bytes_per_block_max).min().unwrap_or(0);
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        // Few blocks a multiprocessor rather than twice the probe work.
        let room = shared_max.saturating_sub(heads_bytes) / row_bytes;
        let capacity = asked.min(room).clamp(32, 0xfff0) & !3;
        let probe_rows = probe.shards.iter().map(|shard| shard.rows_max).max().unwrap_or(0);
        // Items of several times the mean, for skew alone to be cut; but enough of them to go round.
        let blocks = self.session.devices().iter().map(|d| u64::from(d.info().multiprocessors)).max().unwrap_or(1);
        let even = (4 * (probe_rows >> bits)).min(probe_rows / (16 * blocks));
        let chunk_rows = u32::try_from(even).unwrap_or(u32::MAX).clamp(2 * capacity, 1 << 30);
        let shared_bytes = heads_bytes + capacity * row_bytes;
        let kernels = self.compile(&partition_module(self.options.hash_bits), "match_items")?;
        let mut items = vec![];
        for (device, (build, probe)) in build.shards.iter().zip(&probe.shards).enumerate() {
            let stream = &self.streams[device];
            let counts = stream.alloc(((1u64 << bits) + 1) * 8)?;
            let oversize = stream.alloc_filled(8, 0)?;
            let args = [
                Arg::U64(1 << bits),
                Arg::Buffer(&build.offsets),
                Arg::Buffer(&probe.offsets),
                Arg::U64(capacity.into()),
                Arg::U64(chunk_rows.into()),
                Arg::Buffer(&counts),
                Arg::Buffer(&oversize),
            ];
            stream.launch(&kernels[device], Launch { shared_bytes: 33 * 8, ..one_block(stream) }, &args)?;
            self.metrics.launches += 1;
            if is_semi {
                let mut word = [0u8; 8];
                stream.read(&oversize, 0, &mut word)?;
                self.settle()?;
                if word != [0; 8] {
                    return Ok(None);
                }
            }
            items.push(counts);
        }
        Ok(Some(Matches { build, probe, is_semi, bits, capacity, heads_bits, chunk_rows, shared_bytes, items }))
    }
}

/// The fewest bits that tell `count` partitions apart, within bounds.
fn bits_for(count: u64) -> u32 {
    (64 - count.max(1).saturating_sub(1).leading_zeros()).min(PARTITION_BITS_MAX)
}
