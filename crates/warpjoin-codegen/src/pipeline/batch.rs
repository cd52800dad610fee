//! A probe of unique keys whose matches are only written: several rows a thread, so that several
//! accesses to the table are in flight, and a block reserves the places of all its rows at once.

use warpjoin_columns::Result;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::source::open_source;
use super::steps::bind_step;
use crate::bind::{Binder, Environment, hoist_word, key_word};
use crate::join::{access, both_sides, hash_windows, output, probe_words, slots_of};
use crate::program::{BatchItem, Binding, Field, Item, Op, Statement, Type, Variable};
use crate::shapes::{FilterTest, ProbeKey, ProbeKind, ProbeStep, Sink, Slots, SourceShape, Step};
use crate::value::{CType, Kind};

/// Rows of a thread. A probe of 2^27 rows into 2^20 took 1.82 ms on an H100, with one row 1.97; with four, which take
/// registers and so blocks, 2.1.
pub(super) const ITEMS: u32 = 2;
/// Blocks that a multiprocessor should hold.
pub const BATCH_BLOCKS: u32 = 8;

/// A pipeline of this kind.
pub(super) struct Batch<'a> {
    source: &'a SourceShape,
    /// Filters and projections in front of the probe.
    before: &'a [Step],
    probe: &'a ProbeStep,
    keys: &'a [Expr],
    /// Projections behind it.
    pub after: &'a [Step],
}

impl<'a> Batch<'a> {
    /// `None` for pipelines of other kinds.
    pub(super) fn of(source: &'a SourceShape, steps: &'a [Step], sink: &Sink) -> Option<Self> {
        let first = steps.iter().position(|step| matches!(step, Step::Probe(_)))?;
        let (before, [Step::Probe(probe), after @ ..]) = steps.split_at(first) else { return None };
        let ProbeKey::Exprs(keys) = &probe.key else { return None };
        let is_writing = matches!((source, sink), (SourceShape::Columns(..), Sink::Materialise(_)));
        let is_kind = matches!(probe.kind, ProbeKind::Matches | ProbeKind::Semi);
        let is_kind = is_kind && matches!(probe.filter, None | Some(FilterTest::Table));
        let is_plain =
            is_kind && !probe.is_counted && probe.shape.unique && !probe.shape.is_hashed() && probe.residual.is_none();
        let is_alone = !matches!(probe.shape.slots, Slots::Pairs { lanes: 2.. } | Slots::Bits);
        let drops_none = !after.iter().any(Step::drops_rows);
        let batch = Self { source, before, probe, keys, after };
        (is_writing && is_plain && is_alone && drops_none).then_some(batch)
    }

    /// Opens the loops over tiles and rows; returns the columns behind the probe. Their places in the output
    /// are reserved.
    pub(super) fn open(&self, b: &mut Binder, block_threads: u32) -> Result<Environment> {
        let rows = b.params.once(Type::Value(CType::U64), Binding::SourceRows);
        b.item(Item::Batch(BatchItem::Open { rows, items: ITEMS, block_threads }));
        self.keys(b, rows)?;
        self.look_up(b);
        let control = b.params.control();
        let capacity = b.params.once(Type::Value(CType::U64), Binding::OutputCapacity);
        b.item(Item::Batch(BatchItem::OpenFound { control, capacity }));
        b.is_reserved = true;
        let projections = self.before.iter().filter(|step| !step.drops_rows());
        let environment = self.columns(b, projections)?;
        self.reuse_keys(b, &environment);
        let found = b.variable(Variable::Found, CType::U64);
        access(b, &self.probe.shape, found, None, 0);
        output(self.probe, &both_sides(&environment, self.probe, 0)?)
    }

    /// Binds `keys`: the key word of each row of the thread, 0 where it can't match.
    fn keys(&self, b: &mut Binder, rows: Field) -> Result<()> {
        let shape = &self.probe.shape;
        b.item(Item::Batch(BatchItem::OpenKeys { rows }));
        // What is loaded again below should still be there.
        let is_loaded_again = self.before.iter().any(Step::drops_rows) || self.reusable().count() < self.keys.len();
        b.is_streaming = !is_loaded_again;
        let environment = self.columns(b, self.before.iter())?;
        let words = probe_words(b, &environment, shape, self.keys, self.probe.null_equals_null)?;
        let word = key_word(b, &shape.packing, &words);
        let key = hoist_word(b, word);
        let code = b.select(b.truth_of(Variable::Alive), key, b.whole(0));
        b.all(Statement::Keep { array: Variable::Keys, code });
        b.close();
        b.is_streaming = true;
        Ok(())
    }

    /// Keys that are integer columns, with these columns.
    fn reusable(&self) -> impl Iterator<Item = (usize, usize)> {
        let fields = &self.probe.shape.packing.fields;
        self.keys.iter().zip(fields).enumerate().filter_map(|(index, (key, field))| match key.kind {
            ExprKind::Column(column) => {
                let is_same = field.value.data_type == key.data_type && field.value.dictionary.is_none();
                (is_same && matches!(field.value.kind, Kind::Int(_))).then_some((index, column))
            }
            _ => None,
        })
    }

    /// Reads key columns back from the key words rather than from memory.
    fn reuse_keys(&self, b: &mut Binder, environment: &Environment) {
        let packing = &self.probe.shape.packing;
        let key = b.load(b.pointer(Variable::Keys, CType::U64), b.variable(Variable::Item, CType::U32));
        let key = b.in_parens(key, Op::Subtract, b.whole(1));
        let values = packing.unpack(b, &vec![key; packing.words()]);
        for (index, column) in self.reusable() {
            environment.set_load(column, values[index].clone());
        }
    }

    /// Looks the keys up.
    fn look_up(&self, b: &mut Binder) {
        let shape = &self.probe.shape;
        let slots = slots_of(b, shape, 0);
        let windows = hash_windows(b, shape, 0);
        b.item(Item::Batch(BatchItem::LookUp { form: shape.slots, slots, windows }));
    }

    fn columns<'s>(&self, b: &mut Binder, steps: impl Iterator<Item = &'s Step>) -> Result<Environment> {
        let mut environment = open_source(b, self.source);
        for step in steps {
            environment = bind_step(b, &environment, step, &mut 0)?;
        }
        Ok(environment)
    }
}
