//! Queries by text: a text that was planned before is not parsed or planned again.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::config::ExtensionOptions;
use datafusion::common::{Result, TableReference};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{LogicalPlan, ResetVariable, SetVariable, Statement};
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::prelude::SessionContext;

use super::eligible::Tables;
use super::gone::refuse_missing_files;
use super::parameters::Parameterized;
use super::{KeepingPlanner, check, current, eligible, fresh, instance, keepable, keeps_plans, options_of, parameters};
use crate::config::WarpjoinOptions;
use crate::kept::{Bound, EnvironmentId, Files, Functions, KeptPlan, KeptPlans, LeasedExec, LogicalKey, Names, Stage};
use crate::runtime::WarpjoinRuntime;
use crate::runtime::active_query::QueryText;

/// Adds queries by text to a session.
#[async_trait]
pub trait WarpjoinSessionContext {
    /// Plans a query, or finds the plan of an earlier one. Like [`SessionContext::sql`], but a text that was planned
    /// before needs no parsing, optimizing or planning.
    ///
    /// Plans are kept if all tables are resident or of Parquet files whose columns are cached, and all functions are
    /// immutable. A kept plan is used as long as tables, files, functions and settings are the same. Any other
    /// statement runs as with [`SessionContext::sql`].
    ///
    /// # Errors
    /// Those of [`SessionContext::sql`].
    ///
    /// ```
    /// use datafusion::execution::SessionStateBuilder;
    /// use datafusion::prelude::SessionContext;
    /// use warpjoin_datafusion::{WarpjoinRuntime, WarpjoinSessionContext, WarpjoinSessionStateBuilder};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> datafusion::common::Result<()> {
    /// let state = SessionStateBuilder::new_with_default_features().with_warpjoin(WarpjoinRuntime::lazy()).build();
    /// let context = SessionContext::new_with_state(state);
    /// let rows = context.query("SELECT 1 + 1").await?.collect().await?;
    /// assert_eq!(rows[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    async fn query(&self, sql: &str) -> Result<Query>;

    /// As [`Self::query`], for a logical plan that was not optimized: a plan that was planned before needs no
    /// optimizing or planning. Statements that are not queries run as with [`SessionContext::execute_logical_plan`].
    ///
    /// # Errors
    /// Those of [`SessionContext::execute_logical_plan`], and of planning.
    async fn query_of_plan(&self, plan: LogicalPlan) -> Result<Query>;
}

/// A query that can run once.
#[derive(Debug, Clone)]
pub struct Query {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    is_kept: bool,
}

impl Query {
    fn new(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>, is_kept: bool) -> Self {
        // Nobody else has the context yet.
        let context = Arc::try_unwrap(context).map_or_else(
            |shared| shared,
            |own| {
                let config = own.session_config().clone().with_extension(Arc::new(QueryText::default()));
                Arc::new(own.with_session_config(config))
            },
        );
        Self { plan, context, is_kept }
    }

    /// The same query with the text that [`WarpjoinRuntime::queries`] shows, such as its SQL, unless it has a text
    /// already. Queries of [`WarpjoinSessionContext::query`] have one.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        if let Some(of_query) = self.context.session_config().get_extension::<QueryText>() {
            of_query.set(text);
        }
        self
    }

    /// The schema of its rows.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// The physical plan. After the run it has the metrics.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// The physical plan, and the context to run it in.
    pub fn into_parts(self) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
        (self.plan, self.context)
    }

    /// Whether the plan is that of an earlier query.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Runs the query, and collects its rows.
    ///
    /// # Errors
    /// Returns errors of the execution.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        collect(self.plan, self.context).await
    }

    /// Runs the query, and returns its rows as a stream.
    ///
    /// # Errors
    /// Returns errors of starting the execution.
    pub fn stream(self) -> Result<SendableRecordBatchStream> {
        execute_stream(self.plan, self.context)
    }
}

#[async_trait]
impl WarpjoinSessionContext for SessionContext {
    async fn query(&self, sql: &str) -> Result<Query> {
        let text = sql.trim().trim_end_matches(';');
        if let Some(plan) = find(self, text).await? {
            return Ok(Query::new(plan, self.task_ctx(), true).with_text(text));
        }
        let state = self.state();
        let dialect = state.config_options().sql_parser.dialect;
        let statement = state.sql_to_statement(sql, &dialect)?;
        let references = state.resolve_table_references(&statement)?;
        let before = providers(&state, references).await;
        let given = state.statement_to_plan(statement).await?;
        let Some((runtime, tables)) = kept_tables(&state, &given) else {
            return Ok(self.query_of_plan(given).await?.with_text(text));
        };
        let Planned { plan, bound, is_kept } = plan_given(&given, tables, &state, &runtime).await?;
        if let Some(bound) = bound {
            keep_text(text, &given, before, &state, &runtime, bound).await?;
        }
        Ok(Query::new(plan, state.task_ctx(), is_kept).with_text(text))
    }

    async fn query_of_plan(&self, plan: LogicalPlan) -> Result<Query> {
        // PREPARE, SET and the like run here; of EXECUTE the query is left.
        let (state, given) = self.execute_logical_plan(reset_by_set(plan)).await?.into_parts();
        let Planned { plan, is_kept, .. } = match kept_tables(&state, &given) {
            Some((runtime, tables)) => plan_given(&given, tables, &state, &runtime).await?,
            None => Planned { plan: state.create_physical_plan(&given).await?, bound: None, is_kept: false },
        };
        Ok(Query::new(plan, state.task_ctx(), is_kept))
    }
}

/// `RESET warpjoin.key` as a `SET` of the default value: DataFusion resets no setting of an extension.
fn reset_by_set(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Statement(Statement::ResetVariable(ResetVariable { variable }))
            if variable.starts_with("warpjoin.") =>
        {
            let default = WarpjoinOptions::default().entries().into_iter().find(|entry| entry.key == variable);
            let value = default.and_then(|entry| entry.value).unwrap_or_default();
            LogicalPlan::Statement(Statement::SetVariable(SetVariable { variable, value }))
        }
        plan => plan,
    }
}

/// A plan to run.
struct Planned {
    plan: Arc<dyn ExecutionPlan>,
    /// The kept plan for later queries, if it is kept.
    bound: Option<Bound>,
    /// Whether it is the plan of an earlier query.
    is_kept: bool,
}

/// The runtime that keeps plans of a session, if plans are kept.
fn runtime_if_kept(state: &SessionState) -> Option<Arc<WarpjoinRuntime>> {
    keeps_plans(state).then(|| state.config().get_extension::<WarpjoinRuntime>()).flatten()
}

/// The runtime that keeps the plan of a query, and its tables, if the plan can be kept.
fn kept_tables(state: &SessionState, given: &LogicalPlan) -> Option<(Arc<WarpjoinRuntime>, Tables)> {
    let runtime = runtime_if_kept(state)?;
    let tables = eligible::tables(given, runtime.kept_plans())?;
    Some((runtime, tables))
}

/// An instance of the plan that was kept for a text, if its names still mean the same.
async fn find(context: &SessionContext, text: &str) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (runtime, options, candidates) = {
        let state = context.state_ref();
        let state = state.read();
        let Some(runtime) = runtime_if_kept(&state) else { return Ok(None) };
        let kept = runtime.kept_plans();
        let mut candidates = kept.find_texts(kept.environment(&state), text);
        candidates.retain(|(names, _)| names.functions.iter().all(|functions| functions.are_of(&state)));
        let with_schemas = candidates.into_iter().filter_map(|(names, plan)| {
            let schemas = names.tables.iter().map(|(table, _)| state.schema_for_ref(table.clone()));
            let schemas = schemas.collect::<Result<Vec<_>>>().ok()?;
            Some((names, schemas, plan))
        });
        let candidates: Vec<_> = with_schemas.collect();
        (Arc::clone(&runtime), options_of(&state), candidates)
    };
    for (names, schemas, kept) in candidates {
        let mut are_same = true;
        for ((table, provider), schema) in names.tables.iter().zip(schemas) {
            let now = schema.table(table.table()).await.ok().flatten();
            are_same &= now.is_some_and(|now| is_same(&now, provider.upgrade().as_ref()));
        }
        if !are_same {
            continue;
        }
        if !kept.plan.files().are_unchanged() {
            let state = context.state();
            if current(Some(kept.clone()), &state, runtime.kept_plans()).await.is_none() {
                continue;
            }
        }
        let Some(plan) = instance(&kept, &runtime, &options)? else { continue };
        if options.check_plans && kept.values.is_empty() {
            let state = context.state();
            check::check(&plan, &new_plan(&state.create_logical_plan(text).await?, &state).await?)?;
        }
        return Ok(Some(plan));
    }
    Ok(None)
}

fn is_same(now: &Arc<dyn TableProvider>, then: Option<&Arc<dyn TableProvider>>) -> bool {
    then.is_some_and(|then| Arc::as_ptr(now).addr() == Arc::as_ptr(then).addr())
}

/// The tables of those names that the session has.
async fn providers(
    state: &SessionState,
    references: Vec<TableReference>,
) -> Vec<(TableReference, Arc<dyn TableProvider>)> {
    let mut found = vec![];
    for reference in references {
        let Ok(schema) = state.schema_for_ref(reference.clone()) else { continue };
        if let Some(table) = schema.table(reference.table()).await.ok().flatten() {
            found.push((reference, table));
        }
    }
    found
}

/// Plans a logical plan that was not optimized, or finds the plan of an earlier one that is equal or differs only in
/// literals.
async fn plan_given(
    given: &LogicalPlan,
    tables: Tables,
    state: &SessionState,
    runtime: &WarpjoinRuntime,
) -> Result<Planned> {
    refuse_missing_files(given)?;
    let (options, kept) = (options_of(state), runtime.kept_plans());
    let environment = kept.environment(state);
    let key = LogicalKey { environment, stage: Stage::Given, tables: tables.ids.clone(), plan: given };
    if let Some(known) = current(kept.find(&key), state, kept).await
        && let Some(plan) = instance(&known, runtime, &options)?
    {
        if options.check_plans {
            check::check(&plan, &new_plan(given, state).await?)?;
        }
        return Ok(Planned { plan, bound: Some(known), is_kept: true });
    }
    let queries = parameters::parameterize(given, state)?;
    let Some(first) = queries.first() else { return new_given(key, &tables, state, runtime).await };
    let key_of = |query| parameter_key(environment, &tables, query);
    let mut home = None;
    for query in &queries {
        let Some(found) = current(kept.find(&key_of(query)), state, kept).await else { continue };
        let known = Bound { plan: found.plan, values: query.values.clone().into() };
        if let Some(plan) = instance(&known, runtime, &options)? {
            return Ok(Planned { plan, bound: Some(known), is_kept: true });
        }
        home = Some((query, known.plan));
        break;
    }
    let planned = new_given(key, &tables, state, runtime).await?;
    let is_wanted = match &home {
        Some((_, home)) => home.has_room(),
        // The first query of its kind may be the only one. Where a plan can't be kept, it is tried again ever more rarely.
        None => matches!(kept.sights(&key_of(first)), sights if sights > 1 && sights.is_power_of_two()),
    };
    // A filter without values leaves all row groups.
    if is_wanted
        && let Some(bound) = &planned.bound
        && bound.plan.files().are_cached()
    {
        let given = (&planned.plan, bound.plan.files());
        let (tried, home) = match &home {
            Some((query, home)) => (std::slice::from_ref(*query), Some(home)),
            None => (queries.as_slice(), None),
        };
        for query in tried {
            // The query has its plan, whatever becomes of the one for later queries.
            let ended = keep_parameterized(query, key_of(query), home, given, state, kept).await;
            let is_kept = ended.unwrap_or_else(|error| {
                log::debug!("no plan for all literals: {error}");
                false
            });
            if is_kept {
                break;
            }
        }
    }
    Ok(planned)
}

fn parameter_key<'q>(
    environment: EnvironmentId,
    tables: &Tables,
    query: &'q Parameterized,
) -> LogicalKey<&'q LogicalPlan> {
    LogicalKey { environment, stage: Stage::Parameterized, tables: tables.ids.clone(), plan: &query.plan }
}

/// Adds an instance of a parameterized plan to `home`, or keeps it as a new plan, if it equals `planned`, the plan with
/// literals. Returns whether it does.
async fn keep_parameterized(
    query: &Parameterized,
    key: LogicalKey<&LogicalPlan>,
    home: Option<&Arc<KeptPlan>>,
    (planned, files): (&Arc<dyn ExecutionPlan>, &Files),
    state: &SessionState,
    kept: &KeptPlans,
) -> Result<bool> {
    let Some(instance) = parameters::instance(query, planned, state).await? else {
        log::debug!("the plan depends on its literals: {}", query.plan.display_indent());
        return Ok(false);
    };
    if let Some(home) = home {
        home.add(instance);
        return Ok(true);
    }
    let home = KeptPlan::of_instances(key.tables.clone(), files.clone());
    home.add(instance);
    kept.keep(key, eligible::without_tables(&query.plan)?, Bound::of(home), options_of(state).kept_plans);
    Ok(true)
}

/// Plans a query, and keeps its plan.
async fn new_given(
    key: LogicalKey<&LogicalPlan>,
    tables: &Tables,
    state: &SessionState,
    runtime: &WarpjoinRuntime,
) -> Result<Planned> {
    let listings = tables.listings(state).await;
    let mut plan = state.create_physical_plan(key.plan).await?;
    let options = options_of(state);
    // Our planner lends instances of what it keeps.
    let home = match plan.downcast_ref::<LeasedExec>() {
        Some(leased) => Some(Arc::clone(leased.role().home())),
        None => listings.and_then(|listings| keepable(&plan, tables, listings, runtime, &options)),
    };
    let bound = home.map(Bound::of);
    if let Some(bound) = &bound {
        let without_tables = eligible::without_tables(key.plan)?;
        runtime.kept_plans().keep(key, without_tables, bound.clone(), options.kept_plans);
        if !plan.is::<LeasedExec>() {
            // What is kept never runs itself.
            plan = fresh(plan)?;
        }
    }
    Ok(Planned { plan, bound, is_kept: false })
}

/// Plans without kept plans.
async fn new_plan(given: &LogicalPlan, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = KeepingPlanner::inner_of(state.query_planner());
    planner.create_physical_plan(&state.optimize(given)?, state).await
}

/// Keeps the plan of a text, if its tables are the same as before planning.
async fn keep_text(
    text: &str,
    given: &LogicalPlan,
    before: Vec<(TableReference, Arc<dyn TableProvider>)>,
    state: &SessionState,
    runtime: &WarpjoinRuntime,
    bound: Bound,
) -> Result<()> {
    let references = before.iter().map(|(reference, _)| reference.clone()).collect();
    let after = providers(state, references).await;
    let are_same = before.len() == after.len()
        && before.iter().zip(&after).all(|((_, before), (_, after))| is_same(before, Some(after)));
    if !are_same {
        return Ok(());
    }
    let names = Names {
        tables: before.into_iter().map(|(reference, provider)| (reference, Arc::downgrade(&provider))).collect(),
        functions: eligible::function_names(given)?.iter().map(|name| Functions::named(name, state)).collect(),
    };
    let kept = runtime.kept_plans();
    kept.keep_text(kept.environment(state), text, names, bound, options_of(state).kept_plans);
    Ok(())
}
