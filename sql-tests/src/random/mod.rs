//! Random queries over random data, from seeds: on an engine and on stock DataFusion.
//!
//! Architecture invariant: a seed and [`GENERATOR_VERSION`] alone determine tables, rows, query and settings, so that a
//! failure can be replayed from the line that it prints.

mod aggregate;
mod data;
mod domain;
mod expression;
mod join;
mod order;
mod predicate;
mod query;
mod window;

use std::fmt::Display;
use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpjoin_cli::answers::{Answer, Reference};
use warpjoin_datafusion::load_table;

use crate::coverage::Coverage;
use crate::engine::{Engine, Settings};
use crate::golden::GoldenLine;
use crate::outcome::{ErrorKind, Failure, Outcome, no_panic};
use data::{TableData, random_tables};

/// Changes whenever a seed comes to mean another case.
pub const GENERATOR_VERSION: u32 = 4;
/// One case of 16 runs on devices whose schedule is drawn from the seed: slow, and true; and one on devices that can't reach
/// each other.
const SCHEDULED_EVERY: u64 = 16;

/// A random query and its tables.
#[derive(Debug)]
pub struct Case {
    /// What it was made from.
    pub seed: u64,
    /// The query.
    pub sql: String,
    tables: Vec<TableData>,
}

/// How a case ended.
#[derive(Debug, Default)]
pub struct CaseResult {
    /// How the outcomes differ; `None` if they do not.
    pub difference: Option<String>,
    /// Rows of stock DataFusion's answer; `None` for an error.
    pub rows: Option<usize>,
    /// The error of both, in words of stock DataFusion.
    pub error: Option<String>,
    /// Stock DataFusion's bug that leaves nothing to compare with.
    pub no_oracle: Option<String>,
    /// What of it ran where.
    pub coverage: Coverage,
}

impl Case {
    /// Makes the case of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let joins: usize = [0, 0, 1, 1, 1, 1, 2, 2, 3][rng.random_range(0..9)];
        let tables = random_tables(&mut rng, joins);
        let sql = query::random_query(&mut rng, &tables);
        Self { seed, sql, tables }
    }

    /// What it asks of devices that record; `None` if `engine`'s do not.
    ///
    /// # Errors
    /// When the tables can't be registered or loaded.
    pub async fn record(&self, engine: &Engine) -> Result<Option<GoldenLine>, DataFusionError> {
        let context = self.session(engine)?;
        self.load_tables(&context).await?;
        Ok(GoldenLine::of(engine, &context, format!("seed {}", self.seed), &self.sql).await)
    }

    /// Whether its tables are brought to the devices before it runs: what loading finds out about them makes other plans.
    pub fn has_resident_tables(&self) -> bool {
        (self.seed / 4) % 3 == 1
    }

    /// The engine that runs it, made from one of a kind: with default settings in a third of all cases.
    ///
    /// # Errors
    /// When its devices can't be opened.
    pub fn engine(&self, engine: &Engine) -> Result<Engine, DataFusionError> {
        let settings = if (self.seed / 12).is_multiple_of(3) { Settings::Defaults } else { Settings::Forced };
        let engine = engine.with_settings(settings);
        match (self.seed / 4) % SCHEDULED_EVERY {
            5 => Ok(engine.with_schedule(self.seed)),
            9 => engine.without_peers().map_err(|error| DataFusionError::External(Box::new(error))),
            _ => Ok(engine),
        }
    }

    /// Runs it on `engine` and on `stock`.
    ///
    /// # Errors
    /// When the tables can't be registered or loaded; what the query does is in the result.
    pub async fn run(&self, engine: &Engine, stock: &Engine) -> Result<CaseResult, DataFusionError> {
        let stock = self.session(stock)?;
        let expected = no_panic(Reference::of(&stock, &self.sql)).await;
        let context = self.session(&self.engine(engine)?)?;
        self.load_tables(&context).await?;
        let Outcome { answer: actual, coverage } = Outcome::of(&context, &self.sql).await;
        let rows = expected.as_ref().ok().map(|expected| expected.answer().rows());
        let bug = expected.as_ref().err().map(Failure::new).filter(|failure| failure.kind == ErrorKind::Bug);
        if let Some(Failure { text, .. }) = bug {
            return Ok(CaseResult { no_oracle: Some(text), coverage, ..CaseResult::default() });
        }
        let (difference, error) = match (expected, actual) {
            (Ok(expected), Ok(actual)) => match no_panic(expected.difference(&actual, &stock)).await {
                Ok(difference) => (difference, None),
                // Without its LIMIT the query meets a defect of stock DataFusion.
                Err(error) if Failure::new(&error).kind == ErrorKind::Bug => {
                    let text = error.strip_backtrace();
                    return Ok(CaseResult { no_oracle: Some(text), coverage, ..CaseResult::default() });
                }
                Err(error) => return Err(error),
            },
            (Ok(_), Err(failure)) => {
                let expected = format!("an error: {}", failure.text);
                (self.unless_stock_may(&stock, &context, Err(failure), expected).await, None)
            }
            (Err(error), Ok(actual)) => {
                let text = error.strip_backtrace();
                let expected = format!("no error; stock DataFusion: {text}");
                let difference = self.unless_stock_may(&stock, &context, Ok(actual), expected).await;
                if difference.is_some() && is_of_coercion(&text) {
                    return Ok(CaseResult { no_oracle: Some(text), coverage, ..CaseResult::default() });
                }
                (difference, None)
            }
            (Err(error), Err(failure)) => {
                let wanted = Failure::new(&error);
                let difference = if wanted.kind == failure.kind {
                    None
                } else {
                    let words = format!("another error: {}; stock DataFusion: {}", failure.text, wanted.text);
                    self.unless_stock_may(&stock, &context, Err(failure), words).await
                };
                (difference, Some(wanted.text))
            }
        };
        let defect = coverage.defects.first().map(|defect| format!("fell back to the CPU: {defect}"));
        Ok(CaseResult { difference: difference.or(defect), rows, error, no_oracle: None, coverage })
    }

    /// The difference, unless stock DataFusion has the same outcome with other partitions and batches.
    ///
    /// DataFusion evaluates AND, OR and CASE lazily by batch, and a LIMIT stops its input early: whether a row that fails is
    /// evaluated at all depends on which rows it shares a batch with. So an outcome that stock DataFusion has for any
    /// partitioning is right. So is what DataFusion alone makes of the tables of `context`: what resident tables know of
    /// their values makes other joins of theirs, which read other rows.
    async fn unless_stock_may(
        &self,
        stock: &SessionContext,
        context: &SessionContext,
        actual: Result<Answer, Failure>,
        difference: String,
    ) -> Option<String> {
        set(context, "warpjoin.enabled", false).await;
        if self.is_same(context, &actual).await {
            return None;
        }
        for (partitions, batch_rows) in [(1, 8192), (1, 1), (4, 3)] {
            set(stock, "datafusion.execution.target_partitions", partitions).await;
            set(stock, "datafusion.execution.batch_size", batch_rows).await;
            if self.is_same(stock, &actual).await {
                return None;
            }
        }
        Some(difference)
    }

    /// Whether a session has this outcome, too.
    async fn is_same(&self, context: &SessionContext, actual: &Result<Answer, Failure>) -> bool {
        match (actual, no_panic(Reference::of(context, &self.sql)).await) {
            (Ok(actual), Ok(expected)) => {
                expected.difference(actual, context).await.is_ok_and(|difference| difference.is_none())
            }
            (Err(actual), Err(expected)) => actual.kind == Failure::new(&expected).kind,
            _ => false,
        }
    }

    /// The plans of `engine` in words, to look into a failure.
    pub async fn explain(&self, engine: &Engine) -> String {
        let explained = async {
            let context = self.session(&self.engine(engine)?)?;
            self.load_tables(&context).await?;
            let batches = context.sql(&format!("EXPLAIN VERBOSE {}", self.sql)).await?.collect().await?;
            Ok::<_, DataFusionError>(pretty_format_batches(&batches)?.to_string())
        };
        explained.await.unwrap_or_else(|error| error.to_string())
    }

    /// The tables in words, for a message.
    pub fn describe_tables(&self) -> String {
        self.tables.iter().map(|table| format!("{table}\n")).collect()
    }

    /// Brings its tables to the devices, if they belong there.
    async fn load_tables(&self, context: &SessionContext) -> Result<(), DataFusionError> {
        for table in self.tables.iter().filter(|_| self.has_resident_tables()) {
            load_table(context, &table.name).await?;
        }
        Ok(())
    }

    fn session(&self, engine: &Engine) -> Result<SessionContext, DataFusionError> {
        let context = engine.session();
        for table in &self.tables {
            let mut partitions = table.partitions();
            if engine.is_recorded() {
                // Partitions are read in no order.
                partitions = vec![partitions.concat()];
            }
            let provider = MemTable::try_new(table.schema(), partitions)?;
            context.register_table(table.name.as_str(), Arc::new(provider))?;
        }
        Ok(context)
    }
}

/// Whether timestamps could not be brought to one unit. No query asks for that: DataFusion does it for all pairs of rows
/// that a join's filter looks at, also where another condition of the filter is false.
fn is_of_coercion(error: &str) -> bool {
    error.contains("Cannot cast Timestamp") && error.contains("exceeds the representable")
}

async fn set(context: &SessionContext, name: &str, value: impl Display) {
    // The settings exist, so this can't fail.
    let _ = context.sql(&format!("set {name} = {value}")).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineKind;

    #[test]
    fn a_seed_makes_the_same_case() {
        for seed in 0..50 {
            let (a, b) = (Case::new(seed), Case::new(seed));
            assert_eq!((&a.sql, a.describe_tables()), (&b.sql, b.describe_tables()));
        }
    }

    #[tokio::test]
    async fn nearly_all_queries_are_valid() {
        let stock = Engine::new(EngineKind::Stock);
        let mut errors = vec![];
        for seed in 0..200 {
            let case = Case::new(seed);
            if let Err(error) = case.session(&stock).unwrap().sql(&case.sql).await.unwrap().create_physical_plan().await
            {
                errors.push(format!("{}\n{error}", case.sql));
            }
        }
        assert!(errors.len() < 5, "{} errors\n{}", errors.len(), errors.join("\n\n"));
    }

    /// Every join kind, aggregate and clause comes up among a few thousand seeds.
    #[test]
    fn nothing_is_unreachable() {
        let all: Vec<String> = (0..4000).map(|seed| Case::new(seed).sql).collect();
        for word in WORDS {
            assert!(all.iter().any(|sql| sql.contains(word)), "no query has {word}");
        }
    }

    const WORDS: [&str; 92] = [
        " JOIN ",
        " LEFT JOIN ",
        " RIGHT JOIN ",
        " FULL JOIN ",
        " CROSS JOIN ",
        " LEFT SEMI JOIN ",
        " LEFT ANTI JOIN ",
        " RIGHT SEMI JOIN ",
        " RIGHT ANTI JOIN ",
        " EXISTS (",
        "NOT EXISTS (",
        " IN (SELECT",
        " NOT IN (SELECT",
        "IS NOT DISTINCT FROM",
        "count(*)",
        "count(DISTINCT",
        "sum(",
        "sum(DISTINCT",
        "avg(",
        "avg(DISTINCT",
        "min(",
        "max(",
        "bit_and(",
        "bit_or(",
        "bit_xor(",
        "bool_and(",
        "bool_or(",
        "stddev(",
        "stddev_pop(",
        "var(",
        "var_pop(",
        "covar_samp(",
        "covar_pop(",
        "corr(",
        "median(",
        "percentile_cont(",
        "first_value(",
        "last_value(",
        "nth_value(",
        "FILTER (WHERE",
        "IGNORE NULLS",
        "row_number()",
        "ntile(",
        "rank()",
        "dense_rank()",
        "percent_rank()",
        "cume_dist()",
        "lag(",
        "lead(",
        "ROWS BETWEEN",
        "RANGE BETWEEN",
        "GROUPS BETWEEN",
        "UNBOUNDED FOLLOWING",
        "PARTITION BY",
        "ROLLUP",
        "CUBE",
        "GROUPING SETS",
        "HAVING",
        "SELECT DISTINCT",
        " UNION SELECT",
        "UNION ALL",
        " INTERSECT SELECT",
        " EXCEPT SELECT",
        "INTERSECT ALL",
        "EXCEPT ALL",
        "LIMIT 0",
        "OFFSET",
        "ORDER BY",
        " DESC",
        "NULLS FIRST",
        "NULLS LAST",
        "WITH x AS",
        "CASE WHEN",
        "coalesce(",
        "nullif(",
        "IS DISTINCT FROM",
        " BETWEEN ",
        " IN (",
        " NOT IN (",
        " LIKE ",
        "NOT LIKE",
        "IS NULL",
        "IS NOT NULL",
        "IS NOT UNKNOWN",
        "extract(",
        "date_trunc(",
        "INTERVAL",
        "TRY_CAST(",
        "'NaN'",
        "'inf'",
        "'18446744073709551615'",
        "'-9223372036854775808'",
    ];
}
