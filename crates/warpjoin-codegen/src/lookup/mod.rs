//! Code that reads what was computed before the pipeline runs, by the place or code of a row's value.
//!
//! Must not know expressions: operands are values already.

mod codes;
mod read;
mod tabulated;

pub(super) use codes::{
    common_dictionary, dictionary_of, dictionary_of_all, recode, translate, unify, with_ordered_codes,
};
pub(super) use tabulated::tabulated;
