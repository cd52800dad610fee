//! Several GPUs: peer access, copies and events between them. Skipped with fewer than two GPUs.

mod cuda_common;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_common::{bytes_of, gpus, kernel, launch, random_bytes, words};
use warpjoin_device::{Arg, Device, DeviceError};

/// Held while a test uses GPUs. A GPU is opened once per process, with its opened peers; a test needs GPUs without opened peers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two GPUs, the first of which can reach the second.
fn pair(test: &str) -> Option<(Device, Device)> {
    let devices = gpus(test)?;
    let reachable =
        |from: &Device| from.info().links.iter().find(|link| link.access).map(|link| devices[link.peer].clone());
    let pair = devices.iter().find_map(|from| Some((from.clone(), reachable(from)?)));
    if pair.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIP {test}: {} GPUs, no two with peer access", devices.len());
    }
    pair
}

#[test]
fn links_name_every_other_gpu() {
    let _alone = alone();
    let Some(devices) = gpus("links_name_every_other_gpu") else { return };
    for device in &devices {
        let peers: Vec<usize> = device.info().links.iter().map(|link| link.peer).collect();
        assert!(peers.into_iter().eq((0..devices.len()).filter(|&peer| peer != device.info().ordinal)));
        let _ = writeln!(std::io::stderr(), "{}: {:?}", device.label(), device.info().links);
    }
}

#[test]
fn peer_memory_is_reachable_only_after_opening_access() {
    let _alone = alone();
    let Some((near, far)) = pair("peer_memory_is_reachable_only_after_opening_access") else { return };
    let (stream, far_stream) = (near.create_stream().expect("stream"), far.create_stream().expect("stream"));
    let content = random_bytes(9_000_000, 1);
    let theirs = far_stream.upload(&content).expect("upload");
    let ours = stream.alloc(content.len() as u64).expect("alloc");
    stream.wait(&far_stream.record().expect("record")).expect("wait");
    let refused = stream.copy((&theirs, 0), (&ours, 0), content.len() as u64);
    assert!(matches!(refused, Err(DeviceError::NoPeerAccess { .. })), "{refused:?}");

    near.open_peer_access(&far).expect("open");
    near.open_peer_access(&far).expect("opening twice is not an error");
    assert!(near.can_reach(&far) && !far.can_reach(&near));
    stream.copy((&theirs, 0), (&ours, 0), content.len() as u64).expect("copy");
    let mut seen = vec![0; content.len()];
    stream.read(&ours, 0, &mut seen).expect("read");
    assert!(seen == content);

    // A kernel reads and writes memory of the peer, including memory allocated after opening the access.
    let rows = content.len() as u64 / 8;
    let later = far_stream.alloc_filled(rows * 8, 0).expect("alloc");
    stream.wait(&far_stream.record().expect("record")).expect("wait");
    let args = [Arg::Buffer(&theirs), Arg::Buffer(&later), Arg::U64(rows), Arg::U64(2)];
    stream.launch(&kernel(&near, "scale"), launch(64, 256), &args).expect("launch");
    far_stream.wait(&stream.record().expect("record")).expect("wait");
    let mut seen = vec![0; rows as usize * 8];
    far_stream.read(&later, 0, &mut seen).expect("read");
    let expected: Vec<u64> = words(&content).into_iter().map(|value| value.wrapping_mul(2).wrapping_add(5)).collect();
    assert!(seen == bytes_of(&expected));
    stream.synchronize().expect("synchronize");
}

#[test]
fn concurrent_copies_in_both_directions() {
    let _alone = alone();
    let Some((near, far)) = pair("concurrent_copies_in_both_directions") else { return };
    near.open_peer_access(&far).expect("open");
    if far.open_peer_access(&near).is_err() {
        return;
    }
    let (stream, far_stream) = (near.create_stream().expect("stream"), far.create_stream().expect("stream"));
    let (content, far_content) = (random_bytes(32 << 20, 1), random_bytes(32 << 20, 2));
    let bytes = content.len() as u64;
    let (ours, theirs) = (stream.upload(&content).expect("upload"), far_stream.upload(&far_content).expect("upload"));
    let (from_far, from_near) = (stream.alloc(bytes).expect("alloc"), far_stream.alloc(bytes).expect("alloc"));
    let (event, far_event) = (stream.record().expect("record"), far_stream.record().expect("record"));
    stream.wait(&far_event).expect("wait");
    far_stream.wait(&event).expect("wait");
    stream.copy((&theirs, 0), (&from_far, 0), bytes).expect("copy");
    far_stream.copy((&ours, 0), (&from_near, 0), bytes).expect("copy");
    let (mut seen, mut far_seen) = (vec![0; content.len()], vec![0; content.len()]);
    stream.read(&from_far, 0, &mut seen).expect("read");
    far_stream.read(&from_near, 0, &mut far_seen).expect("read");
    assert!(seen == far_content && far_seen == content);
}

#[test]
fn kernels_run_only_on_the_gpu_they_were_compiled_for() {
    let _alone = alone();
    let Some((near, far)) = pair("kernels_run_only_on_the_gpu_they_were_compiled_for") else { return };
    let nothing = kernel(&near, "nothing");
    let refused = far.create_stream().expect("stream").launch(&nothing, launch(1, 32), &[]);
    assert!(matches!(refused, Err(DeviceError::Invalid(_))), "{refused:?}");
}
