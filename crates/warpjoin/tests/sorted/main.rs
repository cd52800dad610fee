//! Queries over tables that lie in the order of their key, on several devices.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod groups;
mod joins;

use std::sync::Arc;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use warpjoin::{QueryOutput, Session};
use warpjoin_device::{SimOptions, open_simulated};

fn session(devices: usize) -> Arc<Session> {
    Session::new(open_simulated(&SimOptions { devices, ..SimOptions::default() }).unwrap()).unwrap()
}

fn rows_of(output: &QueryOutput) -> Vec<String> {
    let mut rows = vec![];
    for batch in &output.batches {
        let options = FormatOptions::default().with_null("null");
        let columns: Vec<_> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(",");
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows.sort_unstable();
    rows
}
