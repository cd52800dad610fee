//! Admission control: limits how many queries use the devices of a runtime at once.
//!
//! The parts of a query share one permit. Otherwise a part could hold the last permit while it waits for the rows of
//! another part of its query. Must not know how much memory queries need.

use std::sync::{Arc, Weak};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use warpjoin_device::sync::{Mutex, locked};

/// Default limit of concurrent queries. A few queries keep a GPU busy, and each takes a thread and working memory.
pub(crate) const QUERIES_DEFAULT: usize = 16;

/// The permits of a runtime.
pub(crate) struct Admission {
    semaphore: Arc<Semaphore>,
    #[cfg(test)]
    queries_max: usize,
}

/// A query's permit. It is released when the last part of the query drops it.
#[derive(Default)]
pub(crate) struct Permit(OnceCell<OwnedSemaphorePermit>);

/// The permit of a query, as long as parts of it have one or wait for it.
#[derive(Default)]
pub(crate) struct PermitOfQuery(Mutex<Weak<Permit>>);

impl Admission {
    pub(crate) fn new(queries_max: usize) -> Self {
        let queries_max = queries_max.max(1);
        Self {
            semaphore: Arc::new(Semaphore::new(queries_max)),
            #[cfg(test)]
            queries_max,
        }
    }

    /// Waits for a permit, unless a part of the query has one. Dropping the future stops waiting.
    pub(crate) async fn admit(&self, query: &PermitOfQuery) -> Arc<Permit> {
        let permit = query.known_or_new();
        let acquire = || async { Arc::clone(&self.semaphore).acquire_owned().await };
        // The semaphore is never closed; if it were, queries would run without a limit.
        let _ = permit.0.get_or_try_init(acquire).await;
        permit
    }

    /// Whether no query has a permit.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.semaphore.available_permits() == self.queries_max
    }
}

impl PermitOfQuery {
    /// Whether the query has a permit (true) or waits for one (false). `None`: neither.
    pub(crate) fn is_acquired(&self) -> Option<bool> {
        locked(&self.0).upgrade().map(|permit| permit.0.initialized())
    }

    fn known_or_new(&self) -> Arc<Permit> {
        let mut known = locked(&self.0);
        known.upgrade().unwrap_or_else(|| {
            let permit = Arc::<Permit>::default();
            *known = Arc::downgrade(&permit);
            permit
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queries(count: usize) -> Vec<Arc<PermitOfQuery>> {
        (0..count).map(|_| Arc::default()).collect()
    }

    async fn try_admit(admission: &Admission, query: &PermitOfQuery) -> Option<Arc<Permit>> {
        tokio::time::timeout(Duration::from_millis(50), admission.admit(query)).await.ok()
    }

    #[tokio::test]
    async fn parts_of_a_query_share_a_permit_and_other_queries_wait() {
        let (admission, queries) = (Admission::new(2), queries(3));
        let upper = admission.admit(&queries[0]).await;
        let lower = admission.admit(&queries[0]).await;
        let other = admission.admit(&queries[1]).await;
        assert_eq!(queries[1].is_acquired(), Some(true));
        assert!(try_admit(&admission, &queries[2]).await.is_none());
        drop(upper);
        assert!(try_admit(&admission, &queries[2]).await.is_none(), "the query still has a part");
        drop(lower);
        let third = try_admit(&admission, &queries[2]).await.expect("a permit");
        drop((other, third));
        assert_eq!(queries[1].is_acquired(), None);
        assert!(admission.is_idle());
    }

    #[tokio::test]
    async fn parts_that_wait_together_get_one_permit() {
        let (admission, queries) = (Arc::new(Admission::new(1)), queries(2));
        let busy = admission.admit(&queries[0]).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let (admission, query) = (Arc::clone(&admission), Arc::clone(&queries[1]));
                tokio::spawn(async move { admission.admit(&query).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(queries[1].is_acquired(), Some(false));
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
