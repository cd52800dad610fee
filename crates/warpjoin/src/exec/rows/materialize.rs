//! Pipelines that output rows.

use std::sync::Arc;

use warpjoin_codegen::{GenerateOptions, GeneratedPipeline, PipelineKey, Sink, SinkShape, SortShape, bind_pipeline};
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::devices::place_of;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Cause, MemoryPlace, span};

use super::room::{allocate, allocate_in, allocate_in_order, copy_rows, row_bytes};
use crate::exec::launch::{DeviceSink, Lane, Pushed, Target};
use crate::exec::query::{Query, Report};
use crate::exec::relation::{Intermediate, IntermediateShard, Relation, Source};

/// Minimum strings for a test on the devices: fewer cost the host less than a launch.
const TESTED_STRINGS_MIN: usize = 4096;
/// An output with more unused bytes is copied to smaller buffers.
const WASTE_BYTES_MAX: u64 = 64 << 20;

/// Of several devices, one may have more matches than its share by this many standard deviations.
const SPREADS: u64 = 8;

impl Query<'_> {
    /// Runs a relation whose steps output one row for each source row, into rows at the positions of their source rows.
    pub(in crate::exec) fn run_in_place(&mut self, relation: &Relation) -> Result<Intermediate> {
        let all: Vec<usize> = (0..relation.width).collect();
        let generated = self.bind(relation, &Sink::InPlace(all.clone()))?;
        let SinkShape::Rows(columns) = &generated.sink else {
            return Err(Error::internal("no rows where rows were asked for"));
        };
        let (columns, rows_max) = (columns.clone(), relation.rows_max);
        let rows = (0..self.devices()).map(|device| relation.source.shard_rows(device)).collect();
        let shards = self.run_sink(relation, &generated, InPlaceSink { columns: &columns, rows })?;
        if let Some(pipeline) = self.metrics.pipelines.last_mut() {
            pipeline.rows_out = pipeline.rows_in;
        }
        Ok(Intermediate::new(columns, rows_max, shards).beside(relation, &all))
    }

    /// Binds the kernel of `relation` with `sink`. Its text is printed only if it is compiled.
    pub(crate) fn bind(&mut self, relation: &Relation, sink: &Sink) -> Result<Arc<GeneratedPipeline>> {
        let _span = span(|| "bind");
        let started = std::time::Instant::now();
        let options = GenerateOptions {
            hash_bits: self.options.hash_bits,
            tested_strings_min: self.options.tested_strings_min.unwrap_or(TESTED_STRINGS_MIN),
        };
        let (source, pipelines) = (relation.source.shape(), self.session.pipelines());
        let key = PipelineKey::of(&source, &relation.steps, sink, options);
        let generated = match key.as_ref().and_then(|key| pipelines.get(key)) {
            Some(known) => {
                debug_assert!(
                    bind_pipeline(&source, &relation.steps, sink, options).is_ok_and(|again| again.is_same(&known)),
                    "another pipeline has the key of {}",
                    known.module().text
                );
                known
            }
            None => {
                let generated = Arc::new(bind_pipeline(&source, &relation.steps, sink, options)?);
                if let Some(key) = key {
                    pipelines.keep(key, &generated);
                }
                generated
            }
        };
        self.metrics.planning_ns += started.elapsed().as_nanos() as u64;
        Ok(generated)
    }

    /// Runs `relation` into a sink that writes rows. An output that was too small is made again at
    /// the size that the kernel counted.
    pub(crate) fn run_rows(
        &mut self,
        relation: &Relation,
        sink: &Sink,
        name: &str,
    ) -> Result<(Intermediate, Arc<GeneratedPipeline>)> {
        self.run_some_rows(relation, sink, name, u64::MAX)
    }

    /// As [`Self::run_rows`], but keeps any `wanted` rows of a device if there are more.
    pub(crate) fn run_some_rows(
        &mut self,
        relation: &Relation,
        sink: &Sink,
        name: &str,
        wanted: u64,
    ) -> Result<(Intermediate, Arc<GeneratedPipeline>)> {
        let generated = self.bind(relation, sink)?;
        let columns = match &generated.sink {
            SinkShape::Rows(columns)
            | SinkShape::Build { columns, .. }
            | SinkShape::Sort(SortShape { columns, .. }) => columns.clone(),
            SinkShape::Groups(_) | SinkShape::Partition(_) | SinkShape::Sketch | SinkShape::Direct(_) => {
                return Err(Error::internal("no rows where rows were asked for"));
            }
        };
        let written: &[usize] = match sink {
            Sink::Materialise(columns) | Sink::Limit { columns, .. } => columns,
            _ => &[],
        };
        let capacities = (0..self.devices()).map(|device| self.first_capacity(relation, device).min(wanted)).collect();
        let is_counted = vec![false; self.devices()];
        let on_host = self.options.writes_to_host;
        let rows = RowsSink { name, sink, columns: &columns, capacities, is_counted, wanted, on_host };
        let shards = self.run_sink(relation, &generated, rows)?;
        Ok((Intermediate::new(columns, relation.rows_max, shards).beside(relation, written), generated))
    }

    /// Initial row capacity of an output.
    fn first_capacity(&self, relation: &Relation, device: usize) -> u64 {
        let rows = match &relation.source {
            // All devices together often have as many matches as probe rows, of which a device has a random share.
            Source::Matches(..) if self.devices() > 1 => {
                let rows = relation.source.shard_rows(device);
                rows.saturating_add(SPREADS * rows.isqrt())
            }
            source => source.shard_rows(device),
        };
        self.options.first_capacity.map_or(rows, |capacity| capacity.min(rows.max(1)))
    }

    /// The rows of the whole plan; rows of a pipeline that has run are used without a copy.
    pub(crate) fn result_rows(&mut self, relation: Relation) -> Result<Arc<Intermediate>> {
        match relation.source {
            Source::Intermediate(rows) if relation.steps.is_empty() => Ok(rows),
            _ => self.materialise(&relation, (0..relation.width).collect()),
        }
    }

    /// Skips `skip` rows, then takes up to `fetch`.
    pub(crate) fn limited(&mut self, relation: &Relation, skip: u64, fetch: Option<u64>) -> Result<Relation> {
        let wanted = fetch.map_or(u64::MAX, |fetch| fetch.saturating_add(skip));
        let columns = (0..relation.width).collect();
        // Those that write all rows leave out places that a warp finds too few of, and are run again with more.
        let sink = if wanted == u64::MAX { Sink::Materialise(columns) } else { Sink::Limit { columns, wanted } };
        let (rows, _) = self.run_some_rows(relation, &sink, "Limit", wanted)?;
        // Any rows would do. As they lie, the pages of somebody who turns them have different rows.
        let rows = self.sliced(rows, skip, fetch)?;
        Ok(Relation::new(Source::Intermediate(Arc::new(rows))))
    }

    /// Rows `skip` to `skip + fetch`, in their present order, device after device.
    pub(in crate::exec) fn sliced(
        &mut self,
        mut rows: Intermediate,
        skip: u64,
        fetch: Option<u64>,
    ) -> Result<Intermediate> {
        let mut left_out = skip.min(rows.rows());
        let mut left = rows.rows().saturating_sub(skip).min(fetch.unwrap_or(u64::MAX));
        for (device, shard) in rows.shards.iter_mut().enumerate() {
            let first = left_out.min(shard.rows);
            let count = (shard.rows - first).min(left);
            if first > 0 && count > 0 {
                let mut behind = allocate_in_order(&self.streams[device], &rows.columns, count)?;
                copy_rows(&self.streams[device], &rows.columns, (shard, first), (&behind, 0), count)?;
                behind.rows = count;
                *shard = behind;
            }
            shard.rows = count;
            left_out -= first;
            left -= count;
        }
        rows.rows_max = rows.rows_max.min(fetch.unwrap_or(u64::MAX));
        Ok(rows)
    }

    /// The number of rows of a relation.
    pub(in crate::exec) fn count(&mut self, relation: &Relation) -> Result<u64> {
        if let Some(rows) = relation.known_rows(self.devices()) {
            return Ok(rows);
        }
        Ok(self.run_rows(relation, &Sink::Materialise(vec![]), "Count")?.0.rows())
    }

    /// Runs a relation into an intermediate of the given columns.
    pub(crate) fn materialise(&mut self, relation: &Relation, columns: Vec<usize>) -> Result<Arc<Intermediate>> {
        let (rows, _) = self.run_rows(relation, &Sink::Materialise(columns), "Materialise")?;
        Ok(Arc::new(rows))
    }
}

/// Writes rows. An output that was too small is made again at the size that the kernel counted.
struct RowsSink<'s> {
    name: &'s str,
    sink: &'s Sink,
    columns: &'s [ColumnType],
    /// Row capacity of each device.
    capacities: Vec<u64>,
    /// Whether the capacity of a device is the exact number of its rows, counted by a kernel.
    is_counted: Vec<bool>,
    /// Maximum rows kept on a device; any rows, if there are more.
    wanted: u64,
    /// Whether rows go to host memory.
    on_host: bool,
}

impl DeviceSink for RowsSink<'_> {
    type Filling = IntermediateShard;
    type Filled = IntermediateShard;
    type Output = Vec<IntermediateShard>;

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn open(&self, lane: &mut Lane<'_>) -> Result<IntermediateShard> {
        let whole = self.capacities[lane.device];
        let mut capacity = whole;
        if self.on_host && lane.stream.free_host_bytes() >= whole.saturating_mul(row_bytes(self.columns)) {
            return self.open_on_host(lane, whole);
        }
        loop {
            // Rows whose number is known lie on the host where the device should keep room.
            let is_counted = self.is_counted[lane.device];
            if is_counted && place_of(&lane.stream, whole * row_bytes(self.columns)) == MemoryPlace::Host {
                return self.open_on_host(lane, whole);
            }
            let room = |lane: &Lane<'_>| allocate(&lane.stream, self.columns, capacity);
            // A reduced output leaves as much memory as it takes: the pipeline and what follows need some, too.
            let made =
                room(lane).and_then(|shard| if capacity < whole { room(lane).map(|_| shard) } else { Ok(shard) });
            match made {
                Ok(shard) => return Ok(IntermediateShard { rows: capacity, ..shard }),
                // A first capacity has room for all rows of the source, most of which may be dropped. If the rows need
                // more after all, the kernel counts how much.
                Err(error) if error.cause() == Cause::OutOfMemory && !is_counted && capacity > 1 => {
                    capacity = (capacity / 4).max(1);
                }
                Err(error) if error.cause() == Cause::OutOfMemory => {
                    // The host's memory is the way out: why the device has none is what the user should know.
                    return self.open_on_host(lane, whole).map_err(|_| error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn nothing(&self, lane: &mut Lane<'_>) -> Result<Option<IntermediateShard>> {
        allocate(&lane.stream, self.columns, 0).map(Some)
    }

    fn target<'t>(&'t self, shard: &'t IntermediateShard) -> Target<'t> {
        Target::Rows { shard, capacity: shard.rows, in_place: None }
    }

    fn pushed(&self, _: &mut Lane<'_>, shard: &mut IntermediateShard, report: &Report, _: bool) -> Result<Pushed> {
        Ok(if report.rows.min(self.wanted) <= shard.rows { Pushed::Done } else { Pushed::Full })
    }

    fn finish(&self, lane: &mut Lane<'_>, shard: IntermediateShard, report: &Report) -> Result<IntermediateShard> {
        let rows = report.rows.min(self.wanted);
        if shard.is_on_host() {
            lane.work.spilled_bytes += rows * row_bytes(self.columns);
            return Ok(IntermediateShard { rows, ..shard });
        }
        if (shard.rows - rows) * row_bytes(self.columns) <= lane.options.waste_bytes_max.unwrap_or(WASTE_BYTES_MAX) {
            return Ok(IntermediateShard { rows, ..shard });
        }
        let smaller = IntermediateShard { rows, ..allocate(&lane.stream, self.columns, rows)? };
        copy_rows(&lane.stream, self.columns, (&shard, 0), (&smaller, 0), rows)?;
        Ok(smaller)
    }

    fn make_room(&mut self, device: usize, _: IntermediateShard, report: &Report) {
        self.capacities[device] = report.rows.min(self.wanted);
        self.is_counted[device] = true;
    }

    fn other_pipeline(&self, query: &mut Query<'_>, relation: &mut Relation) -> Result<Option<Arc<GeneratedPipeline>>> {
        relation.source.share_matches().then(|| query.bind(relation, self.sink)).transpose()
    }

    fn combine(self, shards: Vec<IntermediateShard>) -> Vec<IntermediateShard> {
        shards
    }
}

impl RowsSink<'_> {
    /// Allocates rows in host memory.
    fn open_on_host(&self, lane: &Lane<'_>, rows: u64) -> Result<IntermediateShard> {
        let shard = allocate_in(&lane.stream, self.columns, rows, MemoryPlace::Host)?;
        Ok(IntermediateShard { rows, ..shard })
    }
}

/// Writes one row for each source row, at its position.
struct InPlaceSink<'s> {
    columns: &'s [ColumnType],
    /// Rows of each device.
    rows: Vec<u64>,
}

impl DeviceSink for InPlaceSink<'_> {
    type Filling = IntermediateShard;
    type Filled = IntermediateShard;
    type Output = Vec<IntermediateShard>;

    fn name(&self) -> String {
        "InPlace".to_string()
    }

    fn open(&self, lane: &mut Lane<'_>) -> Result<IntermediateShard> {
        let rows = self.rows[lane.device];
        Ok(IntermediateShard { rows, ..allocate_in_order(&lane.stream, self.columns, rows)? })
    }

    fn nothing(&self, lane: &mut Lane<'_>) -> Result<Option<IntermediateShard>> {
        allocate(&lane.stream, self.columns, 0).map(Some)
    }

    fn target<'t>(&'t self, shard: &'t IntermediateShard) -> Target<'t> {
        Target::Rows { shard, capacity: shard.rows, in_place: Some(self.columns) }
    }

    fn pushed(&self, _: &mut Lane<'_>, _: &mut IntermediateShard, _: &Report, _: bool) -> Result<Pushed> {
        Ok(Pushed::Done)
    }

    fn finish(&self, lane: &mut Lane<'_>, shard: IntermediateShard, _: &Report) -> Result<IntermediateShard> {
        lane.work.spilled_bytes += if shard.is_on_host() { shard.rows * row_bytes(self.columns) } else { 0 };
        Ok(shard)
    }

    fn combine(self, shards: Vec<IntermediateShard>) -> Vec<IntermediateShard> {
        shards
    }
}
