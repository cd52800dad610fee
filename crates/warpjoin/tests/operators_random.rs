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
        let opener = simulated();
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= from + n { break; }
            let r = std::panic::catch_unwind(|| {
                let case = common::random::case(seed);
                let session = opener.open(case.settings.devices).unwrap();
                case.check(&session)
            });
            match r {
                Ok(Ok(o)) => { *counts.lock().unwrap().entry(o).or_insert(0) += 1; }
                Ok(Err(e)) => println!("SEED {seed}: {}\n", &e.chars().take(2500).collect::<String>()),
                Err(_) => println!("SEED {seed}: PANIC"),
            }
        }
    }); });
    println!("{:?}", counts.lock().unwrap());
}
