//! The eight TPC-H tables and their generators.
//!
//! Must not know who consumes the rows.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

/// Approximate rows of a part of a table: small enough to keep a dozen parts in memory, large enough
/// to make the start of a generator negligible.
const PART_ROWS: u64 = 128 * 1024;

/// One of the eight tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TpchTable {
    /// 5 rows.
    Region,
    /// 25 rows.
    Nation,
    /// 10,000 rows times the scale factor.
    Supplier,
    /// 150,000 rows times the scale factor.
    Customer,
    /// 200,000 rows times the scale factor.
    Part,
    /// 800,000 rows times the scale factor.
    PartSupp,
    /// 1,500,000 rows times the scale factor.
    Orders,
    /// About 6,000,000 rows times the scale factor.
    LineItem,
}

/// Batches of a part of a table.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

impl TpchTable {
    /// All tables, small ones first.
    pub const ALL: [Self; 8] = [
        Self::Region,
        Self::Nation,
        Self::Supplier,
        Self::Customer,
        Self::Part,
        Self::PartSupp,
        Self::Orders,
        Self::LineItem,
    ];

    /// Name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Nation => "nation",
            Self::Supplier => "supplier",
            Self::Customer => "customer",
            Self::Part => "part",
            Self::PartSupp => "partsupp",
            Self::Orders => "orders",
            Self::LineItem => "lineitem",
        }
    }

    /// Schema with all columns.
    pub fn schema(self) -> SchemaRef {
        match self {
            Self::Region => RegionArrow::schema_ref(),
            Self::Nation => NationArrow::schema_ref(),
            Self::Supplier => SupplierArrow::schema_ref(),
            Self::Customer => CustomerArrow::schema_ref(),
            Self::Part => PartArrow::schema_ref(),
            Self::PartSupp => PartSuppArrow::schema_ref(),
            Self::Orders => OrderArrow::schema_ref(),
            Self::LineItem => LineItemArrow::schema_ref(),
        }
    }

    /// Number of rows at a scale factor. For lineitem, an estimate within one percent.
    pub fn rows(self, scale: f64) -> u64 {
        let per_scale = match self {
            Self::Region => return 5,
            Self::Nation => return 25,
            Self::Supplier => 10_000.0,
            Self::Customer => 150_000.0,
            Self::Part => 200_000.0,
            Self::PartSupp => 800_000.0,
            Self::Orders => 1_500_000.0,
            Self::LineItem => 6_000_000.0,
        };
        (per_scale * scale) as u64
    }

    /// Number of parts in which the table is generated.
    pub fn parts(self, scale: f64) -> u32 {
        u32::try_from(self.rows(scale).div_ceil(PART_ROWS)).unwrap_or(u32::MAX).max(1)
    }

    /// Part `part` (from 0) of `parts`, in batches of `batch_rows`.
    pub(crate) fn generate(self, scale: f64, part: u32, parts: u32, batch_rows: usize) -> Batches {
        // The generators count parts from 1, in i32. `parts` is far below its limit.
        let (part, parts) = (part as i32 + 1, parts as i32);
        match self {
            Self::Region => {
                Box::new(RegionArrow::new(RegionGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
            Self::Nation => {
                Box::new(NationArrow::new(NationGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
            Self::Supplier => {
                Box::new(SupplierArrow::new(SupplierGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
            Self::Customer => {
                Box::new(CustomerArrow::new(CustomerGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
            Self::Part => Box::new(PartArrow::new(PartGenerator::new(scale, part, parts)).with_batch_size(batch_rows)),
            Self::PartSupp => {
                Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
            Self::Orders => {
                Box::new(OrderArrow::new(OrderGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
            Self::LineItem => {
                Box::new(LineItemArrow::new(LineItemGenerator::new(scale, part, parts)).with_batch_size(batch_rows))
            }
        }
    }
}
