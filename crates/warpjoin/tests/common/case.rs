//! A case: tables, a plan and settings; and what devices make of it, held against the oracle.

use std::sync::Arc;

use arrow::array::RecordBatch;
use warpjoin::plan::Plan;
use warpjoin::{Error, Session, Table, TableBuilder, exec};

use super::decisions::assert_announced;
use super::plans::{Stop, Verdict, interpret};
use super::settings::Settings;
use super::value::{Row, compare, fault, rows_of};

/// Tables, a plan over them, and how to run it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) inputs: Vec<RecordBatch>,
    pub(crate) plan: Plan,
    pub(crate) settings: Settings,
}

/// How a case ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The oracle's rows.
    Equal,
    /// The error that the oracle predicts.
    Failed,
    /// Devices don't do this plan.
    Unsupported,
    /// The oracle does not want to know.
    TooLarge,
}

/// The table of a batch, in two pieces, the second one a slice.
pub(crate) fn upload(session: &Arc<Session>, batch: &RecordBatch) -> Arc<Table> {
    upload_as(session, (0, batch), &Settings::default())
}

/// The same, with strings encoded and columns placed as the settings say.
fn upload_as(session: &Arc<Session>, (number, batch): (usize, &RecordBatch), settings: &Settings) -> Arc<Table> {
    let place = settings.members.map(|members| (members >> (4 * number % 64) & 15) as usize);
    let session = match place {
        Some(place) if place % 2 == 0 => session.member(place / 2 % session.devices().len()).expect("a member"),
        _ => Arc::clone(session),
    };
    let mut builder = TableBuilder::new(session.device_set(), batch.schema()).with_strings(settings.strings);
    if settings.tables_on_host {
        builder = builder.in_host_memory();
    }
    let first = batch.num_rows() / 3;
    builder.push(&batch.slice(0, first)).expect("a batch");
    builder.push(&batch.slice(first, batch.num_rows() - first)).expect("a batch");
    Arc::new(builder.finish().expect("a table"))
}

impl Case {
    /// What the oracle makes of it.
    pub(crate) fn verdict(&self) -> Verdict {
        let inputs: Vec<Vec<Row>> = self.inputs.iter().map(|batch| rows_of(std::slice::from_ref(batch))).collect();
        interpret(&self.plan, &inputs)
    }

    /// Runs the case on `session` and compares with the oracle.
    ///
    /// # Errors
    /// In words, when devices and oracle disagree.
    pub(crate) fn check(&self, session: &Arc<Session>) -> Result<Outcome, String> {
        self.check_against(&self.verdict(), session, &self.settings)
    }

    /// As [`Self::check`], with other settings and what the oracle has said already.
    pub(crate) fn check_against(
        &self,
        verdict: &Verdict,
        session: &Arc<Session>,
        settings: &Settings,
    ) -> Result<Outcome, String> {
        if verdict.rows == Err(Stop::TooLarge) {
            return Ok(Outcome::TooLarge);
        }
        let got = match (self.run(session, settings), &verdict.rows) {
            (Err(Error::Unsupported(_)), _) => Ok(Outcome::Unsupported),
            (Ok(got), Ok(wanted)) => match &verdict.order {
                Some(order) => order.check(got).map(|()| Outcome::Equal),
                None => compare(got, wanted.clone()).map(|()| Outcome::Equal),
            },
            (Ok(_), Err(Stop::Fault)) if verdict.is_limited => Ok(Outcome::Failed),
            (Ok(got), Err(_)) => Err(format!("{} rows where faults {} must be reported", got.len(), verdict.faults)),
            (Err(error), rows) => match fault_of(&error) {
                // After the first fault the oracle stops: rows behind it may have others.
                Some(bit) if rows.is_err() || verdict.faults & bit != 0 => Ok(Outcome::Failed),
                _ => Err(format!("{error}; faults {}", verdict.faults)),
            },
        };
        got.map_err(|difference| self.describe(&difference, settings))
    }

    /// Rows from the devices.
    pub(crate) fn run(&self, session: &Arc<Session>, settings: &Settings) -> warpjoin::Result<Vec<Row>> {
        let upload = |input| upload_as(session, input, settings);
        let tables: Vec<Arc<Table>> = self.inputs.iter().enumerate().map(upload).collect();
        let options = settings.options();
        let batches = if settings.keeps && !self.plan.schema.fields().is_empty() {
            let (table, _) = exec::run_to_table(session, &self.plan, &tables, &options)?;
            let all: Vec<usize> = (0..self.plan.schema.fields().len()).collect();
            table.download(&all, settings.batch_rows)?
        } else {
            let output = exec::run(session, &self.plan, &tables, &options)?;
            assert_announced(session, &self.plan, &tables, &options, &output.metrics);
            assert!(
                !settings.interprets || output.metrics.generated_kernels == 0,
                "tier 0 lacks a pipeline: {:?}",
                output.metrics
            );
            output.batches
        };
        for batch in &batches {
            assert_eq!(batch.schema(), self.plan.schema, "schema of the result");
            assert!(batch.num_rows() <= settings.batch_rows, "a batch too long");
        }
        drop(tables);
        Ok(rows_of(&batches))
    }

    fn describe(&self, difference: &str, settings: &Settings) -> String {
        let schemas: Vec<String> = self
            .inputs
            .iter()
            .map(|b| {
                let fields: Vec<String> = b
                    .schema()
                    .fields()
                    .iter()
                    .map(|f| format!("{}{}", f.data_type(), if f.is_nullable() { "?" } else { "" }))
                    .collect();
                format!("{} rows [{}]", b.num_rows(), fields.join(", "))
            })
            .collect();
        format!("{difference}\n{}inputs: {}\n{:?}", self.plan, schemas.join("; "), settings)
    }
}

fn fault_of(error: &Error) -> Option<u8> {
    match error {
        Error::Overflow => Some(fault::OVERFLOW),
        Error::DivisionByZero => Some(fault::DIVISION),
        Error::CastFailed => Some(fault::CAST),
        _ => None,
    }
}
