//! Random queries over random data, from seeds: on an engine and on stock DataFusion.
//!
//! Architecture invariant: a seed alone determines tables, rows and query, so that a failure can be
//! replayed from the line that it prints.

mod data;
mod expression;
mod query;
mod window;

use std::sync::Arc;

use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpjoin::plan::Plan;
use warpjoin_cli::answers::{Answer, RowOrder};
use warpjoin_datafusion::{Placement, WarpjoinExec, load_table};

use crate::engine::Engine;
use crate::runner::describe;
use data::TableData;

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
    /// How the answers differ; `None` if they do not.
    pub difference: Option<String>,
    /// Rows of stock DataFusion's answer; `None` for an error.
    pub rows: Option<usize>,
    /// Whether all joins and aggregates were on devices.
    pub on_devices: bool,
    /// What was not, and why.
    pub remaining: String,
    /// The operators that devices ran: one entry each time.
    pub operators: Vec<String>,
}

impl Case {
    /// Makes the case of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let joins: usize = [0, 0, 1, 1, 1, 2, 2, 3][rng.random_range(0..8)];
        let tables: Vec<TableData> = (0..=joins).map(|at| TableData::random(&mut rng, at, joins)).collect();
        let sql = query::random_query(&mut rng, &tables);
        Self { seed, sql, tables }
    }

    /// Whether its tables are brought to the devices before it runs: what loading finds out about them makes other plans.
    pub fn has_resident_tables(&self) -> bool {
        (self.seed / 4) % 3 == 1
    }

    /// Runs it on `engine` and on `stock`.
    ///
    /// # Errors
    /// When the tables can't be registered or loaded; what the query does is in the result.
    pub async fn run(&self, engine: &Engine, stock: &Engine) -> Result<CaseResult, DataFusionError> {
        let expected = self.answer(&self.session(stock)?).await;
        let context = self.session(engine)?;
        if self.has_resident_tables() {
            for table in &self.tables {
                load_table(&context, &table.name).await?;
            }
        }
        let mut result = CaseResult::default();
        match (expected, self.answer(&context).await) {
            (Ok((expected, _)), Ok((actual, plan))) => {
                let placement = Placement::of(&plan);
                device_operators(&plan, &mut result.operators);
                result.rows = Some(expected.rows());
                result.on_devices = placement.is_on_devices();
                result.remaining = describe(&placement);
                let stock = self.session(stock)?;
                let order = RowOrder::of_query(&stock, &self.sql).await?;
                result.difference = actual.difference(&expected, &order, &stock, &self.sql).await?;
            }
            (Ok(_), Err(error)) => result.difference = Some(format!("an error: {}", error.strip_backtrace())),
            (Err(error), Ok(_)) => {
                result.difference = Some(format!("no error; stock DataFusion: {}", error.strip_backtrace()));
            }
            (Err(_), Err(_)) => {}
        }
        Ok(result)
    }

    /// The tables in words, for a message.
    pub fn describe_tables(&self) -> String {
        self.tables.iter().map(|table| format!("{table}\n")).collect()
    }

    fn session(&self, engine: &Engine) -> Result<SessionContext, DataFusionError> {
        let context = engine.session();
        for table in &self.tables {
            let provider = MemTable::try_new(table.schema(), table.partitions())?;
            context.register_table(table.name.as_str(), Arc::new(provider))?;
        }
        Ok(context)
    }

    async fn answer(&self, context: &SessionContext) -> Result<(Answer, Arc<dyn ExecutionPlan>), DataFusionError> {
        let frame = context.sql(&self.sql).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let batches = collect(Arc::clone(&plan), task).await?;
        Ok((Answer::new(plan.schema(), &batches)?, plan))
    }
}

/// The operators of the device nodes below `node` that were not run by the CPU in the end.
fn device_operators(node: &Arc<dyn ExecutionPlan>, operators: &mut Vec<String>) {
    fn collect(plan: &Plan, operators: &mut Vec<String>) {
        let line = plan.describe();
        // Such as `HashJoin: Inner` of a join, and the first word of the others.
        let end = if line.starts_with("HashJoin") { line.find(',') } else { line.find(':') };
        operators.push(line[..end.unwrap_or(line.len())].to_string());
        plan.inputs().into_iter().for_each(|input| collect(input, operators));
    }
    if let Some(device) = node.downcast_ref::<WarpjoinExec>()
        && device.last_fallback().is_none()
    {
        collect(device.plan(), operators);
    }
    node.children().into_iter().for_each(|child| device_operators(child, operators));
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
            if let Err(error) = case.session(&stock).unwrap().state().create_logical_plan(&case.sql).await {
                errors.push(format!("{}\n{error}", case.sql));
            }
        }
        assert!(errors.len() < 4, "{}", errors.join("\n\n"));
    }
}
