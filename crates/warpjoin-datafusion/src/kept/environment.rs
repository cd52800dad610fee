//! The environment of plans, on which they depend besides the query and its tables: settings and rules of a session.

use std::sync::{Arc, Weak};

use datafusion::common::config::ConfigOptions;
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;

/// Maximum known environments. Sessions differ in few settings.
const ENVIRONMENTS_MAX: usize = 64;
/// Maximum known settings objects of an environment. Each session has one.
const SESSIONS_MAX: usize = 256;

/// The setting that no plan depends on: a query reads it when it runs.
const ONLY_FOR_RUNS: &str = "warpjoin.query_timeout";

/// Identifies equal settings and rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EnvironmentId(u64);

/// The environments that were seen.
#[derive(Debug, Default)]
pub(super) struct Environments {
    known: Vec<Environment>,
    next: u64,
}

#[derive(Debug)]
struct Environment {
    id: EnvironmentId,
    /// Objects with equal settings. DataFusion copies a shared object before it changes a setting, so objects held here
    /// never change.
    options: Vec<Arc<ConfigOptions>>,
    settings: Vec<(String, Option<String>)>,
    rules: Rules,
}

/// The rules of a session, compared by address, as rules may have their own settings. Weak references keep the
/// addresses unique without keeping the rules alive: some rules hold the runtime that owns these plans.
#[derive(Debug)]
struct Rules {
    exprs: Vec<Weak<dyn ExprPlanner>>,
    relations: Vec<Weak<dyn RelationPlanner>>,
    functions: Vec<Weak<dyn FunctionRewrite + Send + Sync>>,
    analyzer: Vec<Weak<dyn AnalyzerRule + Send + Sync>>,
    logical: Vec<Weak<dyn OptimizerRule + Send + Sync>>,
    physical: Vec<Weak<dyn PhysicalOptimizerRule + Send + Sync>>,
    planner: [Weak<dyn QueryPlanner + Send + Sync>; 1],
}

impl Rules {
    fn of(session: &SessionState) -> Self {
        Self {
            exprs: weak(session.expr_planners()),
            relations: weak(session.relation_planners()),
            functions: weak(session.analyzer().function_rewrites()),
            analyzer: weak(&session.analyzer().rules),
            logical: weak(session.optimizers()),
            physical: weak(session.physical_optimizers()),
            planner: [Arc::downgrade(session.query_planner())],
        }
    }

    fn are_of(&self, session: &SessionState) -> bool {
        are_same(&self.exprs, session.expr_planners())
            && are_same(&self.relations, session.relation_planners())
            && are_same(&self.functions, session.analyzer().function_rewrites())
            && are_same(&self.analyzer, &session.analyzer().rules)
            && are_same(&self.logical, session.optimizers())
            && are_same(&self.physical, session.physical_optimizers())
            && are_same(&self.planner, std::slice::from_ref(session.query_planner()))
    }
}

fn weak<T: ?Sized>(rules: &[Arc<T>]) -> Vec<Weak<T>> {
    rules.iter().map(Arc::downgrade).collect()
}

fn are_same<T: ?Sized>(some: &[Weak<T>], others: &[Arc<T>]) -> bool {
    let is_same = |(one, other): (&Weak<T>, &Arc<T>)| one.as_ptr().addr() == Arc::as_ptr(other).addr();
    some.len() == others.len() && some.iter().zip(others).all(is_same)
}

impl Environments {
    /// The environment of a session. Fast if its settings have not changed since the last call.
    pub(super) fn of(&mut self, session: &SessionState) -> EnvironmentId {
        let options = session.config_options();
        let known = self
            .known
            .iter()
            .find(|known| known.options.iter().any(|held| Arc::ptr_eq(held, options)) && known.rules.are_of(session));
        if let Some(known) = known {
            return known.id;
        }
        let settings = options.entries().into_iter().map(|entry| (entry.key, entry.value));
        let settings: Vec<_> = settings.filter(|(key, _)| key != ONLY_FOR_RUNS).collect();
        let equal = self.known.iter_mut().find(|known| known.settings == settings && known.rules.are_of(session));
        if let Some(equal) = equal {
            if equal.options.len() == SESSIONS_MAX {
                equal.options.remove(0);
            }
            equal.options.push(Arc::clone(options));
            return equal.id;
        }
        if self.known.len() == ENVIRONMENTS_MAX {
            self.known.remove(0);
        }
        let id = EnvironmentId(self.next);
        self.next += 1;
        self.known.push(Environment { id, options: vec![Arc::clone(options)], settings, rules: Rules::of(session) });
        id
    }
}
