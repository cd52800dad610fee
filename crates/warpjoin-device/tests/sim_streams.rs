//! Streams, events, memory, peers and host threads of simulated devices.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;
use sim_common::*;
use std::collections::HashSet;
use warpjoin_device::{Arg, Device, DeviceError, Launch, SimOptions, Stream, open_simulated};

/// The order in which two streams take a ticket.
fn order_of_two(seed: u64, devices: usize, with_event: bool) -> Vec<u64> {
    let devices = open_many(devices, Some(seed));
    let (first, second) = (&devices[0], devices.last().unwrap());
    second.open_peer_access(first).unwrap();
    let body = "if (threadIdx.x == 0) p.out[1 + atomicAdd(p.out, 1ull)] = p.n;";
    let streams = [first.create_stream().unwrap(), second.create_stream().unwrap()];
    let out = streams[0].alloc_filled(24, 0).unwrap();
    let ready = streams[0].record().unwrap();
    streams[1].wait(&ready).unwrap();
    let launch = |stream: &Stream, id| {
        let kernel = compile(stream.device(), body).kernel("kernel").unwrap();
        stream.launch(&kernel, shape(1, 32), &[Arg::Buffer(&out), Arg::U64(id)]).unwrap();
    };
    launch(&streams[0], 10);
    if with_event {
        let event = streams[0].record().unwrap();
        streams[1].wait(&event).unwrap();
    }
    launch(&streams[1], 20);
    streams[1].synchronize().unwrap();
    read_u64(&streams[0], &out).unwrap()
}

#[test]
fn streams_run_in_any_order_that_events_allow() {
    for devices in [1, 2] {
        for seed in 0..10 {
            assert_eq!(order_of_two(seed, devices, false), order_of_two(seed, devices, false), "a seed replays");
        }
        let orders: HashSet<_> = (0..30).map(|seed| order_of_two(seed, devices, false)).collect();
        assert_eq!(orders, HashSet::from([vec![2, 10, 20], vec![2, 20, 10]]), "{devices} devices");
        let orders: HashSet<_> = (0..30).map(|seed| order_of_two(seed, devices, true)).collect();
        assert_eq!(orders, HashSet::from([vec![2, 10, 20]]), "{devices} devices");
    }
}

#[test]
fn work_of_a_stream_runs_in_order() {
    for seed in seeds() {
        let device = open(seed);
        let kernel = compile(&device, "if (threadIdx.x == 0) p.out[0] = p.out[0] * 3 + p.n;").kernel("kernel").unwrap();
        let stream = device.create_stream().unwrap();
        let (a, b) = (stream.alloc(8).unwrap(), stream.alloc_filled(8, 0).unwrap());
        let mut host = 7u64.to_le_bytes();
        stream.write(&a, 0, &host).unwrap();
        // The host bytes may be reused after the call.
        host.fill(0xff);
        let mut expected = 7u64;
        for n in 0..20 {
            stream.launch(&kernel, shape(1, 32), &[Arg::Buffer(&a), Arg::U64(n)]).unwrap();
            stream.copy((&a, 0), (&b, 0), 8).unwrap();
            stream.copy((&b, 0), (&a, 0), 8).unwrap();
            expected = expected * 3 + n;
        }
        assert_eq!(read_u64(&stream, &b).unwrap(), [expected]);
    }
}

#[test]
fn several_buffers_are_read_at_once() {
    for seed in seeds() {
        let device = open(seed);
        let stream = device.create_stream().unwrap();
        let buffers = [1u8, 2, 3].map(|value| stream.alloc_filled(100, value).unwrap());
        stream.fill(&buffers[1], 50, 50, 9).unwrap();
        let (mut a, mut b, mut c) = ([0; 100], [0; 10], [0; 3]);
        stream
            .read_all(&mut [
                (&buffers[0], 0, &mut a),
                (&buffers[1], 45, &mut b),
                (&buffers[2], 100, &mut []),
                (&buffers[2], 97, &mut c),
            ])
            .unwrap();
        assert_eq!((a, b, c), ([1; 100], [2, 2, 2, 2, 2, 9, 9, 9, 9, 9], [3; 3]));
        stream.read_all(&mut []).unwrap();
        // A range past the end of its buffer: nothing is read.
        assert!(stream.read_all(&mut [(&buffers[1], 0, &mut a), (&buffers[2], 98, &mut c)]).is_err());
        assert_eq!(a, [1; 100]);
    }
}

#[test]
fn a_dropped_buffer_stays_valid_for_earlier_work() {
    for seed in seeds() {
        let device = open(seed);
        let stream = device.create_stream().unwrap();
        let out = stream.alloc(1 << 20).unwrap();
        let temporary = stream.upload(&vec![5; 1 << 20]).unwrap();
        stream.copy((&temporary, 0), (&out, 0), 1 << 20).unwrap();
        drop(temporary);
        let other = stream.upload(&vec![6; 1 << 20]).unwrap();
        let mut bytes = vec![0; 1 << 20];
        stream.read(&out, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 5));
        drop((out, other));
        assert_eq!(device.memory().used_bytes(), 0);
    }
}

#[test]
fn events_measure_time() {
    for seed in seeds() {
        let device = open(seed);
        let stream = device.create_stream().unwrap();
        let out = stream.alloc_filled(8, 0).unwrap();
        let kernel = compile(&device, "for (u64 i = 0; i < p.n; ++i) atomicAdd(p.out, i);").kernel("kernel").unwrap();
        let start = stream.record().unwrap();
        stream.launch(&kernel, shape(2, 64), &[Arg::Buffer(&out), Arg::U64(1000)]).unwrap();
        let end = stream.record().unwrap();
        if seed.is_some() {
            assert!(end.elapsed_ns(&start).is_err(), "not reached yet");
        }
        stream.synchronize().unwrap();
        let elapsed_ns = end.elapsed_ns(&start).unwrap();
        assert!((100_000..10_000_000_000).contains(&elapsed_ns), "{elapsed_ns} ns");
        assert_eq!(start.elapsed_ns(&end).unwrap(), 0);
    }
}

#[test]
fn an_event_of_a_dropped_stream_is_still_reached() {
    for seed in seeds() {
        let device = open(seed);
        let (first, second) = (device.create_stream().unwrap(), device.create_stream().unwrap());
        let out = second.alloc(8).unwrap();
        first.fill(&out, 0, 8, 1).unwrap();
        let event = first.record().unwrap();
        second.wait(&event).unwrap();
        drop((first, event));
        assert_eq!(read_u64(&second, &out).unwrap(), [0x0101_0101_0101_0101]);
    }
}

#[test]
fn an_error_stays_with_its_stream_and_waiting_streams() {
    for seed in seeds() {
        let device = open(seed);
        let fails = compile(&device, "__trap();").kernel("kernel").unwrap();
        let streams: Vec<_> = (0..3).map(|_| device.create_stream().unwrap()).collect();
        let out = streams[2].alloc_filled(8, 0).unwrap();
        streams[0].launch(&fails, shape(1, 32), &[Arg::Buffer(&out), Arg::U64(0)]).unwrap();
        let event = streams[0].record().unwrap();
        streams[1].wait(&event).unwrap();
        for _ in 0..2 {
            assert!(matches!(streams[0].synchronize(), Err(DeviceError::Kernel { .. })));
            assert!(matches!(streams[1].synchronize(), Err(DeviceError::Kernel { .. })));
            assert_eq!(read_u64(&streams[2], &out).unwrap(), [0]);
        }
    }
}

#[test]
fn memory_has_a_budget_and_is_poisoned() {
    for seed in seeds() {
        let device = open_simulated(&SimOptions { memory_bytes: 1 << 20, ..options(seed) }).unwrap().remove(0);
        let stream = device.create_stream().unwrap();
        let most = stream.alloc(1 << 20).unwrap();
        assert!(matches!(stream.alloc(1), Err(DeviceError::OutOfDeviceMemory { asked_bytes: 1, free_bytes: 0, .. })));
        // The device has no more memory, even with a larger budget.
        device.memory().set_limit_bytes(1 << 30);
        assert!(matches!(stream.alloc(1), Err(DeviceError::OutOfDeviceMemory { .. })));
        drop(most);
        let buffer = stream.alloc(1 << 20).unwrap();
        let words = read_u64(&stream, &buffer).unwrap();
        assert!(words.iter().all(|&word| word != 0 && word != u64::MAX), "unwritten memory is not poisoned");
    }
}

#[test]
fn buffers_in_the_hosts_memory_have_a_budget_and_every_device_reaches_them() {
    for seed in seeds() {
        let options = SimOptions { devices: 2, host_memory_bytes: 1 << 16, ..options(seed) };
        let devices = open_simulated(&options).unwrap();
        let streams: Vec<_> = devices.iter().map(|device| device.create_stream().unwrap()).collect();
        let host = streams[0].alloc_host(1 << 16).unwrap();
        assert!(host.is_on_host() && devices[0].memory().used_bytes() == 0);
        // All devices share the budget.
        let full = streams[1].alloc_host(1);
        assert!(matches!(full, Err(DeviceError::OutOfHostMemory { asked_bytes: 1, free_bytes: 0, .. })), "{full:?}");
        assert!(full.is_err_and(|error| error.to_string().contains("warpjoin.host_memory")));
        streams[0].write(&host, 8, &7u64.to_le_bytes()).unwrap();
        streams[0].fill(&host, 0, 8, 0).unwrap();
        let event = streams[0].record().unwrap();
        // A kernel of a device without access to the other one's memory, then copies both ways.
        let add = compile(&devices[1], "if (threadIdx.x == 0) p.out[1] += p.n;").kernel("kernel").unwrap();
        let near = streams[1].alloc(16).unwrap();
        streams[1].wait(&event).unwrap();
        streams[1].launch(&add, shape(1, 32), &[Arg::Buffer(&host), Arg::U64(3)]).unwrap();
        streams[1].copy((&host, 0), (&near, 0), 16).unwrap();
        streams[1].copy((&near, 8), (&host, 16), 8).unwrap();
        assert_eq!(read_u64(&streams[1], &near).unwrap(), [0, 10]);
        let mut words = [0; 24];
        streams[1].read(&host, 0, &mut words).unwrap();
        assert_eq!(
            words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>(),
            [0, 10, 10]
        );
        drop(host);
        assert_eq!(devices[1].host_memory().used_bytes(), 0);
        assert!(streams[1].clone().within_host(7).alloc_host(8).is_err() && streams[1].alloc_host(8).is_ok());
    }
}

#[test]
fn peer_memory_is_unreachable_before_access_is_opened() {
    for seed in seeds() {
        let devices = open_many(3, seed);
        let streams: Vec<_> = devices.iter().map(|device| device.create_stream().unwrap()).collect();
        let near = streams[0].alloc_filled(8, 0).unwrap();
        let far = streams[1].alloc_filled(8, 0).unwrap();
        streams[1].synchronize().unwrap();
        let kernel = compile(&devices[0], "if (threadIdx.x == 0) p.out[0] = p.n;").kernel("kernel").unwrap();
        let launch = || streams[0].launch(&kernel, shape(1, 32), &[Arg::Buffer(&far), Arg::U64(3)]);
        assert!(matches!(launch(), Err(DeviceError::NoPeerAccess { .. })));
        assert!(matches!(streams[0].copy((&far, 0), (&near, 0), 8), Err(DeviceError::NoPeerAccess { .. })));
        devices[0].open_peer_access(&devices[1]).unwrap();
        launch().unwrap();
        streams[0].copy((&far, 0), (&near, 0), 8).unwrap();
        assert_eq!(read_u64(&streams[0], &near).unwrap(), [3]);
        assert!(!devices[1].can_reach(&devices[0]), "access has one direction");
        let stranger = open(seed);
        assert!(matches!(devices[0].open_peer_access(&stranger), Err(DeviceError::NoPeerLink { .. })));
        let event = stranger.create_stream().unwrap().record().unwrap();
        assert!(matches!(streams[0].wait(&event), Err(DeviceError::Invalid(_))));
        let launched = streams[1].launch(&kernel, shape(1, 32), &[Arg::Buffer(&far), Arg::U64(3)]);
        assert!(matches!(launched, Err(DeviceError::Invalid(_))), "compiled for another device");
    }
}

fn drive(device: &Device, rounds: u64) {
    let stream = device.create_stream().unwrap();
    let kernel = compile(device, "atomicAdd(p.out, p.n); __syncthreads();").kernel("kernel").unwrap();
    for round in 0..rounds {
        let out = stream.alloc_filled(8, 0).unwrap();
        let launch = Launch { blocks: 3, block_threads: 64, shared_bytes: 64 };
        stream.launch(&kernel, launch, &[Arg::Buffer(&out), Arg::U64(round)]).unwrap();
        stream.launch(&kernel, launch, &[Arg::Buffer(&out), Arg::U64(1)]).unwrap();
        assert_eq!(read_u64(&stream, &out).unwrap(), [192 * (round + 1)]);
    }
}

#[test]
fn host_threads_use_devices_concurrently() {
    for seed in seeds() {
        let devices = open_many(2, seed);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &devices[thread % 2];
                scope.spawn(move || drive(device, 50));
            }
        });
        assert_eq!(devices[0].memory().used_bytes(), 0);
    }
}

#[test]
fn an_abandoned_simulation_does_not_hang() {
    for seed in seeds() {
        let device = open(seed);
        let stream = device.create_stream().unwrap();
        let out = stream.alloc_filled(8, 0).unwrap();
        let kernel = compile(&device, "atomicAdd(p.out, 1ull);").kernel("kernel").unwrap();
        stream.launch(&kernel, shape(5, 64), &[Arg::Buffer(&out), Arg::U64(0)]).unwrap();
    }
}

#[test]
fn a_long_queue_is_executed_while_enqueuing() {
    let device = open(Some(1));
    let stream = device.create_stream().unwrap();
    let out = stream.alloc(8).unwrap();
    for value in 0..10_000u64 {
        stream.write(&out, 0, &value.to_le_bytes()).unwrap();
    }
    assert_eq!(read_u64(&stream, &out).unwrap(), [9_999]);
}
