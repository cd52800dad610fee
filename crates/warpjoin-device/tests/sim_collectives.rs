//! Barriers, votes and shuffles: results, divergent code, and errors.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;
use sim_common::*;
use warpjoin_device::{Arg, Launch};

fn lanes(body: &str, seed: Option<u64>) -> Vec<u64> {
    run(
        &open(seed),
        &format!("u32 lane = threadIdx.x & 31; (void)lane; u64 r = 0; {body} p.out[threadIdx.x] = r;"),
        shape(1, 64),
        64,
    )
}

fn assert_lanes(body: &str, expected: impl Fn(u64) -> u64) {
    for seed in seeds() {
        let found = lanes(body, seed);
        for (thread, &value) in found.iter().enumerate() {
            assert_eq!(value, expected(thread as u64), "{body}: seed {seed:?}, thread {thread}");
        }
    }
}

#[test]
fn votes() {
    assert_lanes("r = __ballot_sync(~0u, threadIdx.x % 3 == 0);", |t| {
        (0..32).filter(|l| (t / 32 * 32 + l).is_multiple_of(3)).map(|l| 1 << l).sum()
    });
    assert_lanes("r = __any_sync(~0u, threadIdx.x == 40) * 2 + __all_sync(~0u, threadIdx.x < 32);", |t| {
        if t < 32 { 1 } else { 2 }
    });
    assert_lanes("u32 tile = 0xfu << (lane & 28); r = __ballot_sync(tile, lane % 4 != lane / 4 % 4);", |t| {
        let tile = t % 32 / 4;
        (0xf & !(1 << (tile % 4))) << (tile * 4)
    });
}

#[test]
fn shuffles() {
    assert_lanes("r = __shfl_sync(~0u, threadIdx.x * 3, 5);", |t| (t / 32 * 32 + 5) * 3);
    assert_lanes("r = __shfl_sync(~0u, (u64)threadIdx.x << 40, lane + 1, 8);", |t| (t / 8 * 8 + (t + 1) % 8) << 40);
    assert_lanes("r = __shfl_up_sync(~0u, threadIdx.x, 3);", |t| if t % 32 < 3 { t } else { t - 3 });
    assert_lanes("r = __shfl_up_sync(~0u, threadIdx.x, 3, 4);", |t| if t % 4 < 3 { t } else { t - 3 });
    assert_lanes("r = __shfl_down_sync(~0u, threadIdx.x, 3);", |t| if t % 32 > 28 { t } else { t + 3 });
    assert_lanes("r = __shfl_down_sync(~0u, threadIdx.x, 3, 16);", |t| if t % 16 > 12 { t } else { t + 3 });
    assert_lanes("r = __shfl_xor_sync(~0u, threadIdx.x, 5);", |t| t ^ 5);
    assert_lanes("r = (u64)__shfl_xor_sync(~0u, (double)threadIdx.x + 0.5, 1);", |t| t ^ 1);
    assert_lanes("r = (u64)__shfl_xor_sync(~0u, (float)threadIdx.x, 1);", |t| t ^ 1);
    assert_lanes("r = (u64)-__shfl_xor_sync(~0u, -(i64)threadIdx.x, 1);", |t| t ^ 1);
    assert_lanes("r = (u64)-(i64)__shfl_xor_sync(~0u, -(int)threadIdx.x, 1);", |t| t ^ 1);
}

#[test]
fn matches_and_reductions() {
    assert_lanes("r = __match_any_sync(~0u, lane % 4);", |t| 0x1111_1111 << (t % 4));
    assert_lanes("r = __match_any_sync(~0u, (u64)(lane % 2) << 63);", |t| 0x5555_5555 << (t % 2));
    assert_lanes("int same; r = __match_all_sync(~0u, threadIdx.x / 32, &same); r += same;", |_| 0x1_0000_0000);
    assert_lanes("int same; r = __match_all_sync(~0u, threadIdx.x, &same); r += same;", |_| 0);
    assert_lanes("r = __reduce_add_sync(~0u, threadIdx.x);", |t| (0..32).map(|l| t / 32 * 32 + l).sum());
    assert_lanes("r = -__reduce_min_sync(~0u, -(int)lane) + __reduce_max_sync(~0u, (int)lane - 31);", |_| 31);
    assert_lanes("r = __reduce_min_sync(~0u, lane + 1) + __reduce_max_sync(~0u, lane);", |_| 32);
    assert_lanes(
        "r = __reduce_and_sync(~0u, lane | 64) + __reduce_or_sync(~0u, lane) + __reduce_xor_sync(~0u, lane | 128);",
        |_| 64 + 31,
    );
}

#[test]
fn collectives_in_divergent_code() {
    // Both sides of a branch run concurrently, with different masks, in loops of different lengths.
    let body = "u32 even = 0x55555555u;
        if (lane % 2 == 0) { for (int i = 0; i < 7; ++i) r += __popc(__ballot_sync(even, i != 3)); }
        else { for (int i = 0; i < 3; ++i) { r += __shfl_xor_sync(~even, lane, 2); __syncwarp(~even); } }
        __syncwarp();
        r += __any_sync(~0u, lane == 31) * 1000;";
    assert_lanes(body, |t| if t % 2 == 0 { 1000 + 6 * 16 } else { 1000 + 3 * ((t % 32) ^ 2) });
    // A vote divides the lanes into groups; each group then works with its own mask.
    let groups = "u32 mask = __match_any_sync(~0u, lane % 5); r = __reduce_add_sync(mask, 1u);";
    assert_lanes(groups, |t| (0..32).filter(|l| l % 5 == t % 32 % 5).count() as u64);
    // A lane synchronizes with one partner, then with another that has waited from the start.
    let chain = "if (lane < 2) __syncwarp(3u); if (lane == 1 || lane == 2) __syncwarp(6u); r = lane;";
    assert_lanes(chain, |t| t % 32);
}

#[test]
fn block_barriers() {
    let body = "
        u64* shared = &shared_as<u64>();
        for (u32 round = 0; round < 5; ++round) {
            shared[threadIdx.x] = threadIdx.x + round;
            __syncthreads();
            p.out[threadIdx.x] += shared[(threadIdx.x + 1) % blockDim.x];
            __syncthreads();
        }
        p.out[threadIdx.x] += 1000000ull * __syncthreads_count(threadIdx.x % 3 == 0);
        p.out[threadIdx.x] += 1000ull * (__syncthreads_or(threadIdx.x == 7) * 2 + __syncthreads_and(threadIdx.x != 7) + __syncthreads_and(1));";
    for seed in seeds() {
        for threads in [32, 96, 1024] {
            let launch = Launch { blocks: 1, block_threads: threads, shared_bytes: threads * 8 };
            let out = run(&open(seed), body, launch, 1024);
            for t in 0..u64::from(threads) {
                let neighbor = (t + 1) % u64::from(threads);
                let expected = 5 * neighbor + 10 + 1_000_000 * u64::from(threads.div_ceil(3)) + 3000;
                assert_eq!(out[t as usize], expected, "{seed:?}, {threads} threads, thread {t}");
            }
        }
    }
}

#[test]
fn a_missing_barrier_gives_wrong_values() {
    let body = "u64* shared = &shared_as<u64>(); shared[threadIdx.x] = atomicAdd(p.out + 64, 0ull) + threadIdx.x;
        p.out[threadIdx.x] = shared[threadIdx.x ^ 1];";
    let launch = Launch { blocks: 1, block_threads: 64, shared_bytes: 512 };
    let wrong = |seed| (0u64..64).zip(run(&open(Some(seed)), body, launch, 65)).any(|(t, found)| found != t ^ 1);
    assert!((0..10).all(wrong));
}

#[test]
fn misuse_is_an_error_that_names_the_kernel() {
    let cases = [
        ("if (threadIdx.x != 3) __syncwarp();", "exit"),
        ("if (threadIdx.x == 3) return; __ballot_sync(~0u, 1);", "exit"),
        ("if (threadIdx.x == 3) __ballot_sync(1u, 1);", "lacks the caller"),
        ("if (threadIdx.x < 16) __syncthreads(); __syncwarp();", "wait"),
        ("if (threadIdx.x < 16) __syncthreads();\n else __syncthreads();", "divergent __syncthreads"),
        ("if (threadIdx.x < 33) return; __syncthreads();", "exit"),
        ("if (threadIdx.x % 2) __syncwarp(); else __ballot_sync(~0u, 1);", "wait in __"),
        ("if (threadIdx.x % 32 == 0) __syncwarp(3u); if (threadIdx.x % 32 == 1) __syncwarp(7u);", "exit"),
        ("if (threadIdx.x % 32 < 2) __syncwarp(threadIdx.x % 32 ? 6u : 3u); __syncthreads();", "deadlock"),
        ("if (threadIdx.x == 3) __trap();", "__trap"),
        ("p.out[0] = shared_as<u64>();", "shared memory"),
    ];
    for (body, message) in cases {
        for seed in seeds() {
            let error = error_of(&open(seed), body, shape(2, 64));
            assert!(error.contains(message) && error.contains("kernel"), "{body}: {error}");
        }
    }
}

#[test]
fn a_stack_overflow_is_an_error() {
    // The frames of a kernel are small, or large: an overflow is seen before it comes to other memory.
    for (words, fits) in [(100, 20), (1000, 5)] {
        let text = format!(
            "struct Params {{ u64* out; u64 n; }};
            static __noinline__ u64 deep(u64* out, u64 n) {{ volatile u64 local[{words}]; local[n % {words}] = n;
                atomicAdd(out, 1ull); return n == 0 ? 0 : deep(out, n - 1) + local[n % {words}]; }}
            WJ_ENTRY(kernel, Params, 1024) {{ p.out[1] = deep(p.out, p.n); }}"
        );
        seeds().for_each(|seed| overflows(seed, &text, fits));
    }
}

fn overflows(seed: Option<u64>, text: &str, fits: u64) {
    let device = open(seed);
    let module = device.compile(&source(text, &["kernel"])).unwrap();
    let stream = device.create_stream().unwrap();
    let out = stream.alloc_filled(16, 0).unwrap();
    let launch =
        |depth| stream.launch(&module.kernel("kernel").unwrap(), shape(1, 32), &[Arg::Buffer(&out), Arg::U64(depth)]);
    launch(fits).unwrap();
    assert_eq!(read_u64(&stream, &out).unwrap()[0], 32 * (fits + 1));
    launch(1000).unwrap();
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("stack overflow"), "{error}");
}

#[test]
fn a_device_works_and_frees_memory_after_an_error() {
    for seed in seeds() {
        let device = open(seed);
        for _ in 0..3 {
            assert!(error_of(&device, "if (threadIdx.x == 0) __syncthreads();", shape(40, 1024)).contains("exit"));
            assert_eq!(device.memory().used_bytes(), 0);
            assert_eq!(run(&device, "atomicAdd(p.out, 1ull); __syncthreads();", shape(3, 64), 1), [192]);
        }
    }
}

#[test]
fn shared_memory_is_poisoned_and_bounded() {
    let launch = Launch { blocks: 3, block_threads: 32, shared_bytes: 256 };
    for seed in seeds() {
        let out =
            run(&open(seed), "p.out[blockIdx.x * 32 + threadIdx.x] = (&shared_as<u64>())[threadIdx.x];", launch, 96);
        let distinct: std::collections::HashSet<_> = out.iter().collect();
        assert!(distinct.len() > 32 && !distinct.contains(&0), "{} distinct", distinct.len());
        let error =
            try_run(&open(seed), "(&shared_as<u64>())[threadIdx.x + 1] = 1;", launch, 1).unwrap_err().to_string();
        assert!(error.contains("behind its 256 bytes of shared memory"), "{error}");
    }
}
