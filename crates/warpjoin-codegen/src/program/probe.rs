//! Probes of join tables: what all lanes do together.

use super::code::Code;
use super::params::Field;
use super::variable::Variable;
use crate::shapes::{ProbeKind, Slots};

/// Looks a key up, and narrows to rows that found something. What they found is [`Variable::Match`].
#[derive(Debug)]
pub(crate) struct Find {
    pub number: u32,
    pub alive: Variable,
    pub key: Code,
    pub form: Slots,
    pub slots: Field,
    /// Slots, or windows of slots.
    pub windows: Option<Field>,
}

/// Lanes that share the matches of a row in one loop of the pipeline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slices {
    /// 2^this lanes share a row.
    pub bits: Field,
    pub of: SlicedLoop,
}

/// Which loop over matches is shared: the first of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlicedLoop {
    /// It has the rest of the pipeline inside.
    Matches,
    /// It looks for a match. The lanes, of one warp, tell each other.
    Existence,
}

impl Slices {
    /// Whether a loop of this kind is the one.
    pub(crate) fn shares(&self, kind: ProbeKind) -> bool {
        match self.of {
            SlicedLoop::Matches => kind == ProbeKind::Matches,
            SlicedLoop::Existence => kind.is_existence(),
        }
    }
}

/// The loop over the matches of a row, in rows of a list.
#[derive(Debug)]
pub(crate) struct MatchLoop {
    pub number: u32,
    pub kind: ProbeKind,
    /// Whether the row came to the probe.
    pub alive: Variable,
    /// Whether it found a list.
    pub sought: Variable,
    /// Ends when the output has the rows that are wanted.
    pub stops_when_full: bool,
    pub row_list: Field,
    pub control: Field,
    pub cancel: Field,
    /// Each match becomes a row: their places are reserved before the loop.
    pub reserves: bool,
    /// The row's matches are shared by 2^this lanes, each with one of [`Variable::Slices`].
    pub slice_bits: Option<Field>,
}
