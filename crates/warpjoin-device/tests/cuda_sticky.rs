//! A kernel that breaks its context. The only test of this binary, since the context does not recover.
#![allow(clippy::panic, reason = "tests")]

mod cuda_common;

use std::io::Write;

use cuda_common::{bytes_of, gpu, kernel, launch, words};
use warpjoin_device::{Arg, CudaOptions, DeviceError, open_cuda};

#[test]
fn a_trap_makes_all_later_calls_fail() {
    let Some(device) = gpu("a_trap_makes_all_later_calls_fail") else { return };
    let stream = device.create_stream().expect("stream");
    let buffer = stream.alloc_filled(100 << 20, 1).expect("alloc");
    let trap = kernel(&device, "trap");
    stream.synchronize().expect("synchronize");
    stream.launch(&trap, launch(1, 32), &[]).expect("the launch itself succeeds");
    match stream.synchronize() {
        Err(DeviceError::DeviceLost { device, reason, .. }) => {
            assert_eq!(device, "cuda:0");
            assert!(reason.contains("CUDA_ERROR_"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // Calls that move data or wait fail, others may fail. None panics or hangs, and drops log nothing.
    let mut bytes = vec![0; 100 << 20];
    for result in [
        stream.write(&buffer, 0, &bytes),
        stream.read(&buffer, 0, &mut bytes),
        stream.read(&buffer, 0, &mut [0; 8]),
        stream.fill(&buffer, 0, 8, 0),
        stream.copy((&buffer, 0), (&buffer, 8), 8),
        stream.launch(&trap, launch(1, 32), &[]),
        stream.synchronize(),
    ] {
        assert!(matches!(result, Err(DeviceError::DeviceLost { .. })), "{result:?}");
    }
    for result in [stream.record().map(|_| ()), stream.alloc(1 << 20).map(|_| ()), device.create_stream().map(|_| ())] {
        assert!(matches!(result, Ok(()) | Err(DeviceError::DeviceLost { .. })), "{result:?}");
    }

    // Opens a new context while the broken one is held, and again after it is released. Either it works, or the GPU is lost.
    say(&format!("a new context beside a broken one: {}", use_again()));
    drop((trap, buffer, stream, device));
    say(&format!("a new context after a broken one: {}", use_again()));
}

/// Opens the GPU again, and runs a kernel.
fn use_again() -> String {
    let options = CudaOptions { devices: Some(1), kernel_cache: Some("off".into()), ..CudaOptions::default() };
    let devices = match open_cuda(&options) {
        Ok(devices) => devices,
        Err(error @ DeviceError::DeviceLost { .. }) => return error.to_string(),
        Err(error) => panic!("{error}"),
    };
    let stream = devices[0].create_stream().expect("stream");
    let input: Vec<u64> = (0..100_000).collect();
    let rows = input.len() as u64;
    let [from, to] = [0; 2].map(|_| stream.alloc_filled(8 * rows, 0xff).expect("alloc"));
    stream.write(&from, 0, &bytes_of(&input)).expect("write");
    let scale = kernel(&devices[0], "scale");
    let args = [Arg::Buffer(&from), Arg::Buffer(&to), Arg::U64(rows), Arg::U64(3)];
    stream.launch(&scale, launch(64, 256), &args).expect("launch");
    let mut output = vec![0; 8 * input.len()];
    stream.read(&to, 0, &mut output).expect("read");
    assert!(words(&output).iter().zip(&input).all(|(output, input)| *output == input * 3 + 5));
    "works".to_string()
}

/// Prints a line that the test harness does not capture.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
