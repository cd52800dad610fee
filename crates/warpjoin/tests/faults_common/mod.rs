//! Runs an operator once for each call that it makes to a device, with a fault at that call.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use arrow::array::RecordBatch;
use warpjoin::exec::QueryMetrics;
use warpjoin::{Cancellation, Cause, DeviceThreads, Session, Table};
use warpjoin_device::{
    CallKind, CudaOptions, Device, Fault, FaultPlan, SimOptions, open_cuda, open_simulated, with_faults,
};

use crate::common::case::{Case, upload};
use crate::common::sessions::{say, turn};
use crate::common::value::{Row, compare, rows_of};

/// What a run gave.
pub(crate) struct Ran {
    pub(crate) rows: Vec<Row>,
    /// The pipelines that ran, in words.
    pub(crate) shown: String,
}

impl Ran {
    /// Rows of something else than a query.
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        Self { rows, shown: String::new() }
    }
}

/// Runs an operator on tables of the inputs, until it is cancelled.
type Work = Box<dyn Fn(&Arc<Session>, &[Arc<Table>], &Arc<Cancellation>) -> warpjoin::Result<Ran> + Sync>;

/// An operator, and how many devices it runs on.
pub(crate) struct Scenario {
    /// Of no other scenario.
    pub(crate) name: String,
    pub(crate) devices: usize,
    /// Whether the devices reach each other.
    pub(crate) has_peers: bool,
    /// Whether every run makes the same calls, so that each point is reached.
    pub(crate) is_steady: bool,
    /// Whether the flag ends it.
    pub(crate) can_be_cancelled: bool,
    /// Words of a pipeline that must run; empty: any.
    pub(crate) shows: &'static str,
    pub(crate) inputs: Vec<RecordBatch>,
    pub(crate) work: Work,
}

impl Scenario {
    /// A query.
    pub(crate) fn of(name: &str, case: Case) -> Self {
        let Case { inputs, plan, settings } = case;
        let (devices, is_steady) = (settings.devices, settings.device_threads != DeviceThreads::Each);
        let work: Work = Box::new(move |session, tables, cancel| {
            let options = warpjoin::ExecOptions { cancel: Arc::clone(cancel), ..settings.options() };
            if settings.keeps {
                let (table, metrics) = warpjoin::exec::run_to_table(session, &plan, tables, &options)?;
                let all: Vec<usize> = (0..plan.schema.fields().len()).collect();
                return Ok(Ran { rows: rows_of(&table.download(&all, 100)?), shown: words(&metrics) });
            }
            let output = warpjoin::exec::run(session, &plan, tables, &options)?;
            Ok(Ran { rows: rows_of(&output.batches), shown: words(&output.metrics) })
        });
        Self { name: name.into(), devices, has_peers: true, is_steady, can_be_cancelled: true, shows: "", inputs, work }
    }

    /// Work of one device that is no query.
    pub(crate) fn of_work(name: &str, inputs: Vec<RecordBatch>, work: Work) -> Self {
        let (devices, has_peers, is_steady) = (1, true, true);
        Self { name: name.into(), devices, has_peers, is_steady, can_be_cancelled: true, shows: "", inputs, work }
    }
}

/// The pipelines of a query.
pub(crate) fn words(metrics: &QueryMetrics) -> String {
    metrics.pipelines.iter().map(|pipeline| format!("{}\n", pipeline.name)).collect()
}

/// What is made to happen at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    OutOfMemory,
    Driver,
    DeviceLost,
    Panic,
    Cancel,
}

impl Event {
    fn fault(self, cancel: &Arc<Cancellation>) -> Fault {
        match self {
            Self::OutOfMemory => Fault::OutOfMemory,
            Self::Driver => Fault::Driver,
            Self::DeviceLost => Fault::DeviceLost,
            Self::Panic => Fault::Panic,
            Self::Cancel => Fault::Cancel(Arc::clone(cancel)),
        }
    }

    /// Of the error that may come of it.
    fn cause(self) -> Option<Cause> {
        match self {
            Self::OutOfMemory => Some(Cause::OutOfMemory),
            Self::Driver => Some(Cause::Driver),
            Self::DeviceLost => Some(Cause::DeviceLost),
            Self::Panic => None,
            Self::Cancel => Some(Cause::Cancelled),
        }
    }
}

const EVENTS: [Event; 5] = [Event::OutOfMemory, Event::Driver, Event::DeviceLost, Event::Panic, Event::Cancel];

/// Calls of an operator that a run looks at, for each event, unless `WARPJOIN_FAULTS=all`.
const POINTS: u64 = 8;

/// Compilations of a first run that a run looks at, for each event.
const COMPILATIONS: u64 = 3;

/// Where in a scenario something is made to happen.
#[derive(Debug, Clone, Copy)]
struct Point<'a> {
    scenario: &'a str,
    event: Event,
    /// What is counted: `call`, `compilation` or `opening`.
    place: &'static str,
    nth: u64,
}

/// What `WARPJOIN_FAULT` is set to, to look at this point only.
impl fmt::Display for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, event, place, nth } = self;
        write!(f, "{scenario}: {event:?} at {place} {nth}")
    }
}

/// The point that `WARPJOIN_FAULT` names.
fn named_point() -> Option<String> {
    std::env::var("WARPJOIN_FAULT").ok().filter(|name| !name.is_empty())
}

/// Whether this run looks at points of the scenario.
fn is_wanted(scenario: &Scenario) -> bool {
    named_point().is_none_or(|name| name.starts_with(&format!("{}: ", scenario.name)))
}

/// The points of a scenario that this run looks at: about `few` for each event, others for each event and other ones each
/// hour, so that all come up in as many hours as are between two of them. `WARPJOIN_FAULTS=all`: all.
fn points<'a>(scenario: &'a str, place: &'static str, count: u64, few: u64) -> Vec<Point<'a>> {
    let of = |nth, event| Point { scenario, event, place, nth };
    if let Some(name) = named_point() {
        let all = EVENTS.into_iter().flat_map(|event| (0..count).map(move |nth| of(nth, event)));
        return all.filter(|point| point.to_string() == name).collect();
    }
    let stride = if std::env::var("WARPJOIN_FAULTS").is_ok_and(|value| value == "all") { 1 } else { count / few };
    let stride = stride.max(1);
    let numbered = EVENTS.into_iter().enumerate();
    let of_event = |(number, event)| {
        let first = (turn(stride as usize) as u64 + number as u64) % stride;
        (first..count).step_by(stride as usize).map(move |nth| of(nth, event))
    };
    numbered.flat_map(of_event).collect()
}

/// A session on devices that fail on demand.
struct Bench<'a> {
    scenario: &'a Scenario,
    plan: FaultPlan,
    devices: Vec<Device>,
    session: Arc<Session>,
    tables: Vec<Arc<Table>>,
    wanted: Vec<Row>,
    /// On each device, and what the seam says. What is left once is not told again of each run that follows.
    used_bytes: RefCell<(Vec<u64>, u64)>,
}

impl<'a> Bench<'a> {
    /// Nothing has run yet. `None` where there are not so many GPUs, if it is GPUs that are asked for.
    fn open(scenario: &'a Scenario) -> Option<Self> {
        be_quiet();
        let plan = if scenario.has_peers { FaultPlan::default() } else { FaultPlan::without_peers() };
        let devices = with_faults(&devices(&scenario.name, scenario.devices)?, &plan);
        let session = Session::new(devices.clone()).expect("a session");
        let tables = scenario.inputs.iter().map(|batch| upload(&session, batch)).collect();
        let bench = Bench { scenario, plan, devices, session, tables, wanted: vec![], used_bytes: RefCell::default() };
        bench.used_bytes.replace(bench.used_now());
        Some(bench)
    }

    /// Everything is compiled afterwards.
    fn new(scenario: &'a Scenario) -> Option<Self> {
        let mut bench = Self::open(scenario)?;
        let ran = bench.run(&Arc::default()).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        assert!(
            ran.shown.contains(scenario.shows),
            "{}: {} does not run in\n{}",
            scenario.name,
            scenario.shows,
            ran.shown
        );
        bench.wanted = ran.rows;
        bench.session.finish_compiling();
        bench.used_bytes.replace(bench.used_now());
        Some(bench)
    }

    fn run(&self, cancel: &Arc<Cancellation>) -> warpjoin::Result<Ran> {
        (self.scenario.work)(&self.session, &self.tables, cancel)
    }

    fn used_now(&self) -> (Vec<u64>, u64) {
        (self.devices.iter().map(|device| device.memory().used_bytes()).collect(), self.plan.live_bytes())
    }

    /// Calls of a run in which nothing fails.
    fn calls(&self) -> u64 {
        let before = self.plan.all_calls();
        self.check_rows(self.run(&Arc::default())).expect("the same rows again");
        self.plan.all_calls() - before
    }

    fn check_rows(&self, ran: warpjoin::Result<Ran>) -> Result<(), String> {
        ran.map_err(|error| error.to_string()).and_then(|ran| compare(ran.rows, self.wanted.clone()))
    }

    /// One run with a fault, and what must hold afterwards; whether the run failed.
    fn check(&self, kind: Option<CallKind>, nth: u64, event: Event) -> Result<bool, String> {
        let cancel = Arc::new(Cancellation::default());
        self.plan.arm(kind, nth, event.fault(&cancel));
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run(&cancel)));
        let is_missed = self.plan.disarm();
        let has_failed = !matches!(outcome, Ok(Ok(_)));
        // Kernels that were asked for ahead use streams of their own, and no buffers.
        match outcome {
            Ok(Ok(ran)) => compare(ran.rows, self.wanted.clone())?,
            Ok(Err(error)) if Some(error.cause()) == event.cause() => {}
            Ok(Err(error)) => return Err(format!("{:?}: {error}", error.cause())),
            Err(_) if event == Event::Panic => {}
            Err(_) => return Err("a panic".into()),
        }
        // How many compilations there are depends on threads in the background.
        if is_missed && self.scenario.is_steady && kind.is_none() {
            return Err("there was no such call".into());
        }
        let disorder = self.plan.take_disorder();
        if let Some(first) = disorder.first() {
            return Err(format!("{} times: {first}", disorder.len()));
        }
        let used_bytes = self.used_now();
        let before = self.used_bytes.replace(used_bytes.clone());
        if used_bytes != before {
            return Err(format!("{used_bytes:?} bytes are left, {before:?} were there before"));
        }
        self.check_rows(self.run(&Arc::default())).map_err(|error| format!("the next query: {error}"))?;
        Ok(has_failed)
    }
}

/// Looks at faults of every kind, at calls of every kind, while nothing needs to be compiled.
pub(crate) fn check(scenario: &Scenario) {
    let Some(bench) = is_wanted(scenario).then(|| Bench::new(scenario)).flatten() else { return };
    let calls = bench.calls();
    assert!(bench.plan.take_disorder().is_empty(), "{}: disorder without a fault", scenario.name);
    let all = points(&scenario.name, "call", calls, POINTS);
    let failed: RefCell<Vec<Event>> = RefCell::default();
    report(all, |point| {
        if bench.check(None, point.nth, point.event)? {
            failed.borrow_mut().push(point.event);
        }
        Ok(())
    });
    // Some calls may fail without an effect, but not all of them. Without memory on a device, the host's may do at all of those
    // that were looked at.
    let must_fail = |event: &Event| match event {
        Event::OutOfMemory => false,
        Event::Cancel => scenario.can_be_cancelled,
        _ => true,
    };
    for event in EVENTS.into_iter().filter(must_fail) {
        let has_effect = failed.borrow().contains(&event) || named_point().is_some();
        assert!(has_effect, "{}: {event:?} has no effect at any call", scenario.name);
    }
}

/// The same while kernels are compiled and loaded: every session begins with none.
pub(crate) fn check_compilation(scenario: &Scenario) {
    let Some(bench) = is_wanted(scenario).then(|| Bench::new(scenario)).flatten() else { return };
    let compilations = bench.plan.calls(CallKind::Compile);
    let wanted = bench.wanted;
    let points = points(&scenario.name, "compilation", compilations, COMPILATIONS);
    report(points, |point| check_first_run(scenario, &wanted, point.nth, point.event));
}

/// The same while the session is opened, peers included. Where a device refuses a peer, rows go through the host.
pub(crate) fn check_opening(scenario: &Scenario) {
    let Some(bench) = is_wanted(scenario).then(|| Bench::new(scenario)).flatten() else { return };
    let wanted = bench.wanted;
    let Some(devices) = devices(&scenario.name, scenario.devices) else { return };
    let opened = |plan: &FaultPlan| with_faults(&devices, plan);
    let plan = FaultPlan::default();
    Session::new(opened(&plan)).expect("a session");
    let calls = plan.all_calls();
    assert_eq!(plan.calls(CallKind::OpenPeer), (scenario.devices * (scenario.devices - 1)) as u64);
    let mut points = points(&scenario.name, "opening", calls, POINTS);
    points.retain(|point| point.event != Event::Cancel);
    report(points, |point| {
        let plan = FaultPlan::default();
        let devices = opened(&plan);
        plan.arm(None, point.nth, point.event.fault(&Arc::default()));
        let outcome = catch_unwind(AssertUnwindSafe(|| Session::new(devices.clone())));
        let is_missed = plan.disarm();
        match outcome {
            _ if is_missed => return Err("there was no such call".into()),
            Ok(Err(error)) if Some(error.cause()) == point.event.cause() => {}
            Err(payload) if point.event == Event::Panic && is_injected(&*payload) => {}
            Ok(outcome) => return Err(format!("{:?}", outcome.map(|_| "a session"))),
            Err(_) => return Err("a panic".into()),
        }
        // The same devices can be used by the next session.
        runs_on(scenario, devices, &plan, &wanted).map(drop)
    });
    // Each refusal, whatever the hour: there are few.
    for nth in 0..plan.calls(CallKind::OpenPeer) {
        let plan = FaultPlan::default();
        plan.arm(Some(CallKind::OpenPeer), nth, Fault::NoPeerLink);
        let session = runs_on(scenario, opened(&plan), &plan, &wanted);
        let has_peers = session.map(|session| session.has_peer_access());
        assert_eq!((has_peers, plan.disarm()), (Ok(false), false), "{}: peer {nth} is refused", scenario.name);
    }
}

/// A session on these devices, on which the scenario ran and left nothing.
fn runs_on(
    scenario: &Scenario,
    devices: Vec<Device>,
    plan: &FaultPlan,
    wanted: &[Row],
) -> Result<Arc<Session>, String> {
    let session = Session::new(devices).map_err(|error| error.to_string())?;
    let tables: Vec<Arc<Table>> = scenario.inputs.iter().map(|batch| upload(&session, batch)).collect();
    let ran = (scenario.work)(&session, &tables, &Arc::default()).map_err(|error| error.to_string())?;
    compare(ran.rows, wanted.to_vec())?;
    drop(tables);
    match (plan.live_bytes(), plan.take_disorder().first()) {
        (0, None) => Ok(session),
        (bytes, disorder) => Err(format!("{bytes} bytes are left; {disorder:?}")),
    }
}

/// Each wait of a stream for an event of another one is left out once, which must show: as wrong rows, an error, or the use of
/// memory of another stream that may not be there yet, or is freed too early.
pub(crate) fn check_waits(scenario: &Scenario) {
    let Some(bench) = Bench::new(scenario) else { return };
    for nth in 0.. {
        bench.plan.take_disorder();
        bench.plan.arm(Some(CallKind::Wait), nth, Fault::Missing);
        let outcome = bench.check_rows(bench.run(&Arc::default()));
        if bench.plan.disarm() {
            assert!(nth > 0, "{}: no stream waits for another one", scenario.name);
            break;
        }
        let is_found = outcome.is_err() || !bench.plan.take_disorder().is_empty();
        assert!(is_found, "{}: wait {nth} could be left out", scenario.name);
    }
}

/// A first run, of which a compilation fails; and a second one.
fn check_first_run(scenario: &Scenario, wanted: &[Row], nth: u64, event: Event) -> Result<(), String> {
    let bench = Bench::open(scenario).expect("as many devices as before");
    let bench = Bench { wanted: wanted.to_vec(), ..bench };
    bench.check(Some(CallKind::Compile), nth, event).map(drop)
}

/// Simulated devices; GPUs with `WARPJOIN_TEST_DEVICE=cuda`, whose tests must run one after the other, as they share the GPUs.
fn devices(test: &str, count: usize) -> Option<Vec<Device>> {
    if std::env::var("WARPJOIN_TEST_DEVICE").is_ok_and(|kind| kind == "cuda") {
        let all = open_cuda(&CudaOptions::default()).expect("GPUs");
        let some = all.get(..count).map(<[Device]>::to_vec);
        if some.is_none() {
            say(&format!("SKIP {test}: {} GPUs", all.len()));
        }
        return some;
    }
    let options = SimOptions { devices: count, threads: 1, ..SimOptions::default() };
    Some(open_simulated(&options).expect("devices"))
}

/// Whether a panic was asked for.
fn is_injected(payload: &(dyn Any + Send)) -> bool {
    payload.downcast_ref::<String>().is_some_and(|words| words.starts_with("injected"))
}

/// Panics that were asked for are not worth a line.
fn be_quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|words| words.starts_with("injected")) {
                usual(info);
            }
        }));
    });
}

/// Checks points, and fails with those at which something is wrong.
fn report(points: Vec<Point<'_>>, check: impl Fn(&Point<'_>) -> Result<(), String>) {
    assert!(!points.is_empty(), "there is no such point: {:?}", named_point());
    let wrong = |point: Point<'_>| check(&point).err().map(|failure| format!("WARPJOIN_FAULT='{point}': {failure}"));
    let failures: Vec<String> = points.into_iter().filter_map(wrong).collect();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures[..failures.len().min(8)].join("\n\n"));
}
