//! Worker threads and admission under schedules that shuttle chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::Schema;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use warpjoin::Cancellation;
use warpjoin_device::sync::{self, shuttle, thread};

use crate::config::{DeviceChoice, WarpjoinOptions};
use crate::runtime::active_queries::ActiveQueries;
use crate::runtime::admission::{Admission, PermitOfQuery};
use crate::runtime::worker::Workers;
use crate::runtime::{Devices, QueryEnded, WarpjoinRuntime};

#[test]
fn every_job_runs_once_while_threads_time_out() {
    sync::under_fair_schedules(|| {
        let (workers, ran) = (Arc::<Workers>::default(), Arc::new([(); 6].map(|()| AtomicUsize::new(0))));
        let spawn = |first: usize| {
            let (workers, ran) = (Arc::clone(&workers), Arc::clone(&ran));
            thread::spawn(move || {
                for job in first..first + 3 {
                    let ran = Arc::clone(&ran);
                    let job = move || {
                        thread::yield_now();
                        ran[job].fetch_add(1, Ordering::Relaxed);
                    };
                    workers.run("test", Box::new(job)).expect("a thread");
                    thread::yield_now();
                }
            })
        };
        let threads = [spawn(0), spawn(3)];
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        while ran.iter().any(|ran| ran.load(Ordering::Relaxed) == 0) {
            thread::yield_now();
        }
        assert!(ran.iter().all(|ran| ran.load(Ordering::Relaxed) == 1));
    });
}

#[test]
fn admission_limits_queries_and_parts_share_a_permit() {
    sync::under_schedules(|| {
        shuttle::future::block_on(async {
            let (admission, running) = (Arc::new(Admission::new(2)), Arc::new(AtomicUsize::new(0)));
            let queries: Vec<Arc<PermitOfQuery>> = (0..4).map(|_| Arc::default()).collect();
            // Each query has two parts. The first to run counts the query as running, the last to end removes it.
            let parts: Vec<_> = (0..4).map(|_| Arc::new(AtomicUsize::new(0))).collect();
            let spawn = |at: usize| {
                let (admission, running) = (Arc::clone(&admission), Arc::clone(&running));
                let (query, parts) = (Arc::clone(&queries[at / 2]), Arc::clone(&parts[at / 2]));
                shuttle::future::spawn(async move {
                    let admitted = admission.admit(&query);
                    if at == 7 {
                        // A query that is dropped while it waits.
                        drop(admitted);
                        return;
                    }
                    let permit = admitted.await;
                    if parts.fetch_add(1, Ordering::SeqCst) == 0 {
                        assert!(running.fetch_add(1, Ordering::SeqCst) < 2, "three queries at once");
                    }
                    shuttle::future::yield_now().await;
                    if parts.fetch_sub(1, Ordering::SeqCst) == 1 {
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                    drop(permit);
                })
            };
            let tasks: Vec<_> = (0..8).map(spawn).collect();
            for task in tasks {
                task.await.expect("no panic");
            }
            assert!(admission.is_idle());
        });
    });
}

#[test]
fn a_killed_query_cancels_all_its_work() {
    sync::under_schedules(|| {
        let queries = Arc::new(ActiveQueries::default());
        let (context, root) = (Arc::new(TaskContext::default()), Arc::new(EmptyExec::new(Arc::new(Schema::empty()))));
        let root: Arc<dyn ExecutionPlan> = root;
        let work = || {
            let (queries, context, root) = (Arc::clone(&queries), Arc::clone(&context), Arc::clone(&root));
            thread::spawn(move || {
                let part = queries.part(&context, &root);
                part.start();
                let work = Arc::new(Cancellation::default());
                part.cancels(&work);
                // Would go on forever if the query was killed unseen.
                while !work.is_cancelled() {
                    thread::yield_now();
                }
                assert_eq!(part.why_ended(), Some(QueryEnded::Killed { id: 1 }));
            })
        };
        let threads = [work(), work()];
        while queries.list().is_empty() {
            thread::yield_now();
        }
        assert!(queries.list().iter().all(|query| query.id() == 1), "parts of a query are two");
        assert!(queries.kill(1) && !queries.kill(2));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(queries.list().is_empty());
        drop(context);
        assert!(!queries.kill(1));
    });
}

#[test]
fn devices_are_opened_once_for_each_setting_until_they_are_lost() {
    sync::under_schedules(|| {
        let runtime = WarpjoinRuntime::lazy();
        let open = |runtime: &WarpjoinRuntime, devices| {
            let options = WarpjoinOptions { device: DeviceChoice::Simulated, devices, ..WarpjoinOptions::default() };
            match runtime.devices(&options) {
                Devices::Open(session) => session,
                other => panic!("{other:?}"),
            }
        };
        let spawn = |at: usize| {
            let runtime = Arc::clone(&runtime);
            thread::spawn(move || {
                let session = open(&runtime, 1 + at % 2);
                assert_eq!(session.devices().len(), 1 + at % 2);
                if at % 2 == 0 {
                    assert!(Arc::ptr_eq(&runtime.cache(&session), &runtime.cache(&session)));
                }
                if at == 3 {
                    // The devices of another thread's query, which goes on with its session.
                    drop(runtime.cache(&session));
                    runtime.report_lost(&session, &warpjoin::Error::Internal("lost".into()));
                    let is_lost = |(of, _): &(Arc<_>, _)| Arc::ptr_eq(of, &session);
                    assert!(!runtime.caches().iter().any(is_lost), "the cache of lost devices stays");
                    assert!(!Arc::ptr_eq(&open(&runtime, 2), &session), "lost devices are used again");
                }
                session
            })
        };
        let threads: Vec<_> = (0..4).map(spawn).collect();
        let sessions: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        assert!(Arc::ptr_eq(&sessions[0], &sessions[2]), "the same devices are opened twice");
        assert!(Arc::ptr_eq(&sessions[0], &open(&runtime, 1)));
        assert!(!Arc::ptr_eq(&sessions[3], &open(&runtime, 2)));
    });
}
