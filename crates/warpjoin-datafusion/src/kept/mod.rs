//! Plans of earlier queries, kept for later ones.
//!
//! Owns what is kept, how it is found, and when it goes. Must not know how queries are planned ([`crate::planner`]).
//!
//! A kept plan holds its tables. So plans are dropped when their table is no longer registered ([`Registered`]), and
//! when cached columns must be evicted ([`TableHolder`]).

mod entries;
mod environment;
mod files;
mod lease;
pub(crate) mod parameter;
mod text;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use warpjoin::Table;
use warpjoin_device::sync::{self, Mutex};

use crate::cache::TableHolder;

use entries::Entries;
pub(crate) use environment::EnvironmentId;
use environment::Environments;
pub(crate) use files::{Files, Listing, ReadColumns};
pub(crate) use lease::{Bound, Instance, KeptPlan, LeasedExec};
pub(crate) use text::{Functions, Names};

/// Identifies a registered table: another table with the same name has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TableId(u64);

impl TableId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// All [`KeptPlans`] of the process.
static ALL: std::sync::Mutex<Vec<Weak<KeptPlans>>> = std::sync::Mutex::new(vec![]);

/// A table that queries can name. When it is dropped, its plans are too, so that its memory is freed after the last
/// query.
#[derive(Debug)]
pub(crate) struct Registered {
    id: TableId,
}

impl Registered {
    pub(crate) fn new() -> Self {
        Self { id: TableId::next() }
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let all: Vec<_> = locked_all().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|plans| plans.forget_if(|plan| plan.tables().contains(&self.id)));
    }
}

fn locked_all() -> std::sync::MutexGuard<'static, Vec<Weak<KeptPlans>>> {
    ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The planning stage of a logical plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// As parsed from SQL.
    Given,
    /// As parsed from SQL, with parameters in place of literals.
    Parameterized,
    /// Optimized by DataFusion.
    Optimized,
}

/// The lookup key of a logical plan. `tables` are those of its scans, in the order of the plan.
#[derive(Debug, PartialEq)]
pub(crate) struct LogicalKey<P> {
    pub(crate) environment: EnvironmentId,
    pub(crate) stage: Stage,
    pub(crate) tables: Vec<TableId>,
    pub(crate) plan: P,
}

impl LogicalKey<&LogicalPlan> {
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.environment, self.stage, &self.tables, self.plan).hash(&mut hasher);
        hasher.finish()
    }

    fn is(&self, kept: &LogicalKey<LogicalPlan>) -> bool {
        self.environment == kept.environment
            && self.stage == kept.stage
            && self.tables == kept.tables
            && *self.plan == kept.plan
    }
}

/// The lookup key of a query text.
#[derive(Debug, PartialEq)]
struct TextKey {
    environment: EnvironmentId,
    sql: String,
    names: Arc<Names>,
}

/// Maximum queries whose occurrences are counted.
const SIGHTS_MAX: usize = 4096;

/// The kept plans of all sessions of a runtime.
#[derive(Debug)]
pub(crate) struct KeptPlans {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    environments: Environments,
    logical: Entries<LogicalKey<LogicalPlan>>,
    texts: Entries<TextKey>,
    /// Number of occurrences of queries, by the hashes of their keys.
    sights: HashMap<u64, u32>,
    /// Tables of files.
    named: Vec<(Weak<dyn TableProvider>, TableId)>,
}

impl KeptPlans {
    pub(crate) fn new() -> Arc<Self> {
        let plans = Arc::new(Self { state: Mutex::default() });
        let mut all = locked_all();
        all.retain(|plans| plans.strong_count() > 0);
        all.push(Arc::downgrade(&plans));
        plans
    }

    /// The settings and rules that `session` plans with.
    pub(crate) fn environment(&self, session: &SessionState) -> EnvironmentId {
        sync::locked(&self.state).environments.of(session)
    }

    /// The id of a table whose removal is not reported: its plans are dropped when the next such table gets an id.
    pub(crate) fn name(&self, table: &Arc<dyn TableProvider>) -> TableId {
        let mut state = sync::locked(&self.state);
        let address = Arc::as_ptr(table).addr();
        // A table that is held weakly keeps its address.
        if let Some((_, id)) = state.named.iter().find(|(known, _)| known.as_ptr().addr() == address) {
            return *id;
        }
        let id = TableId::next();
        let gone: Vec<_> = state.named.extract_if(.., |(known, _)| known.strong_count() == 0).collect();
        state.named.push((Arc::downgrade(table), id));
        drop(state);
        if !gone.is_empty() {
            self.forget_if(|plan| gone.iter().any(|(_, gone)| plan.tables().contains(gone)));
        }
        id
    }

    /// The plan that was kept for a logical plan.
    pub(crate) fn find(&self, key: &LogicalKey<&LogicalPlan>) -> Option<Bound> {
        let hash = key.hash();
        sync::locked(&self.state).logical.find(hash, |kept| key.is(kept))
    }

    /// Keeps `plan` for a logical plan; `without_tables` is the logical plan without its tables. Beyond `plans_max`,
    /// the least recently used plan is evicted.
    pub(crate) fn keep(
        &self,
        key: LogicalKey<&LogicalPlan>,
        without_tables: LogicalPlan,
        plan: Bound,
        plans_max: usize,
    ) {
        let hash = key.hash();
        let LogicalKey { environment, stage, tables, plan: _ } = key;
        let key = LogicalKey { environment, stage, tables, plan: without_tables };
        let gone = sync::locked(&self.state).logical.add(hash, key, plan, plans_max);
        // Plans hold tables, whose memory is not freed under the lock.
        drop(gone);
    }

    /// Number of occurrences of a query, including this one.
    pub(crate) fn sights(&self, key: &LogicalKey<&LogicalPlan>) -> u32 {
        let mut state = sync::locked(&self.state);
        if state.sights.len() >= SIGHTS_MAX {
            state.sights.clear();
        }
        let sights = state.sights.entry(key.hash()).or_default();
        *sights = sights.saturating_add(1);
        *sights
    }

    /// The plans that were kept for a text, with the meaning of its names at that time.
    pub(crate) fn find_texts(&self, environment: EnvironmentId, sql: &str) -> Vec<(Arc<Names>, Bound)> {
        let hash = hash_text(environment, sql);
        let is_it = |kept: &TextKey| kept.environment == environment && kept.sql == sql;
        let mut state = sync::locked(&self.state);
        state.texts.find_all(hash, is_it).map(|(kept, plan)| (Arc::clone(&kept.names), plan)).collect()
    }

    /// Keeps `plan` for a text, as long as its names mean the same.
    pub(crate) fn keep_text(&self, environment: EnvironmentId, sql: &str, names: Names, plan: Bound, plans_max: usize) {
        let key = TextKey { environment, sql: sql.to_string(), names: Arc::new(names) };
        let gone = sync::locked(&self.state).texts.add(hash_text(environment, sql), key, plan, plans_max);
        drop(gone);
    }

    /// Forgets a plan.
    pub(crate) fn forget(&self, gone: &KeptPlan) {
        self.forget_if(|plan| std::ptr::eq(plan, gone));
    }

    /// Forgets all plans.
    pub(crate) fn clear(&self) {
        self.forget_if(|_| true);
    }

    fn forget_if(&self, is_forgotten: impl Fn(&KeptPlan) -> bool) {
        let mut state = sync::locked(&self.state);
        let gone = (state.logical.remove_if(&is_forgotten), state.texts.remove_if(&is_forgotten));
        drop(state);
        drop(gone);
    }
}

impl TableHolder for KeptPlans {
    fn let_go(&self, tables: &[Weak<Table>]) {
        self.forget_if(|plan| plan.files().have(tables));
    }
}

fn hash_text(environment: EnvironmentId, sql: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (environment, sql).hash(&mut hasher);
    hasher.finish()
}
