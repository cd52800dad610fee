//! How many queries use the devices of a runtime at once; further ones wait.
//!
//! A query's parts share one place: a part that waits for the rows of another part of its own query must not keep that one
//! from starting. Must not know what queries need: memory is not looked at here.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::execution::TaskContext;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use warpjoin_device::sync::{Mutex, locked};

/// Queries that use the devices of a runtime at once. A GPU is busy with a few; each has a thread and working memory.
pub(crate) const QUERIES_DEFAULT: usize = 16;

/// The places of a runtime.
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    #[cfg(test)]
    places_max: usize,
    /// Queries that have a place or wait for one, by the address of their context.
    queries: Arc<Queries>,
}

type Queries = Mutex<HashMap<usize, Weak<Place>>>;

/// A query's place: given back when the last of its parts drops it.
pub(crate) struct Place {
    key: usize,
    queries: Arc<Queries>,
    permit: OnceCell<OwnedSemaphorePermit>,
}

impl Admission {
    pub(crate) fn new(queries_max: usize) -> Self {
        let places_max = queries_max.max(1);
        Self {
            places: Arc::new(Semaphore::new(places_max)),
            #[cfg(test)]
            places_max,
            queries: Arc::default(),
        }
    }

    /// Waits for a place for the query of `context`, unless a part of it has one. Dropping the future stops waiting.
    pub(crate) async fn admit(&self, context: &Arc<TaskContext>) -> Arc<Place> {
        let place = self.place_of(Arc::as_ptr(context).addr());
        let permit = || async { Arc::clone(&self.places).acquire_owned().await };
        // The semaphore is never closed; if it were, queries would run unlimited.
        let _ = place.permit.get_or_try_init(permit).await;
        place
    }

    /// Whether no query has a place or waits for one.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        locked(&self.queries).is_empty() && self.places.available_permits() == self.places_max
    }

    fn place_of(&self, key: usize) -> Arc<Place> {
        let mut queries = locked(&self.queries);
        if let Some(place) = queries.get(&key).and_then(Weak::upgrade) {
            return place;
        }
        let place = Arc::new(Place { key, queries: Arc::clone(&self.queries), permit: OnceCell::new() });
        queries.insert(key, Arc::downgrade(&place));
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queries = locked(&self.queries);
        // Another query may have the address by now.
        if queries.get(&self.key).is_some_and(|place| place.strong_count() == 0) {
            queries.remove(&self.key);
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

    async fn is_admitted(admission: &Admission, context: &Arc<TaskContext>) -> Option<Arc<Place>> {
        tokio::time::timeout(Duration::from_millis(50), admission.admit(context)).await.ok()
    }

    #[tokio::test]
    async fn parts_of_a_query_share_a_place_and_others_wait() {
        let (admission, contexts) = (Admission::new(2), contexts(3));
        let upper = admission.admit(&contexts[0]).await;
        let lower = admission.admit(&contexts[0]).await;
        let other = admission.admit(&contexts[1]).await;
        assert!(is_admitted(&admission, &contexts[2]).await.is_none());
        drop(upper);
        assert!(is_admitted(&admission, &contexts[2]).await.is_none(), "the query still has a part");
        drop(lower);
        let third = is_admitted(&admission, &contexts[2]).await.expect("a place");
        drop((other, third));
        assert!(admission.is_idle());
    }

    #[tokio::test]
    async fn parts_that_wait_together_get_one_place() {
        let (admission, contexts) = (Arc::new(Admission::new(1)), contexts(2));
        let busy = admission.admit(&contexts[0]).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let (admission, context) = (Arc::clone(&admission), Arc::clone(&contexts[1]));
                tokio::spawn(async move { admission.admit(&context).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        // Whoever waits first may give up: another part waits in its place.
        waiting[0].abort();
        drop(busy);
        let mut places = vec![];
        for place in waiting.into_iter().skip(1) {
            places.push(tokio::time::timeout(Duration::from_secs(5), place).await.expect("no hang").expect("a place"));
        }
        drop(places);
        assert!(admission.is_idle());
    }
}
