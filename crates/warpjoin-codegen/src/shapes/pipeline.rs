//! What generated code must know of the things that a pipeline touches: no buffers, no row counts.

use std::sync::Arc;

use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::Expr;
use warpjoin_plan::plan::SortKey;

use super::group::{Accumulator, GroupLimits, GroupShape};
use super::join::{JoinShape, ProbeStep};
use super::packing::Packing;
use crate::value::ValueType;

/// Where a pipeline's rows come from.
#[derive(Debug, Clone)]
pub enum SourceShape {
    /// Columns of a table or an intermediate.
    Columns(Vec<ColumnType>, ValidityForm),
    /// Groups of a finished group table.
    Groups(Arc<GroupShape>),
    /// Matches of two relations that were partitioned alike: build columns, then probe columns.
    Matches { build: Arc<RowShape>, probe: Arc<RowShape>, form: MatchForm },
    /// Rows of words, by partition or in no order.
    Words { rows: Arc<RowShape>, by_partition: bool },
}

/// How the source table stores validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValidityForm {
    /// One bit a row.
    Bits,
    /// One byte a row.
    Bytes,
}

/// How matches are found in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchForm {
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
pub struct RowShape {
    /// Keys, then payload.
    pub packing: Packing,
    /// Fields of the packing that are the key.
    pub keys: usize,
    /// Field that holds each column of the relation; `None`: nobody needs it.
    pub field_of: Vec<Option<usize>>,
}

impl RowShape {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.word_bytes().iter().map(|&bytes| u64::from(bytes)).sum()
    }

    /// Words of a row; at least one.
    pub fn words(&self) -> usize {
        self.packing.words().max(1)
    }

    /// Stored bytes of each word.
    pub fn word_bytes(&self) -> Vec<u32> {
        let bytes = |bits: &u32| if *bits <= 32 { 4 } else { 8 };
        if self.packing.words() == 0 { vec![4] } else { self.packing.word_bits.iter().map(bytes).collect() }
    }

    /// What the key fields are.
    pub(crate) fn key_types(&self) -> impl Iterator<Item = ValueType> {
        self.packing.fields[..self.keys].iter().map(|field| field.value.clone())
    }

    /// Bits of the key in each word that has some; at least one word.
    pub fn key_masks(&self) -> Vec<u64> {
        let mut masks = self.packing.masks_of(self.keys);
        while masks.last() == Some(&0) {
            masks.pop();
        }
        if masks.is_empty() { vec![0] } else { masks }
    }
}

/// How the rows of a relation become rows of words.
#[derive(Debug, Clone)]
pub struct RowSpec {
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
pub struct SortShape {
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
pub struct WindowKeys {
    /// How many of the keys, from the first one on, are those of partitions.
    pub partition_keys: usize,
    /// Columns, by position among those put out, whose strings are stored as codes that compare like them.
    pub compared: Vec<usize>,
}

/// Which kernel of a partition is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartitionStage {
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
pub enum Step {
    /// Keeps rows for which the expression is true.
    Filter(Expr),
    /// Replaces the columns.
    Project(Vec<Expr>),
    /// Probes a join table; a row goes on once a match.
    Probe(ProbeStep),
    /// Adds columns of a table by the number of its row.
    Fetch(Arc<FetchStep>),
    /// Changes nothing: few rows are left, and what follows is worth full warps.
    Compact,
}

impl Step {
    /// Whether not exactly one row goes on for each that comes in.
    pub fn drops_rows(&self) -> bool {
        !matches!(self, Self::Project(_) | Self::Fetch(_) | Self::Compact)
    }
}

/// Columns of a table that are loaded by row numbers.
#[derive(Debug, Clone)]
pub struct FetchStep {
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

/// What a pipeline does with the rows that are left.
#[derive(Debug, Clone)]
pub enum Sink {
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
        /// The packed words of a hashed table are written too.
        keeps_words: bool,
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
