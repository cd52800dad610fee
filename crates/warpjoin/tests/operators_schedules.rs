//! Schedules of each operator (`common/schedules.rs`): the simulated devices switch lanes at every atomic and run
//! blocks and streams in an order drawn from a seed. `WARPJOIN_SEEDS` explores another number of them.

mod common;

use common::sanitized::{is_child, run_again};
use common::schedules::{all, named, seeds};
use warpjoin_device::SimOptions;

const SEEDS: u64 = 40;
const SEEDS_SANITIZED: u64 = 10;

fn explore(name: &str) {
    let options = SimOptions { sanitize: is_child(), ..SimOptions::default() };
    named(name).explore(&seeds(if is_child() { SEEDS_SANITIZED } else { SEEDS }), &options);
}

/// The same schedules once more, sanitized.
#[test]
fn schedules_are_clean_under_sanitizers() {
    if !is_child() {
        run_again("schedules_are_clean_under_sanitizers", &[]);
    }
}

/// One test a case, so that they are told apart.
macro_rules! cases {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            explore($name);
        })*

        #[test]
        fn every_case_has_a_test() {
            let names: Vec<String> = all().into_iter().map(|case| case.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

cases! {
    unique_keys: "unique keys",
    duplicate_keys: "duplicate keys",
    long_keys: "long keys",
    direct_table: "direct table",
    direct_table_of_lists: "direct table of lists",
    direct_table_with_keys_that_come_twice: "direct table with keys that come twice",
    direct_set: "direct set",
    hash_table: "hash table",
    rows_in_smaller_buffers: "rows in smaller buffers",
    late_columns: "late columns",
    partitioned: "partitioned",
    partitioned_duplicate_keys: "partitioned, duplicate keys",
    partitioned_one_key: "partitioned, one key",
    partitioned_counted_in_two_passes: "partitioned, counted in two passes",
    partitioned_on_several_devices: "partitioned on several devices",
    partitioned_semi_join: "partitioned semi join",
    partitioned_outer_join: "partitioned outer join",
    semi_join: "semi join",
    anti_join: "anti join",
    not_in: "not in",
    mark_join: "mark join",
    outer_join: "outer join",
    full_join: "full join",
    full_join_that_is_kept: "full join that is kept",
    reduced_outer_join: "reduced outer join",
    filter_by_table: "filter by table",
    bitmap: "bitmap",
    bloom_filter: "bloom filter",
    list_of_rows_behind_a_bitmap: "list of rows behind a bitmap",
    list_of_rows_behind_a_bitmap_in_many_turns: "list of rows behind a bitmap in many turns",
    bitmap_of_several_blocks: "bitmap of several blocks",
    groups_in_shared_memory: "groups in shared memory",
    groups_of_listed_rows_in_shared_memory: "groups of listed rows in shared memory",
    groups_of_listed_rows_in_many_turns: "groups of listed rows in many turns",
    groups_by_row_number: "groups by row number",
    groups_by_row_number_in_all_blocks: "groups by row number in all blocks",
    groups_by_short_key: "groups by short key",
    groups_by_long_key: "groups by long key",
    groups_by_two_words: "groups by two words",
    groups_by_two_words_in_all_blocks: "groups by two words in all blocks",
    one_group_of_all_rows: "one group of all rows",
    groups_that_grow: "groups that grow",
    groups_by_partition: "groups by partition",
    groups_by_partition_in_all_blocks: "groups by partition in all blocks",
    groups_that_partitions_have_to_themselves: "groups that partitions have to themselves",
    groups_by_partition_in_many_turns: "groups by partition in many turns",
    groups_by_piece: "groups by piece",
    groups_by_block_table: "groups by block table",
    groups_by_block_table_in_many_turns: "groups by block table in many turns",
    extreme_keys_by_block_table: "extreme keys by block table",
    extreme_keys: "extreme keys",
    sums_of_decimals_by_block_table: "sums of decimals by block table",
    sums_of_decimals: "sums of decimals",
    sums_of_floats_by_block_table: "sums of floats by block table",
    sums_of_floats: "sums of floats",
    sums_of_long_values_by_block_table: "sums of long values by block table",
    sort_by_digits: "sort by digits",
    first_rows: "first rows",
    first_rows_of_many_equal_ones: "first rows of many equal ones",
    sort_of_few_rows: "sort of few rows",
    windows: "windows",
    duplicate_keys_interpreted: "duplicate keys, interpreted",
    partitioned_duplicate_keys_interpreted: "partitioned, duplicate keys, interpreted",
    full_join_interpreted: "full join, interpreted",
    list_of_rows_behind_a_bitmap_interpreted: "list of rows behind a bitmap, interpreted",
    bitmap_of_several_blocks_interpreted: "bitmap of several blocks, interpreted",
    groups_of_listed_rows_in_many_turns_interpreted: "groups of listed rows in many turns, interpreted",
    groups_by_row_number_in_all_blocks_interpreted: "groups by row number in all blocks, interpreted",
    groups_by_two_words_in_all_blocks_interpreted: "groups by two words in all blocks, interpreted",
    groups_that_grow_interpreted: "groups that grow, interpreted",
    groups_by_partition_in_all_blocks_interpreted: "groups by partition in all blocks, interpreted",
    groups_that_partitions_have_to_themselves_interpreted: "groups that partitions have to themselves, interpreted",
    groups_by_partition_in_many_turns_interpreted: "groups by partition in many turns, interpreted",
    groups_by_block_table_in_many_turns_interpreted: "groups by block table in many turns, interpreted",
    sums_of_decimals_by_block_table_interpreted: "sums of decimals by block table, interpreted",
    sums_of_floats_by_block_table_interpreted: "sums of floats by block table, interpreted",
    first_rows_interpreted: "first rows, interpreted",
}
