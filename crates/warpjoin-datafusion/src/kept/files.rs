//! Dependencies of a plan over files besides the query: the files of its tables, and the cached columns that it reads.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::SessionState;
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::local::LocalFileSystem;
use futures::TryStreamExt;
use futures::future::join_all;
use warpjoin::{Session, Table};

use crate::cache::{CachedScan, ColumnCache, ParquetScan, are_current};
use crate::config::CacheSettings;

/// A listing of a table's files, made before a query was planned.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    table: Weak<dyn TableProvider>,
    /// The files, ordered by path.
    files: Vec<ObjectMeta>,
    /// If all files are local: their folders.
    folders: Option<Folders>,
}

impl Listing {
    /// The current files of a table. `None` if the table can't list them, or only by a request to a remote store.
    pub(crate) async fn of(table: &Arc<dyn TableProvider>, session: &SessionState) -> Option<Self> {
        // A file that comes while files are listed changes a folder behind this.
        let folders = Folders::of(table);
        let files = list(table, session).await?;
        Some(Self { table: Arc::downgrade(table), files, folders })
    }

    async fn is_current(&self, session: &SessionState) -> bool {
        let Some(table) = self.table.upgrade() else { return false };
        self.is_unchanged() || list(&table, session).await.is_some_and(|files| files == self.files)
    }

    /// Whether the files are known to be unchanged without listing them.
    fn is_unchanged(&self) -> bool {
        self.folders.as_ref().is_some_and(Folders::are_unchanged) && are_current(&self.files)
    }
}

/// All folders of a table's local files, with the times at which their entries were last added, removed or renamed.
#[derive(Debug, Clone)]
struct Folders(Vec<(PathBuf, SystemTime)>);

/// Maximum folders whose modification times are checked; beyond, files are listed.
const FOLDERS_MAX: usize = 1000;
/// Minimum age of a folder's last change, so that a change right after the check gets another time.
const SETTLED: Duration = Duration::from_secs(2);

impl Folders {
    /// `None` if some files are not local, or a folder has changed just now.
    fn of(table: &Arc<dyn TableProvider>) -> Option<Self> {
        let table = table.downcast_ref::<ListingTable>()?;
        let (local, mut folders, mut next) = (LocalFileSystem::new(), vec![], vec![]);
        for path in table.table_paths() {
            if !path.object_store().as_str().starts_with("file:") {
                return None;
            }
            let path = local.path_to_filesystem(path.prefix()).ok()?;
            match std::fs::metadata(&path) {
                Ok(found) if found.is_dir() => next.push(path),
                // The file itself tells.
                Ok(_) => {}
                // It may come.
                Err(_) => return None,
            }
        }
        while let Some(folder) = next.pop() {
            let changed = std::fs::metadata(&folder).ok()?.modified().ok()?;
            if folders.len() == FOLDERS_MAX || changed.elapsed().ok()? < SETTLED {
                return None;
            }
            for entry in std::fs::read_dir(&folder).ok()? {
                let entry = entry.ok()?;
                let kind = entry.file_type().ok()?;
                if kind.is_dir() || kind.is_symlink() && entry.path().is_dir() {
                    next.push(entry.path());
                }
            }
            folders.push((folder, changed));
        }
        Some(Self(folders))
    }

    fn are_unchanged(&self) -> bool {
        let is_unchanged = |(folder, changed): &(PathBuf, SystemTime)| {
            std::fs::metadata(folder).and_then(|now| now.modified()).is_ok_and(|now| now == *changed)
        };
        self.0.iter().all(is_unchanged)
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

/// Columns of files that a plan reads.
#[derive(Debug, Clone)]
pub(crate) struct ReadColumns {
    scan: ParquetScan,
    schema: SchemaRef,
    cache: Arc<ColumnCache>,
    settings: CacheSettings,
    session: Weak<Session>,
    /// Their table in the cache. `None`: they are looked up or read when the plan runs.
    table: Option<Weak<Table>>,
}

impl ReadColumns {
    /// The columns of a scan with this `schema`, with their table; `None` unless a plan that is made now would read
    /// them from the cache.
    pub(crate) fn of(
        scan: ParquetScan,
        schema: SchemaRef,
        cache: &Arc<ColumnCache>,
        settings: CacheSettings,
        session: &Arc<Session>,
    ) -> Option<(Self, Arc<Table>)> {
        let table = cache.resident(&scan, &schema, settings.limits(session))?;
        let (cache, session) = (Arc::clone(cache), Arc::downgrade(session));
        Some((Self { scan, schema, cache, settings, session, table: Some(Arc::downgrade(&table)) }, table))
    }

    /// The columns of a scan that reads them when it runs.
    pub(crate) fn later(scan: &CachedScan, session: &Arc<Session>) -> Self {
        let CachedScan { scan, schema, cache, settings } = scan.clone();
        Self { scan, schema, cache, settings, session: Arc::downgrade(session), table: None }
    }

    fn are_current(&self) -> bool {
        let Some(session) = self.session.upgrade() else { return false };
        let limits = self.settings.limits(&session);
        match (self.cache.resident(&self.scan, &self.schema, limits), &self.table) {
            (Some(table), Some(known)) => known.as_ptr() == Arc::as_ptr(&table),
            (None, None) => self.cache.accepts(&self.scan, limits),
            _ => false,
        }
    }
}

/// Dependencies of a plan over files. Empty for other plans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    listings: Vec<Listing>,
    columns: Vec<ReadColumns>,
}

impl Files {
    pub(crate) fn new(listings: Vec<Listing>, columns: Vec<ReadColumns>) -> Self {
        Self { listings, columns }
    }

    /// Whether the plan reads the same files and columns as a plan that is made now.
    pub(crate) async fn are_current(&self, session: &SessionState) -> bool {
        self.columns.iter().all(ReadColumns::are_current)
            && join_all(self.listings.iter().map(|listing| listing.is_current(session))).await.into_iter().all(|is| is)
    }

    /// Whether they are known to be current without listing files.
    pub(crate) fn are_unchanged(&self) -> bool {
        self.listings.iter().all(Listing::is_unchanged) && self.columns.iter().all(ReadColumns::are_current)
    }

    /// Whether another plan reads the same.
    pub(super) fn are(&self, other: &Self) -> bool {
        let are_same = |one: &ReadColumns, two: &ReadColumns| match (&one.table, &two.table) {
            (Some(one), Some(two)) => Weak::ptr_eq(one, two),
            (None, None) => one.scan.key == two.scan.key,
            _ => false,
        };
        let reads = |files: &Self, columns: &ReadColumns| files.columns.iter().any(|it| are_same(it, columns));
        let has = |files: &Self, listing: &Listing| files.listings.iter().any(|it| it.files == listing.files);
        self.columns.iter().all(|columns| reads(other, columns))
            && other.columns.iter().all(|columns| reads(self, columns))
            && self.listings.iter().all(|listing| has(other, listing))
    }

    /// Whether the plan reads one of these tables.
    pub(super) fn have(&self, tables: &[Weak<Table>]) -> bool {
        let mut own = self.columns.iter().filter_map(|columns| columns.table.as_ref());
        own.any(|own| tables.iter().any(|table| Weak::ptr_eq(table, own)))
    }

    /// Whether all columns were in the cache when the plan was made.
    pub(crate) fn are_cached(&self) -> bool {
        self.columns.iter().all(|columns| columns.table.is_some())
    }
}
