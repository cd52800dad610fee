//! What a step does with the rows that are alive.

use std::sync::Arc;

use crate::Result;
use crate::codegen::emit::{Binding, Cell, Emitter, Environment};
use crate::codegen::expr::evaluate;
use crate::codegen::join;
use crate::codegen::shapes::Step;

pub(super) fn emit_step(
    emitter: &mut Emitter,
    environment: &Environment,
    step: &Step,
    probes: &mut usize,
) -> Result<Environment> {
    match step {
        Step::Filter(predicate) => {
            // One section a condition: a column is loaded only for rows that passed those before.
            let mut conditions = vec![];
            predicate.add_conjuncts(&mut conditions);
            for condition in conditions {
                let value = evaluate(emitter, condition, environment)?;
                emitter.narrow(&value.is_true());
            }
            Ok(environment.clone())
        }
        Step::Project(exprs) => {
            let cells = exprs.iter().map(|expr| match expr.kind {
                crate::expr::ExprKind::Column(index) => environment.cell(index),
                _ => Ok(Cell::Computed(expr.clone(), environment.clone())),
            });
            Ok(Environment::new(cells.collect::<Result<_>>()?))
        }
        Step::Fetch(step) => {
            let own = (0..environment.len()).map(|index| environment.cell(index));
            let fetched = (0..step.columns.len())
                .map(|column| Ok(Cell::Fetched { step: Arc::clone(step), column, input: environment.clone() }));
            Ok(Environment::new(own.chain(fetched).collect::<Result<_>>()?))
        }
        Step::Probe(step) => {
            if step.is_counted {
                count(emitter, "PROBES", "1");
            }
            if step.is_counted && step.filter.is_some() {
                count(emitter, "PRUNED", "1");
            }
            let after = join::probe(emitter, environment, step, *probes)?;
            if step.is_counted && step.filter.is_some() {
                // Those that are left were not dropped.
                count(emitter, "PRUNED", "-1");
            }
            *probes += 1;
            Ok(after)
        }
    }
}

/// Adds to a word of the control block for each row that is alive.
fn count(emitter: &mut Emitter, word: &str, number: &str) {
    let control = emitter.params.once("u64*", Binding::Control);
    emitter.statement(&format!("atomicAdd(&{control}[WJ_CONTROL_{word}], (u64)(i64){number});"));
    emitter.flush();
}
