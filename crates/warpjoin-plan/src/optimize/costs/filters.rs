//! What tests of keys before a probe cost: in the table, by a bitmap, by a Bloom filter.

use super::rates::{CLEAR_PS_PER_BYTE, FILL_PS, FILL_READ_PS, HASHED_PS, NEAR_PS, ORDERED_PROBE_PS};
use super::tables::probe_ps;
use super::{BuildSide, Costs};
use crate::plan::{FilterForm, ReductionTest};

/// A filter of its own must cost so many times less than looking into the table, as that is estimated.
const FILTER_GAIN_MIN: f64 = 1.25;
/// Bits of a Bloom filter for a key: one of 30 keys passes by chance at the fewest, one of 200 at the most.
const BLOOM_BITS: (f64, f64) = (8.0, 16.0);
/// Share of L2 that a Bloom filter may take for more bits than the fewest.
const BLOOM_L2_SHARE: f64 = 0.35;

/// A table, as far as it matters how a filter looks for its keys.
#[derive(Debug, Clone, Copy)]
struct FilteredTable {
    keys: f64,
    /// Numbers that a key word can be; `None`: too many to tell.
    span: Option<f64>,
    /// Picoseconds of an access to it.
    access_ps: f64,
    /// Keys are hashed, and compared with what is found.
    is_hashed: bool,
    /// Rows are tested in the order of their keys.
    is_ordered: bool,
}

impl FilteredTable {
    /// Picoseconds of a lookup in it.
    fn lookup_ps(&self) -> f64 {
        self.access_ps + if self.is_hashed { HASHED_PS } else { 0.0 }
    }
}

impl Costs {
    /// The cheapest way to test `rows` rows for a match in a table, and what that costs; in the order of the keys,
    /// lookups in what is indexed by them are of neighbors.
    pub(in crate::optimize) fn filter(&self, side: &BuildSide, rows: f64, is_ordered: bool) -> (FilterForm, f64) {
        self.filter_form(&self.filtered(side, is_ordered), rows)
    }

    fn filtered(&self, side: &BuildSide, is_ordered: bool) -> FilteredTable {
        let (access_ps, is_hashed) = (self.lookup_ps(side, is_ordered), !self.is_direct(side));
        FilteredTable { keys: side.rows, span: side.span, access_ps, is_hashed, is_ordered }
    }

    /// A lookup in a table that a filter may stand in front of.
    pub(in crate::optimize) fn filtered_ps(&self, side: &BuildSide, is_ordered: bool) -> f64 {
        self.filtered(side, is_ordered).lookup_ps()
    }

    /// The cheapest form for a hash table of `table_bytes` that is there; `span`: numbers that a key word can be, if few
    /// enough to tell. As many rows as `planned` are tested, in the same order.
    pub fn filter_of_table(
        &self,
        keys: f64,
        span: Option<f64>,
        table_bytes: f64,
        planned: &ReductionTest,
    ) -> FilterForm {
        let access_ps = probe_ps(table_bytes / self.l2_bytes);
        let table = FilteredTable { keys, span, access_ps, is_hashed: true, is_ordered: planned.is_ordered };
        self.filter_form(&table, planned.rows as f64).0
    }

    /// Bits that a Bloom filter of so many keys has for each.
    pub fn bloom_bits(&self, keys: f64) -> f64 {
        (self.l2_bytes * BLOOM_L2_SHARE * 8.0 / keys.max(1.0)).clamp(BLOOM_BITS.0, BLOOM_BITS.1)
    }

    /// The cheapest way to test `rows` rows, and picoseconds that all of them take.
    fn filter_form(&self, table: &FilteredTable, rows: f64) -> (FilterForm, f64) {
        let by_table = rows * table.lookup_ps();
        if !table.is_hashed && table.access_ps <= NEAR_PS {
            return (FilterForm::Table, by_table);
        }
        let by_words = |bytes: f64, access_ps: f64| {
            let fill = if bytes <= self.l2_bytes { FILL_PS.0 } else { FILL_PS.1 };
            let made = table.keys * (FILL_READ_PS + fill) + bytes * CLEAR_PS_PER_BYTE + 2.0 * self.launch_ps;
            made + rows * access_ps
        };
        let access_ps = |bytes: f64| probe_ps(bytes / self.l2_bytes);
        let bloom_bytes = table.keys * self.bloom_bits(table.keys) / 8.0;
        let bloom = by_words(bloom_bytes, access_ps(bloom_bytes));
        let of_bitmap = |bytes: f64| if table.is_ordered { ORDERED_PROBE_PS } else { access_ps(bytes) };
        // The bitmap is exact, and a search of it takes no hash.
        let (form, by_filter) = match table.span.map(|span| by_words(span / 8.0, of_bitmap(span / 8.0))) {
            Some(bitmap) if bitmap <= bloom => (FilterForm::Bitmap, bitmap),
            _ => (FilterForm::Bloom, bloom),
        };
        if by_table > by_filter * FILTER_GAIN_MIN { (form, by_filter) } else { (FilterForm::Table, by_table) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::COSTS;
    use super::*;

    /// A hash table of slots of 16 bytes.
    fn table(keys: f64, span: Option<f64>) -> FilteredTable {
        FilteredTable {
            keys,
            span,
            access_ps: probe_ps(32.0 * keys / COSTS.l2_bytes),
            is_hashed: true,
            is_ordered: false,
        }
    }

    fn form(table: &FilteredTable, rows: f64) -> FilterForm {
        COSTS.filter_form(table, rows).0
    }

    #[test]
    fn a_filter_replaces_tables_that_l2_does_not_hold_and_hashes_of_keys() {
        for (keys, span, rows, wanted) in [
            (1e5, Some(1e6), 1e9, FilterForm::Bitmap),
            (5e5, None, 1e9, FilterForm::Bloom),
            // Too few lookups in a table that is near.
            (1e4, None, 1e6, FilterForm::Table),
            (1e7, None, 6e8, FilterForm::Bloom),
            (1e7, Some(1e15), 6e8, FilterForm::Bloom),
            (1e7, Some(6e7), 6e8, FilterForm::Bitmap),
            // As many bits as a bitmap would have, and more.
            (2e6, Some(1e10), 6e8, FilterForm::Bloom),
            // Too few lookups for making it.
            (1e7, None, 5e6, FilterForm::Table),
            (2e6, None, 1e5, FilterForm::Table),
            // The filter is not in L2 either.
            (1e9, None, 1e9, FilterForm::Table),
        ] {
            assert_eq!(form(&table(keys, span), rows), wanted, "{keys} {span:?} {rows}");
        }
        // The words of a bitmap that rows come by one after the other: as near as those of a filter in L2.
        for (span, wanted) in [(6e8, FilterForm::Bitmap), (1e12, FilterForm::Bloom)] {
            let in_order = FilteredTable { is_ordered: true, ..table(1e7, Some(span)) };
            assert_eq!(form(&in_order, 3e8), wanted);
            assert_eq!(form(&table(1e7, Some(span)), 3e8), FilterForm::Bloom);
        }
        // Tables by key that are near, and neighbors of an ordered one.
        for (keys, access_ps) in [(1e5, 8.0), (1e8, 3.0)] {
            let direct = FilteredTable { access_ps, is_hashed: false, ..table(keys, Some(keys)) };
            assert_eq!(form(&direct, 1e9), FilterForm::Table);
        }
    }

    #[test]
    fn a_bloom_filter_takes_what_l2_has_room_for() {
        assert_eq!(COSTS.bloom_bits(1e6), BLOOM_BITS.1);
        assert_eq!(COSTS.bloom_bits(1e8), BLOOM_BITS.0);
        let between = COSTS.bloom_bits(1.2e7);
        assert!(between > BLOOM_BITS.0 && between < BLOOM_BITS.1, "{between}");
        assert_eq!(COSTS.bloom_bits(0.0), BLOOM_BITS.1);
    }
}
