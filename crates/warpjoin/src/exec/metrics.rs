//! Cost of a query, measured in production.

/// Cost of a query. Times are in nanoseconds; device and kernel times come from device events.
#[derive(Debug, Clone, Default)]
pub struct QueryMetrics {
    /// Labels of the devices that it ran on.
    pub devices: Vec<String>,
    /// Time of the optimizer on the host: ordering joins, placing runtime filters.
    pub optimizer_ns: u64,
    /// Decisions of the optimizer, in words.
    pub decisions: Vec<String>,
    /// Time of generating kernels and sizing tables on the host.
    pub planning_ns: u64,
    /// Time of compiling kernels, or of loading them from the disk cache.
    pub compile_ns: u64,
    /// Number of kernel modules that were not in memory.
    pub compiled_modules: u64,
    /// Kernels that the query waited for, each with its time, in words. Short waits are left out.
    pub kernel_waits: Vec<String>,
    /// Number of pipelines that ran interpreted ([`crate::ExecOptions::code_tier`]).
    pub interpreted_kernels: u64,
    /// Number of pipelines that ran by kernels of their own.
    pub generated_kernels: u64,
    /// Total kernel time of the device with the largest total.
    pub kernel_ns: u64,
    /// Time on the slowest device from its first work until the result is complete: kernels, clearing, copies, and the
    /// gaps in which the host generates, compiles, reads results and waits for launch permits. 0 if nothing runs on
    /// devices.
    pub device_ns: u64,
    /// Wall-clock time of fetching and decoding the result.
    pub transfer_ns: u64,
    /// Time of waiting for launch permits that other queries held.
    pub permit_wait_ns: u64,
    /// Kernel launches.
    pub launches: u64,
    /// Bytes from host to devices.
    pub uploaded_bytes: u64,
    /// Bytes of columns and rows in host memory that kernels read, in place or after a copy to the device.
    pub host_read_bytes: u64,
    /// Bytes of rows written to host memory because a device had no room for them.
    pub spilled_bytes: u64,
    /// Bytes from devices to host.
    pub downloaded_bytes: u64,
    /// Bytes from device to device.
    pub exchanged_bytes: u64,
    /// Peak memory of the query on one device, its resident tables included.
    pub peak_bytes: u64,
    /// Rows of the result.
    pub rows: u64,
    /// One entry for each pipeline, in execution order.
    pub pipelines: Vec<PipelineMetrics>,
    /// Decisions that the host made while the query ran, in order.
    pub host_decisions: Vec<HostDecision>,
}

impl QueryMetrics {
    /// Adds the cost of a part of the query that ran as a separate query with the same streams and permits, except
    /// device times and permit waits.
    pub(super) fn add_part(&mut self, part: Self) {
        self.planning_ns += part.planning_ns;
        self.compile_ns += part.compile_ns;
        self.compiled_modules += part.compiled_modules;
        self.kernel_waits.extend(part.kernel_waits);
        self.interpreted_kernels += part.interpreted_kernels;
        self.generated_kernels += part.generated_kernels;
        self.launches += part.launches;
        self.uploaded_bytes += part.uploaded_bytes;
        self.host_read_bytes += part.host_read_bytes;
        self.spilled_bytes += part.spilled_bytes;
        self.downloaded_bytes += part.downloaded_bytes;
        self.exchanged_bytes += part.exchanged_bytes;
        self.pipelines.extend(part.pipelines);
    }
}

/// A decision of the host while a query ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDecision {
    /// Number of pipelines that had run before.
    pub pipelines: usize,
    /// Its kind and the choice.
    pub decision: String,
}

/// Cost of one pipeline, over all devices.
#[derive(Debug, Clone, Default)]
pub struct PipelineMetrics {
    /// Source, steps and sink, in words.
    pub name: String,
    /// Rows of the source.
    pub rows_in: u64,
    /// Rows output by the sink.
    pub rows_out: u64,
    /// Bytes of the source columns that the pipeline reads; for an exchange, bytes sent to other devices.
    pub read_bytes: u64,
    /// Device time, of the slowest device.
    pub kernel_ns: u64,
    /// Probes of join tables, if [`crate::ExecOptions::counts_rows`] is set.
    pub probes: u64,
    /// Rows that runtime filters dropped, if [`crate::ExecOptions::counts_rows`] is set.
    pub pruned: u64,
    /// Number of retries because a table was full or an output too small.
    pub retries: u64,
}
