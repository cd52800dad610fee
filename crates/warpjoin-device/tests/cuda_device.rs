//! One real GPU: properties, memory, kernels, streams, events. Skipped visibly without a GPU.
#![allow(clippy::panic, reason = "tests")]

mod cuda_common;

use cuda_common::{alone, bytes_of, gpu, gpu_with_cache, gpus_with, kernel, launch, source, words};
use sha2::{Digest, Sha256};
use warpjoin_device::{
    Arg, Cause, CudaOptions, DeviceError, DeviceKind, Launch, ModuleSource, compile_for_architecture, cuda_status,
    open_usable_cuda,
};

/// More than 16 ms on a GPU of up to 2.5 GHz.
const LONG_CYCLES: u64 = 40_000_000;

#[test]
fn properties_are_plausible() {
    let Some(device) = gpu("properties_are_plausible") else { return };
    let info = device.info();
    println!("{info:#?}\n{:#?}", cuda_status());
    assert_eq!((info.kind, info.ordinal, device.label().as_str()), (DeviceKind::Cuda, 0, "cuda:0"));
    assert!(!info.name.is_empty() && info.compute_capability >= (7, 5) && info.multiprocessors > 0);
    assert!(info.l2_bytes >= 1 << 20 && info.shared_bytes_per_block_max >= 48 << 10);
    assert!(info.budget_bytes > 0 && info.budget_bytes < info.memory_bytes);
    assert_eq!(device.memory().limit_bytes(), info.budget_bytes);
    assert!(info.driver.starts_with("CUDA ") && info.compiler.starts_with("NVRTC "));
    assert!(cuda_status().problem.is_none());
}

#[test]
fn memory_holds_what_is_written_filled_and_copied() {
    let Some(device) = gpu("memory_holds_what_is_written_filled_and_copied") else { return };
    let stream = device.create_stream().expect("stream");
    let mut expected = cuda_common::random_bytes(1000, 1);
    let buffer = stream.upload(&expected).expect("upload");
    // Aligned and unaligned starts and lengths.
    for (offset, bytes, value) in
        [(0, 16, 1), (4, 400, 2), (7, 9, 3), (500, 3, 4), (996, 4, 5), (999, 1, 6), (100, 0, 7)]
    {
        stream.fill(&buffer, offset as u64, bytes as u64, value).expect("fill");
        expected[offset..offset + bytes].fill(value);
    }
    stream.write(&buffer, 33, &[9; 5]).expect("write");
    expected[33..38].fill(9);
    let copied = stream.alloc_filled(1000, 0).expect("alloc");
    stream.copy((&buffer, 3), (&copied, 1), 997).expect("copy");
    let (mut seen, mut seen_copied) = (vec![0; 1000], vec![0; 999]);
    stream.read(&buffer, 0, &mut seen).expect("read");
    stream.read(&copied, 1, &mut seen_copied).expect("read");
    assert_eq!(seen, expected);
    assert_eq!(seen_copied[..997], expected[3..]);
    assert_eq!(seen_copied[997..], [0, 0]);
    assert!(stream.read(&buffer, 1, &mut seen).is_err(), "past the end");
}

#[test]
fn several_buffers_are_read_at_once() {
    let Some(device) = gpu("several_buffers_are_read_at_once") else { return };
    let stream = device.create_stream().expect("stream");
    // Small ranges share a pinned chunk, with odd offsets and lengths. Ranges of 3 MiB do not fit in one.
    for scale in [1, 1000, 3 << 20] {
        let sources = [1, 7, scale, 300].map(|bytes| cuda_common::random_bytes(bytes + 3, bytes as u64));
        let buffers = sources.each_ref().map(|bytes| stream.upload(bytes).expect("upload"));
        for _ in 0..3 {
            let mut seen = sources.each_ref().map(|bytes| vec![0; bytes.len() - 3]);
            let mut parts: Vec<_> =
                buffers.iter().zip(&mut seen).map(|(buffer, seen)| (buffer, 3, seen.as_mut_slice())).collect();
            stream.read_all(&mut parts).expect("read");
            for (seen, source) in seen.iter().zip(&sources) {
                assert_eq!(*seen, source[3..]);
            }
        }
    }
}

#[test]
fn empty_buffers_do_nothing() {
    let Some(device) = gpu("empty_buffers_do_nothing") else { return };
    let stream = device.create_stream().expect("stream");
    let buffer = stream.upload(&[]).expect("upload");
    stream.fill(&buffer, 0, 0, 1).expect("fill");
    stream.read(&buffer, 0, &mut []).expect("read");
    stream.copy((&buffer, 0), (&buffer, 0), 0).expect("copy");
    assert_eq!(device.memory().used_bytes(), 0);
}

#[test]
fn buffers_outlive_their_stream_handles_and_release_memory() {
    let Some(device) = gpu("buffers_outlive_their_stream_handles_and_release_memory") else { return };
    let filled = |value: u8| {
        let stream = device.create_stream().expect("stream");
        let buffer = stream.alloc_filled(1 << 20, value).expect("alloc");
        (buffer, stream.record().expect("record"))
    };
    let buffers: Vec<_> = (0..100).map(filled).collect();
    assert_eq!(device.memory().used_bytes(), 100 << 20);
    let stream = device.create_stream().expect("stream");
    for (at, (buffer, event)) in buffers.iter().enumerate() {
        let mut seen = [0];
        stream.wait(event).expect("wait");
        stream.read(buffer, 12_345, &mut seen).expect("read");
        assert_eq!(usize::from(seen[0]), at);
    }
    drop(buffers);
    assert_eq!(device.memory().used_bytes(), 0);
}

#[test]
fn the_budget_and_the_gpu_both_report_out_of_memory() {
    let test = "the_budget_and_the_gpu_both_report_out_of_memory";
    let _alone = alone();
    let options = CudaOptions { devices: Some(1), memory_bytes: Some(1 << 20), kernel_cache: Some("off".into()) };
    let Some(devices) = gpus_with(test, &options) else { return };
    let (device, stream) = (&devices[0], devices[0].create_stream().expect("stream"));
    let held = stream.alloc(1 << 19).expect("within the budget");
    match stream.alloc(1 << 20) {
        Err(DeviceError::OutOfDeviceMemory { asked_bytes, free_bytes, limit_bytes, .. }) => {
            assert_eq!((asked_bytes, free_bytes, limit_bytes), (1 << 20, 1 << 19, 1 << 20));
        }
        other => panic!("{other:?}"),
    }
    // With a large budget, the GPU itself is the limit. A failed allocation leaves live buffers intact, and the next one works.
    stream.fill(&held, 0, 1 << 19, 7).expect("fill");
    device.memory().set_limit_bytes(u64::MAX / 2);
    for asked in [device.info().memory_bytes, device.info().memory_bytes * 2, u64::MAX / 4] {
        let refused = stream.alloc(asked);
        assert!(matches!(refused, Err(DeviceError::OutOfDeviceMemory { .. })), "{refused:?}");
    }
    assert_eq!(device.memory().used_bytes(), 1 << 19);
    let next = stream.alloc_filled(64 << 20, 1).expect("a usual amount");
    let mut seen = vec![0; 1 << 19];
    stream.read(&held, 0, &mut seen).expect("read");
    assert!(seen.iter().all(|&byte| byte == 7));
    drop(next);
}

#[test]
fn freed_memory_is_reused() {
    let Some(device) = gpu("freed_memory_is_reused") else { return };
    let stream = device.create_stream().expect("stream");
    // One buffer at a time, in total far more than the memory of the GPU.
    let bytes = device.info().budget_bytes / 4;
    for round in 0..40 {
        let buffer = stream.alloc(bytes).unwrap_or_else(|error| panic!("round {round}: {error}"));
        stream.fill(&buffer, bytes - 8, 8, round).expect("fill");
    }
    stream.synchronize().expect("synchronize");
}

#[test]
fn cleared_memory_is_clear_when_reused() {
    let Some(device) = gpu("cleared_memory_is_clear_when_reused") else { return };
    for round in 0..40_usize {
        // Streams are reused with the memory that they keep.
        let stream = device.create_stream().expect("stream");
        let mut kept = vec![];
        for step in 0..50 {
            let bytes = [64, 8, 256, 257, 4096, 2 << 20][(round + step) % 6];
            let buffer = stream.alloc_filled(bytes, 0).expect("alloc");
            let mut seen = vec![1; bytes as usize];
            stream.read(&buffer, 0, &mut seen).expect("read");
            assert!(seen.iter().all(|&byte| byte == 0), "{bytes} bytes in step {step} of round {round}");
            stream.fill(&buffer, 0, bytes, 0xff).expect("fill");
            if step % 3 == 0 {
                kept.push((buffer, bytes));
            }
        }
        for (buffer, bytes) in kept {
            let mut seen = vec![0; bytes as usize];
            stream.read(&buffer, 0, &mut seen).expect("read");
            assert!(seen.iter().all(|&byte| byte == 0xff), "{bytes} bytes of a live buffer changed");
        }
    }
    assert_eq!(device.memory().used_bytes(), 0);
}

#[test]
fn kernels_compute_on_every_size() {
    let Some(device) = gpu("kernels_compute_on_every_size") else { return };
    let (stream, scale) = (device.create_stream().expect("stream"), kernel(&device, "scale"));
    for rows in [0_usize, 1, 31, 32, 33, 255, 257, 100_003] {
        let input: Vec<u64> = (0..rows as u64).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let source = stream.upload(&bytes_of(&input)).expect("upload");
        let target = stream.alloc_filled(rows as u64 * 8, 0xff).expect("alloc");
        let args = [Arg::Buffer(&source), Arg::Buffer(&target), Arg::U64(rows as u64), Arg::U64(3)];
        stream.launch(&scale, launch(64, 256), &args).expect("launch");
        let mut seen = vec![0; rows * 8];
        stream.read(&target, 0, &mut seen).expect("read");
        let expected: Vec<u64> = input.iter().map(|value| value.wrapping_mul(3).wrapping_add(5)).collect();
        assert_eq!(words(&seen), expected, "{rows} rows");
    }
}

#[test]
fn launches_of_an_invalid_shape_are_rejected() {
    let Some(device) = gpu("launches_of_an_invalid_shape_are_rejected") else { return };
    let stream = device.create_stream().expect("stream");
    stream.launch(&kernel(&device, "nothing"), launch(3, 32), &[]).expect("no parameters");
    let scale = kernel(&device, "scale");
    for count in [0, 1, 3, 5] {
        let refused = stream.launch(&scale, launch(1, 32), &vec![Arg::Null; count][..]);
        assert!(matches!(refused, Err(DeviceError::Invalid(_))), "{count}: {refused:?}");
    }
    let zeros = [Arg::Null, Arg::Null, Arg::U64(0), Arg::U64(0)];
    // More threads than `__launch_bounds__` allows: the driver's error names the kernel.
    match stream.launch(&scale, launch(1, 512), &zeros) {
        Err(DeviceError::Driver { device, call, reason }) => {
            assert_eq!((device.as_str(), call), ("cuda:0", "cuLaunchKernel"));
            assert!(reason.contains("CUDA_ERROR_") && reason.contains("scale"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    stream.launch(&scale, launch(1, 256), &zeros).expect("a valid shape");
    stream.synchronize().expect("the error is not sticky");
}

#[test]
fn dynamic_shared_memory_up_to_the_maximum() {
    let Some(device) = gpu("dynamic_shared_memory_up_to_the_maximum") else { return };
    let (stream, reverse) = (device.create_stream().expect("stream"), kernel(&device, "reverse"));
    let most = device.info().shared_bytes_per_block_max;
    for shared_bytes in [8, 48 << 10, 64 << 10, most, 56 << 10, 1 << 10] {
        let values: Vec<u64> = (0..u64::from(shared_bytes / 8)).collect();
        let buffer = stream.upload(&bytes_of(&values)).expect("upload");
        let shape = Launch { blocks: 1, block_threads: 1024, shared_bytes };
        stream.launch(&reverse, shape, &[Arg::Buffer(&buffer), Arg::U64(values.len() as u64)]).expect("launch");
        let mut seen = vec![0; values.len() * 8];
        stream.read(&buffer, 0, &mut seen).expect("read");
        assert!(words(&seen).into_iter().eq(values.into_iter().rev()), "{shared_bytes} bytes");
    }
    let shape = Launch { blocks: 1, block_threads: 1024, shared_bytes: most + 16 };
    assert!(stream.launch(&reverse, shape, &[Arg::Null, Arg::U64(0)]).is_err());
}

#[test]
fn events_order_streams_and_measure_time() {
    let Some(device) = gpu("events_order_streams_and_measure_time") else { return };
    let spin = kernel(&device, "spin");
    let (first, second) = (device.create_stream().expect("stream"), device.create_stream().expect("stream"));
    let buffer = first.alloc_filled(8, 0).expect("alloc");
    let before = first.record().expect("record");
    let args = [Arg::U64(LONG_CYCLES), Arg::Buffer(&buffer), Arg::U64(7)];
    first.launch(&spin, launch(1, 32), &args).expect("launch");
    let after = first.record().expect("record");
    assert!(after.elapsed_ns(&before).is_err(), "not reached yet");
    second.wait(&after).expect("wait");
    let mut seen = [0; 8];
    second.read(&buffer, 0, &mut seen).expect("read");
    assert_eq!(u64::from_le_bytes(seen), 7, "the second stream did not wait");
    let elapsed_ns = after.elapsed_ns(&before).expect("both are reached");
    assert!((10_000_000..10_000_000_000).contains(&elapsed_ns), "{elapsed_ns} ns");
    assert_eq!(before.elapsed_ns(&after).expect("both are reached"), 0, "events in the wrong order");
}

#[test]
fn an_event_may_be_dropped_before_the_waiting_stream() {
    let Some(device) = gpu("an_event_may_be_dropped_before_the_waiting_stream") else { return };
    let spin = kernel(&device, "spin");
    let second = device.create_stream().expect("stream");
    let buffer = second.alloc_filled(8, 0).expect("alloc");
    second.synchronize().expect("synchronize");
    {
        let first = device.create_stream().expect("stream");
        let args = [Arg::U64(LONG_CYCLES), Arg::Buffer(&buffer), Arg::U64(9)];
        first.launch(&spin, launch(1, 32), &args).expect("launch");
        second.wait(&first.record().expect("record")).expect("wait");
    }
    let mut seen = [0; 8];
    second.read(&buffer, 0, &mut seen).expect("read");
    assert_eq!(u64::from_le_bytes(seen), 9);
}

#[test]
fn threads_use_own_and_shared_streams() {
    let Some(device) = gpu("threads_use_own_and_shared_streams") else { return };
    let (count, shared) = (kernel(&device, "count"), device.create_stream().expect("stream"));
    let counters = shared.alloc_filled(32, 0).expect("alloc");
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (device, count, shared, counters) = (&device, &count, &shared, &counters);
            scope.spawn(move || {
                let (own, scale) = (device.create_stream().expect("stream"), kernel(device, "scale"));
                for round in 0..20_usize {
                    let rows = 1000 * (round + 1);
                    let input = cuda_common::random_bytes(rows * 8, seed * 100 + round as u64);
                    let (source, target) =
                        (own.upload(&input).expect("upload"), own.alloc(rows as u64 * 8).expect("alloc"));
                    let args = [Arg::Buffer(&source), Arg::Buffer(&target), Arg::U64(rows as u64), Arg::U64(seed)];
                    own.launch(&scale, launch(8, 256), &args).expect("launch");
                    drop(source);
                    shared.launch(count, launch(2, 256), &[Arg::Buffer(counters), Arg::U64(4)]).expect("launch");
                    let mut seen = vec![0; rows * 8];
                    own.read(&target, 0, &mut seen).expect("read");
                    assert!(
                        words(&seen)
                            .into_iter()
                            .eq(words(&input).into_iter().map(|value| value.wrapping_mul(seed).wrapping_add(5)))
                    );
                }
            });
        }
    });
    let mut seen = vec![0; 32];
    shared.read(&counters, 0, &mut seen).expect("read");
    assert_eq!(words(&seen), vec![8 * 20 * 2 * 256; 4]);
    assert_eq!(device.compiled_modules(), 1);
}

#[test]
fn modules_are_loaded_from_disk_and_bad_ones_compiled_again() {
    let dir = tempfile::tempdir().expect("dir");
    let test = "modules_are_loaded_from_disk_and_bad_ones_compiled_again";
    let _alone = alone();
    let Some(device) = gpu_with_cache(test, dir.path()) else { return };
    let file = || {
        let mut files: Vec<_> =
            std::fs::read_dir(dir.path()).expect("dir").map(|file| file.expect("file").path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    };
    device.compile(&source()).expect("compiles");
    let whole = std::fs::read(file()).expect("read");

    // An image for another architecture with a valid header, which only the driver can reject.
    let other = if device.info().compute_capability.0 == 8 { "sm_90" } else { "sm_80" };
    let image = compile_for_architecture(&source(), other).expect("compiles");
    let mut wrong = whole[..8].to_vec();
    wrong.extend((image.len() as u64).to_le_bytes());
    let path = file();
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    let hashed = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes(), &image].concat();
    wrong.extend(Sha256::digest(hashed));
    wrong.extend(&image);
    // Opened again below, without modules in memory.
    drop(device);
    for content in [wrong, whole[..whole.len() / 2].to_vec(), Vec::new()] {
        std::fs::write(file(), &content).expect("write");
        let device = gpu_with_cache(test, dir.path()).expect("a GPU, as before");
        let stream = device.create_stream().expect("stream");
        stream.launch(&kernel(&device, "nothing"), launch(1, 32), &[]).expect("launch");
        stream.synchronize().expect("synchronize");
        assert_eq!(std::fs::read(file()).expect("read").len(), whole.len(), "stored again");
    }
}

#[test]
fn a_gpu_is_opened_once() {
    let test = "a_gpu_is_opened_once";
    let Some(device) = gpu(test) else { return };
    let options = |budget| CudaOptions { devices: Some(1), memory_bytes: budget, kernel_cache: Some("off".into()) };
    let again = gpus_with(test, &options(None)).expect("a GPU, as before").remove(0);
    assert!(again.is_same(&device));
    // With another kernel cache, it is another device on the same memory.
    let dir = tempfile::tempdir().expect("dir");
    let other = gpu_with_cache(test, dir.path()).expect("a GPU, as before");
    let held = device.create_stream().expect("stream").alloc(1 << 20).expect("memory");
    assert!(!other.is_same(&device) && other.memory().used_bytes() == device.memory().used_bytes());
    assert!(other.held_bytes().expect("known") >= 1 << 20);
    other.open_peer_access(&device).expect("the same GPU");
    gpus_with(test, &options(Some(3 << 20))).expect("a GPU, as before");
    assert_eq!(other.memory().limit_bytes(), 3 << 20, "the budget is shared");
    // Trimming returns all cached memory.
    drop(held);
    device.trim().expect("trimmed");
    assert!(device.memory().used_bytes() == 0 && device.held_bytes().expect("known") <= 32 << 20);
}

#[test]
fn usable_gpus_are_opened() {
    let _alone = alone();
    match open_usable_cuda(&CudaOptions { kernel_cache: Some("off".into()), ..CudaOptions::default() }) {
        Ok(opened) => {
            assert!(opened.devices.len() + opened.left_out.len() >= 1);
            for from in &opened.devices {
                assert!(opened.devices.iter().all(|to| from.can_reach(to)));
            }
        }
        Err(error) => assert_eq!(error.cause(), Cause::Unavailable, "{error}"),
    }
}

#[test]
fn compile_errors_contain_the_log() {
    let Some(device) = gpu("compile_errors_contain_the_log") else { return };
    let bad = ModuleSource { name: "bad".into(), text: "int x = ;".into(), entries: vec!["x".into()], defines: vec![] };
    match device.compile(&bad) {
        Err(DeviceError::KernelCompile { module, log, .. }) => {
            assert!(module == "bad" && log.contains("bad.cu(1)"), "{log}")
        }
        other => panic!("{:?}", other.err()),
    }
    assert!(!device.is_compiled(&bad));
}
