//! Tables that the build side's pipeline fills by itself: slots indexed by the key, each with its payload.
//!
//! No build rows are written and read again, and nothing waits for their number. Used if all rows are on one device,
//! from which others copy small tables, and keys are expected to be unique or need not be. If a key occurs twice after
//! all, the join starts again with build rows.

use std::sync::Arc;

use warpjoin_codegen::{Sink, SinkShape, Slots};
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_device::Buffer;
use warpjoin_kernels::common::status;
use warpjoin_plan::optimize::expected_rows;
use warpjoin_plan::options::Distribution;
use warpjoin_plan::plan::join::JoinNode;

use crate::exec::decision::RuntimeDecision;
use crate::exec::launch::{DeviceSink, Lane, Pushed, Target};
use crate::exec::query::{Query, Report};
use crate::exec::relation::{Intermediate, IntermediateShard, JoinShard, JoinTable, Relation, Source};

/// Maximum bytes of a table that other devices copy; for larger tables, copying the build rows is cheaper.
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// Result of filling a table without build rows.
pub(super) enum Filled {
    Table(Arc<JoinTable>),
    /// A key occurs twice.
    Repeats,
    /// Not tried.
    Not,
}

impl Query<'_> {
    /// Fills the table of a build side directly, on the devices that probe it, if that is possible.
    pub(super) fn filled_directly(
        &mut self,
        plan: &JoinNode<'_>,
        build: &Relation,
        payload: &[usize],
        probing: &[usize],
    ) -> Result<Filled> {
        if plan.is_nested() {
            return Ok(Filled::Not);
        }
        let home = match &build.source {
            Source::Matches(..) => None,
            _ if self.devices() == 1 => Some(0),
            Source::Table(..) if self.options.distribution != Distribution::Exchange => {
                build.source.home(self.devices())
            }
            _ => None,
        };
        let Some(home) = home else { return Ok(Filled::Not) };
        let is_set = plan.kind.is_existence() && plan.residual.is_none();
        if !is_set && !self.guess_unique(plan) {
            return Ok(Filled::Not);
        }
        let keys: Vec<Expr> = plan.on.iter().map(|(build, _)| build.clone()).collect();
        let null_equals_null = plan.null_equals_null;
        let sink = Sink::Direct { keys, null_equals_null, payload: payload.to_vec(), is_set };
        let generated = self.bind(build, &sink)?;
        let SinkShape::Direct(Some(shape)) = &generated.sink else { return Ok(Filled::Not) };
        let inputs = &self.inputs.tables;
        let expected = || plan.build.plan.map_or(build.rows_max, |build| expected_rows(build, inputs) as u64);
        let span = shape.packing.span().unwrap_or(0);
        let bytes = match shape.slots {
            Slots::Bits if self.is_small_in_bits(shape, expected) => shape.packing.bitmap_bytes(),
            Slots::Direct(slots) if self.direct_slots(shape, expected) == Some(slots) => span * u64::from(slots.bytes),
            _ => return Ok(Filled::Not),
        };
        // The rows are only estimated: what they turn out to be must not make the query fail for lack of memory.
        if bytes > self.streams[home].budget_bytes() / 8 || self.devices() > 1 && bytes > COPIED_BYTES_MAX {
            return Ok(Filled::Not);
        }
        let shape = Arc::new(shape.clone());
        let mut rows = Intermediate::new(vec![], build.rows_max, vec![]);
        let filled = self.run_sink(build, &generated, SlotsSink { name: shape.describe(), bytes, home })?;
        let is_right = is_set || filled.iter().all(|(_, report)| report.status & status::DUPLICATE == 0);
        self.note_decision(RuntimeDecision::Direct(is_right));
        if !is_right {
            return Ok(Filled::Repeats);
        }
        let mut shards = vec![];
        for (slots, report) in filled {
            rows.shards.push(IntermediateShard { rows: report.rows, columns: vec![] });
            shards.push(JoinShard { slots, windows: span, row_list: None, bounds: None });
        }
        self.copy_slots(&mut shards, home, probing)?;
        Ok(Filled::Table(Arc::new(JoinTable { shape, shards, build: Arc::new(rows) })))
    }

    /// Copies the table of one device, which has been waited for, to those that probe it.
    fn copy_slots(&mut self, shards: &mut [JoinShard], home: usize, probing: &[usize]) -> Result<()> {
        if probing.iter().all(|&device| device == home) {
            return Ok(());
        }
        let waits = self.waits();
        let bytes = shards[home].slots.bytes();
        for &device in probing.iter().filter(|&&device| device != home) {
            let copied = self.streams[device].alloc(bytes)?;
            self.copy_across((home, &shards[home].slots, 0), (device, &copied, 0), bytes)?;
            self.metrics.exchanged_bytes += bytes;
            shards[device].slots = copied;
        }
        // The first one may go once it is read.
        self.meet()?;
        waits.leave();
        Ok(())
    }
}

/// Fills slots indexed by the key.
struct SlotsSink {
    name: String,
    bytes: u64,
    /// The device that has all rows; if there are none, the one chosen for the table.
    home: usize,
}

impl DeviceSink for SlotsSink {
    type Filling = Buffer;
    type Filled = (Buffer, Report);
    type Output = Vec<(Buffer, Report)>;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self, lane: &mut Lane<'_>) -> Result<Buffer> {
        Ok(lane.stream.alloc_filled(self.bytes, 0)?)
    }

    fn nothing(&self, lane: &mut Lane<'_>) -> Result<Option<(Buffer, Report)>> {
        Ok(match lane.device == self.home {
            true => None,
            false => Some((lane.stream.alloc(0)?, Report::default())),
        })
    }

    fn target<'t>(&'t self, slots: &'t Buffer) -> Target<'t> {
        Target::Slots(slots)
    }

    /// A duplicate key is not a lack of room: the push is done.
    fn pushed(&self, _: &mut Lane<'_>, _: &mut Buffer, _: &Report, _: bool) -> Result<Pushed> {
        Ok(Pushed::Done)
    }

    fn finish(&self, _: &mut Lane<'_>, slots: Buffer, report: &Report) -> Result<(Buffer, Report)> {
        Ok((slots, *report))
    }

    fn combine(self, filled: Vec<(Buffer, Report)>) -> Vec<(Buffer, Report)> {
        filled
    }
}
