//! Devices for warpjoin: memory, streams, kernels, peers.
//!
//! Owns everything that touches a driver, a compiler or a raw pointer, behind one interface with two
//! implementations: [CUDA](open_cuda), and a [simulation on the CPU](open_simulated) that runs the
//! same kernel sources. Must not know what a column, a join or a query is.
//!
//! Architecture invariant: device addresses are passed only as launch arguments ([`Arg`]), never
//! stored in device memory. One check at launch therefore proves that a kernel reaches only the
//! memory of its own device and of opened peers. The one exception are [`CancelWord`]s, which
//! kernels read in host memory.
//!
//! Architecture invariant: all `unsafe` code of the workspace is in this crate.

mod backend;
mod cache;
mod cancellation;
mod cuda;
mod device;
mod error;
mod event;
mod faults;
mod kernel;
mod memory;
mod modules;
mod race;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod sim;
mod stream;
#[doc(hidden)]
pub mod sync;
mod trace;

pub use cache::KernelCache;
pub use cancellation::{CancelWord, Cancellation};
pub use cuda::{
    CudaOptions, CudaStatus, LeftOut, OpenedDevices, binaries_name, compile_for_architecture, cuda_problem,
    cuda_status, open_cuda, open_usable_cuda, prebuilt_binaries, prebuilt_kernels, prebuilt_ptx, trim_open_gpus,
};
pub use device::{Device, DeviceInfo, DeviceKind, Link};
pub use error::{Cause, DeviceError, Result};
pub use event::Event;
pub use faults::{CallKind, Fault, FaultPlan, Recording, with_faults};
pub use kernel::{Arg, Kernel, Launch, Module, ModuleSource, Ptr};
pub use memory::{Buffer, MemoryCache, MemoryPlace, MemoryPool, take_huge_pages, usable_host_bytes};
pub use race::{RaceAccess, RaceReport};
pub use sim::{ChangedFile, SimOptions, open_simulated};
pub use stream::{Pacer, Stream};
pub use trace::{Span, TracedSpan, begin_trace, end_trace, span};
pub use warpjoin_kernels::common::DEVICES_MAX;
