//! Tests of state shared by threads, under shuttle's schedules: no deadlock, nothing lost, nothing made twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::memory::object_pool::{ObjectPool, Pooled};
use crate::modules::Modules;
use crate::sync::{self, thread};
use crate::{Cancellation, DeviceError, MemoryPool, Module, ModuleSource, Result, SimOptions, open_simulated};

fn source(number: usize) -> ModuleSource {
    ModuleSource { name: "m".into(), text: number.to_string(), entries: vec![], defines: vec![] }
}

fn spawn_all(threads: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let spawn = |at| {
        let work = Arc::clone(&work);
        thread::spawn(move || work(at))
    };
    let threads: Vec<_> = (0..threads).map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Work that panics if two threads do it at the same time.
#[derive(Default)]
struct Alone(AtomicBool);

impl Alone {
    fn work(&self) {
        assert!(!self.0.swap(true, Ordering::SeqCst), "two threads at once");
        thread::yield_now();
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_module_is_compiled_by_one_thread_at_a_time_and_once() {
    sync::under_schedules(|| {
        let (modules, alone) = (Arc::new(Modules::default()), Arc::new([Alone::default(), Alone::default()]));
        let (compiled, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let cancel = Arc::new(Cancellation::default());
        let shared = (Arc::clone(&modules), Arc::clone(&compiled), Arc::clone(&failed), Arc::clone(&cancel));
        spawn_all(5, move |at| {
            let (modules, compiled, failed, cancel) = &shared;
            // Four threads compile one module, and the first of them fails. The last thread compiles another module, and
            // cancels the fourth.
            let which = at / 4;
            if at == 4 {
                cancel.cancel();
            }
            let compile = || {
                alone[which].work();
                if at == 0 {
                    return Err(DeviceError::NoNvrtc);
                }
                compiled.fetch_add(1, Ordering::SeqCst);
                Ok(Module::new(&source(which), vec![]))
            };
            let cancel = (at == 3).then_some(&**cancel);
            match modules.get_or_compile(&source(which), cancel, compile) {
                Ok(_) => assert!(modules.contains(&source(which)) && modules.get(&source(which)).is_some()),
                Err(DeviceError::Cancelled) => assert_eq!(at, 3),
                Err(_) => {
                    assert_eq!(at, 0, "a thread got the error of another");
                    failed.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        assert_eq!((compiled.load(Ordering::SeqCst), modules.len()), (2, 2));
        assert!(failed.load(Ordering::SeqCst) <= 1);
    });
}

#[test]
fn concurrent_charges_stay_within_their_budgets() {
    sync::under_schedules(|| {
        let memory = Arc::new(MemoryPool::new(10));
        let kept = Arc::new(AtomicUsize::new(0));
        let shared = (Arc::clone(&memory), Arc::clone(&kept));
        spawn_all(4, move |at| {
            let (memory, kept) = &shared;
            // Two sessions, with budgets of 6 and 20 bytes.
            let (bytes, budget) = (at as u64 + 2, if at % 2 == 0 { 6 } else { 20 });
            for _ in 0..2 {
                if let Some(charge) = memory.charge(bytes, budget) {
                    let used = memory.used_bytes();
                    assert!((bytes..=10).contains(&used), "{used} of 10 are used");
                    assert!(memory.peak_bytes() >= bytes);
                    if at == 1 && kept.fetch_add(1, Ordering::SeqCst) == 0 {
                        charge.keep();
                    }
                }
            }
        });
        let left = if kept.load(Ordering::SeqCst) > 0 { 3 } else { 0 };
        assert_eq!(memory.used_bytes(), left);
        assert!(memory.try_charge(10 - left, 20) && !memory.try_charge(1, 20));
        assert_eq!(memory.peak_bytes(), 10);
    });
}

#[test]
fn words_show_a_cancellation_before_and_after_they_are_made() {
    sync::under_schedules(|| {
        let device = open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }).expect("a device").remove(0);
        let cancellation = Arc::new(Cancellation::default());
        let shared = (device, Arc::clone(&cancellation));
        spawn_all(3, move |at| {
            let (device, cancellation) = &shared;
            if at == 0 {
                return cancellation.cancel();
            }
            drop(device.cancel_word(cancellation).expect("a word"));
            let word = device.cancel_word(cancellation).expect("a word");
            while !cancellation.is_cancelled() {
                thread::yield_now();
            }
            // `cancel` may still be setting words; it has set all once another word can be made.
            drop(device.cancel_word(cancellation).expect("a word"));
            assert_eq!(word.value(), 1);
        });
    });
}

/// An object that stays in use for a while after it was returned to the pool.
struct Thing {
    alone: Alone,
    idle: AtomicBool,
    made: Arc<AtomicUsize>,
}

impl Pooled for Thing {
    fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    fn wait_idle(&self) -> Result<()> {
        thread::yield_now();
        self.idle.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        self.made.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_pooled_object_has_one_holder_and_is_returned() {
    sync::under_schedules(|| {
        let (pool, made) = (Arc::new(ObjectPool::<Thing>::new(2)), Arc::new(AtomicUsize::new(0)));
        let shared = (Arc::clone(&pool), Arc::clone(&made));
        spawn_all(4, move |at| {
            let (pool, made) = &shared;
            for round in 0..2 {
                let make = || {
                    if at == 3 && round == 0 {
                        return Err(DeviceError::Invalid("no memory".into()));
                    }
                    assert!(made.fetch_add(1, Ordering::SeqCst) < 2, "more objects than the maximum");
                    Ok(Thing { alone: Alone::default(), idle: AtomicBool::new(true), made: Arc::clone(made) })
                };
                let work = |thing: &mut Thing| {
                    thing.alone.work();
                    thing.idle.store(false, Ordering::SeqCst);
                    if at == 2 { Err(DeviceError::Cancelled) } else { Ok(()) }
                };
                // After a failure the object is dropped in the first round, and kept in the second.
                let result = pool.with(make, work, || round > 0);
                assert_eq!(result.is_ok(), at < 2 || (at == 3 && !matches!(result, Err(DeviceError::Invalid(_)))));
            }
        });
        // Both can be held at once, so no place was lost.
        let make = || {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(Thing { alone: Alone::default(), idle: AtomicBool::new(true), made: Arc::clone(&made) })
        };
        let both = pool.with(make, |_| pool.with(make, |_| Ok(()), || true), || true);
        assert!(both.is_ok() && made.load(Ordering::SeqCst) == 2);
    });
}
