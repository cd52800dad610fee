//! What the host decided in a run, against what EXPLAIN had said.

use std::sync::Arc;

use warpjoin::exec::explain;
use warpjoin::plan::{Plan, PlanKind};
use warpjoin::{ExecOptions, QueryMetrics, Session, Table};

/// What a decision is about.
fn kind(decision: &str) -> &str {
    decision.split_once(':').expect("a kind, then what is decided").0
}

/// Panics if the host has decided something of which EXPLAIN says nothing. `tables` are the inputs.
pub(crate) fn assert_announced(
    session: &Arc<Session>,
    plan: &Plan,
    tables: &[Arc<Table>],
    options: &ExecOptions,
    metrics: &QueryMetrics,
) {
    // What is decided may depend on the sizes of inputs, of which EXPLAIN knows nothing.
    let mut plan = plan.clone();
    plan.replace_inputs(&|index| {
        let table = Arc::clone(tables.get(index)?);
        let projection = (0..table.schema().fields().len()).collect();
        Some(PlanKind::Scan { table, projection })
    });
    let told = explain(&plan, session, options);
    assert_eq!(told.host_decisions.len(), told.pipelines.len());
    let kinds: Vec<&str> = told.host_decisions.iter().flatten().map(|it| kind(it)).collect();
    for taken in &metrics.host_decisions {
        assert!(kinds.contains(&kind(&taken.decision)), "`{}` is none of {kinds:?}: {plan}{told:#?}", taken.decision);
        assert!(taken.pipelines <= metrics.pipelines.len());
    }
}
