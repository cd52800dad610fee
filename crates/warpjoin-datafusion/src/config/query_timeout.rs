//! How long a query may run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Units of time, largest first, in milliseconds. A number without a unit is in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The value of `warpjoin.query_timeout`: whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueryTimeout(Option<Duration>);

impl QueryTimeout {
    /// No time is no limit.
    pub(crate) fn new(time: Option<Duration>) -> Self {
        Self(time.filter(|time| !time.is_zero()))
    }

    /// The limit; `None`: no limit.
    pub(crate) fn time(self) -> Option<Duration> {
        self.0
    }
}

impl FromStr for QueryTimeout {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self(None));
        }
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit = match unit.trim() {
            "" => "ms",
            unit => unit,
        };
        let (_, unit_ms) = UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or(())?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit_ms).map(|ms| Self::new(Some(Duration::from_millis(ms)))).ok_or(());
        }
        let ms = number.parse::<f64>().map_err(|_| ())? * unit_ms as f64;
        // What is there of a millisecond counts as one: it does not turn the limit off.
        if ms < u64::MAX as f64 { Ok(Self::new(Some(Duration::from_millis(ms.ceil() as u64)))) } else { Err(()) }
    }
}

impl fmt::Display for QueryTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.0 else { return f.write_str("off") };
        let ms = time.as_nanos().div_ceil(1_000_000);
        let is_whole = |(_, unit_ms): &(&str, u64)| ms.is_multiple_of(u128::from(*unit_ms));
        let (unit, unit_ms) = UNITS.into_iter().find(is_whole).unwrap_or(("ms", 1));
        write!(f, "{}{unit}", ms / u128::from(unit_ms))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn times_parse_and_print() {
        for (text, ms, printed) in [
            ("30s", 30_000, "30s"),
            ("5m", 300_000, "5m"),
            ("5 M", 300_000, "5m"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("1h", 3_600_000, "1h"),
            ("1.5s", 1_500, "1500ms"),
            ("250", 250, "250ms"),
            ("250ms", 250, "250ms"),
            ("0.1ms", 1, "1ms"),
        ] {
            let parsed: QueryTimeout = text.parse().unwrap();
            assert_eq!(
                (parsed.time(), parsed.to_string().as_str()),
                (Some(Duration::from_millis(ms)), printed),
                "{text}"
            );
            assert_eq!(printed.parse::<QueryTimeout>().unwrap(), parsed);
        }
        for off in ["0", "off", "OFF", "0s", "0.0"] {
            let parsed: QueryTimeout = off.parse().unwrap();
            assert_eq!((parsed.time(), parsed.to_string().as_str()), (None, "off"), "{off}");
        }
        for wrong in ["", "s", "-1", "1d", "1.2.3s", "soon", "99999999999999999h"] {
            assert!(wrong.parse::<QueryTimeout>().is_err(), "{wrong}");
        }
    }
}
