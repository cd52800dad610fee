//! Fault injection: counts of calls, failing calls, and a kernel cache on a full disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;

use std::sync::Arc;

use sim_common::{read_u64, shape};
use warpjoin_device::{
    Arg, CallKind, Cause, Device, Fault, FaultPlan, ModuleSource, SimOptions, open_simulated, with_faults,
};

fn module(number: u64) -> ModuleSource {
    let text = format!(
        "#include \"common/simt.cuh\"\nstruct P {{ u64* out; }};\nWJ_ENTRY(entry, P, 32) {{ p.out[0] = {number}; }}\n"
    );
    ModuleSource { name: "faults".into(), text, entries: vec!["entry".into()], defines: vec![] }
}

fn open(options: &SimOptions) -> (Vec<Device>, FaultPlan) {
    let plan = FaultPlan::default();
    (with_faults(&open_simulated(options).unwrap(), &plan), plan)
}

/// Allocates, launches and reads. Returns the value that the kernel wrote.
fn run(device: &Device, number: u64) -> warpjoin_device::Result<u64> {
    let stream = device.create_stream()?;
    drop(device.cancel_word(&Arc::default())?);
    let out = stream.alloc_filled(8, 0)?;
    let kernel = device.compile(&module(number))?.kernel("entry")?;
    stream.launch(&kernel, shape(1, 32), &[Arg::Buffer(&out)])?;
    Ok(read_u64(&stream, &out)?[0])
}

#[test]
fn every_call_is_counted_and_can_fail() {
    let (devices, plan) = open(&SimOptions { devices: 2, ..SimOptions::default() });
    devices[0].open_peer_access(&devices[1]).unwrap();
    assert_eq!(run(&devices[0], 41).unwrap(), 41);
    for (kind, calls) in [
        (CallKind::OpenPeer, 1),
        (CallKind::CreateStream, 1),
        (CallKind::HostWord, 1),
        (CallKind::Alloc, 1),
        (CallKind::Compile, 1),
        (CallKind::Launch, 1),
        (CallKind::Read, 1),
        (CallKind::Write, 0),
    ] {
        assert_eq!(plan.calls(kind), calls, "{kind:?}");
    }
    // The module is in memory by now: five calls are left.
    let expected = [Cause::OutOfMemory, Cause::Driver, Cause::DeviceLost];
    for (fault, cause) in [Fault::OutOfMemory, Fault::Driver, Fault::DeviceLost].into_iter().zip(expected) {
        for nth in 0..5 {
            plan.arm(None, nth, fault.clone());
            let error = run(&devices[0], 41).unwrap_err();
            assert_eq!(error.cause(), cause, "{error}");
            let still_fails = run(&devices[1], 41).is_err();
            assert_eq!(still_fails, cause == Cause::DeviceLost, "only a lost device keeps failing");
            assert!(!plan.disarm(), "the fault was injected");
            assert_eq!((devices[0].memory().used_bytes(), plan.live_bytes()), (0, 0));
            assert_eq!(run(&devices[0], 41).unwrap(), 41);
        }
        plan.arm(None, 5, fault);
        assert!(run(&devices[0], 41).is_ok() && plan.disarm(), "there is no such call");
    }
    assert!(plan.take_disorder().is_empty());
}

#[test]
fn a_full_disk_loses_only_the_cache_entry() {
    let dir = tempfile::tempdir().unwrap();
    let options = SimOptions { kernel_cache: Some(dir.path().into()), ..SimOptions::default() };
    let (devices, plan) = open(&options);
    let entries = || std::fs::read_dir(dir.path()).map_or(0, Iterator::count);
    // The cache may hold the fiber scheduler.
    let before = entries();
    // No other test compiles these.
    for (number, fault) in [(7001, Fault::OutOfMemory), (7002, Fault::Driver)] {
        plan.arm(Some(CallKind::StoreFile), 0, fault);
        assert_eq!(run(&devices[0], number).unwrap(), number);
        assert!(!plan.disarm(), "no file was written");
        assert_eq!(entries(), before, "an entry or a temporary file remains");
    }
    assert_eq!(run(&devices[0], 7003).unwrap(), 7003);
    assert_eq!(entries(), before + 1);
}

#[test]
fn a_recording_starts_where_the_last_one_ended() {
    let (devices, plan) = open(&SimOptions::default());
    let stream = devices[0].create_stream().unwrap();
    let lasting = stream.alloc(100).unwrap();
    plan.take_recording();
    run(&devices[0], 41).unwrap();
    run(&devices[0], 41).unwrap();
    let first = plan.take_recording();
    assert_eq!((first.launches, first.host_waits, first.peak_bytes), (2, 2, 8));
    assert_eq!(first.kernels.values().copied().collect::<Vec<_>>(), [2]);
    run(&devices[0], 42).unwrap();
    let second = plan.take_recording();
    assert_eq!((second.launches, second.kernels.len()), (1, 1));
    assert_ne!(first.digest_of_kernels(), second.digest_of_kernels(), "another text");
    drop(lasting);
}
