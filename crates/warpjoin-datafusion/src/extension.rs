//! Adds warpjoin to a DataFusion session.
//!
//! Owns where our optimizer rules and our query planner go in DataFusion's lists. Must not know what the rules do.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use crate::config::WarpjoinOptions;
use crate::planner::KeepingPlanner;
use crate::rules::placement::PlacementRule;
use crate::rules::rule::WarpjoinRule;
use crate::rules::window_filters::WindowFilters;
use crate::runtime::WarpjoinRuntime;

/// [`WarpjoinRule`] runs right before this rule of DataFusion, which then adds the repartitioning and sorts that our nodes
/// require.
const INSERT_BEFORE: &str = "EnsureRequirements";

type Rules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

/// Adds warpjoin to a session that is being built.
pub trait WarpjoinSessionStateBuilder: Sized {
    /// Registers the `warpjoin.*` options, the optimizer rules and the devices.
    ///
    /// Keeps options that the session's configuration already has (see
    /// [`with_option_extension`](datafusion::prelude::SessionConfig::with_option_extension)).
    ///
    /// ```
    /// use datafusion::execution::SessionStateBuilder;
    /// use datafusion::prelude::SessionContext;
    /// use warpjoin_datafusion::{WarpjoinRuntime, WarpjoinSessionStateBuilder};
    ///
    /// let state = SessionStateBuilder::new_with_default_features().with_warpjoin(WarpjoinRuntime::lazy()).build();
    /// let context = SessionContext::new_with_state(state);
    /// # let _ = context;
    /// ```
    #[must_use]
    fn with_warpjoin(self, runtime: Arc<WarpjoinRuntime>) -> Self;
}

impl WarpjoinSessionStateBuilder for SessionStateBuilder {
    fn with_warpjoin(mut self, runtime: Arc<WarpjoinRuntime>) -> Self {
        let mut config = self.config().take().unwrap_or_default();
        if config.options().extensions.get::<WarpjoinOptions>().is_none() {
            config = config.with_option_extension(WarpjoinOptions::default());
        }
        config = config.with_extension(Arc::clone(&runtime));
        let inner = self.query_planner().take().unwrap_or_else(default_planner);
        let inner = Arc::clone(KeepingPlanner::inner_of(&inner));
        let planner = KeepingPlanner::new(inner, Arc::clone(&runtime));
        let rules = match self.physical_optimizers().take() {
            Some(optimizer) => optimizer.rules,
            None => PhysicalOptimizer::new().rules,
        };
        let mut logical = self.optimizer().take().unwrap_or_default();
        logical.rules.retain(|rule| rule.name() != WindowFilters::NAME);
        logical.rules.push(Arc::new(WindowFilters));
        // The builder appends individually added rules after ours, so they see the device nodes.
        self.with_config(config)
            .with_query_planner(Arc::new(planner))
            .with_optimizer_rules(logical.rules)
            .with_physical_optimizer_rules(insert_rules(rules, runtime))
    }
}

/// The planner of a session that names none.
fn default_planner() -> Arc<dyn QueryPlanner + Send + Sync> {
    Arc::clone(SessionStateBuilder::new().build().query_planner())
}

/// Adds our rules to the list, and replaces those of an earlier call.
fn insert_rules(mut rules: Rules, runtime: Arc<WarpjoinRuntime>) -> Rules {
    rules.retain(|rule| rule.name() != WarpjoinRule::NAME && rule.name() != PlacementRule::NAME);
    let at = rules.iter().position(|rule| rule.name() == INSERT_BEFORE).unwrap_or(rules.len());
    rules.insert(at, Arc::new(WarpjoinRule::new(Arc::clone(&runtime))));
    rules.push(Arc::new(PlacementRule::new(runtime)));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_inserted_once() {
        let once = insert_rules(PhysicalOptimizer::new().rules, WarpjoinRuntime::lazy());
        let twice = insert_rules(once.clone(), WarpjoinRuntime::lazy());
        assert_eq!(once.len(), twice.len());
        let names: Vec<&str> = twice.iter().map(|rule| rule.name()).collect();
        let at = names.iter().position(|&name| name == WarpjoinRule::NAME).unwrap();
        assert_eq!(names[at + 1], INSERT_BEFORE);
        assert_eq!(names.last(), Some(&PlacementRule::NAME));
    }
}
