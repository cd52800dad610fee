//! Statistics of second moments: variances, deviations, covariances, correlation, regression.

/// Statistics of second moments. For integers and decimals within 53 bits, sums of distances from the middle of the
/// column's bounds are exact, so that only the last steps round. For doubles, distances from each group's mean are
/// summed in doubles. Null without enough values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Mean square of the distances from the mean.
    VariancePopulation,
    /// Sum of the squared distances from the mean, divided by the number of values minus one.
    VarianceSample,
    /// Square root of `VariancePopulation`.
    DeviationPopulation,
    /// Square root of `VarianceSample`.
    DeviationSample,
    /// Mean product of the distances of pairs from their means.
    CovariancePopulation,
    /// Sum of those products, divided by the number of pairs minus one.
    CovarianceSample,
    /// Covariance divided by both deviations; null if one of them is 0.
    Correlation,
    /// Slope of the regression line through pairs (y, x); null if all x are equal.
    RegressionSlope,
    /// Share of the variance of y that the regression line explains; null if all x, or all y, are equal.
    RegressionR2,
    /// Sum of the squares of the distances of the second argument from its mean.
    RegressionSxx,
    /// The same of the first argument.
    RegressionSyy,
    /// Sum of the products of both distances.
    RegressionSxy,
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
        Self::RegressionSlope,
        Self::RegressionR2,
        Self::RegressionSxx,
        Self::RegressionSyy,
        Self::RegressionSxy,
    ];

    /// Its name in DataFusion.
    #[doc(hidden)]
    pub fn name(self) -> &'static str {
        match self {
            Self::VariancePopulation => "var_pop",
            Self::VarianceSample => "var",
            Self::DeviationPopulation => "stddev_pop",
            Self::DeviationSample => "stddev",
            Self::CovariancePopulation => "covar_pop",
            Self::CovarianceSample => "covar_samp",
            Self::Correlation => "corr",
            Self::RegressionSlope => "regr_slope",
            Self::RegressionR2 => "regr_r2",
            Self::RegressionSxx => "regr_sxx",
            Self::RegressionSyy => "regr_syy",
            Self::RegressionSxy => "regr_sxy",
        }
    }

    /// Arguments that it takes.
    pub fn arguments(self) -> usize {
        match self {
            Self::VariancePopulation | Self::VarianceSample | Self::DeviationPopulation | Self::DeviationSample => 1,
            _ => 2,
        }
    }

    /// Whether it takes the squares of both arguments of a pair, beside their product.
    #[doc(hidden)]
    pub fn takes_squares(self) -> bool {
        !matches!(self, Self::CovariancePopulation | Self::CovarianceSample | Self::RegressionSxy)
    }

    /// The power of ten by which to divide an integer result, for arguments of these scales.
    #[doc(hidden)]
    pub fn scale(self, first: i32, second: i32) -> i32 {
        match self {
            Self::Correlation | Self::RegressionR2 => 0,
            Self::RegressionSlope => first - second,
            Self::RegressionSxx => 2 * second,
            Self::RegressionSyy => 2 * first,
            _ => first + second,
        }
    }

    /// Minimum number of values for a result that is not null.
    #[doc(hidden)]
    pub fn values_min(self) -> u32 {
        match self {
            Self::VarianceSample | Self::DeviationSample | Self::CovarianceSample => 2,
            Self::Correlation | Self::RegressionSlope | Self::RegressionR2 => 2,
            _ => 1,
        }
    }
}
