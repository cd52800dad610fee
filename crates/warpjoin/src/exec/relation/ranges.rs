//! Ranges of columns on each device, for rows that come in the order of a table sorted by the column.

use warpjoin_codegen::Step;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::table::Ranges;
use warpjoin_columns::{Error, Result};

use super::{Intermediate, IntermediateShard, Relation, Source};

/// Ranges of each column, if known; columns after the last entry have no known range.
pub(crate) type ColumnRanges = Vec<Option<Ranges>>;

impl Relation {
    /// Bounds of a column on each device; the column has no nulls. `None` if unknown.
    pub(crate) fn ranges(&self, mut column: usize) -> Option<Ranges> {
        for step in self.steps.iter().rev() {
            column = match step {
                Step::Filter(_) | Step::Compact => column,
                Step::Project(exprs) => column_of(exprs.get(column)?)?,
                // Columns of the build side come first, where there are any.
                Step::Probe(probe) => probe.output.get(column)?.checked_sub(probe.payload_of.len())?,
                Step::Fetch(_) => return None,
            };
        }
        match &self.source {
            Source::Table(table, projection) => table.sorted_ranges(*projection.get(column)?),
            Source::Intermediate(rows) => rows.ranges.get(column)?.clone(),
            Source::Groups(groups) => groups.ranges.get(column)?.clone(),
            Source::Matches(..) | Source::Partitioned(_) | Source::Slice(_) => None,
        }
    }

    /// The same for expressions.
    pub(crate) fn ranges_of(&self, exprs: &[Expr]) -> ColumnRanges {
        exprs.iter().map(|expr| column_of(expr).and_then(|column| self.ranges(column))).collect()
    }
}

impl Intermediate {
    /// Rows whose columns have no known ranges.
    pub(crate) fn new(columns: Vec<ColumnType>, rows_max: u64, shards: Vec<IntermediateShard>) -> Self {
        Self { columns, rows_max, shards, ranges: vec![] }
    }

    /// Combines the rows that queries on single devices have made into one relation.
    ///
    /// # Errors
    /// When their columns are stored differently.
    pub(crate) fn of_members(parts: Vec<Self>) -> Result<Self> {
        let mut parts = parts.into_iter();
        let mut all = parts.next().ok_or_else(|| Error::internal("rows of no device"))?;
        for part in parts {
            all.check_stored_as(&part.columns)?;
            all.rows_max = all.rows_max.max(part.rows_max);
            all.shards.extend(part.shards);
        }
        Ok(Self { ranges: vec![], ..all })
    }

    /// # Errors
    /// When `columns` are stored differently, so that both can't be parts of one relation.
    pub(crate) fn check_stored_as(&self, columns: &[ColumnType]) -> Result<()> {
        let are_alike = self.columns.len() == columns.len()
            && self.columns.iter().zip(columns).all(|(own, other)| own.is_stored_as(other));
        if are_alike { Ok(()) } else { Err(Error::internal("parts of several relations")) }
    }

    /// Adds the known ranges of `relation`'s columns to rows that have the same positions and begin with these columns.
    pub(crate) fn beside(self, relation: &Relation, columns: &[usize]) -> Self {
        if self.shards.len() < 2 {
            return self;
        }
        Self { ranges: columns.iter().map(|&column| relation.ranges(column)).collect(), ..self }
    }
}

/// Whether no value occurs on two devices.
pub(crate) fn are_apart(ranges: &Ranges) -> bool {
    let spans: Vec<[i128; 2]> = ranges.iter().flatten().copied().collect();
    spans.windows(2).all(|pair| pair[0][1] < pair[1][0])
}

fn column_of(expr: &Expr) -> Option<usize> {
    if let ExprKind::Column(column) = expr.kind { Some(column) } else { None }
}
