//! How much device memory the column cache may take.

use std::fmt;
use std::str::FromStr;

use warpjoin::Session;

use super::Bytes;

/// The setting `warpjoin.cache`: a limit on what cached columns take of each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLimit {
    /// Percent of the device's memory budget.
    Percent(u8),
    /// Bytes of each device; 0 turns the cache off.
    Bytes(u64),
}

impl CacheLimit {
    /// Leaves as much for the rest of most queries.
    pub(crate) const DEFAULT: Self = Self::Percent(60);

    /// Bytes on all devices of a session together.
    pub(crate) fn bytes(self, session: &Session) -> u64 {
        let of_device = |limit_bytes: u64| match self {
            Self::Percent(percent) => limit_bytes / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes.min(limit_bytes),
        };
        session.devices().iter().map(|device| of_device(device.memory().limit_bytes())).sum()
    }

    /// Whether nothing is cached.
    pub(crate) fn is_off(self) -> bool {
        matches!(self, Self::Percent(0) | Self::Bytes(0))
    }
}

impl FromStr for CacheLimit {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Bytes(0));
        }
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().map_err(|_| ())?;
                if percent <= 100 { Ok(Self::Percent(percent)) } else { Err(()) }
            }
            None => text.parse().map(|Bytes(bytes)| Self::Bytes(bytes)),
        }
    }
}

impl fmt::Display for CacheLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            _ if self.is_off() => f.write_str("off"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sizes_parse_and_print() {
        for (text, limit, printed) in [
            ("60%", CacheLimit::Percent(60), "60%"),
            ("8GB", CacheLimit::Bytes(8_000_000_000), "8000000000"),
            ("off", CacheLimit::Bytes(0), "off"),
            ("0", CacheLimit::Bytes(0), "off"),
            ("0 %", CacheLimit::Percent(0), "off"),
        ] {
            let parsed: CacheLimit = text.parse().unwrap();
            assert_eq!((parsed, parsed.to_string().as_str()), (limit, printed));
            assert_eq!(printed.parse::<CacheLimit>().unwrap().is_off(), limit.is_off());
        }
        for wrong in ["", "%", "-1%", "101%", "some", "1.5%"] {
            assert!(wrong.parse::<CacheLimit>().is_err(), "{wrong}");
        }
    }
}
