//! Cancelled queries end while their kernels run, give all memory back, and leave the session as it was.

// Helpers outside tests may fail one too.
#![allow(clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::case::{Case, upload};
use common::edges::{group_of, join_of};
use common::sessions::{Opener, gpus, simulated};
use common::settings::Settings;
use warpjoin::plan::{Plan, PlanKind};
use warpjoin::{Cancellation, Error, ExecOptions, JoinForm, Session, TableBuilder, exec};

/// Rows of one key: their join has the square of it.
fn equal_keys(rows: usize) -> RecordBatch {
    let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, false));
    let values = (0..rows as i64).collect::<Int64Array>();
    let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(Int64Array::from(vec![7; rows])), Arc::new(values)];
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).expect("a batch")
}

/// The join of such rows; `counts`: only how many there are, and their sum.
fn endless(rows: usize, counts: bool, settings: Settings) -> Case {
    let mut case = join_of("endless", equal_keys(rows), equal_keys(rows), 1).case;
    if counts {
        let grouped = group_of("sum", case.inputs[0].clone(), 0, 1).case.plan;
        let PlanKind::Aggregate { group_by, aggregates, .. } = grouped.kind else { panic!("a group-by") };
        let (input, schema) = (Box::new(case.plan), grouped.schema);
        case.plan = Plan { kind: PlanKind::Aggregate { input, group_by, aggregates }, schema };
    }
    Case { settings, ..case }
}

/// Cancels the query after `delay`; how long it took from then on.
fn cancelled_after(session: &Arc<Session>, case: &Case, delay: Duration) -> Duration {
    let tables: Vec<_> = case.inputs.iter().map(|batch| upload(session, batch)).collect();
    let used = |session: &Session| session.devices().iter().map(|it| it.memory().used_bytes()).collect::<Vec<_>>();
    let before = used(session);
    let cancel = Arc::new(Cancellation::default());
    let options = ExecOptions { cancel: Arc::clone(&cancel), ..case.settings.options() };
    let (done, is_done) = mpsc::channel();
    let elapsed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let outcome = exec::run(session, &case.plan, &tables, &options).map(|output| output.batches.len());
            done.send(outcome).expect("somebody listens");
        });
        std::thread::sleep(delay);
        let begun = Instant::now();
        cancel.cancel();
        match is_done.recv_timeout(Duration::from_secs(60)) {
            Ok(outcome) => assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}"),
            Err(_) => {
                // The thread can't be ended: nothing but the end of the process helps.
                common::sessions::say("a cancelled query runs on");
                std::process::abort();
            }
        }
        begun.elapsed()
    });
    assert_eq!(used(session), before, "all memory is given back");
    elapsed
}

fn forms() -> Vec<(&'static str, Settings)> {
    let usual = Settings::default();
    vec![
        ("lists", Settings { join_form: Some(JoinForm::HashTable), ..usual.clone() }),
        ("partitioned", Settings { join_form: Some(JoinForm::Partitioned), ..usual.clone() }),
        ("on two devices", Settings { devices: 2, join_form: Some(JoinForm::HashTable), ..usual }),
    ]
}

fn check(opener: &dyn Opener, rows: usize, all_counts: &[bool], delay: Duration, most: Duration) {
    for &counts in all_counts {
        for (name, settings) in forms() {
            let Some(session) = opener.open(settings.devices) else { continue };
            let case = endless(rows, counts, settings);
            // Once for the compiler.
            cancelled_after(&session, &case, delay * 10);
            let elapsed = cancelled_after(&session, &case, delay);
            assert!(elapsed < most, "{name}, counts {counts}: {elapsed:?}");
            // The session serves the next one.
            let small = endless(40, counts, case.settings.clone());
            small.check(&session).unwrap_or_else(|difference| panic!("{difference}"));
        }
    }
}

#[test]
fn running_kernels_stop() {
    check(&simulated(), 300_000, &[true, false], Duration::from_millis(300), Duration::from_secs(20));
}

#[test]
fn running_kernels_stop_on_gpus() {
    if let Some(gpus) = gpus("running_kernels_stop_on_gpus") {
        // The rows themselves would have no room, which a GPU finds out before the delay is over.
        check(&gpus, 4_000_000, &[true], Duration::from_millis(300), Duration::from_millis(100));
    }
}

#[test]
fn an_upload_stops() {
    let session = simulated().open(2).expect("devices");
    let cancel = Arc::new(Cancellation::default());
    let batch = equal_keys(1000);
    let mut builder = TableBuilder::new(session.device_set(), batch.schema()).with_cancel(Arc::clone(&cancel));
    builder.push(&batch).expect("a batch");
    cancel.cancel();
    assert!(matches!(builder.push(&batch), Err(Error::Cancelled)));
    assert!(matches!(builder.finish().map(|_| ()), Err(Error::Cancelled)));
    assert!(session.devices().iter().all(|device| device.memory().used_bytes() == 0));
}
