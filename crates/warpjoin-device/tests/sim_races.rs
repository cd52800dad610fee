//! The race detector: it finds each error under some schedule, and reports the corrected code under none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod sim_common;
use sim_common::*;
use warpjoin_device::{
    Arg, Buffer, Device, DeviceError, Launch, RaceReport, Result, SimOptions, Stream, open_simulated,
};

const SEEDS: std::ops::Range<u64> = 0..20;

fn open_racing(devices: usize, seed: u64) -> Vec<Device> {
    let devices = open_simulated(&SimOptions { devices, races: true, ..options(Some(seed)) }).unwrap();
    for a in &devices {
        devices.iter().for_each(|b| a.open_peer_access(b).unwrap());
    }
    devices
}

/// The race that a run ended with. Panics on another error.
fn race_of<T>(outcome: Result<T>) -> Option<RaceReport> {
    match outcome {
        Ok(_) => None,
        Err(DeviceError::Race { report, .. }) => Some((*report).clone()),
        Err(other) => panic!("{other}"),
    }
}

/// The races of a run over all seeds.
fn races<T>(run: impl Fn(u64) -> Result<T>) -> Vec<RaceReport> {
    SEEDS.filter_map(|seed| race_of(run(seed))).collect()
}

/// Asserts that at least `seeds_min` of 20 seeds find a race.
#[track_caller]
fn assert_race<T>(seeds_min: usize, wrong: impl Fn(u64) -> Result<T>) {
    let found = races(wrong).len();
    assert!(found >= seeds_min, "{found} of {} seeds find the race", SEEDS.end);
}

/// Asserts that no seed finds a race.
#[track_caller]
fn assert_clean<T>(right: impl Fn(u64) -> Result<T>) {
    let found = races(right);
    assert!(found.is_empty(), "{}", found[0]);
}

/// Runs a kernel body with shared memory on one device.
fn lanes(body: &str, launch: Launch) -> impl Fn(u64) -> Result<Vec<u64>> + use<'_> {
    move |seed| try_run(&open_racing(1, seed)[0], body, Launch { shared_bytes: 4096, ..launch }, 4096)
}

#[test]
fn a_missing_syncthreads_is_found() {
    let body = |sync: &str| {
        format!(
            "u64* s = &shared_as<u64>(); s[threadIdx.x] = 1; {sync} p.out[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x ^ 32];"
        )
    };
    assert_race(20, lanes(&body(""), shape(2, 64)));
    assert_clean(lanes(&body("__syncthreads();"), shape(2, 64)));
    // __syncwarp orders lanes of one warp only.
    assert_race(20, lanes(&body("__syncwarp();"), shape(1, 64)));
    assert_race(20, lanes(&body("__threadfence();"), shape(1, 64)));
}

#[test]
fn reusing_shared_memory_without_a_barrier_is_found() {
    let body = |sync: &str| {
        format!(
            "u64* s = &shared_as<u64>();
            for (u64 i = 0; i < 3; ++i) {{
                s[threadIdx.x] = i; __syncthreads(); p.out[threadIdx.x] += s[63 - threadIdx.x]; {sync}
            }}"
        )
    };
    assert_race(20, lanes(&body(""), shape(1, 64)));
    assert_clean(lanes(&body("__syncthreads();"), shape(1, 64)));
}

#[test]
fn a_missing_syncwarp_is_found() {
    let body = |sync: &str| {
        format!("u64* s = &shared_as<u64>(); s[threadIdx.x] = 1; {sync} p.out[threadIdx.x] = s[threadIdx.x ^ 1];")
    };
    assert_race(20, lanes(&body(""), shape(1, 32)));
    assert_clean(lanes(&body("__syncwarp();"), shape(1, 32)));
    // Votes and shuffles order no memory.
    assert_race(20, lanes(&body("__ballot_sync(~0u, 1);"), shape(1, 32)));
    // The lanes of a pair exchange values: a barrier of each pair is enough, one of all even or all odd lanes is not.
    let pairs = "__syncwarp(3u << (threadIdx.x & 30));";
    let halves = "__syncwarp(threadIdx.x & 1 ? 0xaaaaaaaau : 0x55555555u);";
    assert_race(20, lanes(&body(halves), shape(1, 32)));
    assert_clean(lanes(&body(pairs), shape(1, 32)));
}

#[test]
fn barriers_of_some_lanes_are_transitive() {
    // Lane 0 synchronizes with lane 1, and lane 1 with lane 2, which reads the value of lane 0.
    let body = |first: &str| {
        format!(
            "if (threadIdx.x == 0) p.out[0] = 7;
            if (threadIdx.x < 2) {first}
            if (threadIdx.x == 1 || threadIdx.x == 2) __syncwarp(6);
            if (threadIdx.x == 2) p.out[1] = p.out[0];"
        )
    };
    assert_race(20, lanes(&body(";"), shape(1, 32)));
    assert_clean(lanes(&body("__syncwarp(3);"), shape(1, 32)));
}

/// Block 0 writes data and sets a flag. The other blocks wait for the flag and read the data.
fn message(release: &str, acquire: &str) -> String {
    format!(
        "if (threadIdx.x != 0) return;
        if (blockIdx.x == 0) {{ p.out[8] = 5; {release} }}
        else for (u64 i = 0; i < 100; ++i) {{ {acquire} {{ __threadfence(); p.out[16 + blockIdx.x * 32] = p.out[8]; break; }} }}"
    )
}

#[test]
fn a_missing_fence_of_a_message_is_found() {
    let seen = "if (load_relaxed(p.out) == 1)";
    let right = message("__threadfence(); store_relaxed(p.out, 1ull);", seen);
    assert_race(10, lanes(&message("store_relaxed(p.out, 1ull);", seen), shape(4, 32)));
    assert_clean(lanes(&right, shape(4, 32)));
    assert_race(10, lanes(&message("store_relaxed(p.out, 1ull); __threadfence();", seen), shape(4, 32)));
    let not_acquired = right.replace("{ __threadfence(); p.out[16", "{ p.out[16");
    assert_race(10, lanes(&not_acquired, shape(4, 32)));
    let atomics = message("__threadfence(); atomicAdd(p.out, 1ull);", "if (atomicAdd(p.out, 0ull) == 1)");
    assert_clean(lanes(&atomics, shape(4, 32)));
}

#[test]
fn a_too_narrow_scope_is_found() {
    let seen = "if (load_relaxed(p.out) == 1)";
    let right = message("__threadfence(); store_relaxed(p.out, 1ull);", seen);
    let block_fence = message("__threadfence_block(); store_relaxed(p.out, 1ull);", seen);
    let block_acquire = right.replace("{ __threadfence();", "{ __threadfence_block();");
    for wrong in [&block_fence, &block_acquire] {
        assert_race(10, lanes(wrong, shape(4, 32)));
        assert_clean(lanes(&right, shape(4, 32)));
    }
    // Block scope is enough within a block: thread 0 sends to thread 32.
    let within = "if (threadIdx.x == 0) { p.out[8] = 5; __threadfence_block(); atomicAdd_block(p.out, 1ull); }
        if (threadIdx.x == 32) for (u64 i = 0; i < 100; ++i) if (atomicAdd_block(p.out, 0ull)) { __threadfence_block(); p.out[9] = p.out[8]; break; }";
    assert_clean(lanes(within, shape(1, 64)));
    assert_race(10, lanes(&within.replace("__threadfence_block();", ""), shape(1, 64)));
    // Atomics of block scope are not atomic between two blocks.
    assert_race(20, lanes("atomicAdd_block(p.out, 1ull);", shape(4, 32)));
    assert_clean(lanes("atomicAdd(p.out, 1ull);", shape(4, 32)));
}

#[test]
fn a_fence_of_all_threads_and_a_barrier_release_and_acquire() {
    // The last block reads the data of all blocks. All threads fence, and one thread counts.
    let body = |before: &str, after: &str| {
        format!(
            "u32* flag = &shared_as<u32>();
            p.out[64 + blockIdx.x * 64 + threadIdx.x] = 1; {before} __syncthreads();
            if (threadIdx.x == 0) *flag = atomicAdd(p.out, 1ull) == gridDim.x - 1;
            __syncthreads(); {after}
            if (*flag) for (u64 i = 0; i < gridDim.x; ++i) p.out[2048 + threadIdx.x] = p.out[64 + i * 64 + threadIdx.x];"
        )
    };
    let right = body("__threadfence();", "__threadfence();");
    assert_race(20, lanes(&body("", "__threadfence();"), shape(4, 64)));
    assert_clean(lanes(&right, shape(4, 64)));
    assert_race(20, lanes(&body("__threadfence();", ""), shape(4, 64)));
    assert_race(20, lanes(&body("__threadfence_block();", "__threadfence();"), shape(4, 64)));
    // Only thread 0 fences, between the two barriers.
    let by_one =
        body("", "").replace("*flag =", "{ __threadfence(); *flag =").replace("- 1;", "- 1; __threadfence(); }");
    assert_clean(lanes(&by_one, shape(4, 64)));
}

#[test]
fn mixed_plain_and_atomic_accesses_are_found() {
    let body = |read: &str| format!("atomicAdd(p.out, 1ull); p.out[8 + threadIdx.x] = {read};");
    assert_race(20, lanes(&body("p.out[0]"), shape(1, 32)));
    assert_clean(lanes(&body("load_relaxed(p.out)"), shape(1, 32)));
    let store = |store: &str| format!("{store} atomicMax(p.out, 1ull);");
    assert_race(20, lanes(&store("p.out[0] = 1;"), shape(2, 32)));
    assert_clean(lanes(&store("store_relaxed(p.out, 1ull);"), shape(2, 32)));
}

#[test]
fn bytes_of_a_word_are_separate_locations() {
    let body = |at: &str| format!("u8* bytes = (u8*)p.out; bytes[{at}] = 1;");
    let overlapping = "((u32*)p.out)[threadIdx.x] = 1; ((u8*)p.out)[(threadIdx.x * 4 + 5) % 128] = 1;";
    assert_race(20, lanes(&body("threadIdx.x / 2"), shape(1, 32)));
    assert_clean(lanes(&body("threadIdx.x"), shape(1, 32)));
    assert_race(20, lanes(overlapping, shape(1, 32)));
}

#[test]
fn a_relaxed_load_may_be_stale_unless_ordered() {
    // Both locations are atomic, so this is not a race. Without fences, the flag may be visible before the data.
    let body = |release: &str, acquire: &str| {
        format!(
            "if (threadIdx.x != 0) return;
            if (blockIdx.x == 0) {{ store_relaxed(p.out + 8, 5ull); {release} store_relaxed(p.out, 1ull); return; }}
            for (u64 i = 0; i < 100; ++i) {{
                if (load_relaxed(p.out) != 1) continue;
                {acquire} if (load_relaxed(p.out + 8) != 5) atomicAdd(p.out + 16, 1ull);
                return;
            }}"
        )
    };
    let stale = |release: &str, acquire: &str| {
        let body = body(release, acquire);
        let run = lanes(&body, shape(8, 32));
        (0..60).filter(|&seed| run(seed).unwrap()[16] > 0).count()
    };
    assert_eq!(stale("__threadfence();", "__threadfence();"), 0);
    assert!(stale("", "__threadfence();") > 5);
    assert!(stale("__threadfence();", "") > 5);
    assert!(stale("__threadfence_block();", "__threadfence();") > 5);
}

#[test]
fn a_stale_load_acquires_what_its_value_released() {
    // The first value that is not 0 already comes behind the data; the second one releases nothing more.
    let body = |release: &str| {
        format!(
            "if (threadIdx.x != 0) return;
            if (blockIdx.x == 0) {{
                p.out[8] = 5; {release} store_relaxed(p.out, 1ull); __threadfence(); store_relaxed(p.out, 2ull);
                return;
            }}
            for (u64 i = 0; i < 100; ++i) {{
                const u64 seen = load_relaxed(p.out);
                if (seen == 0) continue;
                __threadfence(); p.out[16 + blockIdx.x * 32] = p.out[8]; atomicAdd(p.out + 10 + seen, 1ull);
                return;
            }}"
        )
    };
    assert_race(10, lanes(&body(""), shape(8, 32)));
    let body = body("__threadfence();");
    assert_clean(lanes(&body, shape(8, 32)));
    let sees = |value: usize| SEEDS.filter(|&seed| lanes(&body, shape(8, 32))(seed).unwrap()[10 + value] > 0).count();
    assert!(sees(1) > 5 && sees(2) > 5, "{} and {} seeds", sees(1), sees(2));
}

#[test]
fn halves_of_a_word_are_separate_locations() {
    // Blocks set flags of 4 bytes, two per word. Block 0 waits for all flags, and reads the data of the blocks.
    let body = "u32* flags = (u32*)p.out;
        if (threadIdx.x != 0) return;
        p.out[8 + blockIdx.x] = 1; __threadfence(); store_relaxed(flags + blockIdx.x, 1u);
        if (blockIdx.x != 0) return;
        for (u32 other = 0; other < gridDim.x; ++other) {
            for (u32 i = 0; i < 1000 && load_relaxed(flags + other) == 0; ++i) {}
            if (load_relaxed(flags + other) == 0) return;
            __threadfence();
            p.out[32 + other] = p.out[8 + other];
        }";
    assert_clean(lanes(body, shape(4, 32)));
}

#[test]
fn a_lane_never_sees_an_older_value_again() {
    let body = "if (threadIdx.x + blockIdx.x == 0) { for (u64 i = 1; i <= 30; ++i) store_relaxed(p.out, i); return; }
        u64 last = 0;
        for (u64 i = 0; i < 30; ++i) {
            u64 seen = load_relaxed(p.out);
            if (seen < last) atomicAdd(p.out + 8, 1ull);
            last = seen;
        }";
    for seed in SEEDS {
        assert_eq!(lanes(body, shape(2, 32))(seed).unwrap()[8], 0);
    }
}

fn store_seven(device: &Device) -> warpjoin_device::Kernel {
    compile(device, "if (threadIdx.x == 0 && blockIdx.x == 0) p.out[0] = 7;").kernel("kernel").unwrap()
}

/// Two streams of one or two devices, and a buffer of 8 bytes of the first stream.
fn two_streams(devices: usize, seed: u64) -> ([Stream; 2], Buffer) {
    let devices = open_racing(devices, seed);
    let streams = [devices[0].create_stream().unwrap(), devices.last().unwrap().create_stream().unwrap()];
    let out = streams[0].alloc_filled(8, 0).unwrap();
    streams[0].synchronize().unwrap();
    (streams, out)
}

fn wait_for(waiting: &Stream, other: &Stream) -> Result<()> {
    waiting.wait(&other.record()?)
}

#[test]
fn launches_of_two_streams_without_an_event_are_found() {
    for devices in [1, 2] {
        let run = |ordered: bool| {
            move |seed| {
                let (streams, out) = two_streams(devices, seed);
                for (i, stream) in streams.iter().enumerate() {
                    if ordered && i == 1 {
                        wait_for(stream, &streams[0])?;
                    }
                    stream.launch(&store_seven(stream.device()), shape(1, 32), &[Arg::Buffer(&out), Arg::U64(1)])?;
                }
                streams[1].synchronize()?;
                streams[0].synchronize()?;
                streams[1].synchronize()
            }
        };
        assert_race(20, run(false));
        assert_clean(run(true));
    }
}

#[test]
fn a_copy_by_a_peer_without_an_event_is_found() {
    let run = |ordered: bool| {
        move |seed| {
            let (streams, out) = two_streams(2, seed);
            let near = streams[1].alloc(8)?;
            streams[0].fill(&out, 0, 8, 3)?;
            if ordered {
                wait_for(&streams[1], &streams[0])?;
            }
            streams[1].copy((&out, 0), (&near, 0), 8)?;
            streams[0].synchronize()?;
            streams[1].synchronize()
        }
    };
    assert_race(20, run(false));
    assert_clean(run(true));
}

#[test]
fn unordered_reads_and_writes_of_the_host_are_found() {
    // A read waits only for its own stream.
    let read = |waits: bool| {
        move |seed| {
            let (streams, out) = two_streams(1, seed);
            streams[1].launch(&store_seven(streams[1].device()), shape(1, 32), &[Arg::Buffer(&out), Arg::U64(1)])?;
            if waits {
                streams[1].synchronize()?;
            }
            let found = read_u64(&streams[0], &out);
            streams[1].synchronize()?;
            found
        }
    };
    assert_race(20, read(false));
    assert_clean(read(true));
    let write = |waits: bool| {
        move |seed| {
            let (streams, out) = two_streams(1, seed);
            streams[1].launch(&store_seven(streams[1].device()), shape(1, 32), &[Arg::Buffer(&out), Arg::U64(1)])?;
            if waits {
                wait_for(&streams[0], &streams[1])?;
            }
            streams[0].write(&out, 0, &[1; 8])?;
            streams[1].synchronize()?;
            streams[0].synchronize()
        }
    };
    assert_race(20, write(false));
    assert_clean(write(true));
}

#[test]
fn memory_used_before_its_allocation_is_found() {
    let before_alloc = |ordered: bool| {
        move |seed| {
            let (streams, _) = two_streams(1, seed);
            let fresh = streams[0].alloc(1000)?;
            if ordered {
                wait_for(&streams[1], &streams[0])?;
            }
            streams[1].fill(&fresh, 0, 1000, 1)?;
            streams[1].synchronize()?;
            streams[0].synchronize()
        }
    };
    assert_race(20, before_alloc(false));
    assert_clean(before_alloc(true));
}

/// A message through memory between kernels of two devices, without other ordering.
fn message_between_devices(fence: &'static str, scope: &'static str) -> impl Fn(u64) -> Result<()> {
    move |seed| {
        let (streams, out) = two_streams(2, seed);
        let data = streams[0].alloc_filled(1024, 0)?;
        streams[0].synchronize()?;
        let kernel = |device: &Device, body: &str| compile(device, body).kernel("kernel").unwrap();
        let send = format!("if (threadIdx.x == 0) {{ p.out[8] = 5; {fence} atomicExch{scope}(p.out, 1ull); }}");
        let receive =
            format!("if (threadIdx.x == 0 && atomicAdd{scope}(p.out, 0ull)) {{ {fence} p.out[16] = p.out[8]; }}");
        drop(out);
        let args = [Arg::Buffer(&data), Arg::U64(1)];
        streams[0].launch(&kernel(streams[0].device(), &send), shape(1, 32), &args)?;
        streams[1].launch(&kernel(streams[1].device(), &receive), shape(1, 32), &args)?;
        streams[0].synchronize()?;
        streams[1].synchronize()?;
        streams[0].synchronize()
    }
}

#[test]
fn messages_between_devices_need_system_scope() {
    let right = || message_between_devices("__threadfence_system();", "_system");
    assert_race(20, message_between_devices("__threadfence_system();", ""));
    assert_clean(right());
    assert_race(5, message_between_devices("__threadfence();", "_system"));
    assert_clean(right());
}

#[test]
fn a_report_names_both_accesses_and_a_seed_replays_it() {
    let body = "u64* s = &shared_as<u64>();\n s[threadIdx.x] = 1;\n p.out[threadIdx.x] = s[threadIdx.x ^ 32];";
    let run = || race_of(lanes(body, shape(2, 64))(3)).unwrap();
    let report = run();
    assert_eq!(report, run());
    assert_eq!(report.seed, 3);
    for access in &report.accesses {
        let (block, thread) = access.lane.unwrap();
        assert!(access.operation == "kernel" && access.device == 0 && access.scope.is_none());
        assert!(block < 2 && thread < 64);
        // Lines 4 and 5 of the text, after the include, the struct and the entry.
        assert!(access.lines[0] == if access.writes { "test:4" } else { "test:5" }, "{access}");
    }
    let [later, earlier] = &report.accesses;
    assert_eq!(later.lane.unwrap().0, earlier.lane.unwrap().0);
    assert_eq!(later.lane.unwrap().1 ^ 32, earlier.lane.unwrap().1);
    assert!(later.writes != earlier.writes);
}

#[test]
fn conflicting_options_are_rejected() {
    let opened = |options: SimOptions| open_simulated(&SimOptions { races: true, ..options });
    assert!(matches!(opened(options(None)), Err(DeviceError::Invalid(_))));
    assert!(opened(options(Some(1))).is_ok());
    assert!(opened(SimOptions { yield_at_plain_accesses: true, ..options(Some(1)) }).is_err());
}
