//! Parsing of values, with errors that say what is expected.

use std::path::PathBuf;
use std::str::FromStr;

use datafusion::common::{DataFusionError, Result};

/// A size in bytes: a number and an optional unit, B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB, K, M, G, T
/// (powers of 1024).
pub(super) struct Bytes(pub(super) u64);

impl FromStr for Bytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit_bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit_bytes).map(Self).ok_or(());
        }
        let bytes = number.parse::<f64>().map_err(|_| ())? * unit_bytes as f64;
        // Less than a byte is not none: 0 has a meaning of its own.
        let is_size = bytes == 0.0 || (1.0..u64::MAX as f64).contains(&bytes);
        if is_size { Ok(Self(bytes as u64)) } else { Err(()) }
    }
}

/// A folder that this process can write to; `None`: off.
pub(super) fn parse_folder(key: &str, value: &str) -> Result<Option<PathBuf>> {
    if value.is_empty() || value.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let folder = PathBuf::from(value);
    let refused = |reason: String| {
        let text =
            format!("warpjoin.{key} takes a folder that exists and can be written to, or off, not '{value}'{reason}");
        DataFusionError::Configuration(text)
    };
    if !folder.is_dir() {
        return Err(refused(String::new()));
    }
    tempfile::tempfile_in(&folder).map_err(|error| refused(format!(": {error}")))?;
    Ok(Some(folder))
}

/// The value of a name in a list of names and values.
pub(super) fn named<T: Copy>(key: &str, value: &str, names: &[(&str, T)]) -> Result<T> {
    names.iter().find(|(name, _)| name.eq_ignore_ascii_case(value)).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        DataFusionError::Configuration(format!("warpjoin.{key} takes {}, not '{value}'", names.join(", ")))
    })
}

pub(super) fn name_of<T: Copy + PartialEq>(value: T, names: &[(&str, T)]) -> String {
    names.iter().find(|(_, named)| *named == value).map_or_else(String::new, |(name, _)| (*name).to_string())
}

/// Accepts DataFusion's names of booleans, and also 1 and 0.
pub(super) fn parse_bool(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "t" | "on" | "1" => Ok(true),
        "false" | "f" | "off" | "0" => Ok(false),
        _ => Err(DataFusionError::Configuration(format!("warpjoin.{key} takes true or false, not '{value}'"))),
    }
}

pub(super) fn parse<T: FromStr>(key: &str, value: &str, expected: &str) -> Result<T> {
    parse_in(key, value, expected, |_| true)
}

pub(super) fn parse_in<T: FromStr>(key: &str, value: &str, expected: &str, allowed: impl Fn(&T) -> bool) -> Result<T> {
    value
        .parse()
        .ok()
        .filter(allowed)
        .ok_or_else(|| DataFusionError::Configuration(format!("warpjoin.{key} takes {expected}, not '{value}'")))
}
