//! What was made of large dictionaries, kept with them: results of functions, codes of other dictionaries, unions.
//!
//! Tables live longer than queries, and most queries ask the same again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::datatypes::DataType;
use warpjoin_columns::Result;
use warpjoin_columns::column::{Dictionary, EncodedColumn};
use warpjoin_columns::expr::HostFunction;

use super::LookupColumn;

/// Distinct values from which on anything is remembered.
const VALUES_MIN: usize = 4096;
/// How many unions.
const UNIONS_MAX: usize = 2;
/// Values of a dictionary that are compared, rather than its address: constants are made anew for each query.
const SMALL_MAX: usize = 4;
/// How much of one dictionary: what was asked for longest ago goes.
const COLUMNS_MAX: usize = 8;

/// How a column of one value a dictionary value was made.
#[derive(Debug)]
pub(crate) enum Made {
    /// Results, with one more for null if there is one.
    ByFunction { function: Arc<dyn HostFunction>, has_null: bool },
    /// Codes of another dictionary.
    CodesOf(Weak<Dictionary>),
}

impl Made {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ByFunction { function, has_null }, Self::ByFunction { function: other, has_null: other_has }) => {
                has_null == other_has && function.is_same(other.as_ref())
            }
            // Of a dictionary that is gone nobody asks; while the weak one lives, its address is not another's.
            (Self::CodesOf(to), Self::CodesOf(other)) => to.ptr_eq(other),
            _ => false,
        }
    }

    /// Whether nobody can ask for it any more.
    fn is_stale(&self) -> bool {
        matches!(self, Self::CodesOf(to) if to.strong_count() == 0)
    }
}

#[derive(Debug, Default)]
struct Columns(Mutex<Vec<(Made, Arc<LookupColumn>)>>);

/// A part of a union: by address, or, of few values, by these.
#[derive(Debug, PartialEq)]
enum Part {
    Large(usize),
    Small(Vec<Vec<u8>>),
}

/// Dictionaries that have the strings of one and of others.
#[derive(Debug, Default)]
struct Unions(Mutex<Vec<Union>>);

#[derive(Debug)]
struct Union {
    data_type: DataType,
    parts: Vec<Part>,
    /// So that an address stays theirs.
    _parts: Vec<Weak<Dictionary>>,
    union: Arc<Dictionary>,
}

/// The union of dictionaries, or the one that was made earlier.
///
/// # Errors
/// Those of [`Dictionary::union`].
pub(crate) fn remembered_union(parts: &[&Arc<Dictionary>]) -> Result<Arc<Dictionary>> {
    let largest = parts.iter().max_by_key(|part| part.len()).filter(|part| part.len() >= VALUES_MIN);
    let (Some(largest), Some(first)) = (largest, parts.first()) else { return Dictionary::union(parts).map(Arc::new) };
    let unions = largest.attached_or_default::<Unions>();
    let locked = || unions.0.lock().unwrap_or_else(PoisonError::into_inner);
    let part = |part: &&Arc<Dictionary>| match part.len() {
        0..=SMALL_MAX => {
            Part::Small((0..part.len() as u32).map(|code| part.bytes(code).unwrap_or_default().to_vec()).collect())
        }
        _ => Part::Large(Arc::as_ptr(part).addr()),
    };
    let (data_type, of_parts) = (first.value_type().clone(), parts.iter().map(part).collect::<Vec<_>>());
    let known =
        locked().iter().find(|it| it.data_type == data_type && it.parts == of_parts).map(|it| Arc::clone(&it.union));
    if let Some(known) = known {
        return Ok(known);
    }
    let union = Arc::new(Dictionary::union(parts)?);
    let _parts = parts.iter().map(|part| Arc::downgrade(part)).collect();
    let mut known = locked();
    known.push(Union { data_type, parts: of_parts, _parts, union: Arc::clone(&union) });
    let excess = known.len().saturating_sub(UNIONS_MAX);
    known.drain(..excess);
    Ok(union)
}

/// Drops all that was remembered with a dictionary, but for the order of its values and how they begin: those are facts of the
/// table's column.
pub fn forget(dictionary: &Dictionary) {
    if let Some(unions) = dictionary.attached::<Unions>() {
        unions.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
    if let Some(columns) = dictionary.attached::<Columns>() {
        let is_order = |made: &Made| matches!(made, Made::CodesOf(to) if dictionary.is_sorted_by(to));
        columns.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(made, _)| is_order(made));
    }
}

/// The column that `make` makes of `dictionary`, or made earlier.
pub(crate) fn remembered(
    dictionary: &Dictionary,
    made: Made,
    make: impl FnOnce() -> Result<EncodedColumn>,
) -> Result<Arc<LookupColumn>> {
    if dictionary.len() < VALUES_MIN {
        return Ok(Arc::new(LookupColumn::new(make()?)));
    }
    let columns = dictionary.attached_or_default::<Columns>();
    let locked = || columns.0.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut known = locked();
        known.retain(|(made, _)| !made.is_stale());
        if let Some(at) = known.iter().position(|(known, _)| known.is_same(&made)) {
            let latest = known.remove(at);
            let column = Arc::clone(&latest.1);
            known.push(latest);
            return Ok(column);
        }
    }
    // Not under the lock: it may take long, and others ask for other columns.
    let column = Arc::new(LookupColumn::new(make()?));
    let mut known = locked();
    known.push((made, Arc::clone(&column)));
    let excess = known.len().saturating_sub(COLUMNS_MAX);
    known.drain(..excess);
    Ok(column)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn dictionary(values: impl Iterator<Item = String>) -> Arc<Dictionary> {
        let array: arrow::array::ArrayRef = Arc::new(values.map(Some).collect::<arrow::array::StringArray>());
        Arc::new(Dictionary::of_array(&array).unwrap().0)
    }

    #[test]
    fn unions_are_made_once() {
        // More values than are sorted, and few.
        let (many, others) =
            (dictionary((0..70_000).map(|v| format!("{v}"))), dictionary((0..9_000).map(|v| format!("x{v}"))));
        let constant = |value: &str| dictionary(std::iter::once(value.to_string()));
        for parts in [[&many, &others], [&others, &many], [&many, &constant("7")], [&constant("new"), &others]] {
            let union = remembered_union(&parts).unwrap();
            for part in parts {
                let codes = Dictionary::translate(part, &union);
                let texts = (0..part.len() as u32).map(|code| union.bytes(codes[code as usize].unwrap()));
                assert!(texts.eq((0..part.len() as u32).map(|code| part.bytes(code))));
            }
            let all: std::collections::HashSet<_> =
                parts.iter().flat_map(|part| (0..part.len() as u32).map(|code| part.bytes(code))).collect();
            assert_eq!(union.len(), all.len());
            assert!(Arc::ptr_eq(&union, &remembered_union(&parts).unwrap()));
        }
        let of = |value: &str| remembered_union(&[&others, &constant(value)]).unwrap();
        assert!(Arc::ptr_eq(&of("a"), &of("a")) && !Arc::ptr_eq(&of("a"), &of("b")));
        let before = of("a");
        forget(&others);
        assert!(!Arc::ptr_eq(&before, &of("a")));
    }
}
