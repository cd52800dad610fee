//! Evaluates windows: sorts rows by partition and order keys, and computes the functions of each row.
//!
//! One pipeline writes the words of the keys, the columns and the arguments; these are sorted, on several devices by
//! ranges that no partition crosses. Then scans over the sorted rows accumulate frames, and each call outputs a column.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_codegen::{Sink, SinkShape, SortShape, Step, WindowKeys};
use warpjoin_columns::column::{ColumnType, Domain};
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_device::Buffer;
use warpjoin_kernels::common::control;
use warpjoin_kernels::window::{WINDOW_WORDS, window_kind as kind};
use warpjoin_plan::plan::SortKey;
use warpjoin_plan::plan::build::{ExprList, columns_of};
use warpjoin_plan::plan::ordered::{OutputRange, WindowNode};
use warpjoin_plan::window::{Frame, FrameBound};

use super::calls::{Made, Raw, is_extreme};
use super::fold::{ScanOp, Segments};
use super::frames::{RangeKey, Tree, is_range};
use super::kernels::{Bounds, Fold, FrameOf, MaskedWord, Values, WindowLaunches, compile_window};
use crate::exec::entry_kernels::{EntryKernels, EntryLaunches};
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, IntermediateColumn, IntermediateShard, Relation, Source};
use crate::exec::rows::{allocate, row_bytes};
use crate::exec::sort::ByRanges;

/// Bytes of a row for the bounds of partitions and peers, and for each call: scans and their results.
const BOUNDS_BYTES: u64 = 16;
const MADE_BYTES: u64 = 32;

/// The columns that are stored before the sort.
struct Stored {
    /// The input's columns, then arguments.
    columns: usize,
    keys: Vec<SortKey>,
    window: WindowKeys,
    /// The column of the order's only key, if frames have RANGE bounds.
    range_key: Option<usize>,
}

impl Query<'_> {
    /// The rows of a window, in its order on each device; with several devices, each has a range of the order.
    pub(in crate::exec) fn window(&mut self, mut relation: Relation, node: WindowNode<'_>) -> Result<Relation> {
        let rows_bits = relation.rows_bits();
        let width = relation.width;
        let (stored, arguments) = store(&mut relation, node);
        let sink =
            Sink::Sort { keys: stored.keys, columns: (0..stored.columns).collect(), window: Some(stored.window) };
        let (rows, generated) = self.run_rows(&relation, &sink, "SortKeys")?;
        drop(relation);
        let SinkShape::Sort(shape) = &generated.sink else {
            return Err(Error::internal("a pipeline without key words"));
        };
        if shape.word_bits.len() > WINDOW_WORDS {
            return Err(Reason::Limit(format!("a window by {} words of keys", shape.word_bits.len())).into());
        }
        let stored_types = &shape.columns[shape.word_bits.len()..];
        let mut made = Made { width, columns: vec![] };
        let mut outputs = columns_of(node.schema, width);
        for (call, argument) in node.calls.iter().zip(&arguments) {
            let of_argument = argument.map(|position| (position, &stored_types[position]));
            outputs.push(made.call(call, of_argument, rows_bits)?);
        }
        let range_key = match (stored.range_key, node.order_by) {
            (Some(position), [key]) => Some((position, RangeKey::of(key, &stored_types[position])?)),
            _ => None,
        };
        let more_bytes = row_bytes(&rows.columns) + BOUNDS_BYTES + MADE_BYTES * made.columns.len() as u64;
        let rows = if self.sorts_by_ranges(&rows, &shape.partition_masks, more_bytes) {
            let finish = |query: &mut Query<'_>, rows| {
                let kernels = compile_window(query, &made.entries())?;
                let rows = query.ordered_shard(rows, shape, true)?;
                query.made_columns(rows, &OfRows { shape, range_key: range_key.clone(), kernels: &kernels }, &made)
            };
            let masks = &shape.partition_masks;
            self.finished_by_ranges(rows, &ByRanges { shape, masks, may_part_equals: false, finish: &finish })?
        } else {
            let kernels = compile_window(self, &made.entries())?;
            let rows = self.ordered_partitions(rows, shape)?;
            self.made_columns(rows, &OfRows { shape, range_key, kernels: &kernels }, &made)?
        };
        let mut result = Relation::new(Source::Intermediate(Arc::new(rows)));
        let is_plain = |(index, expr): (usize, &Expr)| matches!(expr.kind, ExprKind::Column(column) if column == index);
        if outputs.len() != result.width || !outputs.iter().enumerate().all(is_plain) {
            result.width = outputs.len();
            result.steps.push(Step::Project(outputs));
        }
        Ok(result)
    }

    /// The sorted rows without words and arguments, followed by the requested columns. A device has no more rows than
    /// it could sort, so positions have 32 bits.
    fn made_columns(&mut self, mut rows: Intermediate, of_rows: &OfRows<'_>, made: &Made) -> Result<Intermediate> {
        let shape = of_rows.shape;
        let words = shape.word_bits.len();
        let mut types: Vec<ColumnType> = shape.columns[words..words + made.width].to_vec();
        types.extend(made.columns.iter().map(|(_, column)| column.clone()));
        self.options.check_cancelled()?;
        let mut flights = vec![];
        let mut shards = vec![];
        for (device, shard) in std::mem::take(&mut rows.shards).into_iter().enumerate() {
            let stream = self.streams[device].clone();
            let control = stream.alloc_filled(control::BYTES, 0)?;
            stream.wait_for_permit()?;
            let begin = stream.record()?;
            let new_types = &types[made.width..];
            let mut new = allocate(&stream, new_types, shard.rows)?;
            if shard.rows > 0 {
                let on = WindowLaunches {
                    on: EntryLaunches::new(of_rows.kernels, device, &stream),
                    control: &control,
                    rows: shard.rows,
                };
                let mut on_device = OnDevice {
                    on,
                    shard: &shard,
                    of_rows,
                    scans: HashMap::new(),
                    trees: HashMap::new(),
                    ranges: vec![],
                };
                on_device.make(made, &new)?;
                self.metrics.launches += on_device.on.on.launches;
            }
            let mut columns: Vec<IntermediateColumn> = shard.columns;
            columns.truncate(words + made.width);
            columns.drain(..words);
            columns.append(&mut new.columns);
            shards.push(IntermediateShard { rows: shard.rows, columns });
            flights.push(Some((control, begin, stream.record()?)));
        }
        self.note_window(&types, &shards, made.columns.len(), flights);
        Ok(Intermediate::new(types, rows.rows_max, shards))
    }

    /// A range of rows in their present order.
    pub(in crate::exec) fn range_of(&mut self, relation: Relation, range: OutputRange) -> Result<Relation> {
        let OutputRange { skip, fetch } = range;
        if relation.steps.is_empty() && skip == 0 && fetch.is_none() {
            return Ok(relation);
        }
        let rows = self.run_in_place(&relation)?;
        drop(relation);
        let rows = self.sliced(rows, skip, fetch)?;
        Ok(Relation::new(Source::Intermediate(Arc::new(rows))))
    }
}

/// Adds the stored columns of a window to a relation: the input's columns, arguments and keys. Also returns the
/// position of each call's argument.
fn store(relation: &mut Relation, node: WindowNode<'_>) -> (Stored, Vec<Option<usize>>) {
    let mut list = ExprList { exprs: columns_of(node.schema, relation.width) };
    let mut compared = vec![];
    let mut arguments = vec![];
    for call in node.calls {
        arguments.push(call.argument.as_ref().map(|argument| {
            let position = list.position(argument);
            if is_extreme(call) {
                compared.push(position);
            }
            position
        }));
    }
    let has_range = node.calls.iter().any(|call| call.function.spec().reads_frame && is_range(call.frame));
    let range_key = node.order_by.first().filter(|_| has_range).map(|key| list.position(&key.expr));
    let columns = list.exprs.len();
    let keys = node.keys().into_iter().map(|key| SortKey { expr: list.add(&key.expr), ..key }).collect();
    relation.width = list.exprs.len();
    relation.steps.push(Step::Project(list.exprs));
    let window = WindowKeys { partition_keys: node.partition_by.len(), compared };
    (Stored { columns, keys, window, range_key }, arguments)
}

/// Properties of the rows on all devices.
struct OfRows<'a> {
    shape: &'a SortShape,
    /// The key column of RANGE bounds.
    range_key: Option<(usize, RangeKey)>,
    kernels: &'a EntryKernels,
}

/// A window on one device.
struct OnDevice<'a> {
    on: WindowLaunches<'a>,
    shard: &'a IntermediateShard,
    of_rows: &'a OfRows<'a>,
    /// Scans computed so far, by column.
    scans: HashMap<(usize, ScanOp, Segments), Buffer>,
    trees: HashMap<(usize, ScanOp), Tree>,
    /// RANGE bounds computed so far, and whether each is the end.
    ranges: Vec<((FrameBound, bool), Buffer)>,
}

impl<'a> OnDevice<'a> {
    /// Fills the columns of `out`.
    fn make(&mut self, made: &Made, out: &IntermediateShard) -> Result<()> {
        let mut words: Vec<MaskedWord<'_>> = vec![];
        for (index, (&bits, &mask)) in
            self.of_rows.shape.word_bits.iter().zip(&self.of_rows.shape.partition_masks).enumerate()
        {
            let values = self.shard.columns[index].values.as_ref();
            let values = values.ok_or_else(|| Error::internal("rows without key words"))?;
            words.push((values, if bits <= 32 { 4 } else { 8 }, mask));
        }
        let bounds = self.on.bounds(&words)?;
        for ((raw, column), out) in made.columns.iter().zip(&out.columns) {
            for (argument, op, segments) in raw.scans() {
                if !self.scans.contains_key(&(argument, op, segments)) {
                    let scanned = self.on.scan(op, &self.values(argument), segments, &bounds)?;
                    self.scans.insert((argument, op, segments), scanned);
                }
            }
            self.make_tree_and_bounds(raw, &bounds)?;
            self.fill(raw, column, out, &bounds)?;
        }
        Ok(())
    }

    fn make_tree_and_bounds(&mut self, raw: &Raw, bounds: &Bounds) -> Result<()> {
        if let Some((argument, op)) = raw.tree()
            && !self.trees.contains_key(&(argument, op))
        {
            let tree = self.on.tree(op, &self.values(argument))?;
            self.trees.insert((argument, op), tree);
        }
        for range in raw.ranges() {
            let Some((position, key)) = &self.of_rows.range_key else {
                return Err(Error::internal("distances without a key"));
            };
            if self.ranges.iter().all(|(known, _)| *known != range) {
                let found = self.on.range(range, (key, &self.values(*position)), bounds)?;
                self.ranges.push((range, found));
            }
        }
        Ok(())
    }

    /// The stored column of an argument.
    fn values(&self, argument: usize) -> Values<'a> {
        let position = self.of_rows.shape.word_bits.len() + argument;
        let (stored, column) = (&self.shard.columns[position], &self.of_rows.shape.columns[position]);
        Values {
            values: stored.values.as_ref(),
            validity: stored.validity.as_ref(),
            kind: match column.domain {
                Domain::Float32 => kind::F32,
                Domain::Float64 => kind::F64,
                _ => kind::INT,
            },
            width_bytes: column.layout().width_bytes.into(),
            base: column.layout().base as i64,
        }
    }

    fn fill(&mut self, raw: &Raw, column: &ColumnType, out: &IntermediateColumn, bounds: &Bounds) -> Result<()> {
        let scans = &self.scans;
        let scan = |argument: usize, op: ScanOp, segments: Segments| scans.get(&(argument, op, segments));
        let counts = |argument: usize| scan(argument, ScanOp::Count, Segments::PARTITIONS);
        let ranges = &self.ranges;
        let rows_of = |bound: FrameBound, is_end: bool| {
            ranges.iter().find(|(range, _)| *range == (bound, is_end)).map(|(_, rows)| rows)
        };
        let frame_of =
            |frame: Frame| FrameOf { frame, starts: rows_of(frame.start, false), ends: rows_of(frame.end, true) };
        let missing = || Error::internal("an output column of a window without a buffer");
        if let Raw::Place { place, number, frame, counts: counted } = *raw {
            let out = out.values.as_ref().ok_or_else(missing)?;
            return self.on.place((place, number), (bounds, &frame_of(frame)), counted.and_then(counts), out);
        }
        let target = (out.values.as_ref(), out.validity.as_ref().ok_or_else(missing)?);
        match *raw {
            Raw::Value { argument, which, number, frame, skips_nulls } => {
                let (values, counts) = (self.values(argument), counts(argument).filter(|_| skips_nulls));
                self.on.value((which, number), (bounds, &frame_of(frame)), (&values, counts), target)
            }
            Raw::Fold { argument, op, form, frame, has_nulls } => {
                let tree = raw.tree().and_then(|tree| self.trees.get(&tree));
                let [forward, backward] =
                    form.segments().map(|segments| segments.and_then(|segments| scan(argument, op, segments)));
                let (form, period_rows) = form.code();
                let layout = column.layout();
                let fold = Fold {
                    op,
                    form,
                    period_rows,
                    forward: forward.or(tree.map(|tree| &tree.forward)),
                    backward: backward.or(tree.map(|tree| &tree.backward)),
                    totals: tree.map(|tree| &tree.totals),
                    values: self.values(argument),
                    counts: if has_nulls { counts(argument) } else { None },
                    width_bytes: layout.width_bytes.into(),
                    base: layout.base as i64,
                };
                self.on.fold(&fold, (bounds, &frame_of(frame)), target)
            }
            Raw::Place { .. } => Ok(()),
        }
    }
}
