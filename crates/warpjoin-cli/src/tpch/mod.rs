//! `warpjoin tpch`: TPC-H in process, through warpjoin and through stock DataFusion.

mod arguments;
mod clients;
mod columns;
mod generate;
mod load;
mod markdown;
mod measure;
mod oracle;
mod parameters;
mod plot;
mod queries;
mod report;
mod run;
mod save;
mod show;
mod table;
mod tables;

pub use arguments::TpchArgs;
pub use clients::{ClientsReport, Throughput};
pub use columns::columns_read;
pub use generate::Generation;
pub use load::LoadReport;
pub use parameters::Parameters;
pub use queries::{QUERY_COUNT, query_text};
pub use report::{
    DeviceReport, Outcome, PipelineReport, PlacementReport, QueryReport, Report, RunReport, VariantsReport,
};
pub use run::run_tpch;
pub use show::{TpchReportArgs, run_tpch_report};
pub use tables::TpchTable;
