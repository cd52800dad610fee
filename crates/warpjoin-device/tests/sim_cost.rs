//! Measures and prints the cost of the simulated device. Fails only if it is extremely slow. Run with
//! `--release --ignored --nocapture` on an idle machine.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;
use sim_common::*;
use std::time::Instant;
use warpjoin_device::{Arg, SimOptions, open_simulated};

#[test]
#[ignore = "measures"]
fn costs() {
    let cache = tempfile::tempdir().unwrap();
    let open = |seed, threads| {
        open_simulated(&SimOptions { kernel_cache: Some(cache.path().into()), threads, ..options(seed) })
            .unwrap()
            .remove(0)
    };
    let start = Instant::now();
    let device = open(None, 1);
    println!("open, compiling the runtime: {:?}", start.elapsed());
    for n in 0..3 {
        let start = Instant::now();
        compile(&device, &format!("for (u64 i = 0; i < p.n; ++i) p.out[i] = atomicAdd(p.out, {n}ull);"));
        println!("compile a small kernel: {:?}", start.elapsed());
    }
    let start = Instant::now();
    compile(&open(None, 1), "for (u64 i = 0; i < p.n; ++i) p.out[i] = atomicAdd(p.out, 0ull);");
    println!("open, and compile a kernel that this process has loaded: {:?}", start.elapsed());
    let bodies = [
        ("nothing", "p.out[threadIdx.x] = p.n;"),
        ("atomicAdd x 100", "for (u64 i = 0; i < 100; ++i) atomicAdd(p.out + threadIdx.x, i);"),
        ("__any_sync x 100", "for (u64 i = 0; i < 100; ++i) p.out[threadIdx.x] += __any_sync(~0u, i == p.n);"),
        ("__syncthreads x 100", "for (u64 i = 0; i < 100; ++i) __syncthreads();"),
    ];
    for (seed, threads) in [(None, 1), (None, 0), (Some(1), 1)] {
        let device = open(seed, threads);
        for (name, body) in bodies {
            let kernel = compile(&device, body).kernel("kernel").unwrap();
            let stream = device.create_stream().unwrap();
            let out = stream.alloc_filled(1024 * 8, 0).unwrap();
            let blocks = 200;
            let mut best = f64::MAX;
            for _ in 0..3 {
                let start = Instant::now();
                stream.launch(&kernel, shape(blocks, 256), &[Arg::Buffer(&out), Arg::U64(1000)]).unwrap();
                stream.synchronize().unwrap();
                best = best.min(start.elapsed().as_nanos() as f64);
            }
            println!("seed {seed:?}, {threads} threads: {name}: {:.1} ns per lane", best / f64::from(blocks * 256));
            assert!(best < 1e10);
        }
        let kernel = compile(&device, "").kernel("kernel").unwrap();
        let stream = device.create_stream().unwrap();
        let start = Instant::now();
        for _ in 0..1000 {
            stream.launch(&kernel, shape(1, 32), &[Arg::Null, Arg::U64(0)]).unwrap();
        }
        stream.synchronize().unwrap();
        println!("seed {seed:?}, {threads} threads: a launch of one warp: {} ns", start.elapsed().as_nanos() / 1000);
    }
}
