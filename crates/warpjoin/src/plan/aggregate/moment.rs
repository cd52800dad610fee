//! Statistics of second moments: variances, deviations, covariances, correlation.

/// Statistics of second moments. Of integers and decimals within 53 bits sums of distances from the middle of the
/// column's bounds are exact, so that only the last steps round; of doubles, distances from each group's mean are added
/// up in doubles. Null without enough values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Mean square of the distances from the mean.
    VariancePopulation,
    /// Their sum over one less than their number.
    VarianceSample,
    /// Square root of `VariancePopulation`.
    DeviationPopulation,
    /// Square root of `VarianceSample`.
    DeviationSample,
    /// Mean product of the distances of pairs from their means.
    CovariancePopulation,
    /// The sum of those products over one less than their number.
    CovarianceSample,
    /// Covariance over both deviations; null where one of them is 0.
    Correlation,
}

impl Moment {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::VariancePopulation,
        Self::VarianceSample,
        Self::DeviationPopulation,
        Self::DeviationSample,
        Self::CovariancePopulation,
        Self::CovarianceSample,
        Self::Correlation,
    ];

    /// Its name in DataFusion.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::VariancePopulation => "var_pop",
            Self::VarianceSample => "var",
            Self::DeviationPopulation => "stddev_pop",
            Self::DeviationSample => "stddev",
            Self::CovariancePopulation => "covar_pop",
            Self::CovarianceSample => "covar_samp",
            Self::Correlation => "corr",
        }
    }

    /// Arguments that it takes.
    pub fn arguments(self) -> usize {
        match self {
            Self::VariancePopulation | Self::VarianceSample | Self::DeviationPopulation | Self::DeviationSample => 1,
            Self::CovariancePopulation | Self::CovarianceSample | Self::Correlation => 2,
        }
    }

    /// Whether it takes the squares of both arguments of a pair, beside their product.
    pub(crate) fn takes_squares(self) -> bool {
        self == Self::Correlation
    }

    /// The power of ten that the result of integers is to be divided by, for arguments of such scales.
    pub(crate) fn scale(self, first: i32, second: i32) -> i32 {
        match self {
            Self::Correlation => 0,
            _ => first + second,
        }
    }

    /// Values that it takes at least.
    pub(crate) fn values_min(self) -> u32 {
        match self {
            Self::VariancePopulation | Self::DeviationPopulation | Self::CovariancePopulation => 1,
            Self::VarianceSample | Self::DeviationSample | Self::CovarianceSample | Self::Correlation => 2,
        }
    }
}
