//! A kernel that breaks its context. Alone in this binary, since the context does not recover.
#![allow(clippy::panic, reason = "tests")]

mod cuda_common;

use cuda_common::{gpu, kernel, launch};
use warpjoin_device::{Arg, DeviceError};

#[test]
fn an_illegal_address_comes_out_as_an_error_from_then_on() {
    let Some(device) = gpu("an_illegal_address_comes_out_as_an_error_from_then_on") else { return };
    let stream = device.create_stream().expect("stream");
    let buffer = stream.alloc_filled(100 << 20, 1).expect("alloc");
    let poke = kernel(&device, "poke");
    stream.synchronize().expect("all is well");
    stream.launch(&poke, launch(1, 32), &[Arg::U64(8)]).expect("the launch itself is fine");
    match stream.synchronize() {
        Err(DeviceError::DeviceLost { device, reason, .. }) => {
            assert_eq!(device, "cuda:0");
            assert!(reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // Calls that move data say so, others may; none panics or hangs, and what there is drops quietly.
    let mut bytes = vec![0; 100 << 20];
    for result in [
        stream.write(&buffer, 0, &bytes),
        stream.read(&buffer, 0, &mut bytes),
        stream.read(&buffer, 0, &mut [0; 8]),
        stream.fill(&buffer, 0, 8, 0),
        stream.copy((&buffer, 0), (&buffer, 8), 8),
        stream.launch(&poke, launch(1, 32), &[Arg::U64(8)]),
        stream.synchronize(),
    ] {
        assert!(matches!(result, Err(DeviceError::DeviceLost { .. })), "{result:?}");
    }
    for result in [stream.record().map(|_| ()), stream.alloc(1 << 20).map(|_| ()), device.create_stream().map(|_| ())] {
        assert!(matches!(result, Ok(()) | Err(DeviceError::DeviceLost { .. })), "{result:?}");
    }
}
