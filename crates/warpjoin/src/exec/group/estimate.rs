//! Estimates the number of groups from a sample of the rows, and chooses the form of the group-by.

use std::collections::HashSet;
use std::sync::Arc;

use warpjoin_codegen::{Accumulator, GroupShape, RowSpec, Sink, Step, key_bytes, partition_slots};
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_columns::identity::Identity;
use warpjoin_kernels::group::{
    SKETCH_BITS, SKETCH_FILTER_BITS_MAX, SKETCH_FILTER_SHIFT, SKETCH_KEYS_SHIFT, SKETCH_REPEATED_SHIFT,
};
use warpjoin_plan::optimize::costs::{GroupCosts, PartitionPasses, is_held};
use warpjoin_plan::options::GroupByForm;
use warpjoin_plan::plan::State;

use crate::exec::launch::{DeviceSink, Lane, Pushed, SketchTarget, Target};
use crate::exec::partition::PlannedPartition;
use crate::exec::query::{Query, Report};
use crate::exec::relation::{PARTITION_BITS_MAX, PartitionChoice, PassBits, Relation, Source};

/// Rows of a sample.
const SAMPLE_ROWS: u64 = 1 << (SKETCH_BITS - 2);
/// Minimum rows for a sample: fewer are aggregated faster without one.
const ROWS_MIN: u64 = 1 << 21;
/// Standard deviations beyond which a difference from the expected number is significant.
const DEVIATIONS: f64 = 5.0;
/// Minimum groups for an estimate to be doubted: fewer groups cost little even if the estimate is wrong.
const DOUBTFUL_GROUPS_MIN: f64 = 65536.0;
/// Minimum keys in a sample of keys for a reliable count.
const COUNTED_MIN: f64 = 64.0;
/// Maximum share of a block table's slots that groups fill without a partition.
const BLOCK_LOAD: f64 = 0.5;

/// An estimate from a sample, for the device with the most groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub rows: f64,
    pub groups: f64,
    /// Some keys are far more frequent than others.
    pub is_skewed: bool,
    /// The groups were counted, not extrapolated from a sample of rows.
    pub is_counted: bool,
}

impl Estimate {
    /// Number of groups to make room for: the estimate of a skewed sample is too low.
    pub(super) fn groups_max(self) -> f64 {
        if self.is_skewed && !self.is_counted { 4.0 * self.groups } else { self.groups }
    }
}

/// Partitioned rows, with the keys and arguments as columns; and the keys and accumulators over these columns.
pub(super) struct PartitionedGroups {
    pub relation: Relation,
    pub keys: Vec<Expr>,
    pub accumulators: Vec<Accumulator>,
}

impl Query<'_> {
    /// Samples the rows if the result can change how they are aggregated.
    pub(super) fn estimate_groups(
        &mut self,
        relation: &Relation,
        shape: &GroupShape,
        keys: &[Expr],
    ) -> Result<Option<Estimate>> {
        let is_forced = self.options.group_by_form == Some(GroupByForm::Partitioned);
        let is_large = relation.source.shard_rows_max(self.devices()) >= ROWS_MIN;
        let may_be_many = shape.mode.is_hashed() || shape.front.slots() > 0 && !shape.front.is_keyed();
        if !may_be_many || matches!(relation.source, Source::Matches(..)) || !(is_large || is_forced) {
            return Ok(None);
        }
        let generated = self.bind(relation, &Sink::Sketch { keys: keys.to_vec() })?;
        let stride = |device| relation.source.shard_rows(device).div_ceil(SAMPLE_ROWS).max(1);
        let draws: Vec<Draw> =
            (0..self.devices()).map(|device| Draw { stride: stride(device), filter_bits: 0 }).collect();
        let samples = self.run_sink(relation, &generated, SketchSink { draws: draws.clone() })?;
        self.note_keys(&samples);
        let of_rows = draws.iter().zip(&samples).map(|(draw, sample)| (*sample, sample.rows * draw.stride as f64));
        let of_rows: Vec<(Sample, f64)> = of_rows.collect();
        let mut estimates: Vec<Estimate> =
            of_rows.iter().map(|(sample, all_rows)| sample.estimate(*all_rows)).collect();
        let is_doubtful = of_rows.iter().any(|(sample, all_rows)| sample.is_doubtful(*all_rows));
        if is_doubtful && is_cheap_to_read(relation) {
            let draw =
                |(sample, all_rows): &(Sample, f64)| Draw { stride: 1, filter_bits: sample.filter_bits(*all_rows) };
            let draws: Vec<Draw> = of_rows.iter().map(draw).collect();
            let counted = self.run_sink(relation, &generated, SketchSink { draws: draws.clone() })?;
            self.note_keys(&counted);
            for ((estimate, draw), sample) in estimates.iter_mut().zip(&draws).zip(&counted) {
                // A count of few keys is unreliable.
                if sample.keys >= COUNTED_MIN {
                    let groups = sample.keys * (1u64 << draw.filter_bits) as f64;
                    *estimate =
                        Estimate { groups: groups.clamp(1.0, estimate.rows.max(1.0)), is_counted: true, ..*estimate };
                }
            }
        }
        Ok(estimates.into_iter().max_by(|a, b| a.groups.total_cmp(&b.groups)))
    }

    fn note_keys(&mut self, samples: &[Sample]) {
        if let Some(pipeline) = self.metrics.pipelines.last_mut() {
            pipeline.rows_out = samples.iter().map(|sample| sample.keys as u64).sum();
        }
    }

    /// How to partition the rows before aggregation; `None`: not at all.
    pub(super) fn choose_partition(
        &self,
        relation: &Relation,
        shape: &GroupShape,
        accumulators: &[Accumulator],
        estimate: Estimate,
    ) -> Option<PartitionChoice> {
        let (choice, is_cheaper) = self.best_partition(relation, shape, accumulators, estimate)?;
        let fits = shape.front.slots() > 0 && estimate.groups <= f64::from(shape.front.slots()) * BLOCK_LOAD;
        match self.options.group_by_form {
            Some(GroupByForm::Partitioned) => Some(choice),
            Some(_) => None,
            None => (!fits && is_cheaper).then_some(choice),
        }
    }

    /// The cheapest way to partition the rows, and whether it is cheaper than no partition.
    pub(super) fn best_partition(
        &self,
        relation: &Relation,
        shape: &GroupShape,
        accumulators: &[Accumulator],
        estimate: Estimate,
    ) -> Option<(PartitionChoice, bool)> {
        let info = self.session.devices()[0].info();
        let costs = costs_of(relation, shape, accumulators, estimate, info.l2_bytes as f64);
        let slots_of = |table_blocks| {
            let fits = partition_slots(
                self.shared_bytes_max(),
                table_blocks,
                key_bytes(&shape.packing),
                shape.stride_words as u32 - 1,
            );
            f64::from(self.options.block_table_slots.unwrap_or(fits).clamp(64, fits.max(64)))
        };
        let choices = (1..=PARTITION_BITS_MAX).flat_map(|bits| [2, 1].map(|table_blocks| (bits, table_blocks)));
        let choice = choices
            .map(|(bits, table_blocks)| {
                let (bits, is_skewed) = (PassBits::of(bits), estimate.is_skewed);
                let (passes, slots) = ((bits.first, bits.second), slots_of(table_blocks));
                let passes = PartitionPasses { bits: passes, table_blocks, slots, is_skewed };
                (PartitionChoice { bits, table_blocks, is_skewed }, costs.partitioned(passes))
            })
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        choice.map(|(choice, cost)| (choice, cost < costs.direct()))
    }

    /// Rows by partition; `None`: they can't be partitioned.
    pub(super) fn partition_groups(
        &mut self,
        relation: &Relation,
        keys: &[Expr],
        accumulators: &[Accumulator],
        bits: PassBits,
    ) -> Result<Option<PartitionedGroups>> {
        let (planned, keys, accumulators) = self.plan_group_partition(relation, keys, accumulators, bits)?;
        if let Some(obstacle) = self.obstacle(&[&planned], false) {
            log::debug!("a group-by without a partition: {obstacle:?}");
            return Ok(None);
        }
        let relation = Relation::new(Source::Partitioned(Arc::new(self.partition(planned)?)));
        Ok(Some(PartitionedGroups { relation, keys, accumulators }))
    }

    /// Binds the partition of rows by their keys. Returns it with the keys and accumulators over the partitioned
    /// columns.
    pub(super) fn plan_group_partition(
        &mut self,
        relation: &Relation,
        keys: &[Expr],
        accumulators: &[Accumulator],
        bits: PassBits,
    ) -> Result<(PlannedPartition, Vec<Expr>, Vec<Accumulator>)> {
        let mut exprs = keys.to_vec();
        let mut merged = vec![];
        for accumulator in accumulators {
            let mut column = |argument: &Expr| {
                let known = exprs[keys.len()..].iter().position(|known| known.is_same(argument));
                let index = known.map_or(exprs.len(), |index| keys.len() + index);
                if known.is_none() {
                    exprs.push(argument.clone());
                }
                Expr::column(index, argument.data_type.clone(), argument.nullable)
            };
            let Accumulator { state, is_merge } = accumulator.clone();
            let argument = state.argument.as_ref().map(&mut column);
            let second = state.second.as_ref().map(&mut column);
            merged.push(Accumulator { state: State { argument, second, ..state }, is_merge });
        }
        let column = |(index, expr): (usize, &Expr)| Expr::column(index, expr.data_type.clone(), expr.nullable);
        let columns: Vec<Expr> = exprs.iter().enumerate().map(column).collect();
        let mut projected = relation.clone();
        projected.width = exprs.len();
        projected.steps.push(Step::Project(exprs));
        let keys = columns[..keys.len()].to_vec();
        let payload = (0..columns.len()).collect();
        let spec = RowSpec { keys: keys.clone(), like: None, keeps_null_keys: true, payload };
        Ok((self.plan_partition(projected, spec, bits)?, keys, merged))
    }
}

/// Whether reading all rows again, only to count groups, is cheap: they come from columns on the devices, without
/// probes.
fn is_cheap_to_read(relation: &Relation) -> bool {
    let is_near = match &relation.source {
        Source::Table(table, _) => table.host_bytes() == 0,
        Source::Intermediate(_) | Source::Groups(_) => true,
        Source::Matches(..) | Source::Partitioned(_) | Source::Slice(_) => false,
    };
    is_near && !relation.steps.iter().any(|step| matches!(step, Step::Probe(_)))
}

/// The rows of a device that a sample reads.
#[derive(Debug, Clone, Copy)]
struct Draw {
    /// Every `stride`th row.
    stride: u64,
    /// Of these rows, those of one key in 2^`filter_bits`.
    filter_bits: u32,
}

/// Samples the keys of each device.
struct SketchSink {
    draws: Vec<Draw>,
}

impl DeviceSink for SketchSink {
    type Filling = SketchTarget;
    type Filled = Sample;
    type Output = Vec<Sample>;

    fn name(&self) -> String {
        "Sketch".to_string()
    }

    fn open(&self, lane: &mut Lane<'_>) -> Result<SketchTarget> {
        let Draw { stride, filter_bits } = self.draws[lane.device];
        // The filter is behind the slots.
        let set = lane.stream.alloc_filled(8 + (8 << SKETCH_BITS), 0)?;
        if filter_bits > 0 {
            let filter = ((1u64 << filter_bits) - 1) << SKETCH_FILTER_SHIFT;
            lane.stream.write(&set, 8 << SKETCH_BITS, &filter.to_le_bytes())?;
        }
        Ok(SketchTarget { set, stride })
    }

    fn nothing(&self, _: &mut Lane<'_>) -> Result<Option<Sample>> {
        Ok(Some(Sample::of_counter(0)))
    }

    fn target<'t>(&'t self, sketch: &'t SketchTarget) -> Target<'t> {
        Target::Sketch(sketch)
    }

    /// A sample needs all rows at once.
    fn takes_chunks(&self) -> bool {
        false
    }

    fn pushed(&self, _: &mut Lane<'_>, _: &mut SketchTarget, _: &Report, _: bool) -> Result<Pushed> {
        Ok(Pushed::Done)
    }

    fn finish(&self, _: &mut Lane<'_>, _: SketchTarget, report: &Report) -> Result<Sample> {
        Ok(Sample::of_counter(report.rows))
    }

    fn combine(self, samples: Vec<Sample>) -> Vec<Sample> {
        samples
    }
}

/// Counts of the kernel: rows, distinct keys, and keys that occur once.
#[derive(Debug, Clone, Copy)]
struct Sample {
    rows: f64,
    keys: f64,
    singles: f64,
}

impl Sample {
    fn of_counter(counter: u64) -> Self {
        let part = |from: u32, to: u32| (counter >> from & ((1 << (to - from)) - 1)) as f64;
        let keys = part(SKETCH_KEYS_SHIFT, SKETCH_REPEATED_SHIFT);
        Self { rows: part(0, SKETCH_KEYS_SHIFT), keys, singles: keys - part(SKETCH_REPEATED_SHIFT, 64) }
    }

    fn estimate(self, all_rows: f64) -> Estimate {
        let (groups, is_skewed) = (self.groups_among(all_rows), self.is_skewed(all_rows));
        Estimate { rows: all_rows, groups, is_skewed, is_counted: false }
    }

    /// Whether the rows may have far more groups than [`Self::groups_among`] estimates, and many of them: more keys
    /// occur once than with equally frequent groups, and each row of an unseen key could be a group.
    fn is_doubtful(self, all_rows: f64) -> bool {
        if self.rows < 1.0 {
            return false;
        }
        let even = self.even_groups(all_rows.max(1.0));
        let expected = self.rows * (-self.rows / even).exp();
        let is_uneven = self.singles > expected + DEVIATIONS * expected.sqrt() + 64.0;
        let unseen = self.unseen(all_rows);
        is_uneven && unseen > 4.0 * even && unseen > DOUBTFUL_GROUPS_MIN
    }

    /// Rows of groups that the sample did not see.
    fn unseen(self, all_rows: f64) -> f64 {
        all_rows * self.singles / self.rows.max(1.0)
    }

    /// Bits of a key filter that keeps at most about as many keys as a sample may have rows, for the maximum number of
    /// groups.
    fn filter_bits(self, all_rows: f64) -> u32 {
        let groups_max = (2.0 * self.unseen(all_rows) + self.keys).min(all_rows);
        let bits = (groups_max / SAMPLE_ROWS as f64).log2().ceil();
        (bits.max(0.0) as u32).min(SKETCH_FILTER_BITS_MAX)
    }

    /// Estimates the groups among `all_rows` rows. If all groups are equally frequent, the number of distinct keys in
    /// the sample determines it. If more keys occur once than that explains, the sample is skewed: the true number is
    /// then between that estimate and one group for each unseen row (by the Good-Turing estimate); the geometric mean
    /// has the least worst-case factor of error.
    fn groups_among(self, all_rows: f64) -> f64 {
        if self.rows < 1.0 {
            return 0.0;
        }
        let even = self.even_groups(all_rows.max(1.0));
        if self.is_skewed(all_rows) { (even * self.unseen(all_rows).max(even)).sqrt() } else { even }
    }

    fn is_skewed(self, all_rows: f64) -> bool {
        self.rows >= 1.0
            && self.singles > 1.2 * self.rows * (-self.rows / self.even_groups(all_rows.max(1.0))).exp() + 64.0
    }

    fn even_groups(self, all_rows: f64) -> f64 {
        let expected = |groups: f64| groups_among(groups, self.rows);
        let (mut low, mut high) = (self.keys.max(1.0), all_rows);
        if expected(high) <= self.keys {
            return high;
        }
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if expected(middle) < self.keys { low = middle } else { high = middle }
        }
        high
    }
}

/// Expected number of groups that occur among `rows` rows drawn at random.
fn groups_among(groups: f64, rows: f64) -> f64 {
    groups * -(-rows / groups).exp_m1()
}

/// Inputs of the cost model for a group-by.
fn costs_of(
    relation: &Relation,
    shape: &GroupShape,
    accumulators: &[Accumulator],
    estimate: Estimate,
    l2_bytes: f64,
) -> GroupCosts {
    let words: usize = shape.accumulators.iter().map(|(kind, _)| kind.words()).sum();
    let arguments: HashSet<Identity> =
        accumulators.iter().filter_map(|it| it.state.argument.as_ref()).map(Identity::in_query).collect();
    let key_bytes = f64::from(shape.packing.word_bits.iter().map(|&bits| if bits > 32 { 8 } else { 4 }).sum::<u32>());
    GroupCosts {
        key_bytes,
        row_bytes: key_bytes + 8.0 * arguments.len() as f64,
        adds: words as f64,
        // The estimate of a skewed sample is low.
        groups: if estimate.is_skewed && !estimate.is_counted { 2.0 * estimate.groups } else { estimate.groups },
        rows: estimate.rows.max(1.0),
        is_cached: is_held(estimate.groups * 2.0 * shape.stride_words as f64 * 8.0, l2_bytes),
        has_probes: relation.steps.iter().any(|step| matches!(step, Step::Probe(_))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(rows: f64, keys: f64, singles: f64, all_rows: f64) -> f64 {
        Sample { rows, keys, singles }.groups_among(all_rows)
    }

    #[test]
    fn even_groups_are_counted() {
        let rows = 65536.0;
        for groups in [1.0f64, 50.0, 1e4, 1e6] {
            let keys = groups * (1.0 - (-rows / groups).exp());
            let singles = rows * (-rows / groups).exp();
            let found = estimate(rows, keys, singles, 1e8);
            assert!((found / groups - 1.0).abs() < 0.01, "{found} of {groups}");
        }
    }

    #[test]
    fn rows_bound_groups() {
        assert!(estimate(0.0, 0.0, 0.0, 0.0) == 0.0);
        assert!(estimate(1000.0, 1000.0, 1000.0, 5000.0) <= 5000.0);
    }

    /// A sample of rows whose key k is as frequent as 1 / (k + 1)^exponent.
    fn drawn(rows: usize, groups: usize, exponent: f64) -> Sample {
        let weight = |key: usize| ((key + 1) as f64).powf(-exponent);
        let total: f64 = (0..groups).map(weight).sum();
        let (mut keys, mut singles) = (0.0, 0.0);
        for key in 0..groups {
            let expected = rows as f64 * weight(key) / total;
            keys += 1.0 - (-expected).exp();
            singles += expected * (-expected).exp();
        }
        Sample { rows: rows as f64, keys, singles }
    }

    #[test]
    fn groups_are_counted_where_a_sample_can_not_tell() {
        for (groups, exponent, is_doubtful) in [
            (150_000, 0.0, false),
            (5_000_000, 0.0, false),
            (1_000, 1.0, false),
            (1_000_000, 0.5, false),
            (5_000_000, 0.9, true),
            (5_000_000, 1.2, true),
        ] {
            let sample = drawn(65536, groups, exponent);
            assert_eq!(sample.is_doubtful(1e7), is_doubtful, "{groups} {exponent}: {sample:?}");
            let left = groups as f64 / f64::from(1 << sample.filter_bits(1e7));
            assert!(!is_doubtful || left < 131_072.0 && left > 1000.0, "{left} keys of {groups}");
        }
    }

    #[test]
    fn skew_hides_groups() {
        assert!(estimate(65536.0, 32e3, 26e3, 1e8) > 5e5);
    }
}
