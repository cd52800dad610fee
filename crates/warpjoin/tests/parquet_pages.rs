//! Columns of Parquet files that devices decode equal those that were written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod parquet_common;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use common::sanitized::{is_child, run_again};
use common::sessions::{Opener, Simulated, gpus};
use parquet::file::properties::WriterVersion;
use parquet_common::{File, Form, check_damaged, check_seeds, check_tables};
use warpjoin::column::Domain;
use warpjoin::parquet::DecodeError;
use warpjoin_device::{Device, SimOptions, open_simulated};

fn device(options: SimOptions) -> Device {
    open_simulated(&options).unwrap().swap_remove(0)
}

#[test]
fn decoded_columns_equal_those_that_were_written() {
    check_seeds(&device(SimOptions::default()), 0..120, 20_000);
}

#[test]
fn decoded_columns_equal_those_that_were_written_on_gpus() {
    let name = "decoded_columns_equal_those_that_were_written_on_gpus";
    if let Some(session) = gpus(name).and_then(|gpus| gpus.open(1)) {
        check_seeds(&session.devices()[0], 0..600, 20_000);
        assert!(check_damaged(&session.devices()[0], 0..60) > 100);
        check_tables(&session, 0..400);
    }
}

#[test]
fn decoding_has_no_races() {
    for seed in 0..24 {
        let options = SimOptions { seed: Some(seed + 1), races: true, ..SimOptions::default() };
        check_seeds(&device(options.clone()), seed * 10..seed * 10 + 5, 700);
        check_tables(&Simulated(options).open(1).unwrap(), seed * 4..seed * 4 + 4);
    }
}

#[test]
fn decoded_tables_are_those_of_a_builder() {
    let session = Simulated(SimOptions::default()).open(1).unwrap();
    check_tables(&session, 0..160);
}

/// No kernel leaves its buffers, whatever is in a page.
#[test]
fn decoding_is_clean() {
    const NAME: &str = "decoding_is_clean";
    if !is_child() {
        return run_again(NAME, &[NAME, "--exact"]);
    }
    let device = device(SimOptions { sanitize: true, ..SimOptions::default() });
    check_seeds(&device, 0..60, 3000);
    check_damaged(&device, 0..60);
}

#[test]
fn values_beyond_the_bounds_are_declined() {
    let device = device(SimOptions::default());
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    for has_dictionaries in [false, true] {
        let form = Form {
            is_compressed: true,
            has_dictionaries,
            version: WriterVersion::PARQUET_1_0,
            page_rows: 100,
            group_rows: 500,
        };
        let file = File::write(&column, form);
        for (min, max) in [(0, 998), (1, 999), (0, 0)] {
            let decoded = file.decode(&device, &column, Domain::Int { min, max });
            assert!(matches!(decoded, Err(DecodeError::Declined(_))), "{min} to {max}");
        }
    }
}

#[test]
fn damaged_bytes_are_decoded_or_declined() {
    let declined = check_damaged(&device(SimOptions::default()), 0..60);
    assert!(declined > 100, "{declined}");
}
