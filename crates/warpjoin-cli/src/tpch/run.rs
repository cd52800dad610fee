//! The steps of `warpjoin tpch`: choose columns, load tables, run each query, print the report.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use datafusion::arrow::temporal_conversions::timestamp_s_to_datetime;
use datafusion::logical_expr::{LogicalPlan, SetVariable, Statement};
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use warpjoin_datafusion::{OnFault, session_of};

use super::arguments::TpchArgs;
use super::clients::Clients;
use super::data::{Loading, ParquetFiles, columns_read};
use super::measure::Measurement;
use super::oracle::OracleStore;
use super::parameters::Parameters;
use super::queries::query_text;
use super::report::{DeviceReport, Outcome, Report};
use super::report::{save, table};
use crate::error::{CliError, Result};
use crate::output::print_line;
use crate::target::{oracle_session, with_defaults};

/// Runs TPC-H. Returns whether all answers are equal and, with `strict`, no work fell back to the CPU and all kernels compiled.
///
/// # Errors
/// When no device can be opened, the tables do not fit, or a file cannot be written. The report
/// contains queries that failed.
pub async fn run_tpch(arguments: &TpchArgs) -> Result<bool> {
    arguments.check()?;
    let texts = chosen_texts(arguments)?;
    let mut target = arguments.target.clone().with_resolved_device();
    // A fallback would measure the CPU instead of the devices.
    target.on_fault.get_or_insert(OnFault::Error);
    let mut config = SessionConfig::new();
    config.options_mut().explain.show_statistics = false;
    let device_context = target.session(config)?;
    // Uses the devices for small inputs too.
    device_context.sql("SET warpjoin.minimum_rows = 0").await?.collect().await?;
    // A hot run measures the query, not what an earlier run has computed of its literals.
    device_context.sql("SET warpjoin.remember = false").await?.collect().await?;
    for (key, value) in &arguments.settings {
        let (variable, value) = (format!("warpjoin.{key}"), value.clone());
        let set = LogicalPlan::Statement(Statement::SetVariable(SetVariable { variable, value }));
        device_context.execute_logical_plan(set).await?;
    }
    let session = session_of(&device_context)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let loading = Loading {
        scale: arguments.scale,
        threads: arguments.threads.map_or(cores, usize::from),
        partitions: arguments.parts.map_or(cores, usize::from),
        session: Arc::clone(&session),
        device_context: device_context.clone(),
        oracle_context: (!arguments.no_oracle).then(oracle_session),
        oracle_store: OracleStore::new(arguments.oracle_files.as_deref())?,
    };
    let sql: Vec<String> = texts.iter().map(|(_, text)| text.clone()).collect();
    let read = columns_read(&sql).await?;
    let tables = match &arguments.parquet {
        Some(folder) => {
            let files = ParquetFiles { folder, scale: arguments.scale, threads: loading.threads };
            let contexts: Vec<_> =
                [Some(&loading.device_context), loading.oracle_context.as_ref()].into_iter().flatten().collect();
            files.register(&read, &contexts).await?
        }
        None => loading.run(&read)?,
    };
    let mut report = Report {
        warpjoin_version: env!("CARGO_PKG_VERSION").to_string(),
        datafusion_version: datafusion::DATAFUSION_VERSION.to_string(),
        date: String::new(),
        command: std::env::args().collect(),
        scale: arguments.scale,
        hot_runs: arguments.runs,
        cores,
        devices: session.devices().iter().map(|device| DeviceReport::new(device.info())).collect(),
        tables,
        queries: vec![],
        clients: vec![],
    };
    let measurement = Measurement {
        device: device_context,
        entry: arguments.entry,
        oracle: loading.oracle_context.clone(),
        stock: loading.oracle_context.as_ref().map(with_defaults),
        published: arguments.scale == 1.0,
        hot_runs: arguments.runs,
        cold_runs: if arguments.cold { arguments.runs } else { 0 },
        traces: arguments.trace.is_some(),
        oracle_runs: if arguments.oracle_files.is_some() { 0 } else { arguments.runs },
    };
    run_queries(arguments, &texts, &measurement, &mut report).await?;
    run_clients(arguments, &measurement, &mut report).await?;
    report.date = now_utc();
    print_line(&table::render(&report))?;
    if let Some(path) = &arguments.json {
        save::save_report(path, &report)?;
    }
    let failures = session.compile_failures();
    failures.iter().try_for_each(|failure| print_line(&format!("a pipeline stays interpreted: {failure}")))?;
    Ok(report.passed(arguments.target.strict) && (failures.is_empty() || !arguments.target.strict))
}

async fn run_queries(
    arguments: &TpchArgs,
    texts: &[(u32, String)],
    measurement: &Measurement,
    report: &mut Report,
) -> Result<()> {
    let mut traces = vec![];
    for (number, sql) in texts {
        if arguments.explain {
            print_plan(&measurement.device, *number, sql).await?;
        }
        let (mut query, answer) = measurement.query(*number, sql).await;
        log::info!("query {number}: {:?}", query.outcome);
        if let (Some(folder), Some((schema, batches))) = (&arguments.save_answers, &answer) {
            save::save_answer(folder, *number, schema, batches)?;
        }
        if arguments.analyze && query.outcome != Outcome::Failed {
            print_analysis(&measurement.device, *number, sql).await?;
        }
        if arguments.trace.is_some() && query.outcome != Outcome::Failed {
            let first = std::mem::take(&mut query.first_spans);
            traces.extend([(*number, "first", first), (*number, "hot", measurement.trace(sql).await?)]);
        }
        if arguments.variants > 0 && query.outcome != Outcome::Failed {
            match measurement.variants(*number, arguments.scale, arguments.variants).await {
                Ok(variants) => query.variants = Some(variants),
                Err(error) => {
                    query.outcome = Outcome::Failed;
                    query.difference = Some(format!("a variant: {error}"));
                }
            }
        }
        report.queries.push(query);
    }
    if let Some(path) = &arguments.trace {
        save::save_traces(path, &traces)?;
    }
    Ok(())
}

async fn run_clients(arguments: &TpchArgs, measurement: &Measurement, report: &mut Report) -> Result<()> {
    if arguments.clients.is_empty() {
        return Ok(());
    }
    let Measurement { device, stock, .. } = measurement;
    let clients = Clients::new(device, stock.as_ref(), &arguments.queries.0, arguments.scale).await?;
    let time = Duration::from_secs(arguments.client_seconds.into());
    for &number in &arguments.clients {
        report.clients.push(clients.run(number.into(), time).await?);
    }
    Ok(())
}

fn chosen_texts(arguments: &TpchArgs) -> Result<Vec<(u32, String)>> {
    let parameters = Parameters::validation(arguments.scale);
    let text = |number: u32| query_text(number, &parameters).map(|text| (number, text));
    let missing = || CliError::Usage("there is no such query".to_string());
    arguments.queries.0.iter().map(|&number| text(number).ok_or_else(missing)).collect()
}

async fn print_plan(context: &SessionContext, number: u32, sql: &str) -> Result<()> {
    let plan = match context.sql(sql).await?.create_physical_plan().await {
        Ok(plan) => displayable(plan.as_ref()).indent(false).to_string(),
        Err(error) => format!("error: {}", CliError::from(error)),
    };
    print_line(&format!("-- query {number}\n{plan}"))
}

async fn print_analysis(context: &SessionContext, number: u32, sql: &str) -> Result<()> {
    let batches = context.sql(&format!("EXPLAIN ANALYZE {sql}")).await?.collect().await?;
    // The answer has columns for the kind of plan and the plan.
    let plans = batches.iter().filter_map(|batch| batch.columns().get(1)?.as_string_opt::<i32>());
    let text: Vec<&str> = plans.flat_map(|plans| plans.iter().flatten()).collect();
    print_line(&format!("-- query {number}\n{}", text.join("\n")))
}

/// The current time, in the format `2026-11-20T12:00:00Z`.
fn now_utc() -> String {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or_default();
    timestamp_s_to_datetime(seconds).map(|time| time.format("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}
