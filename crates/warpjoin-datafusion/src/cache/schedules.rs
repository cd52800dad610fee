//! The column cache under schedules that shuttle chooses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::{Session, Table, TableBuilder};
use warpjoin_device::sync::{self, Mutex, thread};
use warpjoin_device::{MemoryCache, MemoryPlace, SimOptions, open_simulated};

use super::columns::{ColumnCache, TableHolder};
use super::entry::{DecodedOn, ReadColumn};
use super::source::ScanKey;
use crate::config::CacheLimits;

const ROWS: i32 = 100;
/// How often a thread found a table of both columns.
static FOUND: AtomicUsize = AtomicUsize::new(0);

fn used_bytes(session: &Session) -> u64 {
    session.devices().iter().map(|device| device.memory().used_bytes()).sum()
}

/// Holds tables that no query uses.
#[derive(Default)]
struct Holder(Mutex<Vec<Arc<Table>>>);

impl TableHolder for Holder {
    fn let_go(&self, tables: &[Weak<Table>]) {
        let has_it = |held: &Arc<Table>| tables.iter().any(|table| table.as_ptr() == Arc::as_ptr(held));
        let gone: Vec<_> = sync::locked(&self.0).extract_if(.., |held| has_it(held)).collect();
        drop(gone);
    }
}

/// A table of one column.
fn table(session: &Arc<Session>, name: &str) -> Table {
    let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int32, false)]));
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).expect("a batch");
    let mut builder = TableBuilder::new(session.device_set(), schema);
    builder.push(&batch).expect("a batch of the schema");
    builder.finish().expect("memory")
}

#[test]
fn columns_are_found_whole_while_others_add_evict_and_forget_them() {
    sync::under_schedules(|| {
        let devices = open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }).expect("a device");
        let session = Session::new(devices).expect("a session");
        let before = used_bytes(&session);
        let holder = Arc::new(Holder::default());
        let weak: Weak<Holder> = Arc::downgrade(&holder);
        let cache = ColumnCache::on(&session, weak);
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int32, false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let key = ScanKey::of_file("t.parquet", Arc::clone(&schema));
        let tables = ["a", "b"].map(|name| table(&session, name));
        let bytes: u64 = tables.iter().map(Table::resident_bytes).sum();

        let readers = tables.into_iter().enumerate().map(|(column, table)| {
            let (cache, holder) = (Arc::clone(&cache), Arc::clone(&holder));
            let (key, schema) = (key.clone(), Arc::clone(&schema));
            thread::spawn(move || {
                let entry = cache.entry(&key);
                assert_eq!(entry.missing(&[column]), [column], "another reader has it");
                // The first thread's limit is less than both columns have: one leaves, unless it is in use.
                // It goes to the host's memory.
                let limits = CacheLimits {
                    device_bytes: if column == 0 { bytes - 1 } else { u64::MAX },
                    host_bytes: u64::MAX,
                    device_budget_bytes: u64::MAX,
                    host_budget_bytes: u64::MAX,
                };
                let read = ReadColumn { column, table: Arc::new(table), decoded_on: DecodedOn::Cpu };
                cache.add(&entry, vec![read], limits);
                if let Some(table) = entry.table(&[0, 1], &schema, &[], 7) {
                    FOUND.fetch_add(1, Ordering::Relaxed);
                    assert_eq!((table.rows(), table.schema()), (ROWS as u64, schema));
                    // Columns of a table in use are not given back.
                    cache.give_back(u64::MAX);
                    assert!(entry.table(&[0, 1], &table.schema(), &[], 8).is_some());
                    sync::locked(&holder.0).push(table);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        let forgetter = {
            let (cache, key) = (Arc::clone(&cache), key.clone());
            thread::spawn(move || {
                assert!(cache.bytes(MemoryPlace::Device) <= bytes);
                cache.give_back(1);
                let forgotten = cache.forget(&key);
                assert!(forgotten.len() <= 2 && forgotten.iter().all(|column| column.rows == ROWS as u64));
            })
        };
        readers.into_iter().chain([forgetter]).for_each(|thread| thread.join().expect("no panic"));
        assert!(Arc::ptr_eq(&cache.entry(&key), &cache.entry(&key)));
        cache.clear();
        for place in [MemoryPlace::Device, MemoryPlace::Host] {
            assert_eq!(cache.bytes(place), 0, "columns that nobody uses stay");
        }
        // Tables of files that were forgotten meanwhile.
        sync::locked(&holder.0).clear();
        assert_eq!(used_bytes(&session), before);
    });
    assert!(FOUND.load(Ordering::Relaxed) > 0, "no schedule has a table of both columns");
}
