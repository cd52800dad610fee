//! What a plan over files depends on besides the query: which files its tables have, and which cached columns it reads.

use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::SessionState;
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;
use futures::future::join_all;
use warpjoin::{Session, Table};

use crate::cache::{ColumnCache, ParquetScan};
use crate::config::CacheSettings;

/// The files of a table, as they were listed before a query was planned.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    table: Weak<dyn TableProvider>,
    /// By path.
    files: Vec<ObjectMeta>,
}

impl Listing {
    /// The files that a table has now. `None` if the table can't tell, or only by asking a remote store.
    pub(crate) async fn of(table: &Arc<dyn TableProvider>, session: &SessionState) -> Option<Self> {
        let files = list(table, session).await?;
        Some(Self { table: Arc::downgrade(table), files })
    }

    async fn is_current(&self, session: &SessionState) -> bool {
        let Some(table) = self.table.upgrade() else { return false };
        list(&table, session).await.is_some_and(|files| files == self.files)
    }
}

/// Lists files as DataFusion does when it plans.
async fn list(table: &Arc<dyn TableProvider>, session: &SessionState) -> Option<Vec<ObjectMeta>> {
    let table = table.downcast_ref::<ListingTable>()?;
    let are_listings_kept = session.runtime_env().cache_manager.get_list_files_cache().is_some();
    let mut files: Vec<ObjectMeta> = vec![];
    for path in table.table_paths() {
        let url = path.object_store();
        let is_local = url.as_str().starts_with("file:");
        let is_cheap = is_local || are_listings_kept && path.is_collection();
        if !is_cheap {
            return None;
        }
        let store = session.runtime_env().object_store(&url).ok()?;
        let listed = path.list_all_files(session, store.as_ref(), &table.options().file_extension).await.ok()?;
        files.extend(listed.try_collect::<Vec<_>>().await.ok()?);
    }
    files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
    Some(files)
}

/// Cached columns that a plan reads.
#[derive(Debug, Clone)]
pub(crate) struct ReadColumns {
    scan: ParquetScan,
    schema: SchemaRef,
    cache: Arc<ColumnCache>,
    settings: CacheSettings,
    session: Weak<Session>,
    table: Weak<Table>,
}

impl ReadColumns {
    /// The columns of a scan whose `schema` these are; `None` unless a plan that is made now would read them from the cache.
    /// Also returns their table.
    pub(crate) fn of(
        scan: ParquetScan,
        schema: SchemaRef,
        cache: &Arc<ColumnCache>,
        settings: CacheSettings,
        session: &Arc<Session>,
    ) -> Option<(Self, Arc<Table>)> {
        let table = cache.resident(&scan, &schema, settings.limits(session), session)?;
        let (cache, session) = (Arc::clone(cache), Arc::downgrade(session));
        Some((Self { scan, schema, cache, settings, session, table: Arc::downgrade(&table) }, table))
    }

    fn are_current(&self) -> bool {
        let Some(session) = self.session.upgrade() else { return false };
        let table = self.cache.resident(&self.scan, &self.schema, self.settings.limits(&session), &session);
        table.is_some_and(|table| Weak::as_ptr(&self.table) == Arc::as_ptr(&table))
    }
}

/// What a plan over files depends on. Empty for other plans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    listings: Vec<Listing>,
    columns: Vec<ReadColumns>,
}

impl Files {
    pub(crate) fn new(listings: Vec<Listing>, columns: Vec<ReadColumns>) -> Self {
        Self { listings, columns }
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.listings.is_empty()
    }

    /// Whether the plan reads what a plan that is made now would read.
    pub(crate) async fn are_current(&self, session: &SessionState) -> bool {
        self.columns.iter().all(ReadColumns::are_current)
            && join_all(self.listings.iter().map(|listing| listing.is_current(session))).await.into_iter().all(|is| is)
    }

    /// Whether another plan reads the same.
    pub(super) fn are(&self, other: &Self) -> bool {
        let reads = |files: &Self, table: &Weak<Table>| files.columns.iter().any(|it| Weak::ptr_eq(&it.table, table));
        let has = |files: &Self, listing: &Listing| files.listings.iter().any(|it| it.files == listing.files);
        self.columns.iter().all(|columns| reads(other, &columns.table))
            && other.columns.iter().all(|columns| reads(self, &columns.table))
            && self.listings.iter().all(|listing| has(other, listing))
    }

    /// Whether the plan reads one of these tables.
    pub(super) fn have(&self, tables: &[Weak<Table>]) -> bool {
        self.columns.iter().any(|columns| tables.iter().any(|table| Weak::ptr_eq(table, &columns.table)))
    }
}
