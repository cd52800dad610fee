//! Compiles all kernels of the TPC-H queries with NVRTC for several architectures.
//!
//! Without libnvrtc the test prints SKIP and passes; with `WARPJOIN_REQUIRE_NVRTC=1` it fails.

mod common;

use common::queries::QUERIES;
use common::{load_tpch, register_tpch, run, warp};
use std::collections::HashSet;
use warpjoin_datafusion::session_of;
use warpjoin_device::{ModuleSource, compile_for_architecture, cuda_status};

const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

#[tokio::test(flavor = "multi_thread")]
async fn tpch_kernels_compile_for_every_architecture() {
    if cuda_status().nvrtc.is_none() {
        assert!(
            std::env::var("WARPJOIN_REQUIRE_NVRTC").is_err(),
            "WARPJOIN_REQUIRE_NVRTC is set and there is no NVRTC"
        );
        eprintln!("SKIP: no libnvrtc (put its folder on LD_LIBRARY_PATH)");
        return;
    }
    let mut sources: HashSet<ModuleSource> = HashSet::new();
    for devices in [1, 2] {
        let context = warp(devices, |_| {});
        register_tpch(&context, 0.01);
        load_tpch(&context).await;
        for (_, sql, ..) in QUERIES {
            run(&context, sql).await;
        }
        sources.extend(session_of(&context).unwrap().devices()[0].compiled_sources());
    }
    assert!(sources.len() > 40, "{} modules", sources.len());
    let sources: Vec<ModuleSource> = sources.into_iter().collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(source) = sources.get(number / ARCHITECTURES.len()) else { break };
                    let architecture = ARCHITECTURES[number % ARCHITECTURES.len()];
                    if let Err(error) = compile_for_architecture(source, architecture) {
                        panic!("{architecture}: {error}\n{}", source.text);
                    }
                }
            });
        }
    });
}
