//! What generated code must know of the things that a pipeline touches: no buffers, no row counts.

use std::sync::Arc;

use super::emitter::ValidityForm;
use super::group_shapes::{Accumulator, GroupLimits, GroupShape};
use super::packing::Packing;
use crate::column::ColumnType;
use crate::expr::Expr;
use crate::plan::SortKey;

/// Where a pipeline's rows come from.
#[derive(Debug, Clone)]
pub(crate) enum SourceShape {
    /// Columns of a table or an intermediate.
    Columns(Vec<ColumnType>, ValidityForm),
    /// Groups of a finished group table.
    Groups(Arc<GroupShape>),
    /// Matches of two relations that were partitioned alike: build columns, then probe columns.
    Matches { build: Arc<RowShape>, probe: Arc<RowShape>, form: MatchForm },
    /// Rows of words, by partition.
    Words(Arc<RowShape>),
}

/// How matches are found in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MatchForm {
    /// Chains of build rows, walked a match at a time.
    Chains,
    /// The same; a probe row comes out once, however often it matches.
    Semi,
    /// Build rows by key; a warp shares the matches of its rows.
    Lists,
}

/// Rows of a partitioned relation: words of 4 or 8 bytes, each in a column of its own, with the key's
/// bits first.
#[derive(Debug, Clone)]
pub(crate) struct RowShape {
    /// Keys, then payload.
    pub packing: Packing,
    /// Fields of the packing that are the key.
    pub keys: usize,
    /// Field that holds each column of the relation; `None`: nobody needs it.
    pub field_of: Vec<Option<usize>>,
}

impl RowShape {
    /// Words of a row; at least one.
    pub(crate) fn words(&self) -> usize {
        self.packing.words().max(1)
    }

    /// Stored bytes of each word.
    pub(crate) fn word_bytes(&self) -> Vec<u32> {
        let bytes = |bits: &u32| if *bits <= 32 { 4 } else { 8 };
        if self.packing.words() == 0 { vec![4] } else { self.packing.word_bits.iter().map(bytes).collect() }
    }

    /// The key fields as values, for their types.
    pub(crate) fn key_values(&self) -> Vec<super::value::Value> {
        self.packing.fields[..self.keys].iter().map(|field| field.value.clone()).collect()
    }

    /// Bits of the key in each word that has some; at least one word.
    pub(crate) fn key_masks(&self) -> Vec<u64> {
        let mut masks = self.packing.masks_of(self.keys);
        while masks.last() == Some(&0) {
            masks.pop();
        }
        if masks.is_empty() { vec![0] } else { masks }
    }
}

/// How the rows of a relation become rows of words.
#[derive(Debug, Clone)]
pub(crate) struct RowSpec {
    pub keys: Vec<Expr>,
    /// Packs the keys as this other side does, and drops rows with keys beyond its bounds.
    pub like: Option<Arc<RowShape>>,
    /// Keeps rows with a null key.
    pub keeps_null_keys: bool,
    /// Columns of the last step that are needed.
    pub payload: Vec<usize>,
}

/// Rows whose order is to be found.
#[derive(Debug, Clone)]
pub(crate) struct SortShape {
    /// What is stored: key words, the most significant one first, then columns.
    pub columns: Vec<ColumnType>,
    /// Bits of each word.
    pub word_bits: Vec<u32>,
    /// The column put out, by position and with its type, that is the only word itself, and is not stored again.
    pub key_column: Option<(usize, ColumnType)>,
    /// Bits of each word that are of the keys of a window's partitions; none of other sorts.
    pub partition_masks: Vec<u64>,
}

/// What a window wants of the rows that it has sorted.
#[derive(Debug, Clone)]
pub(crate) struct WindowKeys {
    /// How many of the keys, from the first one on, are those of partitions.
    pub partition_keys: usize,
    /// Columns, by position among those put out, whose strings are stored as codes that compare like them.
    pub compared: Vec<usize>,
}

/// Which kernel of a partition is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PartitionStage {
    /// Counts the rows of each partition.
    Count,
    /// Moves rows to their partitions, with blocks of at most so many threads.
    Scatter {
        threads: u32,
        /// Of a block that moves rows of one word.
        threads_of_one_word: u32,
    },
}

/// What a pipeline does between source and sink.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Keeps rows for which the expression is true.
    Filter(Expr),
    /// Replaces the columns.
    Project(Vec<Expr>),
    /// Probes a join table; a row goes on once a match.
    Probe(ProbeStep),
    /// Adds columns of a table by the number of its row.
    Fetch(Arc<FetchStep>),
}

impl Step {
    /// Whether not exactly one row goes on for each that comes in.
    pub(crate) fn drops_rows(&self) -> bool {
        !matches!(self, Self::Project(_) | Self::Fetch(_))
    }
}

/// Columns of a table that are loaded by row numbers.
#[derive(Debug, Clone)]
pub(crate) struct FetchStep {
    /// Which of the relation's fetches it is.
    pub number: usize,
    /// The column that holds the row's number.
    pub row: usize,
    /// Columns of the table.
    pub columns: Vec<usize>,
    /// What they are.
    pub types: Vec<ColumnType>,
    /// Devices that have rows of the table.
    pub shards: usize,
}

/// A probe of a join table.
#[derive(Debug, Clone)]
pub(crate) struct ProbeStep {
    pub shape: Arc<JoinShape>,
    pub key: ProbeKey,
    pub kind: ProbeKind,
    pub null_equals_null: bool,
    /// Over all build columns, then all probe columns.
    pub residual: Option<Expr>,
    /// Columns that go on, by position among all build columns, then all probe columns, then the mark.
    pub output: Vec<usize>,
    /// Payload column of each build column; `None` where nobody needs it.
    pub payload_of: Vec<Option<usize>>,
    /// Drops rows that a later join would drop, by this test. `None`: a join's own probe.
    pub filter: Option<FilterTest>,
    /// Counts the rows that it looks up, and those that a filter drops.
    pub is_counted: bool,
}

/// How a runtime filter tells that a key is none of a build's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FilterTest {
    /// By the table itself.
    Table,
    /// By its lowest and its highest key.
    Bounds,
    /// By a bit for each possible key, after its bounds if it has them.
    Bitmap { has_bounds: bool },
    /// By a Bloom filter, after its bounds if it has them.
    Bloom { has_bounds: bool },
}

impl FilterTest {
    /// Whether there are bounds to be tested.
    pub(crate) fn has_bounds(self) -> bool {
        matches!(self, Self::Bounds | Self::Bitmap { has_bounds: true } | Self::Bloom { has_bounds: true })
    }

    /// The test in words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Bounds => "bounds",
            Self::Bitmap { has_bounds: false } => "bitmap",
            Self::Bitmap { has_bounds: true } => "bounds, bitmap",
            Self::Bloom { has_bounds: false } => "Bloom filter",
            Self::Bloom { has_bounds: true } => "bounds, Bloom filter",
        }
    }
}

/// Which rows go on from a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProbeKind {
    /// A row a match.
    Matches,
    /// Probe rows with a match.
    Semi,
    /// Probe rows without one.
    Anti,
    /// All probe rows, and whether there is a match.
    Mark,
    /// A row a match, and probe rows without one.
    Outer,
}

impl ProbeKind {
    /// Only whether there is a match counts.
    pub(crate) fn is_existence(self) -> bool {
        matches!(self, Self::Semi | Self::Anti | Self::Mark)
    }

    /// Rows without a match go on.
    pub(crate) fn keeps_unmatched(self) -> bool {
        matches!(self, Self::Anti | Self::Mark | Self::Outer)
    }
}

/// Where a probe takes its key from.
#[derive(Debug, Clone)]
pub(crate) enum ProbeKey {
    /// Key expressions over the current columns.
    Exprs(Vec<Expr>),
    /// Key words computed before an exchange: columns of the source.
    Stored(StoredKey),
}

/// Key words in columns of the source.
#[derive(Debug, Clone)]
pub(crate) struct StoredKey {
    /// The slot's key word.
    pub word: usize,
    /// The packed words, where the slot's word is only their hash.
    pub packed: Vec<usize>,
}

/// A join table, as far as code depends on it.
#[derive(Debug, Clone)]
pub(crate) struct JoinShape {
    /// Key values and their bounds on the build side.
    pub packing: Packing,
    pub payload: PayloadForm,
    /// No key twice, or it does not matter: the slot's value is the payload word, or the build row.
    pub unique: bool,
    pub slots: Slots,
}

/// Where a table has its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Slots {
    /// Open addressing in slots of a key word and a value word, probed by so many lanes together.
    Pairs { lanes: u32 },
    /// Open addressing in slots of one word. Unique keys only.
    Words(WordSlots),
    /// Indexed by the packed key. Unique keys only.
    Direct(DirectSlots),
}

/// Slots of one word: key word in the low bits, value above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WordSlots {
    /// 4 or 8.
    pub bytes: u32,
    /// Key words are at most 2^key_bits.
    pub key_bits: u32,
}

impl WordSlots {
    /// The smallest slots that hold a key word and its value: the payload word, or the number of one of at
    /// most `rows_max` build rows.
    pub(crate) fn of(packing: &Packing, payload: &PayloadForm, rows_max: u64) -> Option<Self> {
        let bits_of = |number: u64| 64 - number.leading_zeros();
        let value_bits = match payload {
            PayloadForm::Packed(packing) => packing.single_word_bits()?,
            PayloadForm::Columns(_) => bits_of(rows_max),
        };
        let key_bits = match packing.span() {
            Some(span) => bits_of(span - 1).max(1),
            None => packing.single_word_bits().filter(|&bits| bits < 64)?,
        };
        match key_bits + value_bits {
            0..=32 => Some(Self { bytes: 4, key_bits }),
            33..=64 => Some(Self { bytes: 8, key_bits }),
            _ => None,
        }
    }
}

/// Slots of a table that is indexed by the packed key: 0, or a value + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DirectSlots {
    /// 4 or 8.
    pub bytes: u32,
    /// The value is the payload word, rather than the build row.
    pub holds_payload: bool,
}

impl DirectSlots {
    /// The smallest slots that do for a payload.
    pub(crate) fn of(payload: &PayloadForm) -> Self {
        match payload {
            PayloadForm::Packed(packing) => match packing.single_word_bits() {
                Some(0..=31) => Self { bytes: 4, holds_payload: true },
                Some(32..=63) => Self { bytes: 8, holds_payload: true },
                _ => Self { bytes: 4, holds_payload: false },
            },
            PayloadForm::Columns(_) => Self { bytes: 4, holds_payload: false },
        }
    }
}

impl JoinShape {
    /// Whether the value that a probe finds is the payload word.
    pub(crate) fn finds_payload(&self) -> bool {
        let holds_payload = match self.slots {
            Slots::Direct(slots) => slots.holds_payload,
            Slots::Pairs { .. } | Slots::Words(_) => true,
        };
        self.unique && holds_payload
    }

    /// The table in words.
    pub(crate) fn describe(&self) -> String {
        match (self.slots, self.unique) {
            (Slots::Direct(slots), _) => format!("DirectTable[{} bytes]", slots.bytes),
            (Slots::Words(slots), _) => format!("HashTable[unique, 1 lanes, {} bytes]", slots.bytes),
            (Slots::Pairs { lanes }, true) => format!("HashTable[unique, {lanes} lanes, 16 bytes]"),
            (Slots::Pairs { lanes }, false) => format!("HashTable[lists, {lanes} lanes]"),
        }
    }

    /// Whether slots hold a hash of the key, so that matches must be checked against the key.
    pub(crate) fn is_hashed(&self) -> bool {
        is_hashed(&self.packing)
    }
}

/// Whether keys of this packing are too long for a slot's word (0 is not a key, so 63 bits).
pub(crate) fn is_hashed(packing: &Packing) -> bool {
    packing.single_word_bits().is_none_or(|bits| bits > 63)
}

/// How build columns travel with a join table.
#[derive(Debug, Clone)]
pub(crate) enum PayloadForm {
    /// In one word: in the slot, or by build row for duplicate keys.
    Packed(Packing),
    /// In columns, by build row. Packed key words come last where the table is hashed.
    Columns(Vec<ColumnType>),
}

/// What a pipeline does with the rows that are left.
#[derive(Debug, Clone)]
pub(crate) enum Sink {
    /// Writes columns of the last step.
    Materialise(Vec<usize>),
    /// The same of any `wanted` rows: blocks stop once so many places are taken.
    Limit { columns: Vec<usize>, wanted: u64 },
    /// Writes all columns of the last step as columns of these types, which their values fit.
    Conform(Vec<ColumnType>),
    /// Writes key word and payload for building a join table.
    Build {
        keys: Vec<Expr>,
        null_equals_null: bool,
        /// Columns of the last step that the join needs.
        payload: Vec<usize>,
    },
    /// Writes payload into the slots of a table that is indexed by the packed key, where that is possible.
    Direct {
        keys: Vec<Expr>,
        null_equals_null: bool,
        /// Columns of the last step that the join needs.
        payload: Vec<usize>,
        /// Keys may occur any number of times; there is no payload.
        is_set: bool,
    },
    /// Writes key words for probing `shape`, then columns of the last step.
    Route {
        shape: Arc<JoinShape>,
        keys: Vec<Expr>,
        null_equals_null: bool,
        /// Rows that can't match are written too, with 0 for a key word.
        keeps_unmatched: bool,
        columns: Vec<usize>,
    },
    /// Writes a key word for routing a group, then columns of the last step. Without keys every row
    /// goes to one device.
    RouteGroups { keys: Vec<usize>, columns: Vec<usize> },
    /// Writes the words of an order's keys, then columns of the last step. For a window every column is stored.
    Sort { keys: Vec<SortKey>, columns: Vec<usize>, window: Option<WindowKeys> },
    /// Writes columns of the last step where they were read: every row of the source is written, at its own place.
    InPlace(Vec<usize>),
    /// Counts or writes rows of words by partition. The steps before hold no probe.
    Partition { stage: PartitionStage, rows: RowSpec },
    /// Counts rows and different keys of a sample.
    Sketch { keys: Vec<Expr> },
    /// Aggregates.
    Aggregate { keys: Vec<Expr>, accumulators: Vec<Accumulator>, limits: GroupLimits },
}
