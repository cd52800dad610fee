//! Launches of the kernels of windows: `window.cu`.

use std::collections::BTreeSet;

use warpjoin_device::{Arg, Buffer, Kernel, Launch, ModuleSource, Stream};

use super::fold::{ScanOp, Segments};
use crate::codegen::{
    BLOCK_THREADS, Constants, WINDOW_ITEMS, WINDOW_WORDS, control, window_defines, window_kind as kind,
};
use crate::exec::entry_kernels::EntryKernels;
use crate::exec::query::Query;
use crate::window::{Frame, FrameBound};
use crate::{Error, Result};

/// Frames end no further away: more rows than a device has.
const OFFSET_MAX: i64 = 1 << 40;

/// The file that has an entry.
fn file_of(entry: &str) -> warpjoin_kernels::KernelFile {
    if entry == "window_range" { warpjoin_kernels::WINDOW_FRAMES } else { warpjoin_kernels::WINDOW }
}

/// The kernels of some entries; no more of their files is compiled.
pub(super) fn compile_window(query: &mut Query<'_>, entries: &BTreeSet<&'static str>) -> Result<EntryKernels> {
    let mut defines = Constants { hash_bits: 64, lanes: 1 }.defines();
    defines.extend(window_defines());
    let module = |file: warpjoin_kernels::KernelFile| ModuleSource {
        name: file.name.into(),
        text: file.text.into(),
        entries: entries.iter().filter(|entry| file_of(entry) == file).map(|entry| (*entry).to_string()).collect(),
        defines: defines.clone(),
    };
    let mut kernels = EntryKernels::default();
    let modules = || [warpjoin_kernels::WINDOW, warpjoin_kernels::WINDOW_FRAMES].map(module);
    kernels.add(query, entries.iter().copied(), modules)?;
    Ok(kernels)
}

/// A column of values, and a byte of validity a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a> {
    pub values: Option<&'a Buffer>,
    pub validity: Option<&'a Buffer>,
    /// Integers, floats or doubles.
    pub kind: u64,
    pub width_bytes: u64,
    pub base: i64,
}

/// Which rows of a device are together.
pub(super) struct Bounds {
    partitions: Buffer,
    groups: Buffer,
    partition_rows: Buffer,
    group_rows: Buffer,
    total: Buffer,
}

/// A word of the keys, its bytes, and the bits of it that are the partition's.
pub(super) type MaskedWord<'a> = (&'a Buffer, u64, u64);

/// Enqueues on one device, for rows that are there.
pub(super) struct WindowLaunches<'a> {
    pub kernels: &'a EntryKernels,
    pub device: usize,
    pub stream: &'a Stream,
    pub control: &'a Buffer,
    pub rows: u64,
    pub launches: u64,
}

/// What tiles tell each other.
struct Tiles {
    count: u32,
    counters: Buffer,
    of_tile: Buffer,
    up_to_tile: Buffer,
}

impl Tiles {
    fn args(&self) -> [Arg<'_>; 4] {
        let states = Arg::BufferAt(&self.counters, 8);
        [Arg::Buffer(&self.counters), states, Arg::Buffer(&self.of_tile), Arg::Buffer(&self.up_to_tile)]
    }
}

impl<'a> Values<'a> {
    /// As kernels take them, for an operation on them.
    pub(super) fn args(&self, flip: u64) -> [Arg<'a>; 6] {
        [
            Arg::or_null(self.values),
            Arg::or_null(self.validity),
            Arg::U64(self.kind),
            Arg::U64(self.width_bytes),
            Arg::U64(self.base as u64),
            Arg::U64(flip),
        ]
    }
}

impl WindowLaunches<'_> {
    fn kernel(&self, entry: &str) -> Result<&Kernel> {
        self.kernels.get(entry, self.device)
    }

    fn threads(&self) -> u32 {
        self.stream.device().info().block_threads(BLOCK_THREADS)
    }

    fn tiles(&self, width_bytes: u64) -> Result<Tiles> {
        let count = self.rows.div_ceil(u64::from(self.threads() * WINDOW_ITEMS));
        let room = || self.stream.alloc(count * width_bytes);
        Ok(Tiles {
            count: u32::try_from(count).map_err(|_| Error::internal("more tiles than blocks"))?,
            counters: self.stream.alloc_filled(8 + count * 4, 0)?,
            of_tile: room()?,
            up_to_tile: room()?,
        })
    }

    /// Launches a scan, whose results have so many bytes.
    fn sweep(&mut self, entry: &str, tiles: &Tiles, width_bytes: u64, args: &[Arg<'_>]) -> Result<()> {
        // Values of 32 warps and the carry, 32 flags and the tile, in whole values.
        let shared_bytes = (33 * width_bytes + 33 * 4).next_multiple_of(16) as u32;
        let launch = Launch { blocks: tiles.count, block_threads: self.threads(), shared_bytes };
        self.stream.launch(self.kernel(entry)?, launch, args)?;
        self.launches += 1;
        Ok(())
    }

    /// Launches a kernel that strides over the rows.
    fn stride(&mut self, entry: &str, args: &[Arg<'_>]) -> Result<()> {
        self.stride_over(self.rows, entry, args)
    }

    pub(super) fn stride_over(&mut self, rows: u64, entry: &str, args: &[Arg<'_>]) -> Result<()> {
        let launch = Launch { block_threads: self.threads(), ..crate::exec::launch::launch(rows, self.stream, 0) };
        self.stream.launch(self.kernel(entry)?, launch, args)?;
        self.launches += 1;
        Ok(())
    }

    /// Where partitions and peers begin.
    pub(super) fn bounds(&mut self, words: &[MaskedWord<'_>]) -> Result<Bounds> {
        let room = |rows: u64| self.stream.alloc(rows * 4);
        let bounds = Bounds {
            partitions: room(self.rows)?,
            groups: room(self.rows)?,
            partition_rows: room(self.rows + 1)?,
            group_rows: room(self.rows + 1)?,
            total: self.stream.alloc(8)?,
        };
        let tiles = self.tiles(8)?;
        let at = |index: usize| words.get(index);
        let mut args = vec![Arg::U64(self.rows), Arg::U64(words.len() as u64)];
        args.extend((0..WINDOW_WORDS).map(|index| at(index).map_or(Arg::Null, |word| Arg::Buffer(word.0))));
        args.extend((0..WINDOW_WORDS).map(|index| Arg::U64(at(index).map_or(0, |word| word.1))));
        args.extend((0..WINDOW_WORDS).map(|index| Arg::U64(at(index).map_or(0, |word| word.2))));
        args.extend([
            Arg::Buffer(&bounds.partitions),
            Arg::Buffer(&bounds.groups),
            Arg::Buffer(&bounds.partition_rows),
            Arg::Buffer(&bounds.group_rows),
            Arg::Buffer(&bounds.total),
        ]);
        args.extend(tiles.args());
        args.push(Arg::Buffer(self.control));
        self.sweep("window_bounds", &tiles, 8, &args)?;
        Ok(bounds)
    }

    /// A scan of the values: a result a row.
    pub(super) fn scan(
        &mut self,
        op: ScanOp,
        values: &Values<'_>,
        segments: Segments,
        bounds: &Bounds,
    ) -> Result<Buffer> {
        let width_bytes = op.width_bytes();
        let out = self.stream.alloc(self.rows * width_bytes)?;
        let tiles = self.tiles(width_bytes)?;
        let mut args = values.args(op.flip()).to_vec();
        args.extend([
            Arg::Buffer(if segments.by_peers { &bounds.groups } else { &bounds.partitions }),
            Arg::U64(segments.period_rows),
            Arg::U64(segments.is_backward.into()),
            Arg::U64(self.rows),
            Arg::Buffer(&out),
        ]);
        args.extend(tiles.args());
        args.push(Arg::Buffer(self.control));
        self.sweep(op.entries().0, &tiles, width_bytes, &args)?;
        Ok(out)
    }

    /// What all kernels know of the rows.
    pub(super) fn rows_and_frame<'b>(&self, bounds: &'b Bounds, frame: &FrameOf<'b>) -> Vec<Arg<'b>> {
        let bound = |bound: FrameBound| match bound {
            FrameBound::Partition => [Arg::U64(kind::PARTITION), Arg::U64(0)],
            FrameBound::Range { .. } => [Arg::U64(kind::RANGE), Arg::U64(0)],
            FrameBound::Rows(rows) => [Arg::U64(kind::ROWS), offset(rows)],
            FrameBound::Groups(groups) => [Arg::U64(kind::GROUPS), offset(groups)],
        };
        let mut args = vec![
            Arg::Buffer(&bounds.partitions),
            Arg::Buffer(&bounds.groups),
            Arg::Buffer(&bounds.partition_rows),
            Arg::Buffer(&bounds.group_rows),
            Arg::Buffer(&bounds.total),
            Arg::U64(self.rows),
        ];
        args.extend(bound(frame.frame.start));
        args.extend(bound(frame.frame.end));
        args.extend([Arg::or_null(frame.starts), Arg::or_null(frame.ends)]);
        args
    }

    /// A place, share or count of each row: a u32, or a double of shares. `number` is the parts of `NTILE`, or how far a row
    /// is that is looked for; `counts` a scan of values by partition.
    pub(super) fn place(
        &mut self,
        (place, number): (u64, i64),
        (bounds, frame): (&Bounds, &FrameOf<'_>),
        counts: Option<&Buffer>,
        out: &Buffer,
    ) -> Result<()> {
        let mut args = self.rows_and_frame(bounds, frame);
        let number = if place == kind::FOUND { offset(number) } else { Arg::U64(number as u64) };
        args.extend([Arg::U64(place), number, Arg::or_null(counts), Arg::Buffer(out)]);
        self.stride("window_place", &args)
    }

    /// The result of each row's frame.
    pub(super) fn fold(
        &mut self,
        fold: &Fold<'_>,
        (bounds, frame): (&Bounds, &FrameOf<'_>),
        (out, validity): (Option<&Buffer>, &Buffer),
    ) -> Result<()> {
        let mut args = self.rows_and_frame(bounds, frame);
        args.extend([
            Arg::U64(fold.form),
            Arg::U64(fold.period_rows),
            Arg::or_null(fold.forward),
            Arg::or_null(fold.backward),
            Arg::or_null(fold.counts),
            Arg::U64(fold.values.kind),
            Arg::U64(fold.width_bytes),
            Arg::U64(fold.base as u64),
            Arg::U64(fold.op.flip()),
            Arg::or_null(out),
            Arg::Buffer(validity),
        ]);
        args.extend(fold.values.args(fold.op.flip()));
        args.push(Arg::or_null(fold.totals));
        self.stride(fold.op.entries().1, &args)
    }

    /// The value of another row: of one so far behind, or of the frame's n-th; with a scan of those that are there, of these.
    pub(super) fn value(
        &mut self,
        (which, number): (u64, i64),
        (bounds, frame): (&Bounds, &FrameOf<'_>),
        (values, counts): (&Values<'_>, Option<&Buffer>),
        (out, validity): (Option<&Buffer>, &Buffer),
    ) -> Result<()> {
        let mut args = self.rows_and_frame(bounds, frame);
        args.extend([
            Arg::U64(which),
            offset(number),
            Arg::U64(values.width_bytes),
            Arg::or_null(values.values),
            Arg::or_null(values.validity),
            Arg::or_null(counts),
            Arg::or_null(out),
            Arg::Buffer(validity),
        ]);
        self.stride("window_value", &args)
    }
}

/// A frame, and where those of its bounds that are found by distances are for each row.
pub(super) struct FrameOf<'a> {
    pub frame: Frame,
    pub starts: Option<&'a Buffer>,
    pub ends: Option<&'a Buffer>,
}

impl FrameOf<'_> {
    /// The partition.
    pub(super) const PARTITION: Self = Self { frame: Frame::PARTITION, starts: None, ends: None };
}

/// How the result of a frame is made of scans, or of a tree.
pub(super) struct Fold<'a> {
    pub op: ScanOp,
    pub form: u64,
    pub period_rows: u64,
    pub forward: Option<&'a Buffer>,
    pub backward: Option<&'a Buffer>,
    /// Of a tree: levels from 1 on.
    pub totals: Option<&'a Buffer>,
    /// The argument.
    pub values: Values<'a>,
    /// Values that are there; `None`: all are.
    pub counts: Option<&'a Buffer>,
    /// Of the result.
    pub width_bytes: u64,
    pub base: i64,
}

fn offset<'a>(rows: i64) -> Arg<'a> {
    Arg::U64(rows.clamp(-OFFSET_MAX, OFFSET_MAX) as u64)
}

/// Bytes of a control block.
pub(super) const CONTROL_BYTES: u64 = control::WORDS as u64 * 8;
