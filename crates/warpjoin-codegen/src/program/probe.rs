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
