//! Sessions of every kind of device, so that the same cases run on all of them.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use warpjoin::Session;
use warpjoin_device::{CudaOptions, Device, FaultPlan, SimOptions, open_cuda, open_simulated, with_faults};

/// Opens sessions on so many devices.
pub(crate) trait Opener: Sync {
    /// `None` where there are not so many devices.
    fn open(&self, devices: usize) -> Option<Arc<Session>>;
    /// Whether each session has devices that no other one has.
    fn has_own_devices(&self) -> bool {
        true
    }
}

/// Opens simulated devices like these.
pub(crate) struct Simulated(pub(crate) SimOptions);

impl Opener for Simulated {
    fn open(&self, devices: usize) -> Option<Arc<Session>> {
        let options = SimOptions { devices, threads: 1, ..self.0.clone() };
        Some(Session::new(open_simulated(&options).expect("devices")).expect("a session"))
    }
}

/// Simulated devices as they come.
pub(crate) fn simulated() -> Simulated {
    Simulated(SimOptions::default())
}

/// The devices of another opener, none of which can reach the memory of another.
pub(crate) struct WithoutPeers<O>(pub(crate) O);

impl<O: Opener> Opener for WithoutPeers<O> {
    fn open(&self, devices: usize) -> Option<Arc<Session>> {
        let apart = with_faults(self.0.open(devices)?.devices(), &FaultPlan::without_peers());
        let session = Session::new(apart).expect("a session");
        assert_eq!(session.has_peer_access(), devices == 1);
        Some(session)
    }

    fn has_own_devices(&self) -> bool {
        self.0.has_own_devices()
    }
}

/// The GPUs of this machine.
pub(crate) struct Gpus(Vec<Device>);

impl Opener for Gpus {
    fn open(&self, devices: usize) -> Option<Arc<Session>> {
        let devices = self.0.get(..devices)?;
        Some(Session::new(devices.to_vec()).expect("a session"))
    }

    fn has_own_devices(&self) -> bool {
        false
    }
}

/// The GPUs. `None`, after a SKIP line, when CUDA cannot be used; with `WARPJOIN_REQUIRE_GPU=1`
/// that is a failure.
pub(crate) fn gpus(test: &str) -> Option<Gpus> {
    match open_cuda(&CudaOptions::default()) {
        Ok(devices) => Some(Gpus(devices)),
        Err(error) if is_set("WARPJOIN_REQUIRE_GPU") => panic!("{test}: WARPJOIN_REQUIRE_GPU=1 and {error}"),
        Err(error) => {
            say(&format!("SKIP {test}: {error}"));
            None
        }
    }
}

/// Whether a variable of the environment is 1.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

/// What takes long is tried in so many runs: in this one the items whose number has this rest. Another one each hour, or
/// `WARPJOIN_RANDOM_SEED`'s.
pub(crate) fn turn(runs: usize) -> usize {
    let hours = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / 3600);
    let seed = std::env::var("WARPJOIN_RANDOM_SEED").ok().and_then(|seed| seed.parse().ok());
    (seed.unwrap_or_else(hours) % runs as u64) as usize
}

/// The items of this run's turn; with `WARPJOIN_EDGES_ALL=1` all.
pub(crate) fn in_turn<T>(items: impl IntoIterator<Item = T>, runs: usize) -> Vec<T> {
    let items = items.into_iter();
    if is_set("WARPJOIN_EDGES_ALL") { items.collect() } else { items.skip(turn(runs)).step_by(runs).collect() }
}

/// A line past the capture of the test harness, so that it is seen.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Runs `work` for every item, on as many threads as there are cores; the results in any order.
pub(crate) fn in_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(item);
                    results.lock().expect("no panic").push(result);
                }
            });
        }
    });
    results.into_inner().expect("no panic")
}
