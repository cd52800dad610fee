//! The active queries of a runtime.
//!
//! Owns their ids, and which parts belong to one query. Must not know what a query does.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use warpjoin_device::sync::{Mutex, locked};

use crate::runtime::active_query::{ActiveQuery, QueryPart};
use crate::runtime::ended::QueryEnded;
use crate::runtime::query_info::QueryInfo;

/// The active queries of a runtime.
#[derive(Default)]
pub(crate) struct ActiveQueries(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Queries by the address of their context.
    by_context: HashMap<usize, Arc<ActiveQuery>>,
    last_id: u64,
}

impl ActiveQueries {
    /// A part of the query that runs in `context`, with the nodes that it replaces. The query is listed as long as one
    /// of its parts exists and runs.
    pub(crate) fn part(&self, context: &Arc<TaskContext>, root: &Arc<dyn ExecutionPlan>) -> Arc<QueryPart> {
        let mut known = locked(&self.0);
        let Known { by_context, last_id } = &mut *known;
        by_context.retain(|_, query| query.is_under_way());
        let query = by_context.entry(Arc::as_ptr(context).addr()).or_insert_with(|| {
            *last_id += 1;
            ActiveQuery::new(*last_id, context)
        });
        QueryPart::new(Arc::clone(query), root)
    }

    /// The queries with a part that runs or waits, oldest first.
    pub(crate) fn list(&self) -> Vec<QueryInfo> {
        // Without the lock: a plan prints itself.
        let queries: Vec<_> = locked(&self.0).by_context.values().cloned().collect();
        let mut infos: Vec<_> = queries.iter().filter_map(|query| query.info()).collect();
        infos.sort_by_key(QueryInfo::id);
        infos
    }

    /// Ends a query; returns whether there is one with this id.
    pub(crate) fn kill(&self, id: u64) -> bool {
        let found = locked(&self.0).by_context.values().find(|query| query.id() == id).cloned();
        let found = found.filter(|query| query.is_under_way());
        found.inspect(|query| query.end(QueryEnded::Killed { id })).is_some()
    }
}
