//! Pipelines of an optimized plan, with what is chosen ahead.

use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_device::Device;

use super::costs::join_method;
use crate::options::ExecOptions;
use crate::plan::physical::{Bindings, Choices, PhysicalPlan, lower};
use crate::plan::{JoinPlan, Plan};

/// The pipelines of an optimized plan on some devices, and the bindings for an execution of this plan. `inputs` are the tables of
/// its `Input` nodes, as far as they are known.
pub fn pipelines<'p>(
    plan: &'p Plan,
    devices: &[Device],
    inputs: &[Arc<Table>],
    options: &ExecOptions,
) -> (PhysicalPlan, Bindings<'p>) {
    let join_method = |join: &JoinPlan, wanted| join_method(join, wanted, devices, inputs, options);
    lower(plan, &Choices { devices: devices.len(), join_method: &join_method })
}
