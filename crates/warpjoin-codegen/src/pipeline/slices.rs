//! Several lanes share a row's matches: each of 2^n lanes takes every 2^n-th. Where a device has fewer rows than it runs threads,
//! most threads would have nothing to do while a few go over long lists.
//!
//! Of a loop that only looks for a match the lanes of a warp share a row, and tell each other whether there is one.
//!
//! Every lane of a row tests it and looks its key up. How many share a row is chosen when the pipeline runs.

use crate::bind::Binder;
use crate::program::{Binding, Op, SlicedLoop, Slices, Statement, Type, Variable};
use crate::shapes::{ProbeKind, Sink, Step};
use crate::value::CType;

/// Lanes that may share a row at most, as a power of two: every lane looks the key up.
const SLICE_BITS_MAX: u32 = 10;
/// Lanes of a warp, as a power of two.
const WARP_BITS: u32 = 5;

impl SlicedLoop {
    /// Lanes that may share a row at most, as a power of two.
    pub(super) fn bits_max(self) -> u32 {
        match self {
            Self::Matches => SLICE_BITS_MAX,
            Self::Existence => WARP_BITS,
        }
    }
}

/// The loop over matches that can be shared: the first one that has the rest of the pipeline inside, or else the first one that
/// looks for a match. What a row does before must have no effect.
pub(super) fn sliced_loop(steps: &[Step], sink: &Sink) -> Option<SlicedLoop> {
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
    let mut existence = None;
    for step in steps {
        let Step::Probe(probe) = step else { continue };
        if probe.is_counted {
            break;
        }
        let has_loop = !probe.shape.unique && !probe.is_of_filter();
        match probe.kind {
            _ if !has_loop => {}
            ProbeKind::Matches => return takes_rows.then_some(SlicedLoop::Matches),
            ProbeKind::Outer => break,
            ProbeKind::Semi | ProbeKind::Anti | ProbeKind::Mark => existence = Some(SlicedLoop::Existence),
        }
    }
    existence.filter(|_| takes_rows)
}

/// Takes the row and the slice from the number of the loop over rows.
pub(super) fn open_slices(b: &mut Binder, of: SlicedLoop) {
    let bits = b.params.once(Type::Value(CType::U64), Binding::SliceBits);
    b.row = Variable::SlicedRow;
    b.slices = Some(Slices { bits, of });
    let number = b.variable(b.row, CType::U64);
    let slices = b.binary(b.word(1), Op::ShiftLeft, b.field(bits));
    b.all(Statement::Constant(Variable::Slices, CType::U64, slices));
    let last = b.in_parens(b.variable(Variable::Slices, CType::U64), Op::Subtract, b.word(1));
    b.all(Statement::Constant(Variable::Slice, CType::U64, b.binary(number, Op::BitAnd, last)));
    b.all(Statement::Constant(Variable::Row, CType::U64, b.binary(number, Op::ShiftRight, b.field(bits))));
}
