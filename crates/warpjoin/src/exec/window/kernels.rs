//! Launches of the kernels of windows: `window.cu`.

use std::collections::BTreeSet;

use warpjoin_codegen::Constants;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, DeviceKind, Launch, ModuleSource, Ptr};
use warpjoin_kernels::KernelFile;
use warpjoin_kernels::common::{BLOCK_THREADS, SCAN_ITEMS, scan_shared_bytes};
use warpjoin_kernels::window::{
    WindowBoundsParams, WindowOfParams, WindowPlaceParams, WindowRows, WindowScanParams, WindowTiles,
    WindowValueParams, WindowValues, window_kind as kind,
};
use warpjoin_kernels::{KernelParams, padded};
use warpjoin_plan::window::{Frame, FrameBound};

use super::fold::{ScanOp, Segments};
use crate::exec::entry_kernels::{EntryKernels, EntryLaunches};
use crate::exec::launch::Strides;
use crate::exec::query::Query;

/// Maximum offset of a frame's bound: more rows than a device has.
const OFFSET_MAX: i64 = 1 << 40;

/// The file that has an entry.
fn file_of(entry: &str) -> KernelFile {
    if entry == "window_range" { warpjoin_kernels::WINDOW_FRAMES } else { warpjoin_kernels::WINDOW }
}

/// A module with some entries of a file. With `selects`, a single entry is compiled alone, as in `Device::module_of`.
fn window_module(file: KernelFile, entries: Vec<&'static str>, selects: bool) -> ModuleSource {
    match entries[..] {
        [entry] if selects && file.entries().count() > 1 => Constants::USUAL.module(file, [entry]).of_entry(entry),
        _ => Constants::USUAL.module(file, entries),
    }
}

/// The kernels of some entries; no more of their files is compiled.
pub(super) fn compile_window(query: &mut Query<'_>, entries: &BTreeSet<&'static str>) -> Result<EntryKernels> {
    let selects = query.session.kind() == DeviceKind::Cuda;
    let module = |file: KernelFile| {
        let entries = entries.iter().copied().filter(|entry| file_of(entry) == file).collect();
        window_module(file, entries, selects)
    };
    let mut kernels = EntryKernels::default();
    let modules = || [warpjoin_kernels::WINDOW, warpjoin_kernels::WINDOW_FRAMES].map(module);
    kernels.add(query, entries.iter().copied(), modules)?;
    Ok(kernels)
}

/// A column of values, with one byte of validity for each row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a> {
    pub values: Option<&'a Buffer>,
    pub validity: Option<&'a Buffer>,
    /// Integers, floats or doubles.
    pub kind: u64,
    pub width_bytes: u64,
    pub base: i64,
}

/// The partitions and peers of a device's rows.
pub(super) struct Bounds {
    partitions: Buffer,
    groups: Buffer,
    partition_rows: Buffer,
    group_rows: Buffer,
    total: Buffer,
}

/// A key word, its bytes, and the mask of its bits that belong to the partition keys.
pub(super) type MaskedWord<'a> = (&'a Buffer, u64, u64);

/// Enqueues kernels on one device with rows.
pub(super) struct WindowLaunches<'a> {
    pub on: EntryLaunches<'a>,
    pub control: &'a Buffer,
    pub rows: u64,
}

/// State that tiles publish for look-back.
struct Tiles {
    count: u32,
    counters: Buffer,
    of_tile: Buffer,
    up_to_tile: Buffer,
}

impl Tiles {
    fn params(&self) -> WindowTiles<'_, Buffer> {
        WindowTiles {
            next_tile: Ptr::of(&self.counters),
            // Behind the word of the next tile.
            states: Ptr::at(&self.counters, 2),
            of_tile: Ptr::of(&self.of_tile),
            up_to_tile: Ptr::of(&self.up_to_tile),
        }
    }
}

impl<'a> Values<'a> {
    /// Kernel parameters, for an operation that XORs codes with `flip`.
    pub(super) fn params(&self, flip: u64) -> WindowValues<'a, Buffer> {
        WindowValues {
            values: self.values.map(Ptr::of),
            validity: self.validity.map(Ptr::of),
            kind: self.kind,
            width: self.width_bytes,
            base: self.base,
            flip,
        }
    }
}

impl WindowLaunches<'_> {
    fn threads(&self) -> u32 {
        self.on.threads(BLOCK_THREADS)
    }

    fn tiles(&self, width_bytes: u64) -> Result<Tiles> {
        let count = self.rows.div_ceil(u64::from(self.threads() * SCAN_ITEMS));
        let room = || self.on.stream.alloc(count * width_bytes);
        Ok(Tiles {
            count: u32::try_from(count).map_err(|_| Error::internal("more tiles than blocks"))?,
            counters: self.on.stream.alloc_filled(8 + count * 4, 0)?,
            of_tile: room()?,
            up_to_tile: room()?,
        })
    }

    /// Launches a scan; results have `width_bytes` bytes.
    fn sweep(
        &mut self,
        entry: &str,
        tiles: &Tiles,
        width_bytes: u64,
        params: &impl KernelParams<Buffer>,
    ) -> Result<()> {
        let shared_bytes = scan_shared_bytes(width_bytes);
        let launch = Launch { blocks: tiles.count, block_threads: self.threads(), shared_bytes };
        self.on.launch(entry, launch, params)
    }

    /// Launches a kernel that strides over the rows.
    pub(super) fn stride(&mut self, entry: &str, params: &impl KernelParams<Buffer>) -> Result<()> {
        self.stride_over(self.rows, entry, params)
    }

    pub(super) fn stride_over(&mut self, rows: u64, entry: &str, params: &impl KernelParams<Buffer>) -> Result<()> {
        self.on.launch(entry, Strides::ROWS.over(rows, self.on.stream), params)
    }

    /// Where partitions and peers begin.
    pub(super) fn bounds(&mut self, words: &[MaskedWord<'_>]) -> Result<Bounds> {
        let room = |rows: u64| self.on.stream.alloc(rows * 4);
        let bounds = Bounds {
            partitions: room(self.rows)?,
            groups: room(self.rows)?,
            partition_rows: room(self.rows + 1)?,
            group_rows: room(self.rows + 1)?,
            total: self.on.stream.alloc(8)?,
        };
        let tiles = self.tiles(8)?;
        let params = WindowBoundsParams {
            rows: self.rows,
            words: words.len() as u64,
            keys: padded(words.iter().map(|word| Some(Ptr::of(word.0))), None),
            widths: padded(words.iter().map(|word| word.1), 0),
            masks: padded(words.iter().map(|word| word.2), 0),
            partitions: Ptr::of(&bounds.partitions),
            groups: Ptr::of(&bounds.groups),
            partition_rows: Ptr::of(&bounds.partition_rows),
            group_rows: Ptr::of(&bounds.group_rows),
            total: Ptr::of(&bounds.total),
            tiles: tiles.params(),
            control: Ptr::of(self.control),
        };
        self.sweep("window_bounds", &tiles, 8, &params)?;
        Ok(bounds)
    }

    /// Scans the values; one result for each row.
    pub(super) fn scan(
        &mut self,
        op: ScanOp,
        values: &Values<'_>,
        segments: Segments,
        bounds: &Bounds,
    ) -> Result<Buffer> {
        let width_bytes = op.width_bytes();
        let out = self.on.stream.alloc(self.rows * width_bytes)?;
        let tiles = self.tiles(width_bytes)?;
        let params = WindowScanParams {
            v: values.params(op.flip()),
            segments: Ptr::of(if segments.by_peers { &bounds.groups } else { &bounds.partitions }),
            period: segments.period_rows,
            is_backward: segments.is_backward,
            rows: self.rows,
            out: Ptr::of(&out),
            tiles: tiles.params(),
            control: Ptr::of(self.control),
        };
        self.sweep(op.entries().0, &tiles, width_bytes, &params)?;
        Ok(out)
    }

    /// Parameters of the rows for all kernels.
    pub(super) fn rows_and_frame<'b>(&self, bounds: &'b Bounds, frame: &FrameOf<'b>) -> WindowRows<'b, Buffer> {
        let bound = |bound: FrameBound| match bound {
            FrameBound::Partition => (kind::PARTITION, 0),
            FrameBound::Range { .. } => (kind::RANGE, 0),
            FrameBound::Rows(rows) => (kind::ROWS, offset(rows)),
            FrameBound::Groups(groups) => (kind::GROUPS, offset(groups)),
        };
        let (start_kind, start_offset) = bound(frame.frame.start);
        let (end_kind, end_offset) = bound(frame.frame.end);
        WindowRows {
            partitions: Ptr::of(&bounds.partitions),
            groups: Ptr::of(&bounds.groups),
            partition_rows: Ptr::of(&bounds.partition_rows),
            group_rows: Ptr::of(&bounds.group_rows),
            total: Ptr::of(&bounds.total),
            rows: self.rows,
            start_kind,
            start_offset,
            end_kind,
            end_offset,
            starts: frame.starts.map(Ptr::of),
            ends: frame.ends.map(Ptr::of),
        }
    }

    /// A position or count (u32) or share (double) of each row. `number`: the buckets of `NTILE`, or the offset of
    /// another row. `counts`: a scan that counts values by partition.
    pub(super) fn place(
        &mut self,
        (place, number): (u64, i64),
        (bounds, frame): (&Bounds, &FrameOf<'_>),
        counts: Option<&Buffer>,
        out: &Buffer,
    ) -> Result<()> {
        let params = WindowPlaceParams {
            w: self.rows_and_frame(bounds, frame),
            kind: place,
            number: if place == kind::FOUND { offset(number) } else { number },
            counts: counts.map(Ptr::of),
            out: Ptr::of(out),
        };
        self.stride("window_place", &params)
    }

    /// The result of each row's frame.
    pub(super) fn fold(
        &mut self,
        fold: &Fold<'_>,
        (bounds, frame): (&Bounds, &FrameOf<'_>),
        (out, validity): (Option<&Buffer>, &Buffer),
    ) -> Result<()> {
        let params = WindowOfParams {
            w: self.rows_and_frame(bounds, frame),
            form: fold.form,
            period: fold.period_rows,
            forward: fold.forward.map(Ptr::of),
            backward: fold.backward.map(Ptr::of),
            counts: fold.counts.map(Ptr::of),
            kind: fold.values.kind,
            width: fold.width_bytes,
            base: fold.base,
            flip: fold.op.flip(),
            out: out.map(Ptr::of),
            validity: Ptr::of(validity),
            v: fold.values.params(fold.op.flip()),
            totals: fold.totals.map(Ptr::of),
        };
        self.stride(fold.op.entries().1, &params)
    }

    /// The value of another row: at an offset, or the n-th of the frame. With a scan that counts non-null values, only
    /// rows with values are considered.
    pub(super) fn value(
        &mut self,
        (which, number): (u64, i64),
        (bounds, frame): (&Bounds, &FrameOf<'_>),
        (values, counts): (&Values<'_>, Option<&Buffer>),
        (out, validity): (Option<&Buffer>, &Buffer),
    ) -> Result<()> {
        let params = WindowValueParams {
            w: self.rows_and_frame(bounds, frame),
            kind: which,
            number: offset(number),
            width: values.width_bytes,
            values: values.values.map(Ptr::of),
            validity: values.validity.map(Ptr::of),
            counts: counts.map(Ptr::of),
            out: out.map(Ptr::of),
            out_validity: Ptr::of(validity),
        };
        self.stride("window_value", &params)
    }
}

/// A frame, with its RANGE bounds for each row, if any.
pub(super) struct FrameOf<'a> {
    pub frame: Frame,
    pub starts: Option<&'a Buffer>,
    pub ends: Option<&'a Buffer>,
}

impl FrameOf<'_> {
    /// The partition.
    pub(super) const PARTITION: Self = Self { frame: Frame::PARTITION, starts: None, ends: None };
}

/// How the result of a frame is computed from scans or a tree.
pub(super) struct Fold<'a> {
    pub op: ScanOp,
    pub form: u64,
    pub period_rows: u64,
    pub forward: Option<&'a Buffer>,
    pub backward: Option<&'a Buffer>,
    /// For a tree: the levels from 1.
    pub totals: Option<&'a Buffer>,
    /// The argument.
    pub values: Values<'a>,
    /// A scan that counts non-null values; `None`: there are no nulls.
    pub counts: Option<&'a Buffer>,
    /// Bytes of a result.
    pub width_bytes: u64,
    pub base: i64,
}

fn offset(rows: i64) -> i64 {
    rows.clamp(-OFFSET_MAX, OFFSET_MAX)
}

#[cfg(test)]
mod tests {
    use warpjoin_codegen::prebuilt_modules;

    use super::*;

    #[test]
    fn kernels_of_one_entry_are_prebuilt() {
        let prebuilt = prebuilt_modules();
        for file in [warpjoin_kernels::WINDOW, warpjoin_kernels::WINDOW_FRAMES] {
            for entry in file.entries() {
                assert!(prebuilt.contains(&window_module(file, vec![entry], true)), "{entry}");
            }
        }
    }
}
