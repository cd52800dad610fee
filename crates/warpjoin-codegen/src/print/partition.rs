//! Text of kernels that count or move rows by partition.

use super::text::Text;
use crate::program::PartitionItem;

pub(super) fn push(text: &mut Text, item: &PartitionItem) {
    match item {
        PartitionItem::OpenCount { rows, bits } => open_count(text, &rows.to_string(), &bits.to_string()),
        PartitionItem::CloseCount { counts } => close_count(text, &counts.to_string()),
        PartitionItem::OpenTile { rows, bits } => open_tile(text, &rows.to_string(), &bits.to_string()),
        PartitionItem::OpenRows { of_placed } => {
            open_items(text);
            text.push("const u32 asked = item * blockDim.x + threadIdx.x;");
            text.push("const u64 row = first + (asked < tile_rows ? asked : tile_rows - 1);");
            let alive = if *of_placed { "places[item] != WJ_UNRANKED" } else { "true" };
            text.push(&format!("bool alive = {alive};"));
        }
        PartitionItem::Unplace => text.push("places[item] = WJ_UNRANKED;"),
        PartitionItem::Place { cursors } => {
            open_items(text);
            text.push("if (places[item] != WJ_UNRANKED) places[item] = rank_row(tile, places[item]);");
            text.close("}");
            text.push(&format!("reserve_runs(tile, partitions, {cursors});"));
            text.push("place_rows(tile, places);");
        }
        PartitionItem::MoveWord { output, bytes } => {
            text.push(&format!("move_staged<u{}>(tile, values, places, {output});", bytes * 8));
        }
    }
}

fn open_count(text: &mut Text, rows: &str, bits: &str) {
    text.push("u32* const counts = &shared_as<u32>();");
    text.push(&format!("const u32 partitions = 1u << {bits};"));
    text.push(
        "for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x) counts[partition] = 0;",
    );
    text.push("__syncthreads();");
    text.push("const u64 step = (u64)blockDim.x * WJ_PARTITION_ITEMS;");
    text.open(&format!("for (u64 first = blockIdx.x * step; first < {rows}; first += gridDim.x * step)"));
    text.push(&format!("const u32 tile_rows = rows_of_tile({rows} - first);"));
    text.push("u32 places[WJ_PARTITION_ITEMS];");
}

fn close_count(text: &mut Text, counts: &str) {
    open_items(text);
    text.push("if (places[item] != WJ_UNRANKED) atomicAdd(&counts[places[item]], 1u);");
    text.close("}");
    text.close("}");
    text.push("__syncthreads();");
    text.open("for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x)");
    text.push(&format!("if (counts[partition] != 0) atomicAdd(&{counts}[partition], counts[partition]);"));
    text.close("}");
}

fn open_tile(text: &mut Text, rows: &str, bits: &str) {
    text.push(&format!("const u32 partitions = 1u << {bits};"));
    text.push("const PartitionTile tile = open_tile(partitions);");
    text.push("const u64 first = (u64)blockIdx.x * (blockDim.x * WJ_PARTITION_ITEMS);");
    text.push(&format!("if (first >= {rows}) return;"));
    text.push(&format!("const u32 tile_rows = rows_of_tile({rows} - first);"));
    text.push("u32 places[WJ_PARTITION_ITEMS];");
    text.push("u64 values[WJ_PARTITION_ITEMS];");
}

/// Opens the loop over a thread's rows.
fn open_items(text: &mut Text) {
    text.push("WJ_UNROLL");
    text.open("for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item)");
}
