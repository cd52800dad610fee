//! `warpjoin tpch`: TPC-H in process, through warpjoin and through stock DataFusion.

mod arguments;
mod columns;
mod generate;
mod load;
mod measure;
mod parameters;
mod queries;
mod report;
mod run;
mod save;
mod table;
mod tables;

pub use arguments::TpchArgs;
pub use columns::columns_read;
pub use generate::Generation;
pub use load::LoadReport;
pub use parameters::Parameters;
pub use queries::{DEFAULT_QUERIES, QUERY_COUNT, query_text};
pub use report::{
    DeviceReport, Outcome, PipelineReport, PlacementReport, QueryReport, Report, RunReport, VariantsReport,
};
pub use run::run_tpch;
pub use tables::TpchTable;
