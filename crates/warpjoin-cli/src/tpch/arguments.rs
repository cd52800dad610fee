//! Flags of `warpjoin tpch`.
//!
//! Must not know how they are applied.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::queries::QUERY_COUNT;
use crate::error::{CliError, Result};
use crate::target::TargetArgs;

/// Largest scale factor of the specification.
const SCALE_MAX: f64 = 100_000.0;

/// Flags of `warpjoin tpch`.
#[derive(Debug, Clone, Args)]
pub struct TpchArgs {
    /// Scale factor: 1 is about 1 GB of text
    #[arg(long, default_value_t = 0.1, value_parser = parse_scale)]
    pub scale: f64,
    /// Queries, such as 1,3,5-7, or all
    #[arg(long, default_value = "all", value_parser = parse_queries)]
    pub queries: QueryList,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: TargetArgs,
    /// Number of hot runs of each query, after the first run
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Number of threads that generate data; default: one per core
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Number of partitions of stock DataFusion's tables; default: one per core
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parts: Option<u16>,
    /// Do not run stock DataFusion, and keep no copy of the data for it
    #[arg(long)]
    pub no_oracle: bool,
    /// Keep stock DataFusion's copy of the data in temporary Parquet files in a folder, if it does not fit in memory.
    /// Stock DataFusion then runs each query once
    #[arg(long, value_name = "DIR", conflicts_with = "no_oracle")]
    pub oracle_files: Option<PathBuf>,
    /// Run the queries over Parquet files in a folder instead of loaded tables. Tables that are not there are written
    #[arg(long, value_name = "DIR", conflicts_with = "oracle_files")]
    pub parquet: Option<PathBuf>,
    /// Also run each query without any column on the devices, as often as hot runs
    #[arg(long, requires = "parquet")]
    pub cold: bool,
    /// How queries are given
    #[arg(long, value_enum, default_value_t = Entry::Query)]
    pub entry: Entry,
    /// Write the measurements to a JSON file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the answer to each query to a CSV file in a folder
    #[arg(long, value_name = "DIR")]
    pub save_answers: Option<PathBuf>,
    /// Print the plan of each query
    #[arg(long)]
    pub explain: bool,
    /// Print the plan of each query with its metrics
    #[arg(long)]
    pub analyze: bool,
    /// Run each query once more, and write what host threads did in this run and the first one to a file for trace viewers
    /// (Chrome's JSON format)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// A setting of warpjoin, such as join_order=as_given; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
    /// Also run each query with N sets of random parameters, and fail if they compile any kernel
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub variants: u32,
    /// Afterwards, measure throughput with N concurrent clients that run random queries, for each N, such as 1,4,16,64
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: Vec<u16>,
    /// Duration of each measurement with clients, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..), requires = "clients")]
    pub client_seconds: u16,
}

/// How queries are given to warpjoin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Entry {
    /// As texts to warpjoin: a text that was seen before is not planned again
    Query,
    /// As texts to DataFusion, which parses and optimizes each
    Sql,
}

/// Query numbers, in the order in which they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryList(pub Vec<u32>);

impl TpchArgs {
    /// Creates and checks output folders, before anything expensive is done.
    ///
    /// # Errors
    /// When a folder does not exist or cannot be created.
    pub fn check(&self) -> Result<()> {
        for folder in self.save_answers.iter().chain(&self.oracle_files) {
            std::fs::create_dir_all(folder).map_err(CliError::file(folder))?;
        }
        for (flag, file) in [("--json", &self.json), ("--trace", &self.trace)] {
            if let Some(file) = file
                && let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty())
                && !folder.is_dir()
            {
                let (file, folder) = (file.display(), folder.display());
                return Err(CliError::Usage(format!("{flag} {file}: there is no folder {folder}")));
            }
        }
        Ok(())
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= SCALE_MAX => Ok(scale),
        _ => Err(format!("expected a number above 0 and at most {SCALE_MAX}, such as 0.1 or 10")),
    }
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is not a setting: expected KEY=VALUE"))?;
    let key = key.trim();
    Ok((key.strip_prefix("warpjoin.").unwrap_or(key).to_string(), value.trim().to_string()))
}

fn parse_queries(text: &str) -> Result<QueryList, String> {
    if text == "all" {
        return Ok(QueryList((1..=QUERY_COUNT).collect()));
    }
    let mut queries = vec![];
    for item in text.split(',').map(str::trim) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| text.trim().parse().ok().filter(|number| (1..=QUERY_COUNT).contains(number));
        match number(first).zip(number(last)) {
            Some((first, last)) if first <= last => queries.extend(first..=last),
            _ => return Err(format!("'{item}' is not a query: expected 1 to {QUERY_COUNT}, as in 1,3,5-7, or all")),
        }
    }
    let mut seen = std::collections::HashSet::new();
    queries.retain(|&number| seen.insert(number));
    Ok(QueryList(queries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_lists_and_ranges() {
        assert_eq!(parse_queries("1,3, 5-7,3").unwrap().0, [1, 3, 5, 6, 7]);
        assert_eq!(parse_queries("all").unwrap().0.len(), 22);
        for bad in ["", "0", "23", "x", "1,", "7-5", "1-30", "-1"] {
            assert!(parse_queries(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_pairs() {
        assert_eq!(parse_setting("join_order = as_given"), Ok(("join_order".into(), "as_given".into())));
        assert!(parse_setting("join_order").is_err());
    }

    #[test]
    fn scales_are_positive() {
        assert_eq!(parse_scale("0.01"), Ok(0.01));
        for bad in ["0", "-1", "nan", "inf", "x", "1e9"] {
            assert!(parse_scale(bad).is_err(), "{bad}");
        }
    }
}
