//! Random queries over random data, compared between an engine and stock DataFusion.
//!
//! Must not know how queries run on devices.
//!
//! Architecture invariant: tables, rows, query and settings depend only on the seed, so that the printed seed replays a
//! failure. Tables keep their rows from one version of the generator to the next; queries may not.

mod aggregate;
mod data;
mod domain;
mod expression;
mod join;
mod literals;
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
use warpjoin_datafusion::{WarpjoinSessionContext, load_table};

use crate::coverage::Coverage;
use crate::engine::{Engine, Settings};
use crate::golden::GoldenLine;
use crate::outcome::{ErrorKind, Failure, Outcome, no_panic};
use data::{TableData, random_tables};

/// Must change whenever seeds mean other tables, rows, settings or devices. They may mean other queries at any time.
pub const TABLES_VERSION: u32 = 4;
/// One case in 16 runs on simulated devices with a schedule drawn from the seed, and one on devices without peer access.
const SCHEDULED_EVERY: u64 = 16;

/// A random query and its tables.
#[derive(Debug)]
pub struct Case {
    /// The seed that determines the case.
    pub seed: u64,
    /// The query.
    pub sql: String,
    tables: Vec<TableData>,
}

/// The result of a case.
#[derive(Debug, Default)]
pub struct CaseResult {
    /// How the outcomes differ; `None` if they do not.
    pub difference: Option<String>,
    /// Rows of stock DataFusion's answer; `None` for an error.
    pub rows: Option<usize>,
    /// Stock DataFusion's message if both fail.
    pub error: Option<String>,
    /// The bug of stock DataFusion that prevents a comparison.
    pub no_oracle: Option<String>,
    /// Which operators ran on devices.
    pub coverage: Coverage,
}

impl Case {
    /// The case of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let joins: usize = [0, 0, 1, 1, 1, 1, 2, 2, 3][rng.random_range(0..9)];
        let tables = random_tables(&mut rng, joins);
        let sql = query::random_query(&mut rng, &tables);
        Self { seed, sql, tables }
    }

    /// Another query over the tables of the seed.
    pub fn with_sql(seed: u64, sql: &str) -> Self {
        Self { sql: sql.into(), ..Self::new(seed) }
    }

    /// A random query of `query_seed` over the tables of this case.
    pub fn other_query(&self, query_seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(query_seed);
        Self { seed: self.seed, sql: query::random_query(&mut rng, &self.tables), tables: self.tables.clone() }
    }

    /// Rows of the largest table.
    pub fn rows_max(&self) -> usize {
        self.tables.iter().map(|table| table.rows).max().unwrap_or(0)
    }

    /// Runs and records the case; `None` if the engine's devices do not record.
    ///
    /// # Errors
    /// Returns an error if the tables cannot be registered or loaded.
    pub async fn record(&self, engine: &Engine) -> Result<Option<GoldenLine>, DataFusionError> {
        let context = self.session(engine)?;
        self.load_tables(&context).await?;
        Ok(GoldenLine::of(engine, &context, format!("seed {}", self.seed), &self.sql).await)
    }

    /// Whether its tables are loaded onto the devices first. Statistics of resident tables change plans.
    pub fn has_resident_tables(&self) -> bool {
        (self.seed / 4) % 3 == 1
    }

    /// The engine that runs the case: `engine` with the settings, schedule and devices that the seed selects.
    ///
    /// # Errors
    /// Returns an error if its devices cannot be opened.
    pub fn engine(&self, engine: &Engine) -> Result<Engine, DataFusionError> {
        let settings = if (self.seed / 12).is_multiple_of(3) { Settings::Defaults } else { Settings::Forced };
        let engine = engine.with_settings(settings);
        match (self.seed / 4) % SCHEDULED_EVERY {
            5 => Ok(engine.with_schedule(self.seed)),
            9 => engine.without_peers().map_err(|error| DataFusionError::External(Box::new(error))),
            _ => Ok(engine),
        }
    }

    /// Runs the case on `engine` and on `stock`.
    ///
    /// # Errors
    /// Returns an error if the tables cannot be registered or loaded. Errors of the query are in the result.
    ///
    /// There is no oracle where the answers differ only because of
    /// - the sign of zeros: which of two zeros a minimum is depends on the order of DataFusion's batches, and its windows and sorts
    ///   tell them apart;
    /// - NaN: DataFusion's first groups of an order (LIMIT over GROUP BY, DISTINCT or UNION) have a group for each NaN. Extremes beside
    ///   an aggregate of DISTINCT values are those of groups, which order NaN otherwise.
    pub async fn run(&self, engine: &Engine, stock: &Engine) -> Result<CaseResult, DataFusionError> {
        type Change = fn(&mut TableData);
        let result = self.run_once(engine, stock).await?;
        if result.difference.is_none() || result.error.is_some() {
            return Ok(result);
        }
        let has = |word: &str| self.sql.contains(word);
        let has_extremes = has("min(") || has("max(");
        let has_groups = has("GROUP BY") || has("DISTINCT") || has("UNION");
        let others: [(bool, &str, Change); 2] = [
            (has_extremes, "the sign of zeros", |table| table.has_positive_zeros = true),
            ((has(" LIMIT ") && has_groups) || (has_extremes && has("(DISTINCT ")), "NaN", |table| {
                table.has_no_nan = true
            }),
        ];
        for (applies, reason, change) in others {
            if !applies {
                continue;
            }
            let mut case = Self { seed: self.seed, sql: self.sql.clone(), tables: self.tables.clone() };
            case.tables.iter_mut().for_each(change);
            let same = case.run_once(engine, stock).await?;
            if same.difference.is_none() && same.rows.is_some() {
                return Ok(CaseResult { no_oracle: Some(reason.into()), difference: None, ..result });
            }
        }
        Ok(result)
    }

    async fn run_once(&self, engine: &Engine, stock: &Engine) -> Result<CaseResult, DataFusionError> {
        let stock = self.session(stock)?;
        let expected = no_panic(Reference::of(&stock, &self.sql)).await;
        let context = self.session(&self.engine(engine)?)?;
        self.load_tables(&context).await?;
        self.keep_plans(&context).await;
        let Outcome { answer: actual, coverage } = Outcome::of(&context, &self.sql).await;
        let rows = expected.as_ref().ok().map(|expected| expected.answer().rows());
        let bug = expected.as_ref().err().map(Failure::new).filter(|failure| failure.kind == ErrorKind::Bug);
        if let Some(Failure { text, .. }) = bug {
            return Ok(CaseResult { no_oracle: Some(text), coverage, ..CaseResult::default() });
        }
        let (difference, error) = match (expected, actual) {
            (Ok(expected), Ok(actual)) => match no_panic(expected.difference(&actual, &stock)).await {
                Ok(difference) => (difference, None),
                // The comparison runs the query without its LIMIT, which hits a bug of stock DataFusion.
                Err(error) if Failure::new(&error).kind == ErrorKind::Bug => {
                    let text = error.strip_backtrace();
                    return Ok(CaseResult { no_oracle: Some(text), coverage, ..CaseResult::default() });
                }
                Err(error) => return Err(error),
            },
            (Ok(_), Err(failure)) => {
                let text = failure.text.clone();
                let expected = format!("an error: {text}");
                let difference = self.unless_stock_may(&stock, &context, Err(failure), expected).await;
                if difference.is_some() && is_of_coercion(&text) {
                    return Ok(CaseResult { no_oracle: Some(text), coverage, ..CaseResult::default() });
                }
                (difference, None)
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
                    let message = format!("another error: {}; stock DataFusion: {}", failure.text, wanted.text);
                    self.unless_stock_may(&stock, &context, Err(failure), message).await
                };
                (difference, Some(wanted.text))
            }
        };
        let defect = coverage.defects.first().map(|defect| format!("fell back to the CPU: {defect}"));
        Ok(CaseResult { difference: difference.or(defect), rows, error, no_oracle: None, coverage })
    }

    /// Plans queries that differ in literals, so that this one may find the plan of another. Plans of resident tables are kept.
    async fn keep_plans(&self, context: &SessionContext) {
        if !self.has_resident_tables() {
            return;
        }
        for by in [1, 2] {
            // Other literals may be errors.
            let _ = no_panic(context.query(&literals::with_other_numbers(&self.sql, by))).await;
        }
        // Of some queries the plan of the same literals is found.
        if self.seed.is_multiple_of(2) {
            let _ = no_panic(context.query(&self.sql)).await;
        }
    }

    /// Returns `difference`, unless DataFusion can have the same outcome.
    ///
    /// DataFusion evaluates AND, OR and CASE lazily by batch, and a LIMIT stops its input early. So whether it evaluates a
    /// failing row depends on the batches, and an outcome is right if stock DataFusion has it for some partitioning. It is
    /// also right if DataFusion has it over the tables of `context` without devices, because statistics of resident tables
    /// change its joins, which then read other rows.
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

    /// Whether the session has the same outcome.
    async fn is_same(&self, context: &SessionContext, actual: &Result<Answer, Failure>) -> bool {
        match (actual, no_panic(Reference::of(context, &self.sql)).await) {
            (Ok(actual), Ok(expected)) => {
                expected.difference(actual, context).await.is_ok_and(|difference| difference.is_none())
            }
            (Err(actual), Err(expected)) => actual.kind == Failure::new(&expected).kind,
            _ => false,
        }
    }

    /// The output of EXPLAIN on `engine`, to debug a failure.
    pub async fn explain(&self, engine: &Engine) -> String {
        let explained = async {
            let context = self.session(&self.engine(engine)?)?;
            self.load_tables(&context).await?;
            let batches = context.sql(&format!("EXPLAIN VERBOSE {}", self.sql)).await?.collect().await?;
            Ok::<_, DataFusionError>(pretty_format_batches(&batches)?.to_string())
        };
        explained.await.unwrap_or_else(|error| error.to_string())
    }

    /// A description of the tables, for messages.
    pub fn describe_tables(&self) -> String {
        self.tables.iter().map(|table| format!("{table}\n")).collect()
    }

    /// Loads the tables onto the devices if the case has resident tables.
    async fn load_tables(&self, context: &SessionContext) -> Result<(), DataFusionError> {
        if self.has_resident_tables() { self.load_all_tables(context).await } else { Ok(()) }
    }

    /// Loads the tables onto the devices.
    ///
    /// # Errors
    /// Returns an error if there is no room for them.
    pub async fn load_all_tables(&self, context: &SessionContext) -> Result<(), DataFusionError> {
        for table in &self.tables {
            load_table(context, &table.name).await?;
        }
        Ok(())
    }

    /// A session of `engine` with the tables.
    ///
    /// # Errors
    /// Returns an error if the tables cannot be registered.
    pub fn session(&self, engine: &Engine) -> Result<SessionContext, DataFusionError> {
        let context = engine.session();
        for table in &self.tables {
            let mut partitions = table.partitions();
            if engine.is_recorded() {
                // Several partitions would be read in an order that differs from run to run.
                partitions = vec![partitions.concat()];
            }
            let provider = MemTable::try_new(table.schema(), partitions)?;
            context.register_table(table.name.as_str(), Arc::new(provider))?;
        }
        Ok(context)
    }
}

/// Whether a date or timestamp could not be cast to another unit, or a decimal to another scale, as comparisons of two columns do.
/// Which rows meet the cast depends on the plan: those of a join's other side where one side is empty, all pairs of rows of a
/// join's filter, even if another condition of the filter is false.
fn is_of_coercion(error: &str) -> bool {
    let is_time = error.contains("Cannot cast Timestamp") || error.contains("Cannot cast Date");
    let of_time = is_time && error.contains("exceeds the representable");
    of_time || (error.contains("Cannot cast to Decimal") && error.contains("Overflowing on"))
}

async fn set(context: &SessionContext, name: &str, value: impl Display) {
    // The settings exist, so this cannot fail.
    let _ = context.sql(&format!("set {name} = {value}")).await;
}

#[cfg(test)]
mod tests {
    use warpjoin::plan::AggregateFunction;
    use warpjoin::window::WindowFunction;

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

    /// A few thousand seeds contain every join kind, aggregate and clause.
    #[test]
    fn every_construct_is_generated() {
        let all: Vec<String> = (0..4000).map(|seed| Case::new(seed).sql).collect();
        let of_specs =
            AggregateFunction::all().flat_map(|function| function.spec().names()).map(|name| format!("{name}("));
        let of_windows =
            WindowFunction::all().flat_map(|function| function.spec().sql.iter()).map(|name| format!("{name}("));
        let words = WORDS.into_iter().map(String::from).chain(of_specs).chain(of_windows);
        for word in words {
            assert!(all.iter().any(|sql| sql.contains(&word)), "no query has {word}");
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
