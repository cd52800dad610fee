//! The kernel that merges the rows of a group table, spilled ones included, into another one.

use warpjoin_device::ModuleSource;
use warpjoin_kernels::common::BLOCK_THREADS;

use super::find_row;
use super::slot::{merge_global, read_global};
use crate::codegen::constants::Constants;
use crate::codegen::shapes::{GroupMode, GroupShape};

/// Entry `regroup`, of `RegroupParams`.
pub(crate) fn regroup(shape: &GroupShape, hash_bits: u32) -> ModuleSource {
    let stride = shape.stride_words;
    let words = shape.packing.words();
    let mut body = String::new();
    if shape.mode == GroupMode::Wide {
        let list: Vec<String> = (0..words).map(|word| format!("old[{}]", 1 + word)).collect();
        body.push_str(&format!("        const u64 key_words[{words}] = {{{}}};\n", list.join(", ")));
    }
    let packed = "((row == p.zero_row ? 0 : old[0]) - 1)";
    body.push_str(&format!("        const u64 group_id = {};\n", find_row(shape.mode, stride, packed, "key_words")));
    body.push_str("        if (group_id == WJ_NO_ROW) continue;\n");
    body.push_str(&format!("        u64* const part = table.rows + group_id * {stride};\n"));
    for &(kind, word) in &shape.accumulators {
        let read = read_global(kind, &format!("old + {word}"));
        body.push_str(&format!("        {}\n", merge_global(kind, &format!("part + {word}"), &read)));
    }
    let text = format!(
        "#include \"common/pipeline.cuh\"\n\
         WJ_ENTRY(regroup, RegroupParams, {BLOCK_THREADS}) {{\n    \
         const GroupTable table = p.table;\n    \
         SpareRow spare = {{0, false}};\n    \
         const u64 step = (u64)gridDim.x * blockDim.x;\n    \
         for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.count; row += step) {{\n        \
         const u64* const old = p.rows + row * {stride};\n        \
         if (old[0] == 0) continue;\n{body}    }}\n    (void)spare;\n}}\n"
    );
    ModuleSource {
        name: "regroup".into(),
        text,
        entries: vec!["regroup".into()],
        defines: Constants { hash_bits, lanes: 1 }.defines(),
    }
}
