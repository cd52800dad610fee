//! Binds a kernel's parameters to values on one device.

use std::sync::Arc;

use warpjoin_codegen::{Binding, FetchPart, GroupPart, JoinPart, MatchPart, PartitionPart, SketchPart};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Arg, Buffer, CancelWord};

use super::staging::StagedChunk;
use super::target::{GroupTarget, Target};
use crate::exec::relation::{IntermediateShard, JoinTable, Part, Relation, Source, TableColumns};
use crate::runtime::lookup_copies::UploadedColumn;

/// Finds the argument for a binding on one device.
pub(super) struct Binder<'a> {
    pub device: usize,
    pub relation: &'a Relation,
    pub columns: &'a TableColumns,
    pub target: &'a Target<'a>,
    pub lookups: &'a [Arc<UploadedColumn>],
    pub control: &'a Buffer,
    pub cancel: &'a CancelWord,
    /// First row of the chunk, among the rows of the device; the field after it is the number of rows.
    pub first: u64,
    pub rows: u64,
    /// 2^this lanes share the matches of a row.
    pub slice_bits: u32,
    /// Columns of the chunk that were brought to the device.
    pub staged: Option<&'a StagedChunk>,
}

impl<'a> Binder<'a> {
    /// The address of the chunk's first row in a buffer with this many bytes per row.
    fn at_first_row(&self, buffer: Option<&'a Buffer>, row_bytes: u64) -> Arg<'a> {
        match (buffer, self.first) {
            (Some(buffer), 1..) => Arg::BufferAt(buffer, self.first * row_bytes),
            (buffer, _) => Arg::or_null(buffer),
        }
    }

    /// The address of the chunk's first validity bit or byte.
    fn validity(&self, column: usize) -> Arg<'a> {
        let part = Part::Validity(column);
        if let Some(staged) = self.staged.and_then(|chunk| chunk.buffer(part)) {
            return Arg::Buffer(staged);
        }
        let source = &self.relation.source;
        let buffer = self.columns.buffer(source, self.device, part);
        match (buffer, source) {
            (Some(buffer), Source::Table(..)) if self.first > 0 => Arg::BufferAt(buffer, self.first / 8),
            (buffer, _) => self.at_first_row(buffer, 1),
        }
    }

    pub(super) fn arg(&self, binding: &Binding) -> Result<Arg<'a>> {
        let source = &self.relation.source;
        Ok(match binding {
            Binding::Word(word) => Arg::U64(*word),
            Binding::SourceRows => Arg::U64(self.rows),
            Binding::SlicedRows => Arg::U64(self.rows << self.slice_bits),
            Binding::SliceBits => Arg::U64(self.slice_bits.into()),
            Binding::SourceFirstRow => {
                let before: u64 = (0..self.device).map(|device| source.shard_rows(device)).sum();
                Arg::U64(before + self.first)
            }
            Binding::SourceValues(column) => match self.staged.and_then(|chunk| chunk.buffer(Part::Values(*column))) {
                Some(staged) => Arg::Buffer(staged),
                None => self.source_values(*column),
            },
            Binding::SourceValidity(column) => self.validity(*column),
            Binding::SourceGroups | Binding::SourceFirstKey | Binding::SourceFinished | Binding::SourceFinishedRows => {
                let Source::Groups(groups) = source else {
                    return Err(Error::internal("groups of a table"));
                };
                let shard = &groups.shards[self.device];
                match binding {
                    Binding::SourceGroups => Arg::Buffer(&shard.rows),
                    Binding::SourceFirstKey => Arg::U64(shard.first_key),
                    Binding::SourceFinished => Arg::or_null(shard.finished.as_ref().map(|finished| &finished.rows)),
                    _ => Arg::U64(shard.finished.as_ref().map_or(0, |finished| finished.count)),
                }
            }
            Binding::Join(join, part) => self.join_arg(&self.relation.joins[*join], *part),
            Binding::Fetched { step, part } => {
                let shards = self.columns.fetched(*step);
                match *part {
                    FetchPart::FirstRow { shard } => Arg::U64(shards[shard].first_row),
                    FetchPart::Values { shard, column } => {
                        Arg::or_null(shards[shard].columns[column].values.as_deref())
                    }
                    FetchPart::Validity { shard, column } => {
                        Arg::or_null(shards[shard].columns[column].validity.as_deref())
                    }
                }
            }
            Binding::LookupValues(number) => Arg::Buffer(&self.lookups[*number].values),
            Binding::LookupValidity(number) => Arg::or_null(self.lookups[*number].validity.as_ref()),
            Binding::Control => Arg::Buffer(self.control),
            Binding::Cancel => Arg::U64(self.cancel.address()),
            Binding::OutputValues(column) => self.output_values(*column)?,
            Binding::OutputValidity(column) => {
                let validity = self.output()?.0.columns[*column].validity.as_ref();
                match self.target {
                    Target::Rows { in_place: Some(_), .. } => self.at_first_row(validity, 1),
                    _ => Arg::or_null(validity),
                }
            }
            Binding::OutputSlots => {
                let Target::Slots(slots) = self.target else {
                    return Err(Error::internal("slots where rows are written"));
                };
                Arg::Buffer(slots)
            }
            Binding::OutputCapacity => Arg::U64(self.output()?.1),
            Binding::Group(part) => self.group_arg(*part)?,
            Binding::Partition(part) => {
                let Target::Partition(target) = self.target else {
                    return Err(Error::internal("a partition where rows are written"));
                };
                match part {
                    PartitionPart::Bits => Arg::U64(target.bits.into()),
                    PartitionPart::SkippedBits => Arg::U64(target.skipped_bits.into()),
                    PartitionPart::Counts => Arg::Buffer(&target.counts),
                    PartitionPart::Cursors => Arg::Buffer(&target.cursors),
                    PartitionPart::Word(word) => Arg::Buffer(&target.words[*word]),
                }
            }
            Binding::Match(part) => self.match_arg(*part)?,
            Binding::Sketch(part) => {
                let Target::Sketch(target) = self.target else {
                    return Err(Error::internal("a sketch where rows are written"));
                };
                match part {
                    SketchPart::Set => Arg::Buffer(&target.set),
                    SketchPart::Stride => Arg::U64(target.stride),
                }
            }
        })
    }

    /// The address of the chunk's first value in a column of the source.
    fn source_values(&self, column: usize) -> Arg<'a> {
        let source = &self.relation.source;
        let buffer = self.columns.buffer(source, self.device, Part::Values(column));
        self.at_first_row(buffer, source.width_bytes(column))
    }

    fn output_values(&self, column: usize) -> Result<Arg<'a>> {
        let values = self.output()?.0.columns[column].values.as_ref();
        Ok(match self.target {
            Target::Rows { in_place: Some(columns), .. } => {
                self.at_first_row(values, columns[column].layout().width_bytes.into())
            }
            _ => Arg::or_null(values),
        })
    }

    fn match_arg(&self, part: MatchPart) -> Result<Arg<'a>> {
        let Source::Matches(matches, form) = &self.relation.source else {
            return Err(Error::internal("matches of a table"));
        };
        let (build, probe) = (&matches.build.shards[self.device], &matches.probe.shards[self.device]);
        Ok(match part {
            MatchPart::Bits => Arg::U64(matches.bits.into()),
            MatchPart::BuildOffsets => Arg::Buffer(&build.offsets),
            MatchPart::ProbeOffsets => Arg::Buffer(&probe.offsets),
            MatchPart::Items => Arg::Buffer(&matches.items[self.device]),
            MatchPart::Capacity => Arg::U64(matches.capacity.into()),
            MatchPart::HeadsBits => Arg::U64(matches.table(*form).heads_bits.into()),
            MatchPart::ChunkRows => Arg::U64(matches.chunk_rows.into()),
            MatchPart::BuildWord(word) => Arg::Buffer(&build.words[word]),
            MatchPart::ProbeWord(word) => Arg::Buffer(&probe.words[word]),
        })
    }

    fn join_arg(&self, table: &'a JoinTable, part: JoinPart) -> Arg<'a> {
        let shard = &table.shards[self.device];
        let columns = &table.build.shards[self.device].columns;
        match part {
            JoinPart::Slots => Arg::Buffer(&shard.slots),
            JoinPart::Windows => Arg::U64(shard.windows),
            JoinPart::RowList => Arg::or_null(shard.row_list.as_ref()),
            JoinPart::Bounds => Arg::or_null(shard.bounds.as_ref()),
            JoinPart::PayloadWords => Arg::or_null(columns.get(1).and_then(|column| column.values.as_ref())),
            JoinPart::PayloadValues(column) => Arg::or_null(columns[1 + column].values.as_ref()),
            JoinPart::PayloadValidity(column) => Arg::or_null(columns[1 + column].validity.as_ref()),
        }
    }

    fn output(&self) -> Result<(&'a IntermediateShard, u64)> {
        match self.target {
            Target::Rows { shard, capacity, .. } => Ok((shard, *capacity)),
            _ => Err(Error::internal("rows written to something else")),
        }
    }

    /// The offsets of pieces or partitions of the rows, and their number.
    fn pieces(&self, target: &'a GroupTarget) -> Result<(&'a Buffer, u64)> {
        match (&target.pieces, &self.relation.source) {
            (Some(pieces), _) => Ok((&pieces.offsets, pieces.count)),
            (None, Source::Partitioned(rows)) => {
                let shard = &rows.shards[self.device];
                Ok((&shard.offsets, shard.partitions()))
            }
            (None, _) => Err(Error::internal("pieces of rows that are not cut")),
        }
    }

    fn group_arg(&self, part: GroupPart) -> Result<Arg<'a>> {
        let Target::Groups(target) = self.target else {
            return Err(Error::internal("groups written to rows"));
        };
        Ok(match part {
            GroupPart::Rows => Arg::Buffer(&target.shard.rows),
            GroupPart::FirstKey => Arg::U64(target.shard.first_key),
            GroupPart::Capacity => Arg::U64(target.slots),
            GroupPart::Index => Arg::or_null(target.index.as_ref()),
            GroupPart::IndexSlots => Arg::U64(target.index_slots),
            GroupPart::StepsMax => Arg::U64(target.steps_max),
            GroupPart::GrowSteps => Arg::U64(target.grow_steps),
            GroupPart::SpillRows => Arg::U64(target.spill_rows),
            GroupPart::Counters => Arg::Buffer(&target.counters),
            GroupPart::Cursors => Arg::Buffer(&target.cursors),
            GroupPart::Offsets => Arg::Buffer(self.pieces(target)?.0),
            GroupPart::Partitions => Arg::U64(self.pieces(target)?.1),
            GroupPart::ChunkRows => Arg::U64(target.chunk_rows),
            GroupPart::OpenEnds => Arg::U64(target.open_ends),
            GroupPart::PrefetchSteps => Arg::U64(target.prefetch_steps),
            GroupPart::Finished => Arg::or_null(target.finished.as_ref()),
            GroupPart::FinishedRows => Arg::U64(target.finished_rows),
        })
    }
}
