//! Group-bys: aggregated on every device, then the partial groups brought together and merged.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::launch::{GroupTarget, Target};
use super::query::Query;
use super::relation::{GroupShard, GroupTable, Relation, Source};
use crate::codegen::{Accumulator, GroupMode, GroupShape, Sink, SinkShape, Step, status};
use crate::expr::{Expr, ExprKind};
use crate::plan::{AggregateCall, AggregateFunction, Plan};
use crate::{Error, Result};

/// Windows that an insert reads before the table counts as full.
const STEPS_MAX: u64 = 512;

/// Accumulators of a group-by and the expressions that make its output of them.
struct Aggregation {
    accumulators: Vec<Accumulator>,
    /// Over the group keys, then the accumulators.
    outputs: Vec<Expr>,
}

impl Query<'_> {
    /// Runs a group-by.
    pub(crate) fn aggregate(&mut self, input: &Plan, keys: &[Expr], calls: &[AggregateCall]) -> Result<Relation> {
        let relation = self.relation(input)?;
        let aggregation = Aggregation::of(keys, calls);
        let mut groups = self.run_groups(&relation, keys.to_vec(), aggregation.accumulators.clone())?;
        drop(relation);
        if self.devices() > 1 {
            groups = self.merge_groups(groups, keys, &aggregation.accumulators)?;
        }
        let mut result = Relation::new(Source::Groups(Arc::new(groups)));
        result.width = aggregation.outputs.len();
        result.steps.push(Step::Project(aggregation.outputs));
        Ok(result)
    }

    /// Sends every partial group to the device that owns it, and merges there.
    fn merge_groups(&mut self, groups: GroupTable, keys: &[Expr], accumulators: &[Accumulator]) -> Result<GroupTable> {
        let partial = Relation::new(Source::Groups(Arc::new(groups)));
        let sink = Sink::RouteGroups { keys: (0..keys.len()).collect(), columns: (0..partial.width).collect() };
        let (rows, _) = self.run_rows(&partial, &sink, "PartitionGroups")?;
        drop(partial);
        let rows = self.exchange(rows)?;
        let owned: Vec<bool> = rows.shards.iter().map(|shard| shard.rows > 0).collect();
        // Column 0 is the key word for routing.
        let column = |index: usize, data_type: &DataType| Expr::column(1 + index, data_type.clone(), true);
        let merged_keys = keys.iter().enumerate().map(|(index, key)| column(index, &key.data_type)).collect();
        let merged = accumulators
            .iter()
            .enumerate()
            .map(|(index, accumulator)| Accumulator {
                function: match accumulator.function {
                    AggregateFunction::Count => AggregateFunction::Sum,
                    function => function,
                },
                argument: Some(column(keys.len() + index, &accumulator.data_type)),
                data_type: accumulator.data_type.clone(),
                is_merge: true,
            })
            .collect();
        let relation = Relation::new(Source::Intermediate(Arc::new(rows)));
        let mut groups = self.run_groups(&relation, merged_keys, merged)?;
        if keys.is_empty() {
            // The one row belongs to one device; the others have a row of nothing.
            for (shard, owned) in groups.shards.iter_mut().zip(owned) {
                shard.capacity = u64::from(owned);
            }
        }
        Ok(groups)
    }

    /// Aggregates on every device by itself; a full table grows and the pipeline runs again.
    fn run_groups(
        &mut self,
        relation: &Relation,
        keys: Vec<Expr>,
        accumulators: Vec<Accumulator>,
    ) -> Result<GroupTable> {
        let shared_bytes_max =
            self.session.devices().iter().map(|d| d.info().shared_bytes_per_block_max).min().unwrap_or(0);
        // A join by partition needs the shared memory itself.
        let shared_bytes_max = if matches!(relation.source, Source::Matches(..)) { 0 } else { shared_bytes_max };
        let rows_bits = relation.rows_bits();
        let generated =
            self.generate(relation, &Sink::Aggregate { keys, accumulators, rows_bits, shared_bytes_max })?;
        let SinkShape::Groups(shape) = &generated.sink else {
            return Err(Error::internal("a group sink without groups"));
        };
        let shape = Arc::new(shape.clone());
        let packed_bits = shape.packing.single_word_bits().unwrap_or(64);
        let keys_max = if packed_bits < 40 { 1u64 << packed_bits } else { u64::MAX };
        let groups_max = relation.rows_max.min(keys_max).max(1);
        if self.is_dry() {
            self.compile(&generated.module, "pipeline")?;
            return Ok(GroupTable { shape, groups_max, shards: vec![] });
        }
        let mut capacities: Vec<u64> =
            (0..self.devices()).map(|device| self.first_groups(relation, &shape, device)).collect();
        let mut steps_max = STEPS_MAX;
        for attempt in 0..24 {
            let targets = capacities
                .iter()
                .enumerate()
                .map(|(device, &capacity)| self.allocate_groups(device, &shape, capacity, steps_max))
                .collect::<Result<Vec<_>>>()?;
            let as_targets: Vec<Target<'_>> = targets.iter().map(Target::Groups).collect();
            let reports = self.run_pipeline(relation, &generated, &as_targets, "GroupBy")?;
            drop(as_targets);
            if reports.iter().all(|report| report.status & status::FULL == 0) {
                self.note_retries(attempt);
                let shards = targets.into_iter().map(|target| target.shard).collect();
                return Ok(GroupTable { shape, groups_max, shards });
            }
            // Eight times the room; once there is room for every row, only longer probes can help.
            for (device, capacity) in capacities.iter_mut().enumerate() {
                let bound = relation.source.shard_rows(device).max(relation.rows_max).saturating_mul(2).max(64);
                if *capacity >= bound {
                    steps_max = steps_max.saturating_mul(16);
                }
                *capacity = capacity.saturating_mul(8).min(bound.max(*capacity));
            }
        }
        Err(Error::internal("a group table stays full however large it is"))
    }

    /// Rows of the first table.
    fn first_groups(&self, relation: &Relation, shape: &GroupShape, device: usize) -> u64 {
        let packed_bits = shape.packing.single_word_bits().unwrap_or(64);
        match shape.mode {
            GroupMode::Global => 1,
            GroupMode::Private | GroupMode::Dense => 1 << packed_bits,
            GroupMode::Narrow | GroupMode::Wide => {
                // As many groups as half of L2 holds, but no more than there can be.
                let info = self.session.devices()[device].info();
                let in_cache = info.l2_bytes / 2 / (shape.stride_words as u64 * 8);
                let rows = relation.rows_max.saturating_mul(2);
                let distinct = if packed_bits < 40 { 2u64 << packed_bits } else { u64::MAX };
                self.options.first_capacity.unwrap_or(in_cache).min(rows).min(distinct).max(64)
            }
        }
    }

    fn allocate_groups(&self, device: usize, shape: &GroupShape, capacity: u64, steps_max: u64) -> Result<GroupTarget> {
        let stream = &self.streams[device];
        let is_wide = shape.mode == GroupMode::Wide;
        // Every thread may hold back one row that it reserved in vain.
        let threads = u64::from(stream.device().info().multiprocessors) * 2048;
        let rows = if is_wide { capacity + threads } else { capacity };
        let bytes = rows
            .checked_mul(shape.stride_words as u64 * 8)
            .ok_or_else(|| Error::internal("a group table beyond 64 bits"))?;
        let index_slots = if is_wide { capacity * 2 } else { 0 };
        if is_wide && rows > u64::from(u32::MAX) {
            return Err(crate::Reason::Limit("2^32 groups of long keys on one device".into()).into());
        }
        let index = is_wide.then(|| stream.alloc_filled(index_slots * 8, 0)).transpose()?;
        let table = stream.alloc_filled(bytes, 0)?;
        Ok(GroupTarget {
            shard: GroupShard { rows: table, capacity: rows },
            index,
            index_slots,
            steps_max: steps_max.min(if is_wide { index_slots } else { capacity }),
        })
    }
}

impl Aggregation {
    /// Splits averages into sum and count; accumulators that occur twice are kept once by the sink.
    fn of(keys: &[Expr], calls: &[AggregateCall]) -> Self {
        let mut accumulators = vec![];
        let mut add = |function, argument: &Option<Expr>, data_type: DataType| {
            let index = keys.len() + accumulators.len();
            let expr = Expr::column(index, data_type.clone(), true);
            accumulators.push(Accumulator { function, argument: argument.clone(), data_type, is_merge: false });
            expr
        };
        let mut outputs: Vec<Expr> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| Expr::column(index, key.data_type.clone(), key.nullable))
            .collect();
        for call in calls {
            outputs.push(match (call.function, &call.argument) {
                (AggregateFunction::Avg, Some(argument)) => {
                    let sum = add(AggregateFunction::Sum, &call.argument, sum_type(&argument.data_type));
                    let count = add(AggregateFunction::Count, &call.argument, DataType::Int64);
                    let kind = ExprKind::Average(Box::new(sum), Box::new(count));
                    Expr { kind, data_type: call.data_type.clone(), nullable: true }
                }
                (function, argument) => add(function, argument, call.data_type.clone()),
            });
        }
        Self { accumulators, outputs }
    }
}

/// Type in which an average sums.
fn sum_type(argument: &DataType) -> DataType {
    match argument {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
            DataType::Decimal128(38, *scale)
        }
        _ => DataType::Float64,
    }
}
