//! Copies between host and GPU, of sizes around the limits of staging.

mod cuda_common;

use std::io::Write;
use std::time::Instant;

use cuda_common::{gpu, kernel, launch, random_bytes};
use warpjoin_device::Arg;

/// The limits of `cuda/stream.rs` and `cuda/pinned/staging.rs`.
const STAGED_BYTES_MIN: usize = 64 << 10;
const CHUNK_BYTES: usize = 2 << 20;

#[test]
fn every_size_survives_the_round_trip_at_every_alignment() {
    let Some(device) = gpu("every_size_survives_the_round_trip_at_every_alignment") else { return };
    let stream = device.create_stream().expect("stream");
    let around = |bytes: usize| [bytes - 1, bytes, bytes + 1];
    let sizes = [STAGED_BYTES_MIN, CHUNK_BYTES, 2 * CHUNK_BYTES, 16 * CHUNK_BYTES, 40 * CHUNK_BYTES]
        .into_iter()
        .flat_map(around);
    for (seed, bytes) in [1, 7, 4096].into_iter().chain(sizes).enumerate() {
        let content = random_bytes(bytes, seed as u64);
        for offset in [0, 1, 255] {
            let buffer = stream.alloc_filled((bytes + offset + 3) as u64, 0xA5).expect("alloc");
            let mut reused = content.clone();
            stream.write(&buffer, offset as u64, &reused).expect("write");
            // The copy may not have run yet, but the host bytes may be reused.
            reused.fill(0);
            let mut seen = vec![0; bytes + offset + 3];
            stream.read(&buffer, 0, &mut seen).expect("read");
            assert!(seen[offset..offset + bytes] == content, "{bytes} bytes at {offset}");
            assert!(
                seen[..offset].iter().chain(&seen[offset + bytes..]).all(|&byte| byte == 0xA5),
                "written past the range"
            );
            // Reads the same range at the same alignment.
            stream.read(&buffer, offset as u64, &mut reused).expect("read");
            assert!(reused == content, "{bytes} bytes from {offset}");
        }
    }
}

#[test]
fn copies_keep_the_order_of_their_stream() {
    let Some(device) = gpu("copies_keep_the_order_of_their_stream") else { return };
    let (stream, spin) = (device.create_stream().expect("stream"), kernel(&device, "spin"));
    for bytes in [8, 1000, STAGED_BYTES_MIN, STAGED_BYTES_MIN + 1, 3 * CHUNK_BYTES, 20 * CHUNK_BYTES] {
        let (first, second) = (random_bytes(bytes, 1), random_bytes(bytes, 2));
        let buffer = stream.alloc_filled(bytes as u64, 0).expect("alloc");
        let copy = stream.alloc(bytes as u64).expect("alloc");
        // A kernel blocks the stream, so that the copies are pending while the host bytes change.
        stream.launch(&spin, launch(1, 32), &[Arg::U64(40_000_000), Arg::Null, Arg::U64(0)]).expect("launch");
        let mut host = first.clone();
        stream.write(&buffer, 0, &host).expect("write");
        host.copy_from_slice(&second);
        stream.copy((&buffer, 0), (&copy, 0), bytes as u64).expect("copy");
        stream.write(&buffer, 0, &host).expect("write");
        host.fill(0);
        let (mut seen, mut seen_copy) = (vec![0; bytes], vec![0; bytes]);
        stream.read(&buffer, 0, &mut seen).expect("read");
        stream.read(&copy, 0, &mut seen_copy).expect("read");
        assert!(seen == second && seen_copy == first, "{bytes} bytes");
    }
}

#[test]
fn many_threads_share_the_chunks() {
    let Some(device) = gpu("many_threads_share_the_chunks") else { return };
    std::thread::scope(|scope| {
        for seed in 0..6_u64 {
            let device = &device;
            scope.spawn(move || {
                let stream = device.create_stream().expect("stream");
                for round in 0..3 {
                    let bytes = (seed as usize + 1) * 9 * CHUNK_BYTES + 12_345 * (round + 1);
                    let content = random_bytes(bytes, seed * 10 + round as u64);
                    let buffer = stream.upload(&content).expect("upload");
                    let mut seen = vec![0; bytes];
                    stream.read(&buffer, 0, &mut seen).expect("read");
                    assert!(seen == content, "thread {seed}, round {round}");
                }
            });
        }
    });
}

#[test]
fn a_device_may_be_dropped_right_after_its_last_copy() {
    for round in 0..5 {
        let Some(device) = gpu("a_device_may_be_dropped_right_after_its_last_copy") else { return };
        let stream = device.create_stream().expect("stream");
        let buffer = stream.alloc(24 << 20).expect("alloc");
        stream.write(&buffer, 0, &random_bytes(24 << 20, round)).expect("write");
    }
}

/// Bytes, copies and kernels reach buffers in the host's memory; freed memory is used again, not before its last use has ended.
#[test]
fn buffers_in_the_hosts_memory_are_copied_and_reused() {
    let Some(device) = gpu("buffers_in_the_hosts_memory_are_copied_and_reused") else { return };
    let (stream, other) = (device.create_stream().expect("stream"), device.create_stream().expect("stream"));
    let spin = kernel(&device, "spin");
    for (seed, bytes) in [8, 4096, CHUNK_BYTES + 8, 64 << 20].into_iter().enumerate() {
        let content = random_bytes(bytes, seed as u64);
        let host = stream.alloc_host(bytes as u64).expect("pinned memory");
        stream.write(&host, 0, &content).expect("write");
        let near = stream.alloc(bytes as u64).expect("alloc");
        stream.copy((&host, 0), (&near, 0), bytes as u64).expect("copy up");
        let back = other.alloc_host(bytes as u64).expect("pinned memory");
        other.wait(&stream.record().expect("event")).expect("wait");
        other.copy((&near, 0), (&back, 0), bytes as u64).expect("copy down");
        // The copy down is still to come when the next buffer is taken.
        other.launch(&spin, launch(1, 32), &[Arg::U64(20_000_000), Arg::Null, Arg::U64(0)]).expect("launch");
        let mut seen = vec![0; bytes];
        other.read(&back, 0, &mut seen).expect("read");
        assert!(seen == content, "{bytes} bytes");
        other.copy((&near, 0), (&back, 0), bytes as u64).expect("copy down");
        drop(back);
        let next = other.alloc_host(bytes as u64).expect("pinned memory");
        other.fill(&next, 0, bytes as u64, 7).expect("fill");
        other.read(&next, 0, &mut seen).expect("read");
        assert!(seen.iter().all(|byte| *byte == 7), "{bytes} bytes");
        other.synchronize().expect("synchronize");
    }
    assert_eq!(device.host_memory().used_bytes(), 0);
    let limit = device.host_memory().limit_bytes();
    assert!(stream.alloc_host(limit + 1).is_err_and(|error| error.to_string().contains("host memory")));
}

/// Asserts no throughput. Compare the printed numbers with the bus, 55 GB/s.
#[test]
fn throughput_of_buffers_on_the_host_is_printed() {
    let Some(device) = gpu("throughput_of_buffers_on_the_host_is_printed") else { return };
    let stream = device.create_stream().expect("stream");
    let bytes = 1_u64 << 30;
    let gigabytes = bytes as f64 / 1e9;
    let near = stream.alloc(bytes).expect("alloc");
    for round in 0..3 {
        let start = Instant::now();
        let host = stream.alloc_host(bytes).expect("pinned memory");
        let (pinned, start) = (start.elapsed().as_secs_f64(), Instant::now());
        stream.copy((&near, 0), (&host, 0), bytes).expect("copy");
        stream.synchronize().expect("synchronize");
        let (down, start) = (start.elapsed().as_secs_f64(), Instant::now());
        stream.copy((&host, 0), (&near, 0), bytes).expect("copy");
        stream.synchronize().expect("synchronize");
        let up = start.elapsed().as_secs_f64();
        let [pinned, down, up] = [pinned, down, up].map(|seconds| gigabytes / seconds);
        let _ = writeln!(
            std::io::stderr(),
            "1 GiB on the host, round {round}: taken at {pinned:.1} GB/s, down {down:.1}, up {up:.1}"
        );
    }
}

/// Asserts no throughput. Compare the printed numbers with the bus, 55 GB/s.
#[test]
fn throughput_is_printed() {
    let Some(device) = gpu("throughput_is_printed") else { return };
    let stream = device.create_stream().expect("stream");
    let content = random_bytes(512 << 20, 3);
    let mut seen = vec![0; content.len()];
    let buffer = stream.upload(&content).expect("upload");
    stream.read(&buffer, 0, &mut seen).expect("read");
    let gigabytes = content.len() as f64 / 1e9;
    for round in 0..3 {
        let start = Instant::now();
        stream.write(&buffer, 0, &content).expect("write");
        stream.synchronize().expect("synchronize");
        let (up, start) = (start.elapsed().as_secs_f64(), Instant::now());
        stream.read(&buffer, 0, &mut seen).expect("read");
        let down = start.elapsed().as_secs_f64();
        let (up, down) = (gigabytes / up, gigabytes / down);
        let _ = writeln!(std::io::stderr(), "copies of 512 MiB, round {round}: up {up:.1} GB/s, down {down:.1} GB/s");
    }
    assert!(seen == content);
}
