//! Generates the parts of a table on several threads, and passes them on in order.
//!
//! Owns the limit on parts in memory: two per thread. Must not know who consumes the rows.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use super::tables::TpchTable;
use crate::error::{CliError, Result};

/// Rows of a generated batch: DataFusion's default batch size.
const BATCH_ROWS: usize = 8192;

/// What to generate.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The table.
    pub table: TpchTable,
    /// Scale factor.
    pub scale: f64,
    /// Columns, as positions in the table's schema.
    pub projection: Vec<usize>,
    /// Number of threads.
    pub threads: usize,
}

type PartResult = Result<Vec<RecordBatch>, ArrowError>;

/// The next part to generate, and the queue that keeps the parts in order.
struct Parts {
    next: u32,
    queue: SyncSender<Receiver<PartResult>>,
}

impl Generation {
    /// Generates the table, and passes the number and the batches of each part to `consume`, in order.
    ///
    /// # Errors
    /// The first error of `consume`, which stops the generation.
    pub fn run(&self, mut consume: impl FnMut(u32, Vec<RecordBatch>) -> Result<()>) -> Result<()> {
        let parts = self.table.parts(self.scale);
        let threads = self.threads.clamp(1, parts as usize);
        let (queue, made) = sync_channel(2 * threads);
        let waiting = Mutex::new(Some(Parts { next: 0, queue }));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.make_parts(&waiting, parts));
            }
            // Moved here, so that an early return closes the queue and the threads end.
            let made = made;
            for (number, part) in made.iter().enumerate() {
                let part = part.recv().map_err(|_| CliError::Internal("a generator thread panicked".to_string()))?;
                consume(u32::try_from(number).unwrap_or(u32::MAX), part?)?;
            }
            Ok(())
        })
    }

    fn make_parts(&self, waiting: &Mutex<Option<Parts>>, parts: u32) {
        loop {
            let (number, sender) = {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(left) = waiting.as_mut() else { return };
                let number = left.next;
                let (sender, receiver) = sync_channel(1);
                // Blocks while the queue is full. The lock stays held, so that all other threads wait too.
                if number == parts || left.queue.send(receiver).is_err() {
                    *waiting = None;
                    return;
                }
                left.next += 1;
                (number, sender)
            };
            // Fails only if the consumer has failed.
            let _ = sender.send(self.make_part(number, parts));
        }
    }

    fn make_part(&self, number: u32, parts: u32) -> PartResult {
        self.table
            .generate(self.scale, number, parts, BATCH_ROWS)
            .map(|batch| batch?.project(&self.projection))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn parts_are_complete_and_in_order() {
        for threads in [1, 4] {
            let generation = Generation { table: TpchTable::Orders, scale: 0.3, projection: vec![0], threads };
            let (mut keys, mut numbers) = (vec![], vec![]);
            generation
                .run(|number, batches| {
                    numbers.push(number);
                    for batch in batches {
                        keys.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
                    }
                    Ok(())
                })
                .unwrap();
            assert_eq!(keys.len() as u64, TpchTable::Orders.rows(0.3));
            assert!(keys.is_sorted());
            assert_eq!(numbers, (0..4).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_of_the_consumer_stops_the_generation() {
        let generation = Generation { table: TpchTable::LineItem, scale: 0.1, projection: vec![0], threads: 3 };
        let result = generation.run(|number, _| match number {
            1 => Err(CliError::Cancelled),
            _ => Ok(()),
        });
        assert!(matches!(result, Err(CliError::Cancelled)));
    }
}
