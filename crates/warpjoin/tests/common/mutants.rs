//! Mistakes of synchronization, made one at a time in the texts of the kernels: a barrier or a fence that is missing, a
//! fence or an atomic for too small a scope, an atomic that is a plain load and store.
//!
//! Must not know who looks for them.

use std::collections::HashMap;

use warpjoin_device::ChangedFile;
use warpjoin_kernels::{HEADERS, KernelFile, SOURCES};

/// What takes the place of atomics: right for one lane alone.
const PLAIN: &str = "
#define WJ_PLAIN(name, result) \\
    template <class T, class V> static inline T plain##name(T* word, V value) { T seen = *word; *word = (T)(result); return seen; }
WJ_PLAIN(Add, seen + value) WJ_PLAIN(Sub, seen - value) WJ_PLAIN(Exch, value) WJ_PLAIN(And, seen & value)
WJ_PLAIN(Or, seen | value) WJ_PLAIN(Xor, seen ^ value)
WJ_PLAIN(Min, (T)value < seen ? (T)value : seen) WJ_PLAIN(Max, seen < (T)value ? (T)value : seen)
template <class T, class E, class V> static inline T plainCAS(T* word, E expected, V value) {
    T seen = *word;
    if (seen == (T)expected) *word = (T)value;
    return seen;
}
template <class T> static inline T plain_load(const T* word) { return *word; }
template <class T, class V> static inline void plain_store(T* word, V value) { *word = (T)value; }
";

/// A mistake in one file.
pub(crate) struct Mutant {
    /// `file: text of the line: mistake`; a number behind it where a file has several such.
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) change: ChangedFile,
}

/// What a call is replaced with.
enum Mistake {
    /// The whole statement goes.
    Missing,
    /// Another function is called.
    Calls(String),
}

const BLOCK_SCOPE: &str = "of the block only";

/// Mistakes of the call `name(`, in words.
fn mistakes(name: &str) -> Vec<(String, Mistake)> {
    let missing = || ("missing".to_string(), Mistake::Missing);
    let calls = |what: &str, name: &str| (what.to_string(), Mistake::Calls(name.to_string()));
    match name {
        "__syncthreads" | "__syncwarp" | "__threadfence_block" => vec![missing()],
        "__threadfence" => vec![missing(), calls(BLOCK_SCOPE, "__threadfence_block")],
        "__threadfence_system" => vec![missing(), calls("of the device only", "__threadfence")],
        "load_relaxed" => vec![calls("plain", "plain_load")],
        "store_relaxed" => vec![calls("plain", "plain_store")],
        _ => match name.strip_prefix("atomic") {
            Some(operation) if operation.chars().all(char::is_alphabetic) => {
                vec![calls("plain", &format!("plain{operation}")), calls(BLOCK_SCOPE, &format!("{name}_block"))]
            }
            _ => vec![],
        },
    }
}

/// Whether a module is of a file, or includes it, itself or by others.
pub(crate) fn uses(text: &str, file: &KernelFile) -> bool {
    let includes = |name: &str| text.contains(&format!("#include \"{name}\""));
    text == file.text
        || HEADERS.iter().any(|header| includes(header.name) && (header == file || uses(header.text, file)))
}

/// Files, and how the first argument of an atomic begins there if its word lies in shared memory. One block alone uses such a
/// word, so an atomic of block scope is no mistake.
const SHARED_WORDS: [(&str, &str); 17] = [
    ("common/row_queue.cuh", "queue.count"),
    ("decode/elements.cuh", "&shared.first_long"),
    ("group/block_table.cuh", ""),
    ("group/group_walk.cuh", "&walk."),
    ("interpret/partitions.cuh", "&counts[tile."),
    ("sort.cu", "&counts["),
    ("top_k.cu", "&counts["),
    ("exchange.cu", "&counts["),
    ("partition.cu", "&counts["),
    ("partition.cu", "&slots["),
    ("partition/partition.cuh", "&tile."),
    ("partition/partition.cuh", "&cursors["),
    ("table/segment_build.cuh", "&build."),
    ("hash_table.cu", "&build."),
    ("join/matches.cuh", "&table.heads["),
    ("join/matches.cuh", "&lists."),
    ("values.cu", "&runs."),
];

/// Whether a mistake of a call, given by what follows its name, is none.
fn is_harmless(file: &str, what: &str, call: &str) -> bool {
    let argument = call.trim_start_matches('(');
    let is_shared = |(of, begin): &(&str, &str)| *of == file && argument.starts_with(begin);
    call.starts_with('(') && what == BLOCK_SCOPE && SHARED_WORDS.iter().any(is_shared)
}

/// Whether each of [`SHARED_WORDS`] is still an argument of an atomic in its file.
pub(crate) fn shared_words_exist() -> bool {
    SHARED_WORDS.iter().all(|(name, begin)| {
        let file = HEADERS.iter().chain(&SOURCES).find(|file| file.name == *name);
        file.is_some_and(|file| {
            let lines = file
                .text
                .lines()
                .flat_map(|line| calls(line).into_iter().map(move |(at, name)| (name, &line[at + name.len()..])));
            lines.filter(|(name, _)| name.starts_with("atomic")).any(|(_, call)| call[1..].starts_with(begin))
        })
    })
}

/// All mutants of all files, in the order of their lines.
pub(crate) fn all() -> Vec<Mutant> {
    HEADERS
        .iter()
        .filter(|file| file.name != "common/simt.cuh")
        .chain(&SOURCES)
        .flat_map(|file| mutants_of(*file))
        .collect()
}

fn mutants_of(file: KernelFile) -> Vec<Mutant> {
    let mut mutants = vec![];
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut start = 0;
    for (index, line) in file.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for (from, name) in calls(code) {
            for (what, mistake) in mistakes(name) {
                if name.starts_with("atomic") && is_harmless(file.name, &what, &code[from + name.len()..]) {
                    continue;
                }
                let Some(text) = changed(file.text, start + from, name, &mistake) else { continue };
                let title = format!("{}: {}: {name} {what}", file.name, code.trim());
                let count = seen.entry(title.clone()).or_default();
                *count += 1;
                let name = if *count == 1 { title } else { format!("{title} ({count})") };
                mutants.push(Mutant { name, line: index + 1, change: ChangedFile { file, text } });
            }
        }
        start += line.len() + 1;
    }
    mutants
}

/// Names that are followed by a parenthesis, and where they begin.
fn calls(code: &str) -> Vec<(usize, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ends = code.match_indices('(').map(|(at, _)| at);
    let name_before = |end: usize| {
        let from = code[..end].rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        (from < end).then(|| (from, &code[from..end]))
    };
    ends.filter_map(name_before).collect()
}

/// The text with the mistake in the call at `from`; `None` where it is no statement that could be missing.
fn changed(text: &str, from: usize, name: &str, mistake: &Mistake) -> Option<String> {
    let (before, rest) = text.split_at(from);
    Some(match mistake {
        Mistake::Missing => {
            let end = rest.find(");")? + 2;
            format!("{before};{}", &rest[end..])
        }
        Mistake::Calls(other) => {
            let before = before.replacen("#pragma once\n", &format!("#pragma once\n{PLAIN}"), 1);
            let head = if before.contains(PLAIN) { "" } else { PLAIN };
            format!("{head}{before}{other}{}", &rest[name.len()..])
        }
    })
}
