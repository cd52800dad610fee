//! CUDA on machines with or without a driver: nothing panics, and errors say what is missing.
#![allow(clippy::panic, reason = "tests")]

use warpjoin_device::{CudaOptions, DeviceError, ModuleSource, compile_for_architecture, cuda_status, open_cuda};

#[test]
fn status_and_open_agree() {
    let status = cuda_status();
    println!("{status:?}");
    if cfg!(target_os = "linux") {
        assert_eq!(status.nvrtc.is_some(), status.nvrtc_path.is_some());
    }
    match (&status.problem, open_cuda(&CudaOptions::default())) {
        (None, Ok(devices)) => assert_eq!(devices.len(), status.gpus),
        (Some(problem), Err(error)) => assert_eq!(problem.to_string(), error.to_string()),
        (problem, opened) => panic!("{problem:?} and {opened:?}"),
    }
    if status.driver.is_none() {
        assert!(matches!(status.problem, Some(DeviceError::NoDriver)), "{status:?}");
        assert_eq!(status.gpus, 0);
        assert!(status.problem.is_some_and(|problem| problem.to_string().contains("libcuda")));
    }
}

#[test]
fn invalid_numbers_of_gpus_are_rejected() {
    for devices in [0, 1 << 20] {
        let options = CudaOptions { devices: Some(devices), ..CudaOptions::default() };
        let refused = open_cuda(&options);
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[test]
fn compiling_without_nvrtc_is_an_error() {
    if cuda_status().nvrtc.is_some() {
        return;
    }
    let source = ModuleSource { name: "m".into(), text: String::new(), entries: vec![], defines: vec![] };
    assert!(matches!(compile_for_architecture(&source, "sm_90"), Err(DeviceError::NoNvrtc)));
}
