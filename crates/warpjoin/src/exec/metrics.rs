//! What a query cost, measured in production.

/// What a query cost. Times are nanoseconds; those of devices and kernels come from device events.
#[derive(Debug, Clone, Default)]
pub struct QueryMetrics {
    /// Labels of the devices that it ran on: where its tables lie.
    pub devices: Vec<String>,
    /// Ordering joins and placing runtime filters, on the host.
    pub optimizer_ns: u64,
    /// What the optimiser chose, in words.
    pub decisions: Vec<String>,
    /// Generating kernels and sizing tables on the host.
    pub planning_ns: u64,
    /// Compiling kernels, or loading them from the disk cache.
    pub compile_ns: u64,
    /// Kernel modules that were not in memory.
    pub compiled_modules: u64,
    /// Pipelines that ran interpreted ([`crate::ExecOptions::code_tier`]).
    pub interpreted_kernels: u64,
    /// Total kernel time of the device with the largest total.
    pub kernel_ns: u64,
    /// From the first work to the result on the devices, of the slowest device: kernels, clearing, copies, and the gaps
    /// between them in which the host generates, compiles, looks at results and waits for launch permits. 0 where nothing runs there.
    pub device_ns: u64,
    /// Fetching and decoding the result, wall clock.
    pub transfer_ns: u64,
    /// Waiting for launch permits, which other queries had.
    pub permit_wait_ns: u64,
    /// Kernel launches.
    pub launches: u64,
    /// Bytes from host to devices.
    pub uploaded_bytes: u64,
    /// Bytes of columns and rows in the host's memory that kernels have read, there or brought to devices.
    pub host_read_bytes: u64,
    /// Bytes of rows that were written to the host's memory, as a device had no room for them.
    pub spilled_bytes: u64,
    /// Bytes from devices to host.
    pub downloaded_bytes: u64,
    /// Bytes from device to device.
    pub exchanged_bytes: u64,
    /// Most memory that the query held on one device at once, its resident tables included.
    pub peak_bytes: u64,
    /// Rows of the result.
    pub rows: u64,
    /// One entry a pipeline, in the order in which they ran.
    pub pipelines: Vec<PipelineMetrics>,
    /// What the host decided while the query ran, in that order.
    pub host_decisions: Vec<HostDecision>,
}

impl QueryMetrics {
    /// Adds what a part of the query cost that ran as a query of its own, with the streams and permits of this one: but for times on
    /// devices, and for permits.
    pub(super) fn add_part(&mut self, part: Self) {
        self.planning_ns += part.planning_ns;
        self.compile_ns += part.compile_ns;
        self.compiled_modules += part.compiled_modules;
        self.interpreted_kernels += part.interpreted_kernels;
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
    /// Pipelines that had run.
    pub pipelines: usize,
    /// What it is about, and what was decided.
    pub decision: String,
}

/// What one pipeline cost, over all devices.
#[derive(Debug, Clone, Default)]
pub struct PipelineMetrics {
    /// Source, steps and sink, in words.
    pub name: String,
    /// Rows of the source.
    pub rows_in: u64,
    /// Rows put out by the sink.
    pub rows_out: u64,
    /// Bytes of the source columns that the pipeline reads; of an exchange those that go to other devices.
    pub read_bytes: u64,
    /// Device time, of the slowest device.
    pub kernel_ns: u64,
    /// Lookups in tables of joins, if [`crate::ExecOptions::counts_rows`] asks for it.
    pub probes: u64,
    /// Rows that runtime filters dropped, on the same condition.
    pub pruned: u64,
    /// Times it was run again because a table was full or an output too small.
    pub retries: u64,
}
