//! Many clients at once: how many queries a second they get answered, and how long one of them waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::parameters::Parameters;
use super::queries::query_text;
use crate::error::{CliError, Result};

/// Sets of random parameters: so many texts of each query.
const TEXTS_EACH: u64 = 4;

/// So many clients that each send one query after the other, drawn at random.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientsReport {
    /// Clients at once.
    pub clients: usize,
    /// Through warpjoin.
    pub device: Throughput,
    /// Through stock DataFusion with its defaults, unless it was left out.
    pub datafusion: Option<Throughput>,
}

/// What clients got from an engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Throughput {
    /// Queries that were answered.
    pub queries: usize,
    /// From the first query to the last answer.
    pub seconds: f64,
    /// What half of the queries took at most, planning and waiting included.
    pub median_ms: f64,
    /// What 99 of 100 took at most.
    pub p99_ms: f64,
}

impl Throughput {
    /// Answers a second.
    pub fn queries_per_second(&self) -> f64 {
        self.queries as f64 / self.seconds
    }
}

/// A text, and how many rows its answer has.
struct Question {
    sql: String,
    rows: usize,
}

/// The engines, and what is asked.
pub(super) struct Clients {
    device: SessionContext,
    stock: Option<SessionContext>,
    questions: Arc<[Question]>,
}

impl Clients {
    /// Runs every text once, so that all is hot: the first run of a text is not what is measured.
    pub(super) async fn new(
        device: &SessionContext,
        stock: Option<&SessionContext>,
        queries: &[u32],
        scale: f64,
    ) -> Result<Self> {
        let mut questions = vec![];
        for (seed, &number) in (0..TEXTS_EACH).flat_map(|seed| queries.iter().map(move |number| (seed, number))) {
            let Some(sql) = query_text(number, &Parameters::random(scale, seed)) else { continue };
            let rows = ask(device, &sql).await?;
            if let Some(stock) = stock {
                let expected = ask(stock, &sql).await?;
                if rows != expected {
                    return Err(CliError::Query(format!(
                        "query {number} has {rows} rows, and {expected} through stock DataFusion: {sql}"
                    )));
                }
            }
            questions.push(Question { sql, rows });
        }
        Ok(Self { device: device.clone(), stock: stock.cloned(), questions: questions.into() })
    }

    /// So many clients for so long, first on one engine, then on the other.
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
            tasks.spawn(run_client(context.clone(), Arc::clone(&self.questions), client, start + time));
        }
        let mut all_ms = vec![];
        while let Some(client) = tasks.join_next().await {
            all_ms.extend(client.map_err(|error| CliError::Internal(format!("a client ended: {error}")))??);
        }
        let seconds = start.elapsed().as_secs_f64();
        all_ms.sort_by(f64::total_cmp);
        let at_most = |share: f64| all_ms[((all_ms.len() - 1) as f64 * share) as usize];
        Ok(Throughput { queries: all_ms.len(), seconds, median_ms: at_most(0.5), p99_ms: at_most(0.99) })
    }
}

/// One query after the other until it is late; what each took. At least one.
async fn run_client(
    context: SessionContext,
    questions: Arc<[Question]>,
    seed: u64,
    until: Instant,
) -> Result<Vec<f64>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut all_ms = vec![];
    while all_ms.is_empty() || Instant::now() < until {
        let Question { sql, rows } = &questions[random.random_range(0..questions.len())];
        let start = Instant::now();
        let found = ask(&context, sql).await?;
        all_ms.push(start.elapsed().as_secs_f64() * 1e3);
        if found != *rows {
            return Err(CliError::Query(format!("{found} rows among other queries, {rows} alone: {sql}")));
        }
    }
    Ok(all_ms)
}

/// Rows of the answer.
async fn ask(context: &SessionContext, sql: &str) -> Result<usize> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}
