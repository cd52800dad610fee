//! Words of 64 bits in code: named, hoisted, and hashed from the words of a packed key.

use super::emitter::Emitter;
use crate::codegen::shapes::{Packing, is_hashed};

/// Puts a u64 into a variable that stays visible after the section.
pub(in crate::codegen) fn hoist_word(emitter: &mut Emitter, code: &str) -> String {
    let name = emitter.fresh("h");
    emitter.declare(&format!("u64 {name} = 0;"));
    emitter.statement(&format!("{name} = {code};"));
    name
}

/// Names a u64 expression.
pub(in crate::codegen) fn word_temporary(emitter: &mut Emitter, code: &str) -> String {
    let name = emitter.fresh("t");
    emitter.statement(&format!("const u64 {name} = {code};"));
    name
}

/// The slot's key word (never 0) from packed words.
pub(in crate::codegen) fn key_word(emitter: &mut Emitter, packing: &Packing, words: &[String]) -> String {
    let code = if is_hashed(packing) {
        let hash = words.iter().fold(String::from("0ULL"), |hash, word| format!("hash_combine({hash}, {word})"));
        format!("(hash_key({hash}) >> 1) + 1")
    } else {
        words.first().map_or("1ULL".into(), |word| format!("{word} + 1"))
    };
    word_temporary(emitter, &code)
}

/// The hash of a key by its words; `partition/partition.cuh` has the same for rows in memory.
pub(in crate::codegen) fn partition_hash(key_words: &[String]) -> String {
    match key_words {
        [word] => format!("hash_key({word})"),
        words => {
            let hash = words.iter().fold(String::from("0ULL"), |hash, word| format!("hash_combine({hash}, {word})"));
            format!("hash_key({hash})")
        }
    }
}
