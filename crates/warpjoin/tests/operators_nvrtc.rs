//! Every kernel file, and kernels that the operators' cases generate, through NVRTC: a third of those in a run.
//!
//! Without libnvrtc the test prints SKIP and passes; `WARPJOIN_REQUIRE_NVRTC=1` makes that a failure.

mod common;
mod parquet_common;
mod strings_common;
mod tables_common;

use std::collections::HashSet;

use arrow::datatypes::DataType;
use common::case::Case;
use common::sessions::{Opener, in_threads, in_turn, is_set, say, simulated};
use common::settings::Settings;
use common::{edges, join_trees, random};
use warpjoin::exec::RuntimeFilters;
use warpjoin::plan::FilterForm;
use warpjoin_device::{ModuleSource, compile_for_architecture, cuda_status};

/// Every module is compiled for the first one, every file and half of the pipelines for one of the others.
const ARCHITECTURES: [&str; 3] = ["sm_90", "sm_80", "sm_100"];
/// Random plans besides the edges.
const PLANS: u64 = 30;
/// Random trees of joins.
const TREES: u64 = 10;
/// Random hash tables.
const TABLES: u64 = 8;

/// Rows in the order of a key, so few that they are cut only when asked to.
fn groups_by_piece() -> Case {
    let keys = edges::ints((0..3000).map(|row| Some(row / 7 * 1_000_000_007)));
    let case = edges::group_of("groups by piece", edges::keyed(&[keys], &DataType::Int64), 1, 1).case;
    Case { settings: Settings { ordered_span_min: Some(1), ..Settings::default() }, ..case }
}

/// The modules that the cases compile, each once.
fn corpus() -> HashSet<ModuleSource> {
    let mut cases: Vec<_> = edges::all(true).into_iter().step_by(3).map(|edge| edge.case).collect();
    cases.extend(edges::of_functions().into_iter().map(|edge| edge.case));
    let is_small = |case: &Case| case.inputs.iter().all(|batch| batch.num_rows() <= 400);
    cases.extend(
        edges::of_sorts()
            .into_iter()
            .chain(edges::of_windows().into_iter().step_by(4))
            .map(|edge| edge.case)
            .filter(is_small),
    );
    for (case, settings) in cases.iter_mut().zip(edges::settings().into_iter().cycle()) {
        case.settings = Settings { devices: settings.devices.min(2), ..settings };
    }
    cases.push(groups_by_piece());
    cases.extend((0..PLANS).map(random::case));
    cases.extend((0..TREES).map(|seed| {
        let case = join_trees::case(seed);
        let forms = [FilterForm::Table, FilterForm::Bitmap, FilterForm::Bloom];
        let runtime_filters = RuntimeFilters::AlwaysBy(forms[seed as usize % forms.len()]);
        let settings = Settings { runtime_filters, ..case.settings.clone() };
        Case { settings, ..case }
    }));
    let opener = simulated();
    let sources = in_threads(&cases, |case| {
        let session = opener.open(case.settings.devices).expect("devices");
        // What it gives is looked at elsewhere.
        let _ = case.run(&session, &case.settings);
        session.devices()[0].compiled_sources()
    });
    let tables = in_threads(&(0..TABLES).collect::<Vec<u64>>(), |&seed| {
        let session = opener.open(1).expect("a device");
        tables_common::operate(&session, seed, 3, true);
        session.devices()[0].compiled_sources()
    });
    let strings = opener.open(1).expect("a device");
    strings_common::check(&strings, 0, 300, 4);
    let strings = strings.devices()[0].compiled_sources();
    let decodes = opener.open(1).expect("a device");
    parquet_common::check_seeds(&decodes.devices()[0], 0..120, 100);
    parquet_common::check_tables(&decodes, 0..160);
    let decodes = decodes.devices()[0].compiled_sources();
    sources.into_iter().chain(tables).flatten().chain(strings).chain(decodes).collect()
}

/// All pipelines are compiled in so many runs.
const PIPELINE_RUNS: usize = 3;

/// Of so many pipelines one is compiled for another architecture as well.
const OTHERS_SHARE: usize = 8;

/// What is compiled, and for which architecture: what GPUs get for the first one, and shares of it for the others, to which
/// only the headers are not the same.
fn work_of(sources: &[ModuleSource]) -> Vec<(&'static str, ModuleSource)> {
    let [first, others @ ..] = ARCHITECTURES;
    let (files, pipelines): (Vec<_>, Vec<_>) = sources.iter().partition(|source| source.entries.len() > 1);
    let mut work = vec![];
    for (source, other) in files.into_iter().zip(others.into_iter().cycle()) {
        work.extend(source.entries.iter().map(|entry| (first, source.of_entry(entry))));
        work.push((other, source.clone()));
    }
    for (index, source) in in_turn(pipelines, PIPELINE_RUNS).into_iter().enumerate() {
        work.push((first, source.clone()));
        if index % OTHERS_SHARE == 0 {
            work.push((others[index / OTHERS_SHARE % others.len()], source.clone()));
        }
    }
    work
}

#[test]
fn kernels_compile_for_every_architecture() {
    const NAME: &str = "kernels_compile_for_every_architecture";
    if cuda_status().nvrtc.is_none() {
        assert!(!is_set("WARPJOIN_REQUIRE_NVRTC"), "{NAME}: WARPJOIN_REQUIRE_NVRTC=1 and no NVRTC");
        say(&format!("SKIP {NAME}: no libnvrtc (put its folder on LD_LIBRARY_PATH)"));
        return;
    }
    let mut sources: Vec<ModuleSource> = corpus().into_iter().collect();
    // So that turns meet all of them.
    sources.sort_by(|a, b| a.text.cmp(&b.text));
    for file in warpjoin_kernels::SOURCES {
        assert!(sources.iter().any(|source| source.text == file.text), "{} was not compiled", file.name);
    }
    let work = work_of(&sources);
    say(&format!("{NAME}: {} modules, {} compilations", sources.len(), work.len()));
    let failures = in_threads(&work, |(to, source)| {
        compile_for_architecture(source, to).err().map(|error| format!("{to}: {error}\n{}", source.text))
    });
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} do not compile, such as\n{}", failures.len(), failures[0]);
}
