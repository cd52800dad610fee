//! `warpjoin tpch`: runs TPC-H in this process, on warpjoin and on stock DataFusion.
//!
//! Must not know how a query runs on a device.

mod arguments;
mod clients;
mod data;
mod measure;
mod oracle;
mod parameters;
mod queries;
mod report;
mod run;

pub use arguments::TpchArgs;
pub use clients::{ClientsReport, Throughput};
pub use data::{Generation, LoadReport, TpchTable, columns_read};
pub use parameters::Parameters;
pub use queries::{QUERY_COUNT, query_text};
pub use report::{
    DeviceReport, Outcome, PipelineReport, PlacementReport, QueryReport, Report, RunReport, TpchReportArgs,
    VariantsReport, run_tpch_report,
};
pub use run::run_tpch;
