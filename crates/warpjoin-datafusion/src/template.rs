//! The CPU subtree that a device node replaces, with placeholders for its inputs.
//!
//! It runs when the devices fail, or replaces a part that is not worth offloading. Must not know device plans.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// A placeholder for an input. It has the properties of the node that it replaces, and is never executed.
#[derive(Debug)]
pub(crate) struct TemplateInputExec {
    index: usize,
    properties: Arc<PlanProperties>,
}

impl TemplateInputExec {
    /// The placeholder for input `index`, in place of a node with `properties`.
    pub(crate) fn new(index: usize, properties: &Arc<PlanProperties>) -> Self {
        Self { index, properties: Arc::clone(properties) }
    }
}

/// Replaces the placeholders that have a plan in `inputs`, and keeps the others.
///
/// # Errors
/// Returns an error if DataFusion cannot rebuild a node.
pub(crate) fn fill(
    template: &Arc<dyn ExecutionPlan>,
    inputs: &HashMap<usize, Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    Arc::clone(template)
        .transform_down(|node| {
            let input = node.downcast_ref::<TemplateInputExec>().and_then(|placeholder| inputs.get(&placeholder.index));
            Ok(match input {
                Some(input) => Transformed::new(Arc::clone(input), true, TreeNodeRecursion::Jump),
                None => Transformed::no(node),
            })
        })
        .data()
}

impl DisplayAs for TemplateInputExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TemplateInputExec: index={}", self.index)
    }
}

impl ExecutionPlan for TemplateInputExec {
    fn name(&self) -> &str {
        "TemplateInputExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal("a template was executed without its inputs".to_string()))
    }
}
