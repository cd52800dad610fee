//! Worker threads and admission under schedules that shuttle chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::TaskContext;
use warpjoin_device::sync::{self, shuttle, thread};

use crate::runtime::admission::Admission;
use crate::runtime::worker::Workers;

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
            let contexts: Vec<_> = (0..4).map(|_| Arc::new(TaskContext::default())).collect();
            // Each query has two parts. The first to run counts the query as running, the last to end removes it.
            let parts: Vec<_> = (0..4).map(|_| Arc::new(AtomicUsize::new(0))).collect();
            let spawn = |at: usize| {
                let (admission, running) = (Arc::clone(&admission), Arc::clone(&running));
                let (context, parts) = (Arc::clone(&contexts[at / 2]), Arc::clone(&parts[at / 2]));
                shuttle::future::spawn(async move {
                    let admitted = admission.admit(&context);
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
