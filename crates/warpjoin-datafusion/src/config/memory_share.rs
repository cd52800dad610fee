//! Limits on memory: a share or a number of bytes.

use std::fmt;
use std::str::FromStr;

use super::parse::Bytes;

/// A limit on memory. The setting defines the whole: for `warpjoin.cache` each device's budget, for
/// `warpjoin.host_memory` the memory that the process may use, for `warpjoin.host_cache` the limit
/// `warpjoin.host_memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryShare {
    /// Percent of the whole.
    Percent(u8),
    /// A number of bytes; 0 turns the use off.
    Bytes(u64),
}

impl MemoryShare {
    /// Default of caches: leaves enough for the other needs of most queries.
    pub(crate) const OF_CACHE: Self = Self::Percent(60);
    /// Default of host memory: leaves as much for the rest of the process and for other processes.
    pub(crate) const OF_HOST: Self = Self::Percent(50);

    /// The limit in bytes, if the memory has `bytes`.
    pub(crate) fn of(self, bytes: u64) -> u64 {
        match self {
            Self::Percent(percent) => bytes / 100 * u64::from(percent),
            Self::Bytes(own) => own.min(bytes),
        }
    }

    /// Whether the limit is zero.
    pub(crate) fn is_off(self) -> bool {
        matches!(self, Self::Percent(0) | Self::Bytes(0))
    }
}

impl FromStr for MemoryShare {
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

impl fmt::Display for MemoryShare {
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
            ("60%", MemoryShare::Percent(60), "60%"),
            ("8GB", MemoryShare::Bytes(8_000_000_000), "8000000000"),
            ("off", MemoryShare::Bytes(0), "off"),
            ("0", MemoryShare::Bytes(0), "off"),
            ("0 %", MemoryShare::Percent(0), "off"),
        ] {
            let parsed: MemoryShare = text.parse().unwrap();
            assert_eq!((parsed, parsed.to_string().as_str()), (limit, printed));
            assert_eq!(printed.parse::<MemoryShare>().unwrap().is_off(), limit.is_off());
        }
        for wrong in ["", "%", "-1%", "101%", "some", "1.5%"] {
            assert!(wrong.parse::<MemoryShare>().is_err(), "{wrong}");
        }
    }
}
