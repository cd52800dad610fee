//! Flags of `warpjoin tpch`.

use std::path::PathBuf;

use clap::Args;

use super::queries::QUERY_COUNT;
use crate::error::{CliError, Result};
use crate::target::TargetArgs;

/// Largest scale factor that the generators are meant for.
const SCALE_MAX: f64 = 100_000.0;

/// Flags of `warpjoin tpch`.
#[derive(Debug, Clone, Args)]
pub struct TpchArgs {
    /// Scale factor: 1 is about 1 GB of text
    #[arg(long, default_value_t = 0.1, value_parser = parse_scale)]
    pub scale: f64,
    /// Queries, such as 1,3,5-7
    #[arg(long, default_value = "all", value_parser = parse_queries)]
    pub queries: QueryList,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: TargetArgs,
    /// Hot runs of each query, after its first
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Threads that generate data; all cores if not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Partitions of stock DataFusion's tables; one a core if not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parts: Option<u16>,
    /// Do not run stock DataFusion, and do not keep its copy of the data
    #[arg(long)]
    pub no_oracle: bool,
    /// Keep stock DataFusion's copy of the data in Parquet files under a folder, for scales at which it has no room in
    /// memory; they go with the command. Each query is then timed once there
    #[arg(long, value_name = "DIR", conflicts_with = "no_oracle")]
    pub oracle_files: Option<PathBuf>,
    /// Write everything measured to a JSON file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write each answer to a CSV file in a folder
    #[arg(long, value_name = "DIR")]
    pub save_answers: Option<PathBuf>,
    /// Print the plan of each query
    #[arg(long)]
    pub explain: bool,
    /// Print the plan of each query with its metrics
    #[arg(long)]
    pub analyze: bool,
    /// A setting of warpjoin, such as join_order=as_given; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
    /// Run each query also with so many random parameters: they must compile nothing
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub variants: u32,
    /// Afterwards, so many clients at once, such as 1,4,16,64: each sends one query after the other, drawn at random
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: Vec<u16>,
    /// Seconds that they do so
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..), requires = "clients")]
    pub client_seconds: u16,
}

/// Numbers of queries, in the order in which they are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryList(pub Vec<u32>);

impl TpchArgs {
    /// Refuses flags that contradict each other, before anything expensive is done.
    ///
    /// # Errors
    /// Says which.
    pub fn check(&self) -> Result<()> {
        for folder in self.save_answers.iter().chain(&self.oracle_files) {
            std::fs::create_dir_all(folder).map_err(CliError::file(folder))?;
        }
        if let Some(file) = &self.json
            && let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty())
            && !folder.is_dir()
        {
            return Err(CliError::Usage(format!("--json {}: there is no folder {}", file.display(), folder.display())));
        }
        Ok(())
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= SCALE_MAX => Ok(scale),
        _ => Err(format!("it takes a number above 0 and up to {SCALE_MAX}, such as 0.1 or 10")),
    }
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is no setting: they are KEY=VALUE"))?;
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
            _ => return Err(format!("'{item}' is no query: they are 1 to {QUERY_COUNT}, as in 1,3,5-7 or all")),
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
