//! Admission control: limits how many queries use the devices of a runtime at once.
//!
//! The parts of a query share one permit. Otherwise a part could hold the last permit while it waits for the rows of
//! another part of its query. Must not know how much memory queries need.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::execution::TaskContext;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use warpjoin_device::sync::{Mutex, locked};

/// Default limit of concurrent queries. A few queries keep a GPU busy, and each takes a thread and working memory.
pub(crate) const QUERIES_DEFAULT: usize = 16;

/// The permits of a runtime.
pub(crate) struct Admission {
    semaphore: Arc<Semaphore>,
    #[cfg(test)]
    queries_max: usize,
    /// Queries that have a permit or wait for one, by the address of their context.
    queries: Arc<Queries>,
}

type Queries = Mutex<HashMap<usize, Weak<Permit>>>;

/// A query's permit. It is released when the last part of the query drops it.
pub(crate) struct Permit {
    /// Keeps its address, by which the parts of a query find their permit.
    context: Arc<TaskContext>,
    queries: Arc<Queries>,
    acquired: OnceCell<OwnedSemaphorePermit>,
}

impl Admission {
    pub(crate) fn new(queries_max: usize) -> Self {
        let queries_max = queries_max.max(1);
        Self {
            semaphore: Arc::new(Semaphore::new(queries_max)),
            #[cfg(test)]
            queries_max,
            queries: Arc::default(),
        }
    }

    /// Waits for a permit for the query of `context`, unless a part of it has one. Dropping the future stops waiting.
    pub(crate) async fn admit(&self, context: &Arc<TaskContext>) -> Arc<Permit> {
        let permit = self.permit_of(context);
        let acquire = || async { Arc::clone(&self.semaphore).acquire_owned().await };
        // The semaphore is never closed; if it were, queries would run without a limit.
        let _ = permit.acquired.get_or_try_init(acquire).await;
        permit
    }

    /// Whether no query has a permit or waits for one.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        locked(&self.queries).is_empty() && self.semaphore.available_permits() == self.queries_max
    }

    fn permit_of(&self, context: &Arc<TaskContext>) -> Arc<Permit> {
        let key = Arc::as_ptr(context).addr();
        let mut queries = locked(&self.queries);
        if let Some(permit) = queries.get(&key).and_then(Weak::upgrade) {
            return permit;
        }
        let permit = Arc::new(Permit {
            context: Arc::clone(context),
            queries: Arc::clone(&self.queries),
            acquired: OnceCell::new(),
        });
        queries.insert(key, Arc::downgrade(&permit));
        permit
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let key = Arc::as_ptr(&self.context).addr();
        let mut queries = locked(&self.queries);
        // A part that comes right now may have made another permit.
        if queries.get(&key).is_some_and(|permit| permit.strong_count() == 0) {
            queries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn contexts(count: usize) -> Vec<Arc<TaskContext>> {
        (0..count).map(|_| Arc::new(TaskContext::default())).collect()
    }

    async fn try_admit(admission: &Admission, context: &Arc<TaskContext>) -> Option<Arc<Permit>> {
        tokio::time::timeout(Duration::from_millis(50), admission.admit(context)).await.ok()
    }

    #[tokio::test]
    async fn parts_of_a_query_share_a_permit_and_other_queries_wait() {
        let (admission, contexts) = (Admission::new(2), contexts(3));
        let upper = admission.admit(&contexts[0]).await;
        let lower = admission.admit(&contexts[0]).await;
        let other = admission.admit(&contexts[1]).await;
        assert!(try_admit(&admission, &contexts[2]).await.is_none());
        drop(upper);
        assert!(try_admit(&admission, &contexts[2]).await.is_none(), "the query still has a part");
        drop(lower);
        let third = try_admit(&admission, &contexts[2]).await.expect("a permit");
        drop((other, third));
        assert!(admission.is_idle());
    }

    #[tokio::test]
    async fn parts_that_wait_together_get_one_permit() {
        let (admission, contexts) = (Arc::new(Admission::new(1)), contexts(2));
        let busy = admission.admit(&contexts[0]).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let (admission, context) = (Arc::clone(&admission), Arc::clone(&contexts[1]));
                tokio::spawn(async move { admission.admit(&context).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        // The first waiter may be cancelled; another part of the query goes on waiting.
        waiting[0].abort();
        drop(busy);
        let mut permits = vec![];
        for permit in waiting.into_iter().skip(1) {
            permits
                .push(tokio::time::timeout(Duration::from_secs(5), permit).await.expect("no hang").expect("a permit"));
        }
        drop(permits);
        assert!(admission.is_idle());
    }
}
