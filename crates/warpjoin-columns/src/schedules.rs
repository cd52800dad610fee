//! What threads of a session share, under chosen schedules.

use std::sync::Arc;

use warpjoin_device::sync::atomic::{AtomicUsize, Ordering};
use warpjoin_device::sync::{self, thread};
use warpjoin_device::{Cancellation, ModuleSource, SimOptions, open_simulated};

use crate::devices::compiler::{Compiler, QueryId};
use crate::devices::scheduler::Scheduler;

fn module(number: usize) -> ModuleSource {
    let text = format!(
        "#include \"common/simt.cuh\"\nstruct P {{ u64* a; }};\nWJ_ENTRY(entry, P, 32) {{ p.a[0] = {number}; }}\n"
    );
    ModuleSource { name: "job".into(), text, entries: vec!["entry".into()], defines: vec![] }
}

#[test]
fn all_that_is_asked_for_is_compiled_and_nobody_waits_for_ever() {
    sync::under_schedules(|| {
        let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).expect("devices");
        let compiler = Arc::new(Compiler::default());
        let queries = [(); 3].map(|()| QueryId::new());
        let asks = |at: usize| {
            let (compiler, devices) = (Arc::clone(&compiler), devices.clone());
            thread::spawn(move || match at {
                0 => compiler.enqueue(queries[0], vec![module(1), module(2)], &devices),
                1 => compiler.improve(queries[1], vec![module(2), module(3)], &devices),
                _ => {
                    compiler.enqueue(queries[2], vec![module(4)], &devices);
                    compiler.forget(queries[2]);
                }
            })
        };
        let threads: Vec<_> = (0..3).map(asks).collect();
        // While the others ask.
        compiler.finish();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        compiler.finish();
        for number in 1..=3 {
            assert!(devices.iter().all(|device| device.is_compiled(&module(number))), "module {number}");
        }
    });
}

#[test]
fn a_compiler_that_is_dropped_ends_its_threads() {
    sync::under_schedules(|| {
        let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).expect("devices");
        let compiler = Compiler::default();
        compiler.enqueue(QueryId::new(), vec![module(1), module(2)], &devices);
        compiler.improve(QueryId::new(), vec![module(3)], &devices);
        drop(compiler);
        let compiled = || devices.iter().map(|device| device.compiled_modules()).sum::<usize>();
        // What had not begun was forgotten, and no thread goes on.
        let then = compiled();
        thread::yield_now();
        assert_eq!(compiled(), then);
    });
}

#[test]
fn no_more_permits_are_taken_than_there_are_and_every_query_gets_one() {
    const PERMITS: usize = 2;
    sync::under_schedules(|| {
        let scheduler = Arc::new(Scheduler::new(PERMITS));
        let taken = Arc::new(AtomicUsize::new(0));
        let cancel = Arc::new(Cancellation::default());
        let runs = |at: usize| {
            let (scheduler, taken) = (Arc::clone(&scheduler), Arc::clone(&taken));
            let cancel = if at == 0 { Arc::clone(&cancel) } else { Arc::default() };
            thread::spawn(move || {
                let query = scheduler.open(&cancel);
                let pacers = [query.pacer(0), query.pacer(1)];
                for _ in 0..2 {
                    if pacers[0].before_launch().is_err() {
                        return assert_eq!(at, 0, "only this one is cancelled");
                    }
                    assert!(taken.fetch_add(1, Ordering::SeqCst) < PERMITS);
                    // A permit is for all devices.
                    pacers[1].before_launch().expect("a query that has a permit does not wait");
                    pacers[1].after_wait();
                    taken.fetch_sub(1, Ordering::SeqCst);
                    pacers[0].after_wait();
                }
            })
        };
        let threads: Vec<_> = (0..4).map(runs).collect();
        cancel.cancel();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(scheduler.is_idle());
    });
}
