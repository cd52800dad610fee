//! [`OperatorCase`]: runs a device plan to a table on the device, and checks the table.
//!
//! Must not know which operator the plan has.

use warpjoin::exec::{self, ExecOptions, PipelineMetrics};
use warpjoin::plan::Plan;
use warpjoin::{QueryMetrics, Table};

use crate::checksum::poison;
use crate::{Bench, Case, Checksum, PipelineTime, Result, Sample, checksum_of};

/// A device plan, and the expected checksum of its output.
pub(super) struct OperatorCase<'a> {
    pub bench: &'a Bench,
    pub plan: Plan,
    pub options: ExecOptions,
    pub expected: Checksum,
    pub last: Option<Table>,
}

impl<'a> OperatorCase<'a> {
    pub(super) fn new(bench: &'a Bench, plan: Plan, options: ExecOptions, expected: Checksum) -> Self {
        Self { bench, plan, options, expected, last: None }
    }
}

/// The times of a run.
pub(super) fn sample(metrics: &QueryMetrics) -> Sample {
    let time = |pipeline: &PipelineMetrics| PipelineTime {
        name: pipeline.name.clone(),
        kernel_ns: pipeline.kernel_ns,
        retries: pipeline.retries,
    };
    Sample {
        device_ns: metrics.device_ns,
        kernel_ns: metrics.kernel_ns,
        pipelines: metrics.pipelines.iter().map(time).collect(),
        interpreted: metrics.interpreted_kernels,
        spilled_bytes: metrics.spilled_bytes,
    }
}

impl Case for OperatorCase<'_> {
    fn run(&mut self) -> Result<Sample> {
        let (table, metrics) = exec::run_to_table(self.bench.session(), &self.plan, &[], &self.options)?;
        self.last = Some(table);
        Ok(sample(&metrics))
    }

    fn check(&mut self) -> Result<()> {
        let Some(table) = self.last.take() else { return Ok(()) };
        self.expected.check(checksum_of(self.bench, &table)?)?;
        poison(self.bench, &table)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::DataType;
    use warpjoin::{HashJoin, Session};
    use warpjoin_device::{SimOptions, open_simulated};

    use super::*;
    use crate::{ColumnSpec, Error, ExpectedJoin, Numbering, Numbers, Scale, Value, table};

    const ROWS: u64 = 256;

    fn bench() -> Bench {
        let session = Session::new(open_simulated(&SimOptions::default()).expect("a device")).expect("a session");
        Bench::new(session, Scale::TINY).expect("a bench")
    }

    fn specs(side: &str, seed: u64) -> [ColumnSpec; 2] {
        [
            ColumnSpec::new("key", Value::Key32, DataType::Int32, 0),
            ColumnSpec::new(side, Value::Random, DataType::Int64, seed),
        ]
    }

    /// A join of two tables, with the expected checksum for probe payloads of `probe_seed`.
    fn case(bench: &Bench, probe_seed: u64) -> OperatorCase<'_> {
        let (build, probe) = (Numbers::new(Numbering::Cyclic, ROWS), Numbers::new(Numbering::Permuted, ROWS));
        let (build_specs, probe_specs) = (specs("b", 1), specs("p", 2));
        let sides = [(build, &build_specs), (probe, &probe_specs)]
            .map(|(numbers, specs)| table(bench, ROWS, &numbers, specs).expect("a table"));
        let [build_table, probe_table] = sides;
        let join = HashJoin::new(build_table, probe_table).on("key", "key").expect("keys").output(vec![2, 1, 3]);
        let expected = ExpectedJoin {
            build_rows: ROWS,
            probe_rows: ROWS,
            build,
            probe,
            keys: &build_specs[..1],
            build_payloads: &build_specs[1..],
            probe_payloads: &specs("p", probe_seed)[1..],
        };
        let expected = expected.checksum(bench).expect("totals");
        OperatorCase::new(bench, join.plan().expect("a plan"), ExecOptions::default(), expected)
    }

    #[test]
    fn correct_results_pass_repeatedly() {
        let bench = bench();
        let mut case = case(&bench, 2);
        for _ in 0..3 {
            assert!(case.run().expect("a run").device_ns > 0);
            case.check().expect("a correct result");
        }
        assert_eq!(case.expected.rows, ROWS);
    }

    #[test]
    fn a_result_with_other_payloads_fails() {
        let bench = bench();
        let mut case = case(&bench, 3);
        case.run().expect("a run");
        assert!(matches!(case.check(), Err(Error::Wrong { .. })));
    }

    #[test]
    fn a_wrong_byte_fails_and_so_does_a_poisoned_result() {
        let bench = bench();
        let mut case = case(&bench, 2);
        case.run().expect("a run");
        {
            let table = case.last.as_ref().expect("a result");
            let values = &table.shards()[0].columns[2].values.clone().expect("values");
            let mut byte = [0];
            bench.stream().read(values, ROWS * 8 - 1, &mut byte).expect("a byte");
            bench.stream().write(values, ROWS * 8 - 1, &[byte[0] ^ 1]).expect("another byte");
        }
        assert!(matches!(case.check(), Err(Error::Wrong { .. })));
        case.run().expect("a run");
        poison(&bench, case.last.as_ref().expect("a result")).expect("poisoned");
        assert!(matches!(case.check(), Err(Error::Wrong { .. })));
    }

    #[test]
    fn swapped_values_fail() {
        let bench = bench();
        let mut case = case(&bench, 2);
        case.run().expect("a run");
        {
            let table = case.last.as_ref().expect("a result");
            let values = &table.shards()[0].columns[1].values.clone().expect("values");
            let mut words = [0u64; 2];
            bench.stream().read(values, 0, bytemuck::cast_slice_mut(&mut words)).expect("two values");
            words.swap(0, 1);
            bench.stream().write(values, 0, bytemuck::cast_slice(&words)).expect("swapped");
        }
        assert!(matches!(case.check(), Err(Error::Wrong { .. })));
    }

    #[test]
    fn generated_tables_have_one_owner() {
        let bench = bench();
        let numbers = Numbers::new(Numbering::Uniform, 4);
        let made = table(&bench, 100, &numbers, &specs("v", 1)).expect("a table");
        assert_eq!((made.rows(), Arc::strong_count(&made)), (100, 1));
        assert_eq!(checksum_of(&bench, &made).expect("totals").rows, 100);
    }
}
