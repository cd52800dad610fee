//! What plans depend on besides the query and its tables: the settings and the rules of a session.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;

/// Most environments that are known. Sessions differ by few settings.
const ENVIRONMENTS_MAX: usize = 64;
/// Most settings objects that are known of an environment. Each session has one.
const SESSIONS_MAX: usize = 256;

/// Names equal settings and rules.
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
    /// Objects with equal settings. DataFusion copies an object that somebody else holds before it changes a setting, so one that
    /// is held here never changes.
    options: Vec<Arc<ConfigOptions>>,
    settings: Vec<(String, Option<String>)>,
    rules: Rules,
}

/// Compared by address: rules may have settings of their own.
#[derive(Debug)]
struct Rules {
    exprs: Vec<Arc<dyn ExprPlanner>>,
    relations: Vec<Arc<dyn RelationPlanner>>,
    functions: Vec<Arc<dyn FunctionRewrite + Send + Sync>>,
    analyzer: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
    logical: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
    planner: Arc<dyn QueryPlanner + Send + Sync>,
}

impl Rules {
    fn of(session: &SessionState) -> Self {
        Self {
            exprs: session.expr_planners().to_vec(),
            relations: session.relation_planners().to_vec(),
            functions: session.analyzer().function_rewrites().to_vec(),
            analyzer: session.analyzer().rules.clone(),
            logical: session.optimizers().to_vec(),
            physical: session.physical_optimizers().to_vec(),
            planner: Arc::clone(session.query_planner()),
        }
    }

    fn are_of(&self, session: &SessionState) -> bool {
        are_same(&self.exprs, session.expr_planners())
            && are_same(&self.relations, session.relation_planners())
            && are_same(&self.functions, session.analyzer().function_rewrites())
            && are_same(&self.analyzer, &session.analyzer().rules)
            && are_same(&self.logical, session.optimizers())
            && are_same(&self.physical, session.physical_optimizers())
            && is_same(&self.planner, session.query_planner())
    }
}

fn is_same<T: ?Sized>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::as_ptr(one).addr() == Arc::as_ptr(other).addr()
}

fn are_same<T: ?Sized>(some: &[Arc<T>], others: &[Arc<T>]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| is_same(one, other))
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
        let settings: Vec<_> = options.entries().into_iter().map(|entry| (entry.key, entry.value)).collect();
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
