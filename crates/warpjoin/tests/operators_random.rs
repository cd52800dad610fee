//! tmp
mod common;
use common::sessions::{Opener, simulated};
#[test]
fn quick() {
    let from: u64 = std::env::var("FROM").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("N").ok().and_then(|v| v.parse().ok()).unwrap_or(100);
    let next = std::sync::atomic::AtomicU64::new(from);
    let counts = std::sync::Mutex::new(std::collections::BTreeMap::new());
    std::thread::scope(|s| for _ in 0..4 { s.spawn(|| {
        let opener = common::sessions::Simulated(warpjoin_device::SimOptions { sanitize: std::env::var("SAN").is_ok(), ..Default::default() });
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= from + n { break; }
            if std::env::var("LOG").is_ok() { eprintln!("start {seed}"); }
            let r = std::panic::catch_unwind(|| {
                let case = common::random::case(seed); if std::env::var("LOG").is_ok() { eprintln!("{} {:?}", case.plan, case.settings); for i in &case.inputs { eprintln!("{} {:?}", i.num_rows(), i.schema().fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>()); } }
                let session = opener.open(case.settings.devices).unwrap();
                case.check(&session)
            });
            if std::env::var("LOG").is_ok() { eprintln!("end {seed}"); }
            match r {
                Ok(Ok(o)) => { *counts.lock().unwrap().entry(o).or_insert(0) += 1; }
                Ok(Err(e)) => println!("SEED {seed}: {}\n", &e.chars().take(2500).collect::<String>()),
                Err(_) => println!("SEED {seed}: PANIC"),
            }
        }
    }); });
    println!("{:?}", counts.lock().unwrap());
}
