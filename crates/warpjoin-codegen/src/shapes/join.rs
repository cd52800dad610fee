//! What generated code must know of join tables and their probes.

use std::sync::Arc;

use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::Expr;

use super::packing::Packing;

/// A probe of a join table.
#[derive(Debug, Clone)]
pub struct ProbeStep {
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

impl ProbeStep {
    /// Whether it only tests, by something else than the table.
    pub(crate) fn is_of_filter(&self) -> bool {
        self.filter.is_some_and(|test| test != FilterTest::Table)
    }
}

/// How a runtime filter tells that a key is none of a build's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterTest {
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
    pub fn has_bounds(self) -> bool {
        matches!(self, Self::Bounds | Self::Bitmap { has_bounds: true } | Self::Bloom { has_bounds: true })
    }

    /// The test in words.
    pub fn describe(self) -> &'static str {
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
pub enum ProbeKind {
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
    pub fn is_existence(self) -> bool {
        matches!(self, Self::Semi | Self::Anti | Self::Mark)
    }

    /// Rows without a match go on.
    pub fn keeps_unmatched(self) -> bool {
        matches!(self, Self::Anti | Self::Mark | Self::Outer)
    }
}

/// Where a probe takes its key from.
#[derive(Debug, Clone)]
pub enum ProbeKey {
    /// Key expressions over the current columns.
    Exprs(Vec<Expr>),
    /// Key words computed before an exchange: columns of the source.
    Stored(StoredKey),
}

/// Key words in columns of the source.
#[derive(Debug, Clone)]
pub struct StoredKey {
    /// The slot's key word.
    pub word: usize,
    /// The packed words, where the slot's word is only their hash.
    pub packed: Vec<usize>,
}

/// A join table, as far as code depends on it.
#[derive(Debug, Clone)]
pub struct JoinShape {
    /// Key values and their bounds on the build side.
    pub packing: Packing,
    pub payload: PayloadForm,
    /// No key twice, or it does not matter: the slot's value is the payload word, or the build row.
    pub unique: bool,
    pub slots: Slots,
}

impl JoinShape {
    /// Whether the value that a probe finds is the payload word.
    pub(crate) fn finds_payload(&self) -> bool {
        let holds_payload = match self.slots {
            Slots::Direct(slots) => slots.holds_payload,
            Slots::Pairs { .. } | Slots::Words(_) | Slots::Bits => true,
        };
        self.unique && holds_payload
    }

    /// The table in words.
    pub fn describe(&self) -> String {
        match (self.slots, self.unique) {
            (Slots::Direct(slots), _) => format!("DirectTable[{} bytes]", slots.bytes),
            (Slots::Bits, _) => "KeyBitmap".to_string(),
            (Slots::Words(slots), _) => format!("HashTable[unique, 1 lanes, {} bytes]", slots.bytes),
            (Slots::Pairs { lanes }, true) => format!("HashTable[unique, {lanes} lanes, 16 bytes]"),
            (Slots::Pairs { lanes }, false) => format!("HashTable[lists, {lanes} lanes]"),
        }
    }

    /// Whether slots hold a hash of the key, so that matches must be checked against the key.
    pub fn is_hashed(&self) -> bool {
        is_hashed(&self.packing)
    }
}

/// Whether keys of this packing are too long for a slot's word (0 is not a key, so 63 bits).
pub(crate) fn is_hashed(packing: &Packing) -> bool {
    packing.single_word_bits().is_none_or(|bits| bits > 63)
}

/// Where a table has its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slots {
    /// Open addressing in slots of a key word and a value word, probed by so many lanes together.
    Pairs { lanes: u32 },
    /// Open addressing in slots of one word. Unique keys only.
    Words(WordSlots),
    /// Indexed by the packed key. Unique keys only.
    Direct(DirectSlots),
    /// A bit for each packed key: of the build side, only its keys count.
    Bits,
}

/// Slots of one word: key word in the low bits, value above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WordSlots {
    /// 4 or 8.
    pub bytes: u32,
    /// Key words are at most 2^key_bits.
    pub key_bits: u32,
}

impl WordSlots {
    /// The smallest slots that hold a key word and its value: the payload word, or the number of one of at
    /// most `rows_max` build rows.
    pub fn of(packing: &Packing, payload: &PayloadForm, rows_max: u64) -> Option<Self> {
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
pub struct DirectSlots {
    /// 4 or 8.
    pub bytes: u32,
    /// The value is the payload word, rather than the build row.
    pub holds_payload: bool,
}

impl DirectSlots {
    /// The smallest slots that do for a payload.
    pub fn of(payload: &PayloadForm) -> Self {
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

impl PayloadForm {
    /// Whether nothing of the build side is needed behind the join.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Packed(packing) => packing.words() == 0,
            Self::Columns(columns) => columns.is_empty(),
        }
    }
}

/// How build columns travel with a join table.
#[derive(Debug, Clone)]
pub enum PayloadForm {
    /// In one word: in the slot, or by build row for duplicate keys.
    Packed(Packing),
    /// In columns, by build row. Packed key words come last where the table is hashed.
    Columns(Vec<ColumnType>),
}
