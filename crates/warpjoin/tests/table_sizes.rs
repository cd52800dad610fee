//! Tables that would have more slots of one word than kernels can count have slots of two.

mod common;

use arrow::datatypes::DataType;
use common::case::upload;
use common::edges::{ints, join_of, keyed};
use common::sessions::{Opener, simulated};
use common::value::{compare, rows_of};
use warpjoin::{ExecOptions, JoinForm, exec};

#[test]
fn large_tables_have_slots_of_two_words() {
    let table = |rows: i128| keyed(&[ints((0..rows).map(|row| Some(row * 7919 % 4001)))], &DataType::Int64);
    let case = join_of("large", table(300), table(900), 1).case;
    let wanted = case.verdict().rows.expect("rows");
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("devices");
        let tables: Vec<_> = case.inputs.iter().map(|batch| upload(&session, batch)).collect();
        // A table that is guessed too small grows beyond the bound, or stays within it.
        for first_capacity in [None, Some(1)] {
            for (most, has_words) in [(None, true), (Some(10_000_000), true), (Some(100), false)] {
                let join_form = Some(JoinForm::HashTable);
                let options = ExecOptions { word_slots_max: most, first_capacity, join_form, ..ExecOptions::default() };
                let output = exec::run(&session, &case.plan, &tables, &options).expect("rows");
                compare(rows_of(&output.batches), wanted.clone()).expect("the oracle's rows");
                let names: Vec<&str> = output.metrics.pipelines.iter().map(|it| it.name.as_str()).collect();
                let build = names.iter().find(|name| name.starts_with("BuildRows")).expect("a table");
                assert_eq!(!build.contains("16 bytes"), has_words, "{most:?}: {names:?}");
            }
        }
    }
}
