//! What a step does with the rows that are alive.

use std::sync::Arc;

use warpjoin_columns::Result;

use crate::bind::{Binder, Cell, Environment};
use crate::expr::evaluate;
use crate::join;
use crate::program::{Counter, Statement};
use crate::shapes::{ProbeKind, Step};

pub(super) fn bind_step(
    b: &mut Binder,
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
                let value = evaluate(b, condition, environment)?;
                b.narrow(b.is_true(&value));
            }
            Ok(environment.clone())
        }
        Step::Project(exprs) => {
            let cells = exprs.iter().map(|expr| match expr.kind {
                warpjoin_columns::expr::ExprKind::Column(index) => environment.cell(index),
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
        Step::Compact => Ok(environment.clone()),
        Step::Probe(step) => {
            if step.is_counted {
                count(b, Counter::Probes, 1);
            }
            if step.is_counted && step.filter.is_some() {
                count(b, Counter::Pruned, 1);
            }
            let after = join::probe(b, environment, step, *probes)?;
            if step.is_counted && step.filter.is_some() {
                // Those that are left were not dropped.
                count(b, Counter::Pruned, -1);
            }
            *probes += 1;
            Ok(after)
        }
    }
}

/// The columns behind a step that has dropped its rows before. Its test is not repeated; a match is looked up again for its
/// payload.
pub(super) fn pass_step(
    b: &mut Binder,
    environment: &Environment,
    step: &Step,
    probes: &mut usize,
) -> Result<Environment> {
    match step {
        Step::Filter(_) => Ok(environment.clone()),
        Step::Probe(step) if step.kind == ProbeKind::Semi => {
            let number = *probes;
            *probes += 1;
            join::without_payload(b, environment, step, number)
        }
        Step::Probe(_) | Step::Project(_) | Step::Fetch(_) | Step::Compact => bind_step(b, environment, step, probes),
    }
}

/// Adds to a word of the control block for each row that is alive.
fn count(b: &mut Binder, counter: Counter, number: i64) {
    let control = b.params.control();
    b.push(Statement::Count { control, counter, number });
    b.flush();
}
