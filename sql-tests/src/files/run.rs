//! Runs one of DataFusion's files on an engine.

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

/// Queries wholly on the CPU have stock DataFusion's plans, so they run this many times less often than others.
const CPU_ONLY_EVERY: usize = 16;

/// Which queries of a file run. The others are only planned, so that the shares on devices cover all queries.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// Number of the first query that runs, modulo `every`.
    pub first: usize,
    /// One query in `every` runs; 0: none.
    pub every: usize,
}

impl Slice {
    /// Most queries of one kind in the slice if there are at most `all` in all: their share, and three times its deviation,
    /// because they are not spread evenly.
    pub fn most(self, all: usize) -> usize {
        if self.every == 1 {
            return all;
        }
        let share = all as f64 / self.every.max(1) as f64;
        (share + 3.0 * share.sqrt()).ceil() as usize + 1
    }
}

/// The result of a file.
#[derive(Debug, Default)]
pub struct FileResult {
    /// Queries that were planned, or failed to plan.
    pub queries: usize,
    /// Queries that failed to plan, mostly on stock DataFusion, too.
    pub refused: usize,
    /// Planned queries with operators.
    pub with_operators: usize,
    /// Queries with all operators on devices.
    pub whole: usize,
    /// Queries with at least one operator on devices.
    pub some: usize,
    /// Queries that ran on both engines.
    pub ran: usize,
    /// Statements, and queries that change state, that failed on both engines. Unlike queries they all run, whatever the slice.
    pub failed_statements: usize,
    /// Queries that failed on both engines with the same kind of error.
    pub both_fail: usize,
    /// Queries with several correct answers.
    pub ambiguous: usize,
    /// Counts of skipped statements and queries, by reason.
    pub skipped: BTreeMap<&'static str, usize>,
    /// Queries and statements whose outcome differs from stock DataFusion's.
    pub failures: Vec<String>,
    /// Counts of operators on the CPU, by operator and reason.
    pub reasons: BTreeMap<String, usize>,
}

impl FileResult {
    /// `count` as a percentage of the queries with operators.
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
            failed_statements,
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
        self.failed_statements += failed_statements;
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

/// A run of a file in two sessions.
struct FileRun<'a> {
    file: &'a str,
    stock: SessionContext,
    engine: SessionContext,
    engine_name: String,
    /// Has a folder for each session's files.
    scratch: tempfile::TempDir,
    result: FileResult,
}

/// Runs `file` of `folder`.
///
/// # Errors
/// Returns an error if the file cannot be parsed, or a folder for its output cannot be made.
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
    let (mut number, mut is_halted) = (0, false);
    for record in records {
        match record {
            Record::Statement { .. } | Record::Query { .. } if is_halted => run.skip("after a halt"),
            Record::Statement { conditions, .. } | Record::Query { conditions, .. } if is_skipped(&conditions) => {
                run.skip("for other engines");
            }
            Record::Statement { sql, loc, .. } => run.statement(&sql, loc.line()).await,
            Record::Query { sql, loc, .. } => {
                number += 1;
                run.query(&sql, loc.line(), number, slice).await;
            }
            Record::Halt { .. } => is_halted = true,
            _ => {}
        }
    }
    Ok(run.result)
}

/// Whether the conditions of a record exclude DataFusion.
fn is_skipped(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| match condition {
        Condition::OnlyIf { label } => !label.eq_ignore_ascii_case("datafusion"),
        Condition::SkipIf { label } => label.eq_ignore_ascii_case("datafusion"),
    })
}

impl FileRun<'_> {
    /// The statement for stock DataFusion and for the engine, or the reason to skip it.
    fn texts(&self, sql: &str) -> Result<(String, String), &'static str> {
        let text = |name: &str| match prepare(sql, &self.scratch.path().join(name)) {
            Prepared::Run(text) => Ok(text),
            Prepared::Skip(why) => Err(why),
        };
        Ok((text("stock")?, text("engine")?))
    }

    /// Runs a statement without an answer. It must fail on the engine if and only if it fails on stock DataFusion.
    async fn statement(&mut self, sql: &str, line: u32) {
        let (for_stock, for_engine) = match self.texts(sql) {
            Ok(texts) => texts,
            Err(why) => return self.skip(why),
        };
        let expected = Outcome::of(&self.stock, &for_stock).await;
        let actual = Outcome::of(&self.engine, &for_engine).await;
        self.defects(&actual, sql, line);
        match (expected.answer, actual.answer) {
            (Ok(_), Err(failure)) => self.fail(sql, line, &format!("an error: {}", failure.text)),
            (Err(failure), Ok(_)) => self.fail(sql, line, &format!("no error; stock DataFusion: {}", failure.text)),
            (Err(_), Err(_)) => self.result.failed_statements += 1,
            (Ok(_), Ok(_)) => {}
        }
    }

    async fn query(&mut self, sql: &str, line: u32, number: usize, slice: Slice) {
        let (for_stock, for_engine) = match self.texts(sql) {
            Ok(texts) => texts,
            Err(why) => return self.skip(why),
        };
        self.result.queries += 1;
        if !changes_state(sql) {
            let coverage = match plan_of(&self.engine, &for_engine).await {
                Ok(plan) => Coverage::of(&plan),
                Err(error) => {
                    // The engine must plan all queries that stock DataFusion plans.
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
            Verdict::BothFail if changes_state(sql) => self.result.failed_statements += 1,
            Verdict::BothFail => self.result.both_fail += 1,
            Verdict::Ambiguous => self.result.ambiguous += 1,
            Verdict::Different(difference) => self.fail(sql, line, &difference),
        }
    }

    /// Reports faults of devices as failures, although the CPU gave the right answer.
    fn defects(&mut self, outcome: &Outcome, sql: &str, line: u32) {
        for defect in &outcome.coverage.defects {
            self.fail(sql, line, &format!("fell back to the CPU: {defect}"));
        }
    }

    fn skip(&mut self, why: &'static str) {
        *self.result.skipped.entry(why).or_default() += 1;
    }

    fn fail(&mut self, sql: &str, line: u32, difference: &str) {
        self.result.failures.push(format!("{}:{line} [{}]: {difference}\n{sql}", self.file, self.engine_name));
    }
}
