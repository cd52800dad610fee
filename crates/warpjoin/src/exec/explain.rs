//! The pipelines of a plan in words, for EXPLAIN.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_plan::optimize::costs::prefers_partition;
use warpjoin_plan::optimize::{Optimized, optimize};
use warpjoin_plan::options::{ExecOptions, JoinForm};
use warpjoin_plan::plan::join::JoinNode;
use warpjoin_plan::plan::ordered::OutputRange;
use warpjoin_plan::plan::physical::{Bindings, PhysicalPlan, Pipeline, Sink, Source, Step, TableNode, lower};
use warpjoin_plan::plan::{JoinPlan, Mark, Plan, PlanKind};

use super::decision::DecisionKind;
use crate::Session;

/// A plan in words.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// One line for each pipeline, in execution order: source, steps and sink. Forms are those that follow from tables
    /// and settings; forms that depend on unknown row counts are left open.
    pub pipelines: Vec<String>,
    /// Decisions that the host will make after each pipeline, from data that it reads from the devices: their kinds and
    /// alternatives.
    pub host_decisions: Vec<Vec<String>>,
    /// Changes by the optimizer: decisions that are known before execution.
    pub decisions: Vec<String>,
}

/// Explains how a plan would run. The order of joins over unknown inputs is left open. For a plan that cannot run there are no
/// pipelines, and the decisions contain the reason.
pub fn explain(plan: &Plan, session: &Arc<Session>, options: &ExecOptions) -> Explanation {
    let session = &*session.of_plan(plan);
    let Optimized { plan, notes, .. } = match optimize(plan, &[], session.device_set(), session.orders(), options) {
        Ok(optimized) => optimized,
        Err(error) => return Explanation { decisions: vec![error.to_string()], ..Explanation::default() },
    };
    let (physical, bindings) = lower(&plan);
    let explain = Explain {
        session,
        options,
        plan: &physical,
        bindings: &bindings,
        lines: vec![],
        outputs: vec![],
        tables: HashMap::new(),
    };
    let lines = explain.pipelines();
    let open = |line: &Line| line.open.iter().map(ToString::to_string).collect();
    let host_decisions = lines.iter().map(open).collect();
    Explanation { pipelines: lines.into_iter().map(|line| line.words).collect(), host_decisions, decisions: notes }
}

struct Explain<'a> {
    session: &'a Session,
    options: &'a ExecOptions,
    plan: &'a PhysicalPlan,
    bindings: &'a Bindings<'a>,
    lines: Vec<Line>,
    /// The start of the lines that read each pipeline's output.
    outputs: Vec<Line>,
    /// Lines that build shared tables.
    tables: HashMap<usize, usize>,
}

/// Decisions for a join whose sides may be partitioned.
const PARTITIONED: &[DecisionKind] = &[DecisionKind::Join, DecisionKind::BuildSide, DecisionKind::Table];

/// A pipeline, or the beginning of one.
#[derive(Debug, Clone, Default)]
struct Line {
    words: String,
    /// Open decisions of the host, each once.
    open: Vec<DecisionKind>,
}

impl Line {
    fn then(mut self, words: &str) -> Self {
        self.words.push_str(words);
        self
    }

    fn deciding(mut self, kinds: &[DecisionKind]) -> Self {
        for kind in kinds {
            if !self.open.contains(kind) {
                self.open.push(*kind);
            }
        }
        self
    }
}

/// Nothing is decided yet.
impl From<String> for Line {
    fn from(words: String) -> Self {
        Self { words, open: vec![] }
    }
}

/// How the matches of a join will be found.
enum Form {
    Table(&'static str),
    Partitioned,
    /// The host decides once the inputs are known.
    BySize,
}

impl<'a> Explain<'a> {
    /// All pipelines.
    fn pipelines(mut self) -> Vec<Line> {
        self.plan.pipelines.iter().for_each(|pipeline| self.add(pipeline));
        self.lines
    }

    /// Adds the line of the next pipeline, and the start of its readers' lines.
    fn add(&mut self, pipeline: &'a Pipeline) {
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
        let rows = |line: usize| Line::from(format!("Rows[pipeline {line}]"));
        let output = match &pipeline.sink {
            Sink::Result => rows(self.close(line, "Result")),
            Sink::InPlace => rows(self.close(line, "InPlace")),
            Sink::Slice(range) if pipeline.steps.is_empty() && *range == OutputRange::ALL => line,
            Sink::Slice(_) => rows(self.close(line, "InPlace")),
            Sink::Limit { .. } => rows(self.close(line, "Limit")),
            // Rows that nothing is looked up for are read again.
            Sink::Keep | Sink::Share(_) if !pipeline.steps.iter().any(Step::looks_up) => line,
            Sink::Write | Sink::Keep | Sink::Share(_) => rows(self.close(line, "Materialise")),
            Sink::Build => {
                let (sink, kinds) = match self.build_form(id) {
                    Form::Table(table) => (table, &[DecisionKind::BuildSide, DecisionKind::Table][..]),
                    Form::Partitioned => ("Partition", PARTITIONED),
                    Form::BySize => ("BuildHashTable or Partition, by size", PARTITIONED),
                };
                self.close(self.deciding(line, kinds), sink).to_string().into()
            }
            Sink::ShareBuild { number, .. } => {
                let line = self.close(self.deciding(line, &[DecisionKind::Table]), "BuildHashTable");
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
            Sink::Aggregate { group_by, .. } if group_by.is_empty() => {
                format!("Groups[pipeline {}]", self.close(line, "Aggregate")).into()
            }
            Sink::Aggregate { .. } => {
                format!("Groups[pipeline {}]", self.close(self.deciding(line, &[DecisionKind::GroupBy]), "GroupBy"))
                    .into()
            }
            Sink::GroupingSets { sets, .. } => {
                let line = self.deciding(line, &[DecisionKind::GroupBy]);
                format!("Union[pipeline {}]", self.close(line, &format!("GroupBy[{} sets]", sets.len()))).into()
            }
        };
        self.outputs.push(output);
    }

    /// The line with open decisions of the host; some are settled if the options choose a form or there is one device.
    fn deciding(&self, line: Line, kinds: &[DecisionKind]) -> Line {
        let is_open = |kind: &&DecisionKind| match kind {
            DecisionKind::BuildSide => self.session.devices().len() > 1,
            _ => true,
        };
        line.deciding(&kinds.iter().filter(is_open).copied().collect::<Vec<_>>())
    }

    fn source(&mut self, source: &Source) -> Line {
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
                let lines: Vec<&str> = ids.iter().map(|id| self.outputs[id.0].words.as_str()).collect();
                format!("Union[pipelines {}]", lines.join(", ")).into()
            }
        }
    }

    fn after(&mut self, line: Line, step: &Step) -> Line {
        match step {
            Step::Filter(_) => line.then(" -> Filter"),
            Step::Project(_) => line.then(" -> Project"),
            Step::RowNumber => line,
            Step::Compact => line.then(" -> Compact"),
            Step::Number { .. } => self.deciding(line, &[DecisionKind::RowNumbers]),
            Step::Fetch { table, .. } => {
                let names = match self.bindings.tables[table.0] {
                    TableNode::Fetch(fetch) => fetch.names(),
                    TableNode::Source(_) => vec![],
                };
                line.then(&format!(" -> Fetch[{}]", names.join(", ")))
            }
            Step::HasRows { of, .. } => line.then(&format!(" -> HasRows[pipeline {}]", self.outputs[of.0].words)),
            Step::Probe { table, .. } => line.then(&format!(" -> Probe[pipeline {}]", self.table(*table))),
            Step::Reduce { table, test, .. } => {
                let line = self.deciding(line, &[DecisionKind::RuntimeFilter]);
                line.then(&format!(" -> RuntimeFilter[pipeline {}, {test}]", self.table(*table)))
            }
            Step::Join { build, .. } => {
                let of_build = self.outputs[build.0].words.clone();
                match self.build_form(build.0) {
                    Form::Table(_) => line.then(&format!(" -> Probe[pipeline {of_build}]")),
                    Form::Partitioned => {
                        let probe = self.close(line, "Partition");
                        format!("Matches[pipelines {of_build} and {probe}]").into()
                    }
                    Form::BySize => line.then(&format!(" -> Join[pipeline {of_build}]")),
                }
            }
        }
    }

    fn table(&self, number: usize) -> usize {
        self.tables.get(&number).copied().unwrap_or_default()
    }

    /// Ends a line; returns its number.
    fn close(&mut self, line: Line, sink: &str) -> usize {
        self.lines.push(line.then(&format!(" -> {sink}")));
        self.lines.len()
    }

    /// How the join with this build side finds its matches.
    fn build_form(&self, id: usize) -> Form {
        let steps = self.plan.pipelines.iter().flat_map(|pipeline| &pipeline.steps);
        let mut joins = steps.filter_map(|step| match step {
            Step::Join { build, join, .. } if build.0 == id => Some(join.node),
            _ => None,
        });
        match joins.next().map(|node| &self.bindings.nodes[node.0].kind) {
            Some(PlanKind::Join(join)) => self.form(join),
            _ => Form::BySize,
        }
    }

    fn form(&self, join: &JoinPlan) -> Form {
        let table = Form::Table(match self.options.join_form {
            Some(JoinForm::Direct) => "BuildDirectTable",
            _ => "BuildHashTable",
        });
        let is_chosen = self.options.join_form.is_some() || self.session.devices().len() != 1;
        let sides = [&join.build, &join.probe].map(side);
        let rows = match sides {
            [Side::Columns(Some(build)), Side::Columns(Some(probe))] => Some((build, probe)),
            [Side::Columns(_), Side::Columns(_)] if !is_chosen => return Form::BySize,
            _ => None,
        };
        if prefers_partition(&JoinNode::of(join), rows, self.session.devices(), &[], self.options) {
            Form::Partitioned
        } else {
            table
        }
    }
}

/// The source of a join's side.
enum Side {
    /// All rows of stored columns or of a union, grouping sets or window; with their number if known.
    Columns(Option<u64>),
    /// Rows after filters, joins, aggregates or limits.
    Rows,
}

fn side(plan: &Plan) -> Side {
    match &plan.kind {
        PlanKind::Scan { table, .. } => Side::Columns(Some(table.rows())),
        PlanKind::Input { .. } => Side::Columns(None),
        PlanKind::Project { input, .. } => side(input),
        PlanKind::Marked { input, mark: Mark::Shared(_) | Mark::SharedBuild(_) } => side(input),
        PlanKind::Sort { input, skip: 0, fetch: None, .. } => side(input),
        PlanKind::Union { .. } | PlanKind::GroupingSets { .. } | PlanKind::Window { .. } => Side::Columns(None),
        PlanKind::Shared(plan) => side(plan),
        PlanKind::Numbered { input } | PlanKind::RowNumbers { input } => side(input),
        PlanKind::Filter { .. }
        | PlanKind::Fetch(_)
        | PlanKind::Join(_)
        | PlanKind::Aggregate { .. }
        | PlanKind::HasRows { .. }
        | PlanKind::Marked { .. }
        | PlanKind::Sort { .. }
        | PlanKind::Limit { .. } => Side::Rows,
    }
}
