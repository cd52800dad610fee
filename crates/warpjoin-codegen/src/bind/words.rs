//! Words of 64 bits: named, hoisted, and hashed from the words of a packed key.

use super::binder::Binder;
use crate::program::{Code, Function, Op};
use crate::shapes::{Packing, is_hashed};
use crate::value::CType;

/// Puts a u64 into a variable that stays visible after the section.
pub(crate) fn hoist_word(b: &mut Binder, code: Code) -> Code {
    b.hoisted(CType::U64, b.whole(0), code)
}

/// Names a u64.
pub(crate) fn word_temporary(b: &mut Binder, code: Code) -> Code {
    b.temporary(CType::U64, code)
}

/// The slot's key word (never 0) from packed words.
pub(crate) fn key_word(b: &mut Binder, packing: &Packing, words: &[Code]) -> Code {
    let one = b.whole(1);
    let code = if is_hashed(packing) {
        let hash = combined(b, words);
        let half = b.in_parens(b.call(Function::HashKey, &[hash]), Op::ShiftRight, one);
        b.binary(half, Op::Add, one)
    } else {
        words.first().map_or_else(|| b.word(1), |&word| b.binary(word, Op::Add, one))
    };
    word_temporary(b, code)
}

/// The hash of a key by its words; `partition/partition.cuh` has the same for rows in memory.
pub(crate) fn partition_hash(b: &Binder, key_words: &[Code]) -> Code {
    let word = match key_words {
        [word] => *word,
        words => combined(b, words),
    };
    b.call(Function::HashKey, &[word])
}

fn combined(b: &Binder, words: &[Code]) -> Code {
    words.iter().fold(b.word(0), |hash, &word| b.call(Function::HashCombine, &[hash, word]))
}
