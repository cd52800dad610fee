//! Packs columns of tables into words, and unpacks words into columns of tables.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use warpjoin_codegen::FixedModule;
use warpjoin_columns::column::{ColumnStatistics, ColumnType, Domain, Layout};
use warpjoin_columns::table::{Shard, ShardColumn, Table};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Ptr};
use warpjoin_kernels::common::RESERVATION_BYTES;
use warpjoin_kernels::padded;
use warpjoin_kernels::partition::{GatherWordsParams, PackField, PackParams, UnpackParams};

use super::device::TableDevice;
use super::layout::{FieldKind, PackedField, RowLayout};
use crate::exec::partition::{RowWords, WordColumn};

/// A buffer of a table, or one that was allocated here.
#[derive(Debug)]
enum Source {
    Column(Arc<Buffer>),
    Made(Buffer),
}

impl Source {
    fn buffer(&self) -> &Buffer {
        match self {
            Self::Column(buffer) => buffer,
            Self::Made(buffer) => buffer,
        }
    }
}

#[derive(Debug)]
struct PackedWord {
    source: Source,
    is_wide: bool,
    bias: u64,
}

/// Rows of a table as words.
#[derive(Debug)]
pub(super) struct PackedRows {
    pub rows: u64,
    words: Vec<PackedWord>,
    /// A bit a row: rows whose key is not null. `None`: all.
    validity: Option<Source>,
    key_masks: Vec<u64>,
    /// The source columns, kept alive because the table may move them.
    _columns: Vec<ShardColumn>,
}

impl PackedRows {
    pub(super) fn row_words(&self, seed: u64) -> RowWords<'_> {
        let columns = self.words.iter().map(|word| WordColumn {
            buffer: Some(word.source.buffer()),
            is_wide: word.is_wide,
            bias: word.bias,
        });
        RowWords {
            columns: columns.collect(),
            key_masks: self.key_masks.clone(),
            seed,
            validity: self.validity.as_ref().map(Source::buffer),
        }
    }

    /// The buffer of a word whose stored values have no bias, so that it can be copied as is.
    pub(super) fn plain(&self, word: usize) -> Option<&Buffer> {
        Some(&self.words[word]).filter(|word| word.bias == 0).map(|word| word.source.buffer())
    }
}

/// A word of output rows; `None` if it is not needed.
#[derive(Debug, Default)]
pub(super) struct Word {
    pub buffer: Option<Buffer>,
    pub is_wide: bool,
}

impl Word {
    pub(super) fn new(buffer: Buffer, is_wide: bool) -> Self {
        Self { buffer: Some(buffer), is_wide }
    }
}

/// Which columns are packed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackMode {
    /// The key's, row by row.
    Keys,
    /// All, row by row.
    Rows,
    /// All, into buffers of their own; rows with a null key are left out.
    Compact,
}

impl TableDevice {
    /// The rows of `table` as words. Columns that already hold words are not copied.
    pub(super) fn pack(&self, layout: &RowLayout, table: &Table, mode: PackMode) -> Result<PackedRows> {
        if !Arc::ptr_eq(table.devices(), self.session.device_set()) {
            return Err(Error::InvalidArgument("the table belongs to another session: upload it to this one".into()));
        }
        let fields = if mode == PackMode::Keys { layout.part(true) } else { &layout.fields[..] };
        let words = if mode == PackMode::Keys { layout.key_words } else { layout.word_bytes.len() };
        let columns = fields.iter().map(|field| column_of(table, field)).collect::<Result<Vec<_>>>()?;
        let rows = table.shard_rows(0);
        if rows >= u64::from(u32::MAX) - 1 {
            return Err(warpjoin_columns::Reason::Limit(format!("{rows} rows at once in a hash table")).into());
        }
        let key_masks = vec![u64::MAX; layout.key_words];
        let nullable_keys =
            columns.iter().zip(fields).filter(|(column, field)| field.is_key && column.1.validity.is_some());
        let nullable_keys = nullable_keys.count();
        // One validity of a key of one column can be used as it is.
        let must_pack = mode == PackMode::Compact || (nullable_keys > 0 && layout.keys > 1);
        if !must_pack {
            let as_is: Option<Vec<PackedWord>> = (0..words).map(|word| word_as_is(layout, &columns, word)).collect();
            if let Some(words) = as_is {
                let validity = columns[0].1.validity.clone().map(Source::Column);
                return Ok(PackedRows { rows, words, validity, key_masks, _columns: vec![] });
            }
        }
        let width = |word: usize| u64::from(layout.word_bytes[word]);
        let made = (0..words).map(|word| self.alloc(rows * width(word))).collect::<Result<Vec<_>>>()?;
        let validity = (mode != PackMode::Compact && nullable_keys > 0).then(|| self.alloc_bits(rows)).transpose()?;
        let control = self.control()?;
        let packed = columns.iter().zip(fields).map(|(column, field)| Some(pack_field(column, field)));
        let params = PackParams {
            fields: padded(packed, None),
            field_count: fields.len() as u64,
            columns: padded(made.iter().map(|word| Some(Ptr::of(word))), None),
            is_wide: padded((0..words).map(|word| layout.is_wide(word)), false),
            words: words as u64,
            rows,
            compacts: mode == PackMode::Compact,
            validity: validity.as_ref().map(Ptr::of),
            control: Ptr::of(&control),
        };
        let kernel = self.kernel(FixedModule::Words, "pack_rows")?;
        self.launch_rows(&kernel, rows, 1, RESERVATION_BYTES, &params)?;
        let rows = if mode == PackMode::Compact { self.report(&control)?.rows } else { rows };
        let words = made
            .into_iter()
            .enumerate()
            .map(|(word, buffer)| PackedWord { source: Source::Made(buffer), is_wide: layout.is_wide(word), bias: 0 })
            .collect();
        let _columns = columns.into_iter().map(|(_, column)| column).collect();
        Ok(PackedRows { rows, words, validity: validity.map(Source::Made), key_masks, _columns })
    }

    /// Columns unpacked from `words` (one for each word of the layout that the fields need). Rows without a bit in
    /// `found` are null; `found` comes with the number of its bits.
    pub(super) fn unpack(
        &self,
        layout: &RowLayout,
        fields: &[PackedField],
        mut words: Vec<Word>,
        found: Option<(&Buffer, u64)>,
        rows: u64,
    ) -> Result<Vec<UnpackedColumn>> {
        let kernel = self.kernel(FixedModule::Words, "unpack_column")?;
        let mut columns = vec![];
        for field in fields {
            let data_type = field.field.data_type().clone();
            let has_nulls = found.is_some() || field.null.is_some();
            let column_type = ColumnType { data_type, has_nulls, domain: field.domain, dictionary: None };
            let layout_of_column = column_type.layout();
            let width = u64::from(layout_of_column.width_bytes);
            let word_bytes = |index: usize| if words.get(index).is_some_and(|word| word.is_wide) { 8 } else { 4 };
            let alone = layout.alone_in(field.word).is_some() && word_bytes(field.word) == width;
            let validity = (has_nulls && rows > 0).then(|| self.alloc_bits(rows)).transpose()?;
            if alone && rows > 0 {
                // The word is the column.
                if let (Some((found, _)), Some(validity)) = (found, &validity) {
                    self.stream.copy((found, 0), (validity, 0), rows.div_ceil(32) * 4)?;
                }
                let values = words[field.word].buffer.take();
                let null_count = found.map_or(0, |(_, found)| rows - found);
                columns.push(UnpackedColumn {
                    column_type,
                    null_count,
                    stored: ShardColumn {
                        values: values.map(Arc::new),
                        offsets: None,
                        validity: validity.map(Arc::new),
                    },
                });
                continue;
            }
            let control = self.control()?;
            let values = (width > 0 && rows > 0).then(|| self.alloc(rows * width)).transpose()?;
            let word = |index: usize| words.get(index).and_then(|word| word.buffer.as_ref()).map(Ptr::of);
            let bias = field.min.wrapping_sub(layout_of_column.base);
            let (null_word, null_bit) = field.null.unwrap_or((0, 0));
            let params = UnpackParams {
                column: word(field.word),
                is_wide: word_bytes(field.word) == 8,
                second: if field.bits == 128 { word(field.word + 1) } else { None },
                bits: field.bits.into(),
                shift: field.shift.into(),
                bias_low: bias as u64,
                bias_high: (bias >> 64) as u64,
                null_column: field.null.and_then(|_| word(null_word)),
                null_is_wide: word_bytes(null_word) == 8,
                null_bit: null_bit.into(),
                found: found.map(|(found, _)| Ptr::of(found)),
                rows,
                width,
                values: values.as_ref().map(Ptr::of),
                validity: validity.as_ref().map(Ptr::of),
                control: Ptr::of(&control),
            };
            self.launch_rows(&kernel, rows, 1, 0, &params)?;
            let null_count = if has_nulls { self.report(&control)?.rows } else { 0 };
            let stored = ShardColumn { values: values.map(Arc::new), offsets: None, validity: validity.map(Arc::new) };
            columns.push(UnpackedColumn { column_type, null_count, stored });
        }
        Ok(columns)
    }

    /// The words of chosen rows: `from` has a row number each.
    pub(super) fn gather(
        &self,
        from: &Buffer,
        rows: u64,
        input: &Buffer,
        input_rows: u64,
        is_wide: bool,
    ) -> Result<Buffer> {
        let kernel = self.kernel(FixedModule::Words, "gather_words")?;
        let output = self.alloc(rows * if is_wide { 8 } else { 4 })?;
        let params = GatherWordsParams {
            from: Ptr::of(from),
            rows,
            input: Ptr::of(input),
            input_rows,
            is_wide,
            output: Ptr::of(&output),
        };
        self.launch_rows(&kernel, rows, 1, 0, &params)?;
        Ok(output)
    }

    /// A table on this device, once everything that was enqueued is done.
    pub(super) fn table(&self, names: Vec<String>, columns: Vec<UnpackedColumn>, rows: u64) -> Result<Table> {
        let done = self.work_done()?;
        self.stream.synchronize()?;
        self.keep_done(done);
        let (mut fields, mut types, mut statistics, mut stored) = (vec![], vec![], vec![], vec![]);
        for (name, column) in names.into_iter().zip(columns) {
            let facts = column.column_type;
            fields.push(Field::new(name, facts.data_type.clone(), facts.has_nulls));
            types.push(facts);
            statistics.push(ColumnStatistics {
                null_count: column.null_count,
                distinct: None,
                sorted: false,
                unique: None,
            });
            stored.push(column.stored);
        }
        let shard = Shard { rows, first_row: 0, columns: stored };
        let schema = Arc::new(Schema::new(fields));
        Ok(Table::from_result(Arc::clone(self.session.device_set()), schema, types, statistics, vec![shard]))
    }
}

/// A column of a result.
#[derive(Debug)]
pub(super) struct UnpackedColumn {
    pub column_type: ColumnType,
    pub null_count: u64,
    pub stored: ShardColumn,
}

/// A column of the table with the field's name and type.
fn column_of<'a>(table: &'a Table, field: &PackedField) -> Result<(&'a ColumnType, ShardColumn)> {
    let name = field.field.name();
    let index = table.schema().index_of(name)?;
    let facts = &table.column_types()[index];
    if facts.data_type != *field.field.data_type() {
        let (given, expected) = (&facts.data_type, field.field.data_type());
        return Err(Error::InvalidArgument(format!("column {name} is {given}, and {expected} in the hash table")));
    }
    if facts.has_nulls && !field.is_key && field.null.is_none() {
        return Err(Error::InvalidArgument(format!(
            "column {name} has nulls, and none in the hash table: declare it nullable"
        )));
    }
    if let (Domain::Int { min, max }, Domain::Int { min: least, max: most }) = (facts.domain, field.domain)
        && table.rows() > 0
        && (min < least || max > most)
    {
        return Err(Error::InvalidArgument(format!(
            "column {name} may hold {min} to {max}, beyond its type's {least} to {most}"
        )));
    }
    Ok((facts, table.column(0, index)))
}

/// The word without a copy, if a column of the table holds it.
fn word_as_is(layout: &RowLayout, columns: &[(&ColumnType, ShardColumn)], word: usize) -> Option<PackedWord> {
    let field = layout.alone_in(word)?;
    let index = layout.fields.iter().position(|other| std::ptr::eq(other, field))?;
    let (facts, column) = columns.get(index)?;
    let stored = facts.layout();
    let is_same = field.kind == FieldKind::Integer && stored.width_bytes == layout.word_bytes[word];
    let source = Source::Column(column.values.clone().filter(|_| is_same)?);
    Some(PackedWord { source, is_wide: layout.is_wide(word), bias: bias_of(field, stored) as u64 })
}

/// The bias that turns a stored value into a packed one.
fn bias_of(field: &PackedField, stored: Layout) -> i128 {
    match field.domain {
        Domain::Int { .. } => stored.base.wrapping_sub(field.min),
        _ => 0,
    }
}

fn pack_field<'a>((facts, column): &'a (&ColumnType, ShardColumn), field: &PackedField) -> PackField<'a, Buffer> {
    let stored = facts.layout();
    let bias = bias_of(field, stored);
    let (null_word, null_bit) = field.null.map_or((0, 64), |(word, bit)| (word as u64, u64::from(bit)));
    PackField {
        values: column.values.as_deref().map(Ptr::of),
        validity: column.validity.as_deref().map(Ptr::of),
        width: if column.values.is_some() { stored.width_bytes.into() } else { 0 },
        bias_low: bias as u64,
        bias_high: (bias >> 64) as u64,
        kind: field.kind as u64,
        bits: field.bits.into(),
        word: field.word as u64,
        shift: field.shift.into(),
        is_key: field.is_key,
        null_word,
        null_bit,
    }
}
