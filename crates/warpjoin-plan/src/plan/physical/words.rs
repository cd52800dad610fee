//! A plan of pipelines in words, for EXPLAIN.

use std::collections::HashMap;

use super::{Bindings, DecisionKind, JoinMethod, PhysicalPlan, Pipeline, Sink, Source, Step, TableNode};
use crate::plan::ordered::OutputRange;
use crate::plan::{Plan, PlanKind};

/// A pipeline in words.
#[derive(Debug, Clone, Default)]
pub struct PipelineWords {
    /// Source, steps and sink.
    pub text: String,
    /// Decisions that the host takes for it.
    pub decisions: Vec<DecisionKind>,
}

/// The pipelines of a plan that run kernels of their own, in execution order. Pipelines that run with those that read them are
/// part of these.
pub fn in_words(plan: &PhysicalPlan, bindings: &Bindings<'_>) -> Vec<PipelineWords> {
    let mut words = Words { plan, bindings, lines: vec![], outputs: vec![], tables: HashMap::new() };
    plan.pipelines.iter().for_each(|pipeline| words.add(pipeline));
    words.lines
}

struct Words<'p> {
    plan: &'p PhysicalPlan,
    bindings: &'p Bindings<'p>,
    lines: Vec<PipelineWords>,
    /// How the lines of those begin that read a pipeline.
    outputs: Vec<PipelineWords>,
    /// Lines that build shared tables.
    tables: HashMap<usize, usize>,
}

impl PipelineWords {
    fn then(mut self, words: &str) -> Self {
        self.text.push_str(words);
        self
    }

    fn deciding(mut self, kinds: impl IntoIterator<Item = DecisionKind>) -> Self {
        for kind in kinds {
            if !self.decisions.contains(&kind) {
                self.decisions.push(kind);
            }
        }
        self
    }
}

/// Nothing is decided yet.
impl From<String> for PipelineWords {
    fn from(text: String) -> Self {
        Self { text, decisions: vec![] }
    }
}

impl Words<'_> {
    fn add(&mut self, pipeline: &Pipeline) {
        let id = self.outputs.len();
        // What a subquery has left is not made again.
        if self.plan.found.iter().any(|found| (found.first.0..=found.last.0).contains(&id)) {
            self.outputs.push("Rows[a subquery's]".to_string().into());
            return;
        }
        let mut line = self.source(&pipeline.source);
        for step in &pipeline.steps {
            line = self.after(line, step);
        }
        let line = line.deciding(pipeline.sink.decisions(self.plan.devices));
        let rows = |line: usize| PipelineWords::from(format!("Rows[pipeline {line}]"));
        let output = match &pipeline.sink {
            Sink::Result => rows(self.close(line, "Result")),
            Sink::InPlace => rows(self.close(line, "InPlace")),
            Sink::Slice(range) if pipeline.steps.is_empty() && *range == OutputRange::ALL => line,
            Sink::Slice(_) => rows(self.close(line, "InPlace")),
            Sink::Limit { .. } => rows(self.close(line, "Limit")),
            // Rows that nothing is looked up for are read again.
            Sink::Keep | Sink::Share(_) if !pipeline.steps.iter().any(Step::looks_up) => line,
            Sink::Write | Sink::Keep | Sink::Share(_) => rows(self.close(line, "Materialise")),
            Sink::Build(method) => self.close(line, build_in_words(*method)).to_string().into(),
            Sink::ShareBuild { number, .. } => {
                let line = self.close(line, build_in_words(JoinMethod::HashTable));
                self.tables.insert(*number, line);
                line.to_string().into()
            }
            Sink::Count => self.close(line, "Count").to_string().into(),
            Sink::UnionInput => self.close(line, "Rows").to_string().into(),
            Sink::Sort { range, .. } => {
                let name = if range.fetch.is_some() { "TopK" } else { "Sort" };
                format!("{name}[pipeline {}]", self.close(line, "SortKeys")).into()
            }
            Sink::Window { calls, .. } => rows(self.close(line, &format!("Window[{} functions]", calls.len()))),
            Sink::Aggregate { group_by, .. } => {
                let name = if group_by.is_empty() { "Aggregate" } else { "GroupBy" };
                format!("Groups[pipeline {}]", self.close(line, name)).into()
            }
            Sink::GroupingSets { sets, .. } => {
                format!("Union[pipeline {}]", self.close(line, &format!("GroupBy[{} sets]", sets.len()))).into()
            }
        };
        self.outputs.push(output);
    }

    fn source(&self, source: &Source) -> PipelineWords {
        match source {
            Source::Table { table, columns } => match self.bindings.tables[table.0] {
                TableNode::Source(Plan { kind: PlanKind::Input { index }, .. }) => {
                    format!("Upload[input {index}]").into()
                }
                TableNode::Source(Plan { kind: PlanKind::Scan { table, projection }, .. }) => {
                    let is_on_host = |&&column: &&usize| table.is_on_host(column);
                    match projection.iter().filter(is_on_host).count() {
                        0 => format!("Scan[{} columns]", columns.len()).into(),
                        on_host => format!("Scan[{} columns, {on_host} in host memory]", columns.len()).into(),
                    }
                }
                _ => format!("Scan[{} columns]", columns.len()).into(),
            },
            Source::Pipeline(id) => self.outputs[id.0].clone(),
            Source::Union(ids) => {
                let lines: Vec<&str> = ids.iter().map(|id| self.outputs[id.0].text.as_str()).collect();
                format!("Union[pipelines {}]", lines.join(", ")).into()
            }
        }
    }

    fn after(&mut self, line: PipelineWords, step: &Step) -> PipelineWords {
        let line = line.deciding(step.decision());
        match step {
            Step::Filter(_) => line.then(" -> Filter"),
            Step::Project(_) => line.then(" -> Project"),
            Step::RowNumber | Step::Number { .. } => line,
            Step::Compact => line.then(" -> Compact"),
            Step::Fetch { table, .. } => {
                let names = match self.bindings.tables[table.0] {
                    TableNode::Fetch(fetch) => fetch.names(),
                    TableNode::Source(_) => vec![],
                };
                line.then(&format!(" -> Fetch[{}]", names.join(", ")))
            }
            Step::HasRows { of, .. } => line.then(&format!(" -> HasRows[pipeline {}]", self.outputs[of.0].text)),
            Step::Probe { table, .. } => line.then(&format!(" -> Probe[pipeline {}]", self.table(*table))),
            Step::Reduce { table, test, .. } => {
                line.then(&format!(" -> RuntimeFilter[pipeline {}, {test}]", self.table(*table)))
            }
            Step::Join { build, method, .. } => {
                let build = self.outputs[build.0].text.clone();
                match method {
                    JoinMethod::HashTable | JoinMethod::DirectTable => {
                        line.then(&format!(" -> Probe[pipeline {build}]"))
                    }
                    JoinMethod::Partitioned => {
                        let probe = self.close(line, "Partition");
                        format!("Matches[pipelines {build} and {probe}]").into()
                    }
                    JoinMethod::BySize => line.then(&format!(" -> Join[pipeline {build}]")),
                }
            }
        }
    }

    fn table(&self, number: usize) -> usize {
        self.tables.get(&number).copied().unwrap_or_default()
    }

    /// Ends a line; returns its number.
    fn close(&mut self, line: PipelineWords, sink: &str) -> usize {
        self.lines.push(line.then(&format!(" -> {sink}")));
        self.lines.len()
    }
}

fn build_in_words(method: JoinMethod) -> &'static str {
    match method {
        JoinMethod::HashTable => "BuildHashTable",
        JoinMethod::DirectTable => "BuildDirectTable",
        JoinMethod::Partitioned => "Partition",
        JoinMethod::BySize => "BuildHashTable or Partition, by size",
    }
}
