//! Group-bys, sorts and what else writes rows down, on the way of late columns.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::Node;
use super::lift::{Lift, over, remapped, remapped_key};
use super::slots::{Lifted, Read, RowNumber, Slot, Width};
use crate::plan::{AggregateCall, PlanKind, SortKey};

impl Lift<'_> {
    pub(super) fn aggregate(&mut self, node: &Node<'_>, group_by: &[Expr], calls: &[AggregateCall]) -> Lifted {
        let mut below = self.with_columns(node, calls.iter().flat_map(AggregateCall::read));
        // Scans whose row stands for all their keys.
        let keyed: Vec<usize> =
            below.rows.iter().map(|row| row.scan).filter(|&scan| self.is_keyed(scan, &below, group_by)).collect();
        let scan_of = |below: &Lifted, key: &Expr| match key.kind {
            ExprKind::Column(column) => below.slots[column].origin.filter(|(scan, _)| keyed.contains(scan)),
            _ => None,
        };
        let mut needed = vec![];
        for key in group_by.iter().filter(|key| scan_of(&below, key).is_none()) {
            key.visit_columns(&mut |column| needed.push(column));
        }
        self.require(&mut below, &needed);
        let rows = node.below[0].estimate.rows;
        needed.iter().for_each(|&column| self.read(&mut below, column, rows));
        let mut lifted = Lifted { plan: None, fields: vec![], slots: vec![], rows: vec![] };
        let mut keys = vec![];
        let schema_fields = node.plan.schema.fields();
        for (key, field) in group_by.iter().zip(schema_fields) {
            let origin = scan_of(&below, key);
            let width = match key.kind {
                ExprKind::Column(column) => below.slots[column].width,
                _ => Width::of_type(&key.data_type),
            };
            let at = origin.is_none().then(|| {
                keys.extend(self.builds.then(|| remapped(key, &below)));
                lifted.fields.push(Arc::clone(field));
                lifted.fields.len() - 1
            });
            lifted.slots.push(Slot { at, origin, width, read: self.read_of_groups(width) });
        }
        for row in below.rows.iter().filter(|row| keyed.contains(&row.scan)) {
            let field = &below.fields[row.at];
            keys.push(Expr::column(row.at, DataType::UInt64, field.is_nullable()));
            lifted.fields.push(Arc::clone(field));
            let read = self.read_of_groups(row.width);
            lifted.rows.push(RowNumber { at: lifted.fields.len() - 1, written: row.written + 1, read, ..*row });
        }
        let widths = lifted.slots.iter().filter(|slot| slot.at.is_some()).map(|slot| slot.width);
        let key_bits: f64 = widths.chain(lifted.rows.iter().map(|row| row.width)).map(|width| width.bits).sum();
        self.moved.ps += self.context.costs.groups_ps(rows, node.estimate.rows, key_bits, calls.len());
        self.extend(&mut lifted, &schema_fields[group_by.len()..]);
        let moved = |call: &AggregateCall| call.map(&mut |expr| remapped(expr, &below));
        let calls = if self.builds { calls.iter().map(moved).collect() } else { vec![] };
        lifted.plan = below.plan;
        over(&mut lifted, |_, input| PlanKind::Aggregate { input, group_by: keys, aggregates: calls });
        lifted
    }

    /// Whether a group-by can take a scan's row for those of its keys that are columns of the scan: one of them, which is
    /// never null, tells the row for certain. A row of no match is null as they are.
    fn is_keyed(&self, scan: usize, below: &Lifted, group_by: &[Expr]) -> bool {
        let columns: BTreeSet<usize> = group_by
            .iter()
            .filter_map(|key| match key.kind {
                ExprKind::Column(column) => below.slots[column].origin.filter(|origin| origin.0 == scan),
                _ => None,
            })
            .map(|(_, column)| column)
            .collect();
        columns.len() > 1
            && columns.iter().any(|&column| self.scanned(scan).is_key(column))
            && columns.iter().all(|&column| self.scanned(scan).can_fetch(column))
    }

    fn read_of_groups(&self, width: Width) -> Read {
        Read::by_row(self.context.costs.stream_ps(width.bytes.max(4.0)))
    }

    pub(super) fn sort(&mut self, node: &Node<'_>, keys: &[SortKey], (skip, fetch): (u64, Option<u64>)) -> Lifted {
        let mut below = self.with_columns(node, keys.iter().map(|key| &key.expr));
        let (rows, left) = (node.below[0].estimate.rows, node.estimate.rows);
        let late: Vec<usize> = (0..below.slots.len()).filter(|&slot| below.slots[slot].at.is_none()).collect();
        if !late.is_empty() && !self.context.is_forced() && !self.pays_behind(&below, &late, (rows, left)) {
            self.require(&mut below, &late);
        }
        let is_late = below.slots.iter().any(|slot| slot.at.is_none());
        if is_late {
            // They are read by a kernel of their own, once the order is found.
            self.moved.ps += self.context.costs.launch_ps();
            self.moved.fetch_ps += self.context.costs.launch_ps();
        }
        self.let_go(&mut below);
        let costs = self.context.costs;
        for slot in 0..below.slots.len() {
            self.read(&mut below, slot, rows);
        }
        let gathered =
            |width: Width| costs.written_ps(rows * width.bytes) + left * costs.random_read_ps(rows * width.bytes);
        for slot in below.slots.iter_mut().filter(|slot| slot.at.is_some()) {
            self.moved.ps += gathered(slot.width);
            slot.read = Read::by_row(costs.stream_ps(slot.width.bytes));
        }
        for row in &mut below.rows {
            self.moved.ps += gathered(row.width);
            self.moved.fetch_ps += gathered(row.width);
            row.written += 1;
            row.read = Read::by_row(costs.stream_ps(row.width.bytes));
        }
        over(&mut below, |below, input| {
            let keys = keys.iter().map(|key| remapped_key(key, below)).collect();
            PlanKind::Sort { input, keys, skip, fetch }
        });
        below
    }

    /// Whether late columns are cheaper to read behind a sort, where fewer rows are left.
    fn pays_behind(&self, below: &Lifted, late: &[usize], (rows, left): (f64, f64)) -> bool {
        let costs = self.context.costs;
        let (mut before, mut behind) = (0.0, costs.launch_ps());
        for slot in late.iter().map(|&slot| &below.slots[slot]) {
            let Some((scan, column)) = slot.origin else { continue };
            let fetch_ps = self.context.fetch_ps(&self.scanned(scan).table, column);
            let bytes = rows * slot.width.bytes;
            before += rows * fetch_ps + costs.written_ps(bytes) + left * costs.random_read_ps(bytes);
            behind += left * fetch_ps;
        }
        for row in &below.rows {
            let bytes = rows * row.width.bytes;
            behind += costs.written_ps(bytes) + left * costs.random_read_ps(bytes);
        }
        behind < before
    }

    /// All rows are written down, and read again.
    pub(super) fn write(&mut self, lifted: &mut Lifted, rows: f64) {
        self.let_go(lifted);
        let costs = self.context.costs;
        for slot in 0..lifted.slots.len() {
            self.read(lifted, slot, rows);
        }
        for slot in lifted.slots.iter_mut().filter(|slot| slot.at.is_some()) {
            self.moved.ps += costs.written_ps(rows * slot.width.bytes);
            slot.read = Read::by_row(costs.stream_ps(slot.width.bytes));
        }
        for row in &mut lifted.rows {
            self.moved.ps += costs.written_ps(rows * row.width.bytes);
            self.moved.fetch_ps += costs.written_ps(rows * row.width.bytes);
            row.written += 1;
            row.read = Read::by_row(costs.stream_ps(row.width.bytes));
        }
    }
}
