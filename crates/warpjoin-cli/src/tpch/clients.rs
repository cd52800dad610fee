//! Concurrent clients: throughput and latency of queries.
//!
//! Must not know which engine a session runs on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use warpjoin_datafusion::WarpjoinSessionContext;

use super::parameters::Parameters;
use super::queries::query_text;
use crate::error::{CliError, Result};

/// Number of sets of random parameters, and so of texts of each query.
const TEXTS_PER_QUERY: u64 = 4;

/// Measurement with a number of concurrent clients, each of which runs random queries one after another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientsReport {
    /// Number of concurrent clients.
    pub clients: usize,
    /// warpjoin.
    pub device: Throughput,
    /// Stock DataFusion with its defaults, if it ran.
    pub datafusion: Option<Throughput>,
}

/// Throughput and latency of an engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Throughput {
    /// Number of queries.
    pub queries: usize,
    /// Time from the first query to the last answer.
    pub seconds: f64,
    /// Median latency, including planning and waiting.
    pub median_ms: f64,
    /// 99th percentile of the latency.
    pub p99_ms: f64,
}

impl Throughput {
    /// Queries per second.
    pub fn queries_per_second(&self) -> f64 {
        self.queries as f64 / self.seconds
    }
}

/// The text of a query, and the number of rows of its answer.
struct ClientQuery {
    sql: String,
    rows: usize,
}

/// The engines, and the queries of the clients.
pub(super) struct Clients {
    device: SessionContext,
    stock: Option<SessionContext>,
    queries: Arc<[ClientQuery]>,
}

impl Clients {
    /// Runs each text once, so that only hot queries are measured.
    pub(super) async fn new(
        device: &SessionContext,
        stock: Option<&SessionContext>,
        queries: &[u32],
        scale: f64,
    ) -> Result<Self> {
        let mut client_queries = vec![];
        for (seed, &number) in (0..TEXTS_PER_QUERY).flat_map(|seed| queries.iter().map(move |number| (seed, number))) {
            let Some(sql) = query_text(number, &Parameters::random(scale, seed)) else { continue };
            let rows = count_rows(device, &sql).await?;
            if let Some(stock) = stock {
                let expected = count_rows(stock, &sql).await?;
                if rows != expected {
                    return Err(CliError::Query(format!(
                        "query {number} has {rows} rows, but {expected} on stock DataFusion: {sql}"
                    )));
                }
            }
            client_queries.push(ClientQuery { sql, rows });
        }
        Ok(Self { device: device.clone(), stock: stock.cloned(), queries: client_queries.into() })
    }

    /// Runs `clients` concurrent clients for `time`, first on warpjoin, then on stock DataFusion.
    pub(super) async fn run(&self, clients: usize, time: Duration) -> Result<ClientsReport> {
        let device = self.throughput(&self.device, clients, time).await?;
        let datafusion = match &self.stock {
            Some(stock) => Some(self.throughput(stock, clients, time).await?),
            None => None,
        };
        Ok(ClientsReport { clients, device, datafusion })
    }

    async fn throughput(&self, context: &SessionContext, clients: usize, time: Duration) -> Result<Throughput> {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for client in 0..clients as u64 {
            tasks.spawn(run_client(context.clone(), Arc::clone(&self.queries), client, start + time));
        }
        let mut all_ms = vec![];
        while let Some(client) = tasks.join_next().await {
            all_ms.extend(client.map_err(|error| CliError::Internal(format!("a client failed: {error}")))??);
        }
        let seconds = start.elapsed().as_secs_f64();
        all_ms.sort_by(f64::total_cmp);
        let quantile = |share: f64| all_ms[((all_ms.len() - 1) as f64 * share) as usize];
        Ok(Throughput { queries: all_ms.len(), seconds, median_ms: quantile(0.5), p99_ms: quantile(0.99) })
    }
}

/// Runs random queries until `until`, but at least one. Returns the latency of each.
async fn run_client(
    context: SessionContext,
    queries: Arc<[ClientQuery]>,
    seed: u64,
    until: Instant,
) -> Result<Vec<f64>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut all_ms = vec![];
    while all_ms.is_empty() || Instant::now() < until {
        let ClientQuery { sql, rows } = &queries[random.random_range(0..queries.len())];
        let start = Instant::now();
        let found = count_rows(&context, sql).await?;
        all_ms.push(start.elapsed().as_secs_f64() * 1e3);
        if found != *rows {
            return Err(CliError::Query(format!("{found} rows with concurrent queries, {rows} without: {sql}")));
        }
    }
    Ok(all_ms)
}

/// Runs a query, and counts the rows of its answer.
async fn count_rows(context: &SessionContext, sql: &str) -> Result<usize> {
    let batches = context.query(sql).await?.collect().await?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}
