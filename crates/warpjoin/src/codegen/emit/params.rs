//! The parameter struct of a generated kernel: a C field, and what to pass for it.

use std::fmt::Write;
use std::sync::Arc;

use crate::codegen::precomputed::Lookup;

/// What a field of the parameter struct is bound to when the kernel is launched on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binding {
    /// A number, the same on all devices.
    Word(u64),
    /// Rows of the source shard.
    SourceRows,
    /// Rows of the source on the devices before.
    SourceFirstRow,
    /// Values of a column of the source shard.
    SourceValues(usize),
    /// Validity of a column of the source shard.
    SourceValidity(usize),
    /// Rows of the group table that is the source.
    SourceGroups,
    /// Finished groups of the group table that is the source, and how many there are.
    SourceFinished,
    SourceFinishedRows,
    /// Where each partition of the source begins, and how many there are.
    SourceOffsets,
    SourcePartitions,
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
pub(crate) enum SketchPart {
    /// The set of hashes.
    Set,
    /// Rows of which one is looked at.
    Stride,
}

/// Parts of a partition under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionPart {
    /// Bits of the hash that tell partitions apart.
    Bits,
    /// Rows of each partition.
    Counts,
    /// The next free place of each partition.
    Cursors,
    /// A word of the rows.
    Word(usize),
}

/// Parts of two relations that were partitioned alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchPart {
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
pub(crate) enum JoinPart {
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
pub(crate) enum FetchPart {
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
pub(crate) enum GroupPart {
    Rows,
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
    /// Rows that a block takes at a time where they lie by partition.
    ChunkRows,
    /// How many steps ahead of the rows at hand a block asks for rows.
    PrefetchSteps,
    /// Rows of finished groups, and how many there is room for.
    Finished,
    FinishedRows,
}

/// Fields of a parameter struct, in order.
#[derive(Debug, Default)]
pub(crate) struct Params {
    fields: Vec<Field>,
    /// Host-made columns that the kernel reads.
    pub lookups: Vec<Lookup>,
}

#[derive(Debug)]
struct Field {
    c_type: String,
    binding: Binding,
    /// Several places may ask for it.
    is_shared: bool,
}

/// The C expression that reads a field. Not `f`: `f32` and `f64` are types.
fn read(field: usize) -> String {
    format!("p.a{field}")
}

impl Params {
    /// Adds a field; returns the C expression that reads it.
    pub(crate) fn add(&mut self, c_type: &str, binding: Binding) -> String {
        self.fields.push(Field { c_type: c_type.into(), binding, is_shared: false });
        read(self.fields.len() - 1)
    }

    /// The field for `binding`, added once however often it is asked for.
    pub(crate) fn once(&mut self, c_type: &str, binding: Binding) -> String {
        // Kernels have tens of fields: looking at them takes less than hashing.
        let is_it = |field: &Field| field.is_shared && field.binding == binding && field.c_type == c_type;
        if let Some(known) = self.fields.iter().position(is_it) {
            return read(known);
        }
        self.fields.push(Field { c_type: c_type.into(), binding, is_shared: true });
        read(self.fields.len() - 1)
    }

    /// A signed number as a field, so that its value is not part of the code.
    pub(crate) fn number(&mut self, value: i64) -> String {
        self.add("i64", Binding::Word(value as u64))
    }

    /// A 128-bit number as two fields.
    pub(crate) fn wide_number(&mut self, value: i128) -> String {
        let low = self.add("u64", Binding::Word(value as u64));
        let high = self.add("u64", Binding::Word((value >> 64) as u64));
        format!("wide_literal({low}, {high})")
    }

    /// The fields that are values of the source, and bits of a value.
    pub(crate) fn source_values(&self) -> Vec<(String, u32)> {
        let fields = self.fields.iter().enumerate();
        let fields = fields.filter(|(_, field)| matches!(field.binding, Binding::SourceValues(_)));
        let bits = |c_type: &str| {
            let c_type = c_type.split('*').next().unwrap_or_default();
            c_type.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(64)
        };
        fields.map(|(index, field)| (read(index), bits(&field.c_type))).collect()
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

    /// The struct in C.
    pub(crate) fn declaration(&self) -> String {
        let mut text = String::from("struct Params {\n");
        for (index, field) in self.fields.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {} a{index};", field.c_type);
        }
        text.push_str("};\n");
        text
    }

    /// What to pass, in order.
    pub(crate) fn into_bindings(self) -> (Vec<Binding>, Vec<Lookup>) {
        (self.fields.into_iter().map(|field| field.binding).collect(), self.lookups)
    }
}
