//! Compiles modules in the background, on all cores.
//!
//! Owns threads and order; must not know what a query is, but that it may end before its modules are compiled. A thread
//! that wants a module compiles it by itself if nobody has begun, so nothing waits for a place in the queue.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use warpjoin_device::sync::thread::{self, JoinHandle};
use warpjoin_device::sync::{self, Condvar, Mutex, MutexGuard};
use warpjoin_device::{Device, ModuleSource};

/// Whose modules they are: the queue forgets those of a query that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryId(u64);

impl QueryId {
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A module to compile, and the devices on which it is not.
struct Job {
    query: QueryId,
    module: ModuleSource,
    devices: Vec<Device>,
    /// The disk cache is to have it, more than memory.
    is_for_store: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// What any query may want.
    prebuilt: VecDeque<Job>,
    /// What is to take the place of kernels that interpret.
    better: VecDeque<Job>,
    /// Hashes of all that was ever in `better`: what fails is not tried again. Their texts would fill the memory of a process
    /// that runs for long; of two with one hash, one stays interpreted.
    improved: HashSet<u64>,
    /// Messages of the first modules of `better` that did not compile.
    failures: Vec<String>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that take jobs.
    running: usize,
    /// Threads of these that compile what is better.
    improving: usize,
    /// Nothing begins any more.
    is_closed: bool,
}

impl Queue {
    fn waiting(&self) -> usize {
        self.jobs.len() + self.prebuilt.len() + self.better.len()
    }

    /// The next job, and whether it is of `better`: half of the cores are left to queries.
    fn next(&mut self) -> Option<(Job, bool)> {
        if let Some(job) = self.jobs.pop_front().or_else(|| self.prebuilt.pop_front()) {
            return Some((job, false));
        }
        if self.improving > 0 && self.improving >= cores() / 2 {
            return None;
        }
        let job = self.better.pop_front()?;
        self.improving += 1;
        Some((job, true))
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A thread has ended.
    ended: Condvar,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Queue> {
        sync::locked(&self.queue)
    }
}

/// Maximum messages of modules that did not compile.
const FAILURES_MAX: usize = 8;

/// The background threads of a session. They end when there is nothing to do; dropping waits for them.
#[derive(Default)]
pub struct Compiler {
    shared: Arc<Shared>,
}

impl Compiler {
    /// Has modules compiled for all of `devices`, the first ones first.
    pub fn enqueue(&self, query: QueryId, modules: Vec<ModuleSource>, devices: &[Device]) {
        let jobs =
            modules.into_iter().map(|module| Job { query, module, devices: devices.to_vec(), is_for_store: false });
        let mut queue = self.shared.locked();
        queue.jobs.extend(jobs);
        start_threads(&mut queue, &self.shared);
    }

    /// Has modules loaded that any query may want, behind those that queries have asked for.
    pub fn load(&self, modules: Vec<ModuleSource>, devices: &[Device]) {
        self.prepare(modules, devices, false);
    }

    /// Has modules compiled that any query may want and the disk cache lacks, behind all others.
    pub fn store(&self, modules: Vec<ModuleSource>, device: &Device) {
        self.prepare(modules, std::slice::from_ref(device), true);
    }

    fn prepare(&self, modules: Vec<ModuleSource>, devices: &[Device], is_for_store: bool) {
        let query = QueryId::new();
        let jobs = modules.into_iter().map(|module| Job { query, module, devices: devices.to_vec(), is_for_store });
        let mut queue = self.shared.locked();
        queue.prebuilt.extend(jobs);
        start_threads(&mut queue, &self.shared);
    }

    /// Has modules compiled of pipelines that were interpreted, once nothing else is to be compiled; whatever becomes of their query.
    pub fn improve(&self, query: QueryId, modules: Vec<ModuleSource>, devices: &[Device]) {
        let mut queue = self.shared.locked();
        for module in modules {
            if queue.improved.insert(BuildHasherDefault::<DefaultHasher>::default().hash_one(&module)) {
                queue.better.push_back(Job { query, module, devices: devices.to_vec(), is_for_store: false });
            }
        }
        start_threads(&mut queue, &self.shared);
    }

    /// Waits until everything that was asked for is compiled.
    pub fn finish(&self) {
        let mut queue = self.shared.locked();
        while queue.running > 0 {
            queue = sync::wait(&self.shared.ended, queue);
        }
    }

    /// Why pipelines stay interpreted: messages of the first modules that did not compile.
    pub fn failures(&self) -> Vec<String> {
        self.shared.locked().failures.clone()
    }

    /// Forgets what was asked for and has not begun.
    pub fn forget(&self, query: QueryId) {
        let mut queue = self.shared.locked();
        queue.jobs.retain(|job| job.query != query);
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        let mut queue = self.shared.locked();
        queue.is_closed = true;
        queue.jobs.clear();
        queue.prebuilt.clear();
        queue.better.clear();
        let threads = std::mem::take(&mut queue.threads);
        drop(queue);
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// As many as there are jobs and cores for. Where no thread can be had, whoever wants a module compiles it.
fn start_threads(queue: &mut Queue, shared: &Arc<Shared>) {
    queue.threads.retain(|thread| !sync::has_ended(thread));
    for _ in queue.running..cores().min(queue.running + queue.waiting()) {
        let shared_by_thread = Arc::clone(shared);
        let thread = thread::Builder::new().name("warpjoin-compile".into());
        match thread.spawn(move || work(&shared_by_thread)) {
            Ok(thread) => {
                queue.running += 1;
                queue.threads.push(thread);
            }
            Err(error) => return log::debug!("no thread to compile kernels: {error}"),
        }
    }
}

/// Takes jobs until there are none.
fn work(shared: &Arc<Shared>) {
    /// Counts the thread as gone, even if a job panics.
    struct Running<'a> {
        shared: &'a Shared,
        is_counted: bool,
        is_improving: bool,
    }
    impl Drop for Running<'_> {
        fn drop(&mut self) {
            let mut queue = self.shared.locked();
            queue.running -= usize::from(self.is_counted);
            queue.improving -= usize::from(self.is_improving);
            self.shared.ended.notify_all();
        }
    }
    let mut running = Running { shared, is_counted: true, is_improving: false };
    loop {
        let mut queue = shared.locked();
        queue.improving -= usize::from(std::mem::take(&mut running.is_improving));
        let Some((mut job, is_better)) = queue.next() else {
            // Under the same lock, so that jobs which come now find no thread that is about to go.
            queue.running -= 1;
            running.is_counted = false;
            return;
        };
        running.is_improving = is_better;
        drop(queue);
        let others = job.devices.split_off(job.devices.len().min(1));
        let Some(first) = job.devices.first() else { continue };
        if job.is_for_store && first.is_stored(&job.module) {
            continue;
        }
        let compiled = compile(first, &job.module);
        match &compiled {
            Err(message) if is_better => {
                log::warn!("a pipeline stays interpreted: {message}");
                let failures = &mut shared.locked().failures;
                if failures.len() < FAILURES_MAX {
                    failures.push(message.clone());
                }
            }
            // It fails again, with its message, where a query waits for it.
            Err(message) => log::debug!("{message}"),
            Ok(()) => {}
        }
        if compiled.is_err() || others.is_empty() {
            continue;
        }
        // One device first: the others then find its kernel in the disk cache.
        let mut queue = shared.locked();
        if queue.is_closed {
            continue;
        }
        let rest = if is_better { &mut queue.better } else { &mut queue.jobs };
        for device in others {
            let (query, module) = (job.query, job.module.clone());
            rest.push_front(Job { query, module, devices: vec![device], is_for_store: false });
        }
        start_threads(&mut queue, shared);
    }
}

/// Compiles a module; the error is its message. What a query waits for fails again where it is used.
fn compile(device: &Device, module: &ModuleSource) -> Result<(), String> {
    if device.is_compiled(module) {
        return Ok(());
    }
    let started = Instant::now();
    let outcome = device.compile(module);
    note(module, started, "ahead");
    outcome.map(drop).map_err(|error| format!("{}: {error}", module.name))
}

/// A line for whoever looks why a first run takes long.
pub fn note(module: &ModuleSource, started: Instant, when: &str) {
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    log::debug!("compiled {} [{}] in {elapsed_ms:.1} ms, {when}", module.name, module.entries.join(" "));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use warpjoin_device::{SimOptions, open_simulated};

    use super::*;

    fn module(number: u32) -> ModuleSource {
        let text = format!(
            "#include \"common/simt.cuh\"\nstruct P {{ u64* a; }};\nWJ_ENTRY(entry, P, 32) {{ p.a[0] = {number}; }}\n"
        );
        ModuleSource { name: "job".into(), text, entries: vec!["entry".into()], defines: vec![] }
    }

    #[test]
    fn every_device_gets_every_module() {
        let devices = open_simulated(&SimOptions { devices: 3, ..SimOptions::default() }).unwrap();
        let (compiler, modules) = (Compiler::default(), [module(1), module(2)]);
        compiler.enqueue(QueryId::new(), modules.to_vec(), &devices);
        compiler.finish();
        assert!(devices.iter().all(|device| modules.iter().all(|module| device.is_compiled(module))));
    }

    #[test]
    fn what_is_better_is_compiled_once_and_survives_its_query() {
        let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap();
        let (compiler, query) = (Compiler::default(), QueryId::new());
        let better: Vec<_> = (10..16).map(module).collect();
        compiler.improve(query, better.clone(), &devices);
        compiler.improve(query, better.clone(), &devices);
        compiler.forget(query);
        compiler.finish();
        assert!(devices.iter().all(|device| better.iter().all(|module| device.is_compiled(module))));
        let queue = compiler.shared.locked();
        assert_eq!((queue.waiting(), queue.running, queue.improving), (0, 0, 0));
    }

    #[test]
    fn failures_of_what_is_better_are_kept() {
        let devices = open_simulated(&SimOptions::default()).unwrap();
        let compiler = Compiler::default();
        compiler.improve(QueryId::new(), vec![ModuleSource { text: "no kernel".into(), ..module(1) }], &devices);
        compiler.finish();
        assert_eq!(compiler.failures().len(), 1);
    }

    #[test]
    fn what_is_forgotten_or_dropped_is_not_waited_for() {
        let devices = open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }).unwrap();
        let (compiler, gone, other) = (Compiler::default(), QueryId::new(), QueryId::new());
        // No threads: the queue alone.
        compiler.shared.locked().running = usize::MAX / 2;
        compiler.enqueue(gone, vec![module(3)], &devices);
        compiler.enqueue(other, vec![module(4)], &devices);
        compiler.store(vec![module(5)], &devices[0]);
        compiler.forget(gone);
        assert_eq!(compiler.shared.locked().jobs.len(), 1);
        let shared = Arc::clone(&compiler.shared);
        drop(compiler);
        assert!(shared.locked().waiting() == 0 && devices[0].compiled_modules() == 0);
    }
}
