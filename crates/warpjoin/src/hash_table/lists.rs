//! Row lists of a multimap: the rows of each key, contiguous; and the matches of keys with them.

use warpjoin_codegen::FixedModule;
use warpjoin_columns::Result;
use warpjoin_device::{Buffer, Kernel, Launch, Ptr};
use warpjoin_kernels::common::{BLOCK_SUMS, RESERVATION_BYTES};
use warpjoin_kernels::table::{CountRowsParams, EmitParams, LIST_ITEMS, ListParams, LiveParams, SumParams, TakeParams};

use super::device::TableDevice;

/// Lists of stored rows: one for each slot, and one for key 0.
#[derive(Debug)]
pub(super) struct Lists {
    /// One u64 for each list: its first entry and number of rows.
    lists: Buffer,
    row_list: Buffer,
}

/// Matches of wanted rows.
pub(super) struct Matches {
    pub count: u64,
    /// The wanted row of each match.
    pub wanted_rows: Buffer,
    /// The stored row of each match; `None` if each wanted row has at most one match.
    pub stored_rows: Option<Buffer>,
}

impl Lists {
    /// Builds the lists from the slot position of each stored row.
    pub(super) fn new(device: &TableDevice, places: &Buffer, rows: u64, place_count: u64) -> Result<Self> {
        let lists = device.alloc_zeroed(place_count * 8)?;
        let cursors = device.alloc(place_count * 4)?;
        let row_list = device.alloc(rows * 4)?;
        let control = device.control()?;
        let of_rows = ListParams {
            places: Ptr::of(places),
            count: rows,
            first_row: 0,
            lists: Ptr::of(&lists),
            cursors: Ptr::of(&cursors),
            row_list: Ptr::of(&row_list),
            control: Ptr::of(&control),
        };
        let of_places = ListParams { count: place_count, ..of_rows };
        device.launch_rows(&kernel(device, "count_places")?, rows, 4, 0, &of_rows)?;
        device.launch_rows(&kernel(device, "list_offsets")?, place_count, 4, 0, &of_places)?;
        device.launch_rows(&kernel(device, "fill_lists")?, rows, 4, 0, &of_rows)?;
        device.stream.synchronize()?;
        Ok(Self { lists, row_list })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lists.bytes() + self.row_list.bytes()
    }

    /// Removes the lists at these positions; returns the number of their rows.
    pub(super) fn take(&self, device: &TableDevice, places: &Buffer, count: u64) -> Result<u64> {
        let control = device.control()?;
        let params =
            TakeParams { places: Ptr::of(places), count, lists: Ptr::of(&self.lists), control: Ptr::of(&control) };
        device.launch_rows(&kernel(device, "take_lists")?, count, 4, 0, &params)?;
        Ok(device.report(&control)?.rows)
    }

    /// The numbers of the live rows, in any order, and how many there are. The first `indexed` rows have positions, and
    /// live if their list was not removed; the others are not in lists yet, and live.
    pub(super) fn live_rows(
        &self,
        device: &TableDevice,
        places: &Buffer,
        indexed: u64,
        rows: u64,
    ) -> Result<(Buffer, u64)> {
        let live = device.alloc(rows * 8)?;
        let control = device.control()?;
        let params = LiveParams {
            places: Ptr::of(places),
            indexed,
            count: rows,
            lists: Ptr::of(&self.lists),
            live: Ptr::of(&live),
            control: Ptr::of(&control),
        };
        device.launch_rows(&kernel(device, "live_rows")?, rows, 4, RESERVATION_BYTES, &params)?;
        let count = device.report(&control)?.rows;
        Ok((live, count))
    }

    /// Number of rows of each wanted key, by its slot position.
    pub(super) fn counts(&self, device: &TableDevice, places: &Buffer, wanted: u64) -> Result<Buffer> {
        let counts = device.alloc(wanted * 8)?;
        count_rows(device, Some((places, self)), None, wanted, (Some(&counts), None))?;
        Ok(counts)
    }

    /// One byte for each wanted key: whether it has rows.
    pub(super) fn flags(&self, device: &TableDevice, places: &Buffer, wanted: u64, bytes: &Buffer) -> Result<()> {
        count_rows(device, Some((places, self)), None, wanted, (None, Some(bytes)))
    }

    /// All pairs of wanted and stored rows, in the order of the wanted rows.
    pub(super) fn matches(&self, device: &TableDevice, places: &Buffer, wanted: u64) -> Result<Matches> {
        let counts = self.counts(device, places, wanted)?;
        emit(device, &counts, wanted, Some((places, self)))
    }
}

/// The wanted rows that have a bit in `found`, in order.
pub(super) fn matches_of_bits(device: &TableDevice, found: &Buffer, wanted: u64) -> Result<Matches> {
    let counts = counts_of_bits(device, found, wanted)?;
    emit(device, &counts, wanted, None)
}

fn kernel(device: &TableDevice, entry: &'static str) -> Result<Kernel> {
    device.kernel(FixedModule::Lists, entry)
}

/// 1 for each wanted row that has a bit in `found`, else 0.
pub(super) fn counts_of_bits(device: &TableDevice, found: &Buffer, wanted: u64) -> Result<Buffer> {
    let counts = device.alloc(wanted * 8)?;
    count_rows(device, None, Some(found), wanted, (Some(&counts), None))?;
    Ok(counts)
}

fn count_rows(
    device: &TableDevice,
    lists: Option<(&Buffer, &Lists)>,
    found: Option<&Buffer>,
    wanted: u64,
    (counts, flags): (Option<&Buffer>, Option<&Buffer>),
) -> Result<()> {
    let params = CountRowsParams {
        places: lists.map(|(places, _)| Ptr::of(places)),
        lists: lists.map(|(_, lists)| Ptr::of(&lists.lists)),
        found: found.map(Ptr::of),
        count: wanted,
        counts: counts.map(Ptr::of),
        flags: flags.map(Ptr::of),
    };
    device.launch_rows(&kernel(device, "count_rows")?, wanted, 4, 0, &params)
}

fn emit(device: &TableDevice, counts: &Buffer, wanted: u64, lists: Option<(&Buffer, &Lists)>) -> Result<Matches> {
    let stream = &device.stream;
    let threads = device.block_threads();
    let tiles = wanted.div_ceil(u64::from(threads) * LIST_ITEMS).max(1);
    let sums = device.alloc((tiles + 1) * 8)?;
    let offsets = device.alloc((wanted + 1) * 8)?;
    let params = SumParams {
        counts: Ptr::of(counts),
        count: wanted,
        tiles: Ptr::of(&sums),
        tile_count: tiles,
        offsets: Ptr::of(&offsets),
    };
    let blocks = u32::try_from(tiles).unwrap_or(u32::MAX);
    let launch = Launch { blocks, block_threads: threads, shared_bytes: BLOCK_SUMS * 8 };
    device.launch(&kernel(device, "tile_sums")?, launch, &params)?;
    device.launch(&kernel(device, "scan_sums")?, Launch { blocks: 1, ..launch }, &params)?;
    device.launch(&kernel(device, "row_offsets")?, launch, &params)?;
    let mut total = [0; 8];
    stream.read(&sums, tiles * 8, &mut total)?;
    let count = u64::from_le_bytes(total);
    let wanted_rows = device.alloc(count * 8)?;
    let stored_rows = lists.is_some().then(|| device.alloc(count * 8)).transpose()?;
    let params = EmitParams {
        offsets: Ptr::of(&offsets),
        count: wanted,
        places: lists.map(|(places, _)| Ptr::of(places)),
        lists: lists.map(|(_, lists)| Ptr::of(&lists.lists)),
        row_list: lists.map(|(_, lists)| Ptr::of(&lists.row_list)),
        matches: count,
        wanted_rows: Ptr::of(&wanted_rows),
        stored_rows: stored_rows.as_ref().map(Ptr::of),
    };
    device.launch_rows(&kernel(device, "emit_matches")?, count, LIST_ITEMS, 16, &params)?;
    stream.synchronize()?;
    Ok(Matches { count, wanted_rows, stored_rows })
}
