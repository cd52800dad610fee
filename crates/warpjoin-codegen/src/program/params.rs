//! The parameter struct of a generated kernel: fields with their types, and what to pass for them.

use std::fmt;
use std::sync::Arc;

use crate::precomputed::Lookup;
use crate::value::CType;

/// What a field of the parameter struct is bound to when the kernel is launched on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// A number, the same on all devices.
    Word(u64),
    /// Rows of the source shard.
    SourceRows,
    /// The same, times the lanes that share the matches of a row.
    SlicedRows,
    /// Bits of the number of these lanes.
    SliceBits,
    /// Rows of the source on the devices before.
    SourceFirstRow,
    /// Values of a column of the source shard.
    SourceValues(usize),
    /// Validity of a column of the source shard.
    SourceValidity(usize),
    /// Rows of the group table that is the source.
    SourceGroups,
    /// Packed key of the first row of the group table that is the source.
    SourceFirstKey,
    /// Finished groups of the group table that is the source, and how many there are.
    SourceFinished,
    SourceFinishedRows,
    /// A part of the join table of the n-th probe step.
    Join(usize, JoinPart),
    /// A part of the table of the n-th fetch step.
    Fetched {
        step: usize,
        part: FetchPart,
    },
    /// What is read by code (results of a dictionary function, a code translation): its values.
    LookupValues(usize),
    /// The same: its validity bitmap.
    LookupValidity(usize),
    /// The control block.
    Control,
    /// Address of the word in host memory that cancels the query.
    Cancel,
    /// Values of an output column.
    OutputValues(usize),
    /// Validity bytes of an output column.
    OutputValidity(usize),
    /// Slots of the table that is the sink.
    OutputSlots,
    /// Rows that the output has room for.
    OutputCapacity,
    /// A part of the group table that is the sink.
    Group(GroupPart),
    /// A part of the sketch that is the sink.
    Sketch(SketchPart),
    /// A part of the partition that is the sink.
    Partition(PartitionPart),
    /// A part of the partitioned relations whose matches are the source.
    Match(MatchPart),
}

/// Parts of a sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SketchPart {
    /// The set of hashes.
    Set,
    /// Rows of which one is looked at.
    Stride,
}

/// Parts of a partition under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionPart {
    /// Bits of the hash that tell partitions apart.
    Bits,
    /// Bits of the hash above those.
    SkippedBits,
    /// Rows of each partition.
    Counts,
    /// The next free place of each partition.
    Cursors,
    /// A word of the rows.
    Word(usize),
}

/// Parts of two relations that were partitioned alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchPart {
    Bits,
    BuildOffsets,
    ProbeOffsets,
    /// Work items before each partition.
    Items,
    /// Build rows of a work item.
    Capacity,
    /// Bits of the hash that choose a chain.
    HeadsBits,
    /// Probe rows of a work item.
    ChunkRows,
    BuildWord(usize),
    ProbeWord(usize),
}

/// Parts of a join table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinPart {
    Slots,
    Windows,
    RowList,
    /// Of a runtime filter: complement of the lowest key word, and the highest one.
    Bounds,
    /// Packed payload words of duplicate keys, one a build row.
    PayloadWords,
    PayloadValues(usize),
    PayloadValidity(usize),
}

/// Parts of a table that is read by row numbers, by the device that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchPart {
    /// The number of the shard's first row.
    FirstRow {
        shard: usize,
    },
    Values {
        shard: usize,
        column: usize,
    },
    Validity {
        shard: usize,
        column: usize,
    },
}

/// Parts of a group table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupPart {
    Rows,
    /// Packed key of the first row.
    FirstKey,
    Capacity,
    Index,
    IndexSlots,
    StepsMax,
    GrowSteps,
    /// Rows that may be spilled behind the table.
    SpillRows,
    Counters,
    /// The next turn of each block; where rows lie by partition, its place.
    Cursors,
    /// Where each partition or piece of the rows begins, and how many there are.
    Offsets,
    Partitions,
    /// Rows that a block takes at a time where they lie by partition, or are cut into pieces.
    ChunkRows,
    /// Which ends of the rows share their key with other devices.
    OpenEnds,
    /// How many steps ahead of the rows at hand a block asks for rows.
    PrefetchSteps,
    /// Rows of finished groups, and how many there is room for.
    Finished,
    FinishedRows,
}

/// Type of a parameter or node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Value(CType),
    /// A pointer to what is read.
    Input(CType),
    /// A pointer to what is written.
    Output(CType),
    /// A pointer to slots of a key word and a value word, which are read.
    Slots,
}

/// A field of the parameter struct. Printed, it is the C expression that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field(u32);

/// Fields of a parameter struct, in order.
#[derive(Debug, Default)]
pub(crate) struct Params {
    fields: Vec<FieldSpec>,
    /// Host-made columns that the kernel reads.
    pub lookups: Vec<Lookup>,
}

#[derive(Debug)]
struct FieldSpec {
    of_type: Type,
    binding: Binding,
    /// Several places may ask for it.
    is_shared: bool,
}

impl Type {
    /// Type of a value, or of what a pointer points to; `None` for slots.
    pub(crate) fn element(self) -> Option<CType> {
        match self {
            Self::Value(c_type) | Self::Input(c_type) | Self::Output(c_type) => Some(c_type),
            Self::Slots => None,
        }
    }

    pub(crate) fn is_pointer(self) -> bool {
        !matches!(self, Self::Value(_))
    }
}

impl Field {
    /// Its place in the struct.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

// Not `f`: `f32` and `f64` are types.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p.a{}", self.0)
    }
}

impl Params {
    /// Adds a field.
    pub(crate) fn add(&mut self, of_type: Type, binding: Binding) -> Field {
        self.push(of_type, binding, false)
    }

    /// The field for `binding`, added once however often it is asked for.
    pub(crate) fn once(&mut self, of_type: Type, binding: Binding) -> Field {
        // Kernels have tens of fields: looking at them takes less than hashing.
        let is_it = |field: &FieldSpec| field.is_shared && field.binding == binding && field.of_type == of_type;
        match self.fields.iter().position(is_it) {
            Some(known) => Field(known as u32),
            None => self.push(of_type, binding, true),
        }
    }

    fn push(&mut self, of_type: Type, binding: Binding, is_shared: bool) -> Field {
        self.fields.push(FieldSpec { of_type, binding, is_shared });
        Field(self.fields.len() as u32 - 1)
    }

    /// A signed number as a field, so that its value is not part of the code.
    pub(crate) fn number(&mut self, value: i64) -> Field {
        self.add(Type::Value(CType::I64), Binding::Word(value as u64))
    }

    /// The control block.
    pub(crate) fn control(&mut self) -> Field {
        self.once(Type::Output(CType::U64), Binding::Control)
    }

    /// Address of the word in host memory that cancels the query.
    pub(crate) fn cancel(&mut self) -> Field {
        self.once(Type::Value(CType::U64), Binding::Cancel)
    }

    pub(crate) fn type_of(&self, field: Field) -> Type {
        self.fields[field.index()].of_type
    }

    /// Types of all fields, in order.
    pub(crate) fn types(&self) -> impl Iterator<Item = Type> {
        self.fields.iter().map(|field| field.of_type)
    }

    /// The fields that are values of the source, and what they point to.
    pub(crate) fn source_values(&self) -> impl Iterator<Item = (Field, CType)> {
        let fields = self.fields.iter().enumerate();
        let fields = fields.filter(|(_, field)| matches!(field.binding, Binding::SourceValues(_)));
        fields.filter_map(|(index, field)| Some((Field(index as u32), field.of_type.element()?)))
    }

    /// Adds what is read by code, a column once; returns its number.
    pub(crate) fn lookup(&mut self, lookup: Lookup) -> usize {
        let is_it = |known: &Lookup| match (known, &lookup) {
            (Lookup::Column(known), Lookup::Column(column)) => Arc::ptr_eq(known, column),
            _ => false,
        };
        self.lookups.iter().position(is_it).unwrap_or_else(|| {
            self.lookups.push(lookup);
            self.lookups.len() - 1
        })
    }

    /// What to pass, in order.
    pub(crate) fn into_bindings(self) -> (Vec<Binding>, Vec<Lookup>) {
        (self.fields.into_iter().map(|field| field.binding).collect(), self.lookups)
    }
}
