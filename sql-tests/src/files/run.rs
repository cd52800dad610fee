//! One of DataFusion's files on an engine.

use std::collections::BTreeMap;
use std::path::Path;

use datafusion::prelude::SessionContext;
use sqllogictest::{Condition, DefaultColumnType, Record, parse_file};

use super::compare::{Verdict, changes_state, compare};
use super::statement::{Prepared, prepare};
use crate::coverage::Coverage;
use crate::engine::Engine;
use crate::outcome::{Outcome, plan_of};
use crate::runner::SltError;

/// Of queries without anything on devices, whose plans are stock DataFusion's, one of so many of the others' runs.
const CPU_ONLY_EVERY: usize = 16;

/// Which queries of a file run. The others are planned, so that the shares on devices are those of all queries.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// The first that runs, modulo `every`.
    pub first: usize,
    /// One of so many runs; 0: none.
    pub every: usize,
}

/// What became of a file.
#[derive(Debug, Default)]
pub struct FileResult {
    /// Queries that were tried.
    pub queries: usize,
    /// Of them, those that the engine can't plan: DataFusion refuses them, mostly.
    pub refused: usize,
    /// Of those that were planned, the ones with operators.
    pub with_operators: usize,
    /// Of these, those wholly on devices.
    pub whole: usize,
    /// Of these, those with at least one operator on devices.
    pub some: usize,
    /// Queries that ran on both engines.
    pub ran: usize,
    /// Of them, those that fail on both with errors of one kind.
    pub both_fail: usize,
    /// Of them, those whose answer DataFusion itself does not determine.
    pub ambiguous: usize,
    /// Statements and queries that did not run, by reason.
    pub skipped: BTreeMap<&'static str, usize>,
    /// Queries and statements with another outcome than stock DataFusion's.
    pub failures: Vec<String>,
    /// Operators that stayed on the CPU and why, and how often.
    pub reasons: BTreeMap<String, usize>,
}

impl FileResult {
    /// Percentage of the queries with operators.
    pub fn share(&self, count: usize) -> usize {
        count * 100 / self.with_operators.max(1)
    }

    /// Adds the counts of another file.
    pub fn add(&mut self, other: &Self) {
        let Self {
            queries,
            refused,
            with_operators,
            whole,
            some,
            ran,
            both_fail,
            ambiguous,
            skipped,
            failures,
            reasons,
        } = other;
        self.queries += queries;
        self.refused += refused;
        self.with_operators += with_operators;
        self.whole += whole;
        self.some += some;
        self.ran += ran;
        self.both_fail += both_fail;
        self.ambiguous += ambiguous;
        skipped.iter().for_each(|(why, count)| *self.skipped.entry(why).or_default() += count);
        reasons.iter().for_each(|(why, count)| *self.reasons.entry(why.clone()).or_default() += count);
        self.failures.extend(failures.iter().cloned());
    }

    fn count(&mut self, coverage: &Coverage) {
        self.with_operators += usize::from(coverage.has_operators());
        self.whole += usize::from(coverage.is_whole());
        self.some += usize::from(!coverage.on_devices.is_empty());
        for reason in &coverage.on_cpu {
            *self.reasons.entry(reason.clone()).or_default() += 1;
        }
    }
}

/// A file that runs on two sessions.
struct FileRun<'a> {
    file: &'a str,
    stock: SessionContext,
    engine: SessionContext,
    engine_name: String,
    /// A folder for each session's files.
    scratch: tempfile::TempDir,
    result: FileResult,
}

/// Runs `file` of `folder`.
///
/// # Errors
/// When it can't be parsed, or there is no folder for what it writes.
pub async fn run_datafusion_file(
    folder: &Path,
    file: &str,
    engine: &Engine,
    stock: &Engine,
    slice: Slice,
) -> Result<FileResult, SltError> {
    let path = folder.join(file);
    let records = parse_file::<DefaultColumnType>(&path).map_err(|error| SltError::File(format!("{file}: {error}")))?;
    let scratch = tempfile::tempdir().map_err(|error| SltError::File(error.to_string()))?;
    for name in ["stock", "engine"] {
        std::fs::create_dir(scratch.path().join(name)).map_err(|error| SltError::File(error.to_string()))?;
    }
    let mut run = FileRun {
        file,
        stock: stock.session(),
        engine: engine.session(),
        engine_name: engine.kind().to_string(),
        scratch,
        result: FileResult::default(),
    };
    let mut number = 0;
    for record in records {
        match record {
            Record::Statement { sql, loc, conditions, .. } if !is_skipped(&conditions) => {
                run.statement(&sql, loc.line()).await;
            }
            Record::Query { sql, loc, conditions, .. } if !is_skipped(&conditions) => {
                number += 1;
                run.query(&sql, loc.line(), number, slice).await;
            }
            Record::Halt { .. } => break,
            _ => {}
        }
    }
    Ok(run.result)
}

/// Whether a record is for other databases.
fn is_skipped(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| match condition {
        Condition::OnlyIf { label } => !label.eq_ignore_ascii_case("datafusion"),
        Condition::SkipIf { label } => label.eq_ignore_ascii_case("datafusion"),
    })
}

impl FileRun<'_> {
    /// The texts for stock DataFusion and for the engine, or why the statement is skipped.
    fn texts(&self, sql: &str) -> Result<(String, String), &'static str> {
        let text = |name: &str| match prepare(sql, &self.scratch.path().join(name)) {
            Prepared::Run(text) => Ok(text),
            Prepared::Skip(why) => Err(why),
        };
        Ok((text("stock")?, text("engine")?))
    }

    /// Tables and settings. What fails on stock DataFusion must fail on the engine, and nothing else.
    async fn statement(&mut self, sql: &str, line: u32) {
        let (for_stock, for_engine) = match self.texts(sql) {
            Ok(texts) => texts,
            Err(why) => return *self.result.skipped.entry(why).or_default() += 1,
        };
        let expected = Outcome::of(&self.stock, &for_stock).await;
        let actual = Outcome::of(&self.engine, &for_engine).await;
        self.defects(&actual, sql, line);
        match (expected.answer, actual.answer) {
            (Ok(_), Err(failure)) => self.fail(sql, line, &format!("an error: {}", failure.text)),
            (Err(failure), Ok(_)) => self.fail(sql, line, &format!("no error; stock DataFusion: {}", failure.text)),
            _ => {}
        }
    }

    async fn query(&mut self, sql: &str, line: u32, number: usize, slice: Slice) {
        let (for_stock, for_engine) = match self.texts(sql) {
            Ok(texts) => texts,
            Err(why) => return *self.result.skipped.entry(why).or_default() += 1,
        };
        self.result.queries += 1;
        if !changes_state(sql) {
            let coverage = match plan_of(&self.engine, &for_engine).await {
                Ok(plan) => Coverage::of(&plan),
                Err(error) => {
                    // What stock DataFusion plans must be planned.
                    if plan_of(&self.stock, &for_stock).await.is_ok() {
                        self.fail(sql, line, &format!("not planned: {error}"));
                    }
                    return self.result.refused += 1;
                }
            };
            let every = slice.every * if coverage.on_devices.is_empty() { CPU_ONLY_EVERY } else { 1 };
            self.result.count(&coverage);
            if every == 0 || number % every != slice.first % every {
                return;
            }
        }
        let actual = Outcome::of(&self.engine, &for_engine).await;
        self.result.ran += 1;
        self.defects(&actual, sql, line);
        match compare(&self.stock, &for_stock, &actual).await {
            Verdict::Equal => {}
            Verdict::BothFail => self.result.both_fail += 1,
            Verdict::Ambiguous => self.result.ambiguous += 1,
            Verdict::Different(difference) => self.fail(sql, line, &difference),
        }
    }

    /// A right answer by the CPU does not excuse a device that broke.
    fn defects(&mut self, outcome: &Outcome, sql: &str, line: u32) {
        for defect in &outcome.coverage.defects {
            self.fail(sql, line, &format!("fell back to the CPU: {defect}"));
        }
    }

    fn fail(&mut self, sql: &str, line: u32, difference: &str) {
        self.result.failures.push(format!("{}:{line} [{}]: {difference}\n{sql}", self.file, self.engine_name));
    }
}
