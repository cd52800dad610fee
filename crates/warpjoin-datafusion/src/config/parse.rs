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
        if bytes < u64::MAX as f64 { Ok(Self(bytes as u64)) } else { Err(()) }
    }
}

/// An existing folder; `None`: off.
pub(super) fn parse_folder(key: &str, value: &str) -> Result<Option<PathBuf>> {
    let folder = (!value.is_empty() && !value.eq_ignore_ascii_case("off")).then(|| PathBuf::from(value));
    match &folder {
        Some(missing) if !missing.is_dir() => Err(DataFusionError::Configuration(format!(
            "warpjoin.{key} takes a folder that exists, or off, not '{value}'"
        ))),
        _ => Ok(folder),
    }
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
