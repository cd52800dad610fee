//! Pipelines of which few rows are left behind their first tests: a block tests several rows a thread, lists those that are
//! left, and goes on with full warps of them.
//!
//! The sink's places are reserved for as many rows at a time as a block has threads, not for those that are left of as many.

use crate::shapes::{ProbeKey, ProbeKind, ProbeStep, Sink, Slots, SourceShape, Step};

/// The tests, and the steps behind them; `None` for pipelines of other kinds.
pub(super) fn split<'s>(source: &SourceShape, steps: &'s [Step], sink: &Sink) -> Option<(&'s [Step], &'s [Step])> {
    if !matches!(source, SourceShape::Columns(..)) || !is_sink(sink) {
        return None;
    }
    let places = (0..steps.len()).rev().filter(|&place| matches!(steps[place], Step::Compact));
    let is_front = |tests: &[Step]| tests.iter().all(is_test) && tests.iter().any(Step::drops_rows);
    places.map(|place| (&steps[..place], &steps[place + 1..])).find(|(tests, _)| is_front(tests))
}

/// Whether a step looks at one row, and in one table at most.
fn is_test(step: &Step) -> bool {
    match step {
        Step::Filter(_) | Step::Project(_) | Step::Compact => true,
        Step::Probe(probe) => is_test_of_table(probe),
        Step::Fetch(_) => false,
    }
}

fn is_test_of_table(probe: &ProbeStep) -> bool {
    let shape = &probe.shape;
    let is_of_lane = !matches!(shape.slots, Slots::Pairs { lanes: 2.. });
    let is_found = probe.is_of_filter() || shape.unique && !shape.is_hashed() && is_of_lane;
    let is_kind = matches!(probe.kind, ProbeKind::Semi | ProbeKind::Matches);
    let is_plain = is_kind && probe.residual.is_none() && !probe.is_counted;
    is_plain && is_found && matches!(probe.key, ProbeKey::Exprs(_))
}

/// Whether a sink takes rows one by one, wherever they lie.
fn is_sink(sink: &Sink) -> bool {
    match sink {
        Sink::Materialise(_) | Sink::Build { .. } | Sink::Direct { .. } | Sink::Sort { .. } => true,
        Sink::Aggregate { limits, .. } => !limits.is_cut,
        Sink::Limit { .. }
        | Sink::Conform(_)
        | Sink::Route { .. }
        | Sink::InPlace(_)
        | Sink::RouteGroups { .. }
        | Sink::Sketch { .. }
        | Sink::Partition { .. } => false,
    }
}
