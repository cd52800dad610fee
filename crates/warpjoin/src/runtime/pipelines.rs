//! Pipelines that were generated before: a hot query generates none.
//!
//! A pipeline holds the dictionaries of its strings. So it is remembered only as long as tables have them.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use warpjoin_codegen::{GeneratedPipeline, PipelineKey};
use warpjoin_columns::devices::DeviceSet;
use warpjoin_columns::devices::dictionaries::DictionaryKeeper;

/// Pipelines that are remembered; after so many, from the start.
const PIPELINES_MAX: usize = 1024;

/// The pipelines of a session.
pub(crate) struct Pipelines {
    devices: Arc<DeviceSet>,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    /// By hash of the key's bytes.
    known: HashMap<u64, Vec<(PipelineKey, Arc<GeneratedPipeline>)>>,
    count: usize,
}

impl Pipelines {
    /// Those of tables on these devices: none yet.
    pub(crate) fn of(devices: &Arc<DeviceSet>) -> Arc<Self> {
        let pipelines = Arc::new(Self { devices: Arc::clone(devices), remembered: Mutex::default() });
        let keeper: Weak<Self> = Arc::downgrade(&pipelines);
        devices.dictionaries().tell(keeper);
        pipelines
    }

    /// What was generated for an equal key.
    pub(crate) fn get(&self, key: &PipelineKey) -> Option<Arc<GeneratedPipeline>> {
        let remembered = self.locked();
        let alike = remembered.known.get(&hash_of(key))?;
        let (_, known) = alike.iter().find(|(known, _)| known == key)?;
        Some(Arc::clone(known))
    }

    /// Remembers what was generated, if tables have all of its dictionaries.
    pub(crate) fn keep(&self, key: PipelineKey, pipeline: &Arc<GeneratedPipeline>) {
        let mut remembered = self.locked();
        if !self.devices.dictionaries().have_all(key.dictionaries()) {
            return;
        }
        if remembered.count >= PIPELINES_MAX {
            remembered.known.clear();
            remembered.count = 0;
        }
        remembered.count += 1;
        remembered.known.entry(hash_of(&key)).or_default().push((key, Arc::clone(pipeline)));
    }

    /// Forgets pipelines with values that the host computed, of dictionaries or of constants.
    pub(crate) fn forget_results(&self) {
        let mut remembered = self.locked();
        let Remembered { known, count, .. } = &mut *remembered;
        known.retain(|_, alike| {
            alike.retain(|(_, pipeline)| pipeline.lookups.is_empty());
            !alike.is_empty()
        });
        *count = known.values().map(Vec::len).sum();
    }

    fn locked(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DictionaryKeeper for Pipelines {
    fn forget(&self, addresses: &[usize]) {
        let Remembered { known, count } = &mut *self.locked();
        known.retain(|_, alike| {
            alike.retain(|(key, _)| !key.dictionaries().iter().any(|address| addresses.contains(address)));
            !alike.is_empty()
        });
        *count = known.values().map(Vec::len).sum();
    }
}

fn hash_of(key: &PipelineKey) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key.bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Schema};
    use warpjoin_columns::expr::{CompareOp, Expr, ExprKind, Scalar};
    use warpjoin_columns::{Table, TableBuilder};
    use warpjoin_device::{SimOptions, open_simulated};
    use warpjoin_plan::options::ExecOptions;
    use warpjoin_plan::plan::{Plan, PlanKind};

    use super::*;
    use crate::{Session, exec};

    fn table(session: &Arc<Session>, words: &[&str]) -> Arc<Table> {
        let words: ArrayRef = Arc::new(words.iter().map(|word| Some(*word)).collect::<StringArray>());
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..words.len() as i64));
        let batch = RecordBatch::try_from_iter([("word", words), ("number", numbers)]).unwrap();
        let mut builder = TableBuilder::new(session.device_set(), batch.schema());
        builder.push(&batch).unwrap();
        Arc::new(builder.finish().unwrap())
    }

    /// Rows whose word is `word`, with or without remembered results.
    fn run_word(session: &Arc<Session>, table: &Arc<Table>, word: &str, remembers_results: bool) -> usize {
        let schema = table.schema();
        let kind = PlanKind::Scan { table: Arc::clone(table), projection: vec![0, 1] };
        let scan = Plan { kind, schema: Arc::clone(&schema) };
        let column = Box::new(Expr::column(0, DataType::Utf8, true));
        let word = Box::new(Expr::literal(Scalar::Bytes(word.as_bytes().into()), DataType::Utf8));
        let kind = ExprKind::Compare(CompareOp::Equal, column, word);
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: true };
        let plan = Plan { kind: PlanKind::Filter { input: Box::new(scan), predicate }, schema };
        let options = ExecOptions { remembers_results, ..ExecOptions::default() };
        let output = exec::run(session, &plan, &[], &options).unwrap();
        output.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn with_lookups(session: &Session) -> usize {
        let remembered = session.pipelines().locked();
        remembered.known.values().flatten().filter(|(_, pipeline)| !pipeline.lookups.is_empty()).count()
    }

    #[test]
    fn precomputed_values_are_forgotten_if_results_are_not_remembered() {
        let session = Session::new(open_simulated(&SimOptions::default()).unwrap()).unwrap();
        let words = table(&session, &["a", "b", "c", "b"]);
        assert_eq!(run_word(&session, &words, "b", true), 2);
        assert!(with_lookups(&session) > 0);
        assert_eq!(run_word(&session, &words, "b", false), 2);
        assert_eq!(with_lookups(&session), 0);
        count(&session);
    }

    /// Rows whose number is less than `bound`, and columns of them.
    fn run(session: &Arc<Session>, table: &Arc<Table>, bound: i128, columns: &[usize]) -> usize {
        let schema = table.schema();
        let kind = PlanKind::Scan { table: Arc::clone(table), projection: vec![0, 1] };
        let scan = Plan { kind, schema: Arc::clone(&schema) };
        let number = Box::new(Expr::column(1, DataType::Int64, false));
        let bound = Box::new(Expr::literal(Scalar::Int(bound), DataType::Int64));
        let kind = ExprKind::Compare(CompareOp::Less, number, bound);
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
        let filter = Plan { kind: PlanKind::Filter { input: Box::new(scan), predicate }, schema: Arc::clone(&schema) };
        let fields: Vec<_> = columns.iter().map(|&column| schema.field(column).clone()).collect();
        let exprs = columns.iter().zip(&fields);
        let exprs = exprs
            .map(|(&column, field)| Expr::column(column, field.data_type().clone(), field.is_nullable()))
            .collect();
        let kind = PlanKind::Project { input: Box::new(filter), exprs };
        let plan = Plan { kind, schema: Arc::new(Schema::new(fields)) };
        let output = exec::run(session, &plan, &[], &ExecOptions::default()).unwrap();
        output.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn count(session: &Session) -> usize {
        let remembered = session.pipelines().locked();
        assert_eq!(remembered.count, remembered.known.values().map(Vec::len).sum::<usize>());
        remembered.count
    }

    #[test]
    fn equal_pipelines_are_one_and_go_with_their_strings() {
        let session = Session::new(open_simulated(&SimOptions::default()).unwrap()).unwrap();
        let words = table(&session, &["a", "b", "c", "d"]);
        assert_eq!(run(&session, &words, 3, &[0, 1]), 3);
        let first = count(&session);
        assert!(first > 0);
        assert_eq!(run(&session, &words, 3, &[0, 1]), 3);
        assert_eq!(count(&session), first);
        // Another literal has other parameters, another column another kernel; neither is taken for the first.
        assert_eq!(run(&session, &words, 2, &[0, 1]), 2);
        assert_eq!(run(&session, &words, 3, &[1]), 3);
        let all = count(&session);
        assert!(all > first + 1);
        // Equal types, but other strings.
        let others = table(&session, &["e", "f", "g", "h"]);
        assert_eq!(run(&session, &others, 3, &[0, 1]), 3);
        assert_eq!(count(&session), all + first);
        drop(words);
        assert_eq!(count(&session), first);
        assert_eq!(run(&session, &others, 3, &[0, 1]), 3);
        drop(others);
        assert_eq!(count(&session), 0);
        assert!(!session.device_set().dictionaries().is_owned());
    }
}
