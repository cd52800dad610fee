//! Compiling for simulated devices: entries, errors, definitions, caches.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod sim_common;
use sim_common::*;
use warpjoin_device::{Arg, DeviceError, ModuleSource, SimOptions, open_simulated};

#[test]
fn errors_name_the_module_and_the_line() {
    let device = open(None);
    let broken = ModuleSource { name: "broken.cu".into(), ..kernel_source("\n this is no C++;") };
    match device.compile(&broken).map(|_| ()) {
        Err(DeviceError::KernelCompile { module, log, .. }) => {
            assert_eq!(module, "broken.cu");
            assert!(log.contains("broken.cu:4"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    let missing = ModuleSource { entries: vec!["absent".into()], ..kernel_source("") };
    assert!(matches!(device.compile(&missing).map(|_| ()), Err(DeviceError::Invalid(_))));
}

#[test]
fn definitions_and_several_entries() {
    let mut module = source(
        "struct Params { u64* out; }; WJ_ENTRY(one, Params, 64) { p.out[0] = FACTOR; } WJ_ENTRY(two, Params, 64) { atomicAdd(p.out, 2ull); }",
        &["two", "one"],
    );
    for factor in [3, 4] {
        module.defines = vec![format!("FACTOR={factor}")];
        let device = open(None);
        let compiled = device.compile(&module).unwrap();
        assert!(device.is_compiled(&module));
        let stream = device.create_stream().unwrap();
        let out = stream.alloc(8).unwrap();
        for name in ["one", "two"] {
            stream.launch(&compiled.kernel(name).unwrap(), shape(1, 32), &[Arg::Buffer(&out)]).unwrap();
        }
        assert_eq!(read_u64(&stream, &out).unwrap(), [factor + 32 * 2]);
    }
}

#[test]
fn a_launch_must_match_the_entry() {
    let device = open(None);
    let module = device
        .compile(&source("struct Params { u64* out; u64 n; }; WJ_ENTRY(kernel, Params, 64) {}", &["kernel"]))
        .unwrap();
    let (kernel, stream) = (module.kernel("kernel").unwrap(), device.create_stream().unwrap());
    assert!(matches!(stream.launch(&kernel, shape(1, 96), &[Arg::Null, Arg::Null]), Err(DeviceError::Invalid(_))));
    assert!(matches!(stream.launch(&kernel, shape(1, 64), &[Arg::Null]), Err(DeviceError::Invalid(_))));
    stream.launch(&kernel, shape(1, 64), &[Arg::Null, Arg::Null]).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn threads_compile_concurrently_and_the_disk_cache_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        || open_simulated(&SimOptions { kernel_cache: Some(dir.path().into()), ..options(None) }).unwrap().remove(0);
    let device = open();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let device = &device;
            // Three modules that no other test compiles, with two threads each.
            let body = format!("if (threadIdx.x == 0) p.out[0] = {};", 1_000_003 + thread / 2);
            scope.spawn(move || assert_eq!(run(device, &body, shape(1, 32), 1), [1_000_003 + thread / 2]));
        }
    });
    assert_eq!(device.compiled_modules(), 3);
    let libraries = || {
        std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|name| name == "so"))
            .count()
    };
    assert!(libraries() >= 3);
    assert_eq!(run(&open(), "if (threadIdx.x == 0) p.out[0] = 1000004;", shape(1, 32), 1), [1_000_004]);
}

#[test]
fn the_device_describes_itself() {
    let devices = open_many(3, None);
    let info = devices[1].info();
    assert_eq!((info.ordinal, info.name.as_str(), info.compute_capability), (1, "Simulated GPU", (0, 0)));
    assert_eq!(info.links.iter().map(|link| (link.peer, link.access)).collect::<Vec<_>>(), [(0, true), (2, true)]);
    assert_eq!(devices[1].label(), "sim:1");
    assert!(!info.compiler.is_empty());
}

#[test]
fn opening_without_a_compiler_is_an_error() {
    const NAME: &str = "opening_without_a_compiler_is_an_error";
    if std::env::var_os("WJ_NO_COMPILER").is_some() {
        let error = open_simulated(&options(None)).map(|_| ()).unwrap_err();
        assert!(matches!(error, DeviceError::NoCompiler { .. }), "{error}");
        assert!(error.to_string().contains("/nowhere/c++"), "{error}");
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args([NAME, "--exact"]).env("WJ_NO_COMPILER", "1").env("CXX", "/nowhere/c++ -m64");
    assert!(child.status().unwrap().success());
}
