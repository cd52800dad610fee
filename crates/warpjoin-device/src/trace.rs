//! A trace of the host: times of calls to devices and of steps of queries, by thread.
//!
//! Off until [`begin_trace`]. While it is on, a span costs about 100 ns; while it is off, one load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static IS_ON: AtomicBool = AtomicBool::new(false);
static SPANS: Mutex<Vec<TracedSpan>> = Mutex::new(vec![]);
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// A timed span of a thread's work.
#[derive(Debug, Clone)]
pub struct TracedSpan {
    name: String,
    thread: u64,
    begun: Instant,
    took: Duration,
}

impl TracedSpan {
    /// The call or step.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of the thread, in the order in which threads had their first span.
    pub fn thread(&self) -> u64 {
        self.thread
    }

    /// When it began.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// How long it took.
    pub fn took(&self) -> Duration {
        self.took
    }
}

/// Starts to keep spans.
pub fn begin_trace() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Ends the trace: the spans since [`begin_trace`], in the order in which they ended.
pub fn end_trace() -> Vec<TracedSpan> {
    IS_ON.store(false, Ordering::Relaxed);
    std::mem::take(&mut *spans())
}

/// A span that ends when it is dropped; `None` without a trace.
pub fn span<N: Into<String>>(name: impl FnOnce() -> N) -> Option<Span> {
    IS_ON.load(Ordering::Relaxed).then(|| Span { name: name().into(), begun: Instant::now() })
}

/// A span in progress, which ends when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Span {
    name: String,
    begun: Instant,
}

impl Drop for Span {
    fn drop(&mut self) {
        let (name, begun, took) = (std::mem::take(&mut self.name), self.begun, self.begun.elapsed());
        spans().push(TracedSpan { name, thread: THREAD.with(|thread| *thread), begun, took });
    }
}

fn spans() -> MutexGuard<'static, Vec<TracedSpan>> {
    SPANS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kept_between_begin_and_end() {
        // Other tests of the process may have spans too.
        let mine = |spans: Vec<TracedSpan>| spans.into_iter().filter(|span| span.name().starts_with("mine")).collect();
        assert!(span(|| "mine before").is_none());
        begin_trace();
        let outer = span(|| "mine outer");
        let inner = std::thread::spawn(|| drop(span(|| format!("mine {}", "inner"))));
        assert!(inner.join().is_ok());
        drop(outer);
        let spans: Vec<TracedSpan> = mine(end_trace());
        let names: Vec<&str> = spans.iter().map(TracedSpan::name).collect();
        assert_eq!(names, ["mine inner", "mine outer"]);
        assert!(spans[0].thread() != spans[1].thread());
        assert!(spans[0].begun() >= spans[1].begun() && spans[0].took() <= spans[1].took());
        assert!(span(|| "mine behind").is_none() && mine(end_trace()).is_empty());
    }
}
