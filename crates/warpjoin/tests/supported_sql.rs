//! docs/sql.md lists exactly the functions that have specs.

#![allow(clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use warpjoin::function::{Function, Written};
use warpjoin::plan::AggregateFunction;
use warpjoin::window::WindowFunction;

/// Names in the first column of a section's table, from the rows that say yes.
fn listed(section: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let text = std::fs::read_to_string(path).expect("docs/sql.md");
    let lines = text.lines().skip_while(|line| *line != format!("## {section}")).skip(1);
    let rows = lines.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| "));
    let mut names = BTreeSet::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let (Some(first), Some(second)) = (cells.next(), cells.next()) else { continue };
        if second.starts_with("yes") {
            // Every second piece stands between backticks.
            let quoted = first.split('`').skip(1).step_by(2);
            names.extend(quoted.filter(|name| !name.contains(' ')).map(ToString::to_string));
        }
    }
    names
}

fn compare<'a>(section: &str, specs: impl Iterator<Item = &'a str>) {
    assert_eq!(listed(section), specs.map(ToString::to_string).collect(), "{section}: the page, and the specs");
}

#[test]
fn the_page_lists_the_functions_of_the_specs() {
    let called = Function::samples().map(Function::spec).filter(|spec| !matches!(spec.written, Written::Operator(_)));
    // Devices run it as CASE.
    compare("Expressions", called.map(|spec| spec.name).chain(["nullif"]));
    compare("Aggregates", AggregateFunction::all().flat_map(|function| function.spec().names()));
    let windows = WindowFunction::all().flat_map(|function| function.spec().sql.iter().copied());
    let aggregates = AggregateFunction::all().map(AggregateFunction::spec).filter(|spec| spec.over_frames);
    // DISTINCT only over whole partitions.
    let names = aggregates.flat_map(|spec| spec.names().filter(move |name| !spec.also_distinct.contains(name)));
    compare("Windows", windows.chain(names));
}
