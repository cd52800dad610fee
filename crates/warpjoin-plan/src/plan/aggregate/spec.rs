//! One spec for each aggregate function, read by matcher, checks, execution and tests.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::Moment;

use super::AggregateFunction;

/// Properties that all calls of an aggregate function share.
#[derive(Debug, Clone, Copy)]
pub struct AggregateSpec {
    /// Its name in DataFusion.
    pub name: &'static str,
    /// Names of other DataFusion functions with the same result.
    pub also: &'static [&'static str],
    /// Names of DataFusion functions that have its result with DISTINCT.
    pub also_distinct: &'static [&'static str],
    /// Names of DataFusion functions of pairs that equal this function over the pairs without nulls, with the position
    /// of its argument in the pair.
    pub also_of_pairs: &'static [(&'static str, usize)],
    /// Arguments that it takes.
    pub arguments: usize,
    /// How its result is computed.
    pub way: Way,
    /// Whether duplicate arguments change the result.
    pub counts_each: bool,
    /// The result is one of the values of the argument.
    pub is_of_values: bool,
    /// Computing the result from the accumulators may fail or round.
    pub is_computed: bool,
    /// Whether windows support it over any frame; otherwise only over whole partitions.
    pub over_frames: bool,
    /// Type of the result for a type of the argument; `None`: there is none.
    pub result: fn(&DataType) -> Option<DataType>,
    /// Whether devices support this type of the argument and this type of the result.
    pub takes: fn(&DataType, &DataType) -> bool,
}

impl AggregateSpec {
    /// Names of all DataFusion functions that it implements.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let of_pairs = self.also_of_pairs.iter().map(|(name, _)| *name);
        [self.name].into_iter().chain(self.also.iter().chain(self.also_distinct).copied()).chain(of_pairs)
    }

    /// The position of its argument in the pairs of the DataFusion function `name`. `None`: `name` takes no pairs.
    pub fn place_in_pair(&self, name: &str) -> Option<usize> {
        self.also_of_pairs.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }
}

/// How the result of an aggregate is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From values accumulated in one pass over the rows.
    Accumulated,
    /// From sums of distances and of their products: in one pass over integers and decimals, in two over doubles.
    Moment,
    /// It is the value of the row that is first in an order.
    FirstRow,
    /// From neighbors among the sorted values of a group.
    Quantile,
}

/// For functions whose result is one of the argument's values; duplicates do not matter.
const ONE_OF_VALUES: AggregateSpec = AggregateSpec {
    name: "",
    also: &[],
    also_distinct: &[],
    also_of_pairs: &[],
    arguments: 1,
    way: Way::Accumulated,
    counts_each: false,
    is_of_values: true,
    is_computed: false,
    over_frames: false,
    result: |argument| Some(argument.clone()),
    takes: |argument, result| argument == result,
};

/// For functions that compute a new value; duplicates matter.
const ANOTHER_VALUE: AggregateSpec = AggregateSpec { counts_each: true, is_of_values: false, ..ONE_OF_VALUES };

const MOMENT: AggregateSpec = AggregateSpec {
    way: Way::Moment,
    is_computed: true,
    result: |argument| is_number(argument).then_some(DataType::Float64),
    takes: |argument, result| {
        (argument.is_integer() || argument.is_decimal() || *argument == DataType::Float64)
            && *result == DataType::Float64
    },
    ..ANOTHER_VALUE
};

const BITS: AggregateSpec = AggregateSpec {
    is_of_values: false,
    result: |argument| argument.is_integer().then(|| argument.clone()),
    takes: |argument, result| argument.is_integer() && argument == result,
    ..ONE_OF_VALUES
};

impl AggregateFunction {
    /// All functions; of those with a parameter, one.
    pub fn all() -> impl Iterator<Item = Self> {
        use AggregateFunction::{Avg, BitAnd, BitOr, BitXor, Count, First, Last, Max, Median, Min, Percentile, Sum};
        let own = [Count, Sum, Min, Max, Avg, BitAnd, BitOr, BitXor, First, Last, Median, Percentile { share_bits: 0 }];
        own.into_iter().chain(Moment::ALL.iter().copied().map(Self::Moment))
    }

    /// The function's spec.
    pub fn spec(self) -> AggregateSpec {
        match self {
            Self::Count => AggregateSpec {
                name: "count",
                // An exact number is as good as an estimate.
                also_distinct: &["approx_distinct"],
                also_of_pairs: &[("regr_count", 0)],
                over_frames: true,
                result: |_| Some(DataType::Int64),
                takes: |_, _| true,
                ..ANOTHER_VALUE
            },
            Self::Sum => {
                AggregateSpec { name: "sum", over_frames: true, result: sum_result, takes: is_summed, ..ANOTHER_VALUE }
            }
            Self::Min => AggregateSpec { name: "min", also: &["bool_and"], over_frames: true, ..ONE_OF_VALUES },
            Self::Max => {
                AggregateSpec { name: "max", also: &["bool_or", "any_value"], over_frames: true, ..ONE_OF_VALUES }
            }
            Self::Avg => AggregateSpec {
                name: "avg",
                also_of_pairs: &[("regr_avgx", 1), ("regr_avgy", 0)],
                is_computed: true,
                over_frames: true,
                result: average_result,
                takes: |argument, result| match (argument, result) {
                    (DataType::Float64, DataType::Float64) => true,
                    (from, to) => from.is_decimal() && to.is_decimal(),
                },
                ..ANOTHER_VALUE
            },
            Self::BitAnd => AggregateSpec { name: "bit_and", ..BITS },
            Self::BitOr => AggregateSpec { name: "bit_or", ..BITS },
            Self::BitXor => AggregateSpec { name: "bit_xor", counts_each: true, ..BITS },
            Self::Moment(moment) => AggregateSpec {
                name: moment.name(),
                arguments: moment.arguments(),
                // Pairs are of two columns.
                over_frames: moment.arguments() == 1,
                ..MOMENT
            },
            Self::First => AggregateSpec { name: "first_value", way: Way::FirstRow, ..ONE_OF_VALUES },
            Self::Last => AggregateSpec { name: "last_value", way: Way::FirstRow, ..ONE_OF_VALUES },
            Self::Median => AggregateSpec {
                name: "median",
                way: Way::Quantile,
                result: |argument| (argument.is_decimal() || argument.is_floating()).then(|| argument.clone()),
                takes: |argument, result| (argument.is_decimal() || argument.is_floating()) && argument == result,
                ..ANOTHER_VALUE
            },
            Self::Percentile { .. } => AggregateSpec {
                name: "percentile_cont",
                way: Way::Quantile,
                result: |argument| (*argument == DataType::Float64).then_some(DataType::Float64),
                takes: |argument, result| [argument, result] == [&DataType::Float64; 2],
                ..ANOTHER_VALUE
            },
        }
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal() || data_type.is_floating()
}

fn sum_result(argument: &DataType) -> Option<DataType> {
    match argument {
        DataType::Decimal128(precision, scale) => Some(DataType::Decimal128((precision + 10).min(38), *scale)),
        _ if argument.is_unsigned_integer() => Some(DataType::UInt64),
        _ if argument.is_integer() => Some(DataType::Int64),
        _ => argument.is_floating().then_some(DataType::Float64),
    }
}

fn is_summed(argument: &DataType, result: &DataType) -> bool {
    match (argument, result) {
        (DataType::Float32 | DataType::Float64, DataType::Float64) => true,
        (from, to) if from.is_integer() => matches!(to, DataType::Int64 | DataType::UInt64),
        (from, to) => from.is_decimal() && to.is_decimal(),
    }
}

fn average_result(argument: &DataType) -> Option<DataType> {
    match argument {
        DataType::Decimal128(precision, scale) => {
            Some(DataType::Decimal128((precision + 4).min(38), (scale + 4).min(38)))
        }
        _ => (argument.is_integer() || argument.is_floating()).then_some(DataType::Float64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_functions_have_one_name() {
        let mut names: Vec<&str> = AggregateFunction::all().flat_map(|function| function.spec().names()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.iter().all(|name| !name.is_empty()));
    }
}
