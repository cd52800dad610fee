//! Measures the limits: the median of several runs of each kernel, after one warm-up run.
//!
//! Must not know which lines are compared with the limits.

use warpjoin_device::Buffer;

use super::kernels::{ACCESS_TILE, RandomKind, STREAM_TILE_BYTES, StreamKind, gather, random, stream};
use super::{Curve, Limits};
use crate::data::columns_on;
use crate::{Bench, ColumnSpec, Member, Numbering, Numbers, Result, Value, median};

/// Number of runs after the warm-up run.
const RUNS: usize = 7;
/// Bytes of each buffer of a stream, as a power of two.
const STREAM_BYTES_BITS: u32 = 31;
/// Accesses of a run, as a power of two.
const ACCESSES_BITS: u32 = 27;
/// Accesses of a run with contention, as a power of two.
const CONTENDED_ACCESSES_BITS: u32 = 23;
/// Maximum number of addresses that counts as contention.
const CONTENDED_ADDRESSES_MAX: u64 = 1 << 8;
/// Footprints of random accesses, as powers of two of bytes.
const READ_FOOTPRINT_BITS: [u32; 6] = [23, 25, 26, 28, 30, 32];
const WRITE_FOOTPRINT_BITS: [u32; 3] = [23, 25, 32];
/// Numbers of addresses of atomic additions, as powers of two.
const ADDRESS_BITS: [u32; 6] = [0, 4, 10, 16, 20, 24];

impl Limits {
    /// Measures all limits. Takes one or two seconds on a GPU, and 4 GiB of its memory.
    ///
    /// # Errors
    /// When the device has too little memory, or fails.
    pub fn measure(bench: &Bench) -> Result<Limits> {
        let sink = bench.stream().alloc_filled(8, 0)?;
        let [copy, read, write] = measure_streams(bench, &sink)?;
        let memory = bench.stream().alloc_filled(footprint(bench, 32), 0)?;
        let curve = |kind, footprints: &[u32]| -> Result<Curve> {
            let mut points = vec![];
            for &bits in footprints {
                let bytes = footprint(bench, bits);
                points.push((bytes, measure_random(bench, kind, bytes / 8, &memory, &sink)?));
            }
            points.dedup_by_key(|&mut (bytes, _)| bytes);
            Ok(Curve(points))
        };
        let random_reads = curve(RandomKind::Read, &READ_FOOTPRINT_BITS)?;
        let random_writes = curve(RandomKind::Write, &WRITE_FOOTPRINT_BITS)?;
        let random_cas = curve(RandomKind::Cas, &WRITE_FOOTPRINT_BITS)?;
        let mut adds = vec![];
        for bits in ADDRESS_BITS {
            let addresses = (1u64 << bits).min(memory.bytes() / 8);
            adds.push((addresses, measure_random(bench, RandomKind::Add, addresses, &memory, &sink)?));
        }
        adds.dedup_by_key(|&mut (addresses, _)| addresses);
        drop(memory);
        let gathers = vec![(4, measure_gather(bench, 4)?), (8, measure_gather(bench, 8)?)];
        Ok(Limits {
            devices: bench.members().len() as u64,
            link_bytes_per_s: measure_links(bench)?,
            copy_bytes_per_s: copy,
            read_bytes_per_s: read,
            write_bytes_per_s: write,
            random_reads,
            random_writes,
            random_cas,
            random_adds: Curve(adds),
            gathers,
        })
    }
}

/// A footprint of `2^bits` bytes, divided by the scale of the bench.
fn footprint(bench: &Bench, bits: u32) -> u64 {
    bench.scale().rows(bits)
}

/// Median device time of `run` in seconds. `prepare` runs before each and is not timed.
fn seconds(bench: &Bench, prepare: impl Fn() -> Result<()>, run: impl Fn() -> Result<()>) -> Result<f64> {
    let mut samples = vec![];
    for _ in 0..=RUNS {
        prepare()?;
        samples.push(bench.timed(|_| run())?);
    }
    // Leaves out the warm-up run.
    Ok(median(&samples[1..]).max(1) as f64 * 1e-9)
}

fn measure_streams(bench: &Bench, sink: &Buffer) -> Result<[f64; 3]> {
    let bytes = bench.scale().rows(STREAM_BYTES_BITS).max(STREAM_TILE_BYTES);
    // Random data, since zeros can be faster.
    let rows = bytes / 8;
    let specs = [ColumnSpec::new("random", Value::Random, arrow::datatypes::DataType::Int64, 1)];
    let input = &columns_on(bench, 0..rows, rows, &Numbers::new(Numbering::Cyclic, 1), &specs)?[0];
    let output = bench.stream().alloc(bytes)?;
    let rate = |kind, moved: u64| -> Result<f64> {
        let run = || stream(bench, kind, bytes, (input, &output), sink);
        Ok(moved as f64 / seconds(bench, || Ok(()), run)?)
    };
    // The driver's copy can be faster.
    let driver_s = seconds(bench, || Ok(()), || Ok(bench.stream().copy((input, 0), (&output, 0), bytes)?))?;
    let copy = rate(StreamKind::Copy, 2 * bytes)?.max(2.0 * bytes as f64 / driver_s);
    Ok([copy, rate(StreamKind::Read, bytes)?, rate(StreamKind::Write, bytes)?])
}

/// Bytes per second out of the slowest device, while each copies an equal run to each other.
fn measure_links(bench: &Bench) -> Result<Option<f64>> {
    let members = bench.members();
    let others = members.len() as u64 - 1;
    let reach = |from: &Member, to: &Member| from.device().can_reach(to.device());
    if others == 0 || members.iter().any(|from| members.iter().any(|to| !reach(from, to))) {
        return Ok(None);
    }
    let run_bytes = bench.scale().rows(STREAM_BYTES_BITS).div_ceil(8 * others) * 8;
    // Random data, since zeros can be faster.
    let specs = [ColumnSpec::new("random", Value::Random, arrow::datatypes::DataType::Int64, 1)];
    let numbers = Numbers::new(Numbering::Cyclic, 1);
    let mut buffers = vec![];
    for member in members {
        let source = columns_on(member, 0..run_bytes / 8, run_bytes / 8, &numbers, &specs)?.swap_remove(0);
        buffers.push((source, member.stream().alloc(run_bytes * others)?));
        member.stream().synchronize()?;
    }
    let mut samples = vec![];
    for _ in 0..=RUNS {
        let mut spans = vec![];
        for (index, member) in members.iter().enumerate() {
            let begun = member.stream().record()?;
            // A stream for each other device: one copy engine does not fill all links.
            for step in 1..members.len() {
                let (to, stream) = ((index + step) % members.len(), member.device().create_stream()?);
                stream.wait(&begun)?;
                stream.copy((&buffers[index].0, 0), (&buffers[to].1, (step as u64 - 1) * run_bytes), run_bytes)?;
                member.stream().wait(&stream.record()?)?;
            }
            spans.push((begun, member.stream().record()?));
        }
        let mut slowest_ns = 0;
        for ((begun, ended), member) in spans.iter().zip(members) {
            member.stream().synchronize()?;
            slowest_ns = slowest_ns.max(ended.elapsed_ns(begun)?);
        }
        samples.push(slowest_ns);
    }
    Ok(Some((run_bytes * others) as f64 / (median(&samples[1..]).max(1) as f64 * 1e-9)))
}

/// Random accesses per second to the first `words` words of `memory`.
fn measure_random(bench: &Bench, kind: RandomKind, words: u64, memory: &Buffer, sink: &Buffer) -> Result<f64> {
    let contended = kind == RandomKind::Add && words <= CONTENDED_ADDRESSES_MAX;
    let bits = if contended { CONTENDED_ACCESSES_BITS } else { ACCESSES_BITS };
    let accesses = bench.scale().rows(bits).max(ACCESS_TILE);
    let clear = || match kind {
        RandomKind::Cas => Ok(bench.stream().fill(memory, 0, words * 8, 0)?),
        _ => Ok(()),
    };
    let run = || random(bench, kind, accesses, words, memory, sink);
    Ok((accesses / ACCESS_TILE * ACCESS_TILE) as f64 / seconds(bench, clear, run)?)
}

/// Values gathered per second, each value of a column once.
fn measure_gather(bench: &Bench, width_bytes: u64) -> Result<f64> {
    use arrow::datatypes::DataType;
    let rows = bench.scale().rows(ACCESSES_BITS).max(ACCESS_TILE);
    let of_width = if width_bytes == 4 { DataType::Int32 } else { DataType::Int64 };
    let specs = [
        ColumnSpec::new("place", Value::KeyDense, DataType::Int64, 0).up_to(u32::MAX.into()),
        ColumnSpec::new("value", Value::Random, of_width, 2),
    ];
    let columns = columns_on(bench, 0..rows, rows, &Numbers::new(Numbering::Permuted, rows), &specs)?;
    let (places, values) = (&columns[0], &columns[1]);
    let output = bench.stream().alloc(rows * width_bytes)?;
    let run = || gather(bench, width_bytes, rows, places, values, &output);
    let elapsed_s = seconds(bench, || Ok(()), run)?;
    Ok(rows as f64 / elapsed_s)
}
