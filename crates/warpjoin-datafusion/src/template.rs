//! The CPU subtree that a device node stands for, with holes where its inputs belong.
//!
//! Used when the devices fail, and when a part turns out not to be worth them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// A hole in a template. It has the properties of what was there, and is never executed.
#[derive(Debug)]
pub(crate) struct TemplateInputExec {
    index: usize,
    properties: Arc<PlanProperties>,
}

impl TemplateInputExec {
    /// Hole number `index`, where a node with `properties` stood.
    pub(crate) fn new(index: usize, properties: &Arc<PlanProperties>) -> Self {
        Self { index, properties: Arc::clone(properties) }
    }
}

/// The template with its holes filled; holes without a plan stay.
///
/// # Errors
/// When DataFusion refuses to rebuild a node.
pub(crate) fn fill(
    template: &Arc<dyn ExecutionPlan>,
    inputs: &HashMap<usize, Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    Arc::clone(template)
        .transform_down(|node| {
            let input = node.downcast_ref::<TemplateInputExec>().and_then(|hole| inputs.get(&hole.index));
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
        Err(DataFusionError::Internal("a template was executed before its inputs were put in".to_string()))
    }
}
