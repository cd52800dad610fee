//! Build sides that several joins probe, by number.
//!
//! On one device, or if the build side fills a table directly, there is one table. On several devices, rows stay where
//! they were made until a join needs a table: if its probe rows are sorted by the key, each device needs only the build
//! rows of its own range.

use std::sync::Arc;

use warpjoin_codegen::JoinShape;
use warpjoin_columns::Result;
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_plan::options::Distribution;
use warpjoin_plan::plan::join::JoinNode;

use super::build_probe::{keys_of_table, payload_of, probe_here};
use super::direct::Filled;
use crate::exec::query::Query;
use crate::exec::relation::{JoinTable, KeyRanges, Relation, SharedBuild, SharedBuildRows, SharedSource};

impl Query<'_> {
    /// Runs the build side of this number; its rows are kept if filters are made from them.
    pub(in crate::exec) fn share_build(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        build: &Relation,
        has_filters: bool,
    ) -> Result<()> {
        let build_width = plan.build.schema.fields().len();
        let mut payload = plan.needed_columns();
        payload.retain(|&column| column < build_width);
        let all: Vec<usize> = (0..self.devices()).collect();
        let filled = if has_filters { Filled::Not } else { self.filled_directly(plan, build, &payload, &all)? };
        let source = match filled {
            Filled::Table(table) => SharedSource::Table(table),
            Filled::Repeats | Filled::Not => {
                let (rows, shape) = self.build_rows(plan, build, payload.clone())?;
                let keys = keys_of_table(plan, &shape, matches!(filled, Filled::Repeats));
                match self.devices() {
                    1 => SharedSource::Table(self.build_table(shape, rows, keys)?),
                    _ => SharedSource::Rows(Arc::new(SharedBuildRows { rows, shape, keys }), vec![]),
                }
            }
        };
        let payload_of = payload_of(&payload, build_width);
        self.joins.share_build(number, SharedBuild { source, payload_of, filters: vec![] });
        Ok(())
    }

    /// The table of this number, for probing with these keys of a relation.
    pub(super) fn shared_table(&mut self, number: usize, probe: &Relation, keys: &[Expr]) -> Result<Arc<JoinTable>> {
        let (rows, known) = match &self.joins.shared_build(number)?.source {
            SharedSource::Table(table) => return Ok(Arc::clone(table)),
            SharedSource::Rows(rows, tables) => (Arc::clone(rows), tables),
        };
        let ranges = self.ranges_of_keys(keys, probe, &rows.shape);
        if let Some((_, table)) = known.iter().find(|(known, _)| *known == ranges) {
            return Ok(Arc::clone(table));
        }
        let copied = self.build_rows_for(&rows.rows, ranges.as_deref())?;
        let table = self.build_table(rows.shape.clone(), copied, rows.keys)?;
        if let Some(SharedBuild { source: SharedSource::Rows(_, tables), .. }) = self.joins.shared_build_mut(number) {
            tables.push((ranges, Arc::clone(&table)));
        }
        Ok(table)
    }

    /// Appends a probe of the table of this number.
    pub(in crate::exec) fn probe_shared_build(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        probe: Relation,
    ) -> Result<Relation> {
        let keys: Vec<Expr> = plan.on.iter().map(|(_, probe)| probe.clone()).collect();
        let table = self.shared_table(number, &probe, &keys)?;
        let payload_of = self.joins.shared_build(number)?.payload_of.clone();
        probe_here(plan, probe, (table, payload_of), self.options.counts_rows)
    }

    /// The range of key words that each device probes with, if a table's rows are sorted by the key, so that devices
    /// have different ranges. Together the ranges cover all words, so that no build row is lost.
    pub(super) fn ranges_of_keys(&self, keys: &[Expr], probe: &Relation, shape: &JoinShape) -> KeyRanges {
        let (1.., Distribution::Auto, [key]) = (self.devices() - 1, self.options.distribution, keys) else {
            return None;
        };
        let ExprKind::Column(column) = key.kind else { return None };
        let bounds = shape.packing.single_integer()?;
        if shape.is_hashed() {
            return None;
        }
        let of_devices = probe.ranges(column)?;
        let (min, max) = (bounds.min, bounds.max);
        // A key word is the value less the lower bound, and 1 more. What is beyond the bounds is no build key.
        let word = |value: i128| u64::try_from(value.clamp(min, max) - min + 1).ok();
        // Those of devices without rows are empty.
        let mut ranges = vec![[1, 0]; of_devices.len()];
        let mut last: Option<usize> = None;
        for (device, range) in of_devices.iter().enumerate() {
            let Some([first, end]) = *range else { continue };
            let begins = match last {
                None => 0,
                Some(last) => word(first)?.min(ranges[last][1] + 1),
            };
            ranges[device] = [begins, word(end)?];
            last = Some(device);
        }
        ranges[last?][1] = u64::MAX;
        let spans = of_devices.iter().flatten().map(|[first, end]| end - first + 1);
        let all = of_devices.iter().flatten().map(|range| range[1]).max()?
            - of_devices.iter().flatten().map(|range| range[0]).min()?
            + 1;
        // Otherwise most rows go to most devices in any case.
        let is_apart = spans.sum::<i128>() * 3 <= all * 2 * self.devices() as i128;
        is_apart.then_some(ranges)
    }
}
