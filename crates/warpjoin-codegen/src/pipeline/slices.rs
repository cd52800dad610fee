//! Several lanes share a row's matches: each of 2^n lanes takes every 2^n-th. Where a device has fewer rows than it runs threads,
//! most threads would have nothing to do while a few go over long lists.
//!
//! Every lane of a row tests it and looks its key up. How many share a row is chosen when the pipeline runs.

use crate::bind::Binder;
use crate::program::{Binding, Op, Statement, Type, Variable};
use crate::shapes::{ProbeKind, Sink, Step};
use crate::value::CType;

/// Whether the first loop over matches that has the rest of the pipeline inside can be shared: what a row does before must
/// have no effect.
pub(super) fn can_slice(steps: &[Step], sink: &Sink) -> bool {
    let takes_rows = match sink {
        Sink::Aggregate { limits, .. } => !limits.is_cut,
        // These go over rows in loops of their own, or write each at its place.
        Sink::Sketch { .. } | Sink::Partition { .. } | Sink::InPlace(_) => false,
        Sink::Materialise(_)
        | Sink::Limit { .. }
        | Sink::Conform(_)
        | Sink::Build { .. }
        | Sink::Direct { .. }
        | Sink::Route { .. }
        | Sink::RouteGroups { .. }
        | Sink::Sort { .. } => true,
    };
    for step in steps {
        let Step::Probe(probe) = step else { continue };
        if probe.is_counted {
            return false;
        }
        let has_loop = !probe.shape.unique && !probe.is_of_filter();
        match probe.kind {
            ProbeKind::Matches if has_loop => return takes_rows,
            ProbeKind::Outer if has_loop => return false,
            _ => {}
        }
    }
    false
}

/// Takes the row and the slice from the number of the loop over rows.
pub(super) fn open_slices(b: &mut Binder) {
    let bits = b.params.once(Type::Value(CType::U64), Binding::SliceBits);
    b.row = Variable::SlicedRow;
    b.slice_bits = Some(bits);
    let number = b.variable(b.row, CType::U64);
    let slices = b.binary(b.word(1), Op::ShiftLeft, b.field(bits));
    b.all(Statement::Constant(Variable::Slices, CType::U64, slices));
    let last = b.in_parens(b.variable(Variable::Slices, CType::U64), Op::Subtract, b.word(1));
    b.all(Statement::Constant(Variable::Slice, CType::U64, b.binary(number, Op::BitAnd, last)));
    b.all(Statement::Constant(Variable::Row, CType::U64, b.binary(number, Op::ShiftRight, b.field(bits))));
}
