//! Expectations of DataFusion's files: why a file is skipped, or the least share of its queries that devices must run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::run::{FileResult, Slice};
use crate::runner::SltError;

/// The expectation of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRule {
    /// The file is skipped, for this reason.
    Skip(String),
    /// Least percentages of its queries with operators.
    Floor {
        /// Queries with all operators on devices.
        whole: usize,
        /// Queries with at least one operator on devices.
        some: usize,
    },
}

/// Most queries and statements, in all files together, of which nothing is learned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caps {
    /// Queries with several correct answers, of all queries.
    pub ambiguous: usize,
    /// Queries that fail on both engines, of all queries.
    pub both_fail: usize,
    /// Queries that fail to plan on both engines.
    pub refused: usize,
    /// Statements that fail on both engines.
    pub failed_statements: usize,
    /// Skipped statements and queries, by reason.
    pub skipped: BTreeMap<String, usize>,
}

impl Caps {
    /// Says which counts of all files are above the caps. Of queries, `result` has those of a slice.
    pub fn exceeded(&self, result: &FileResult, slice: Slice) -> Vec<String> {
        let Self { ambiguous, both_fail, refused, failed_statements, skipped } = self;
        let counts = [
            ("ambiguous", result.ambiguous, slice.most(*ambiguous)),
            ("both_fail", result.both_fail, slice.most(*both_fail)),
            ("refused", result.refused, *refused),
            ("failed_statements", result.failed_statements, *failed_statements),
        ];
        let most = |why: &str| skipped.get(why).copied().unwrap_or(0);
        let skipped = result.skipped.iter().map(|(&why, &count)| (why, count, most(why)));
        let above = counts.into_iter().chain(skipped).filter(|(_, count, most)| count > most);
        above.map(|(what, count, most)| format!("{what}: {count}, expected at most {most}")).collect()
    }

    /// The caps that fit the counts of all files.
    pub fn of(result: &FileResult) -> Self {
        Self {
            ambiguous: result.ambiguous,
            both_fail: result.both_fail,
            refused: result.refused,
            failed_statements: result.failed_statements,
            skipped: result.skipped.iter().map(|(why, count)| (why.to_string(), *count)).collect(),
        }
    }
}

/// The contents of `datafusion_files.txt`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations {
    /// Most queries and statements that are not compared.
    pub caps: Caps,
    /// Rules by file name. A name that ends with `/` covers all files of a folder.
    pub rules: BTreeMap<String, FileRule>,
}

const HEAD: &str = "\
# DataFusion's files: the reason if a file is skipped, else the least percentages of the queries with operators that are
# planned wholly (first number) or partly (second number) on devices. A name that ends with / is a folder.
# Before them, the most queries and statements, in all files, that are not compared: ambiguous ones (several correct answers),
# those that fail on both engines, those that both refuse to plan, failed statements, and skipped ones by reason.
# WARPJOIN_FILES_COMPLETE=1 updates the percentages, and the caps if all files run; reasons are written by hand.
";

impl Expectations {
    /// Parses the file.
    ///
    /// # Errors
    /// Returns an error if a line has another form.
    pub fn parse(text: &str) -> Result<Self, SltError> {
        let mut expectations = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let bad = || SltError::File(format!("datafusion_files.txt: {line}"));
            let (name, rest) = line.split_once(' ').ok_or_else(bad)?;
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| bad());
            let caps = &mut expectations.caps;
            let cap = match name {
                "ambiguous_max" => Some(&mut caps.ambiguous),
                "both_fail_max" => Some(&mut caps.both_fail),
                "refused_max" => Some(&mut caps.refused),
                "failed_statements_max" => Some(&mut caps.failed_statements),
                _ => None,
            };
            if let Some(cap) = cap {
                *cap = number(rest)?;
                continue;
            }
            if name == "skipped_max" {
                let (most, why) = rest.split_once(' ').ok_or_else(bad)?;
                caps.skipped.insert(why.to_string(), number(most)?);
                continue;
            }
            let rule = match rest.strip_prefix("skip: ") {
                Some(reason) => FileRule::Skip(reason.to_string()),
                None => {
                    let (whole, some) = rest.split_once(' ').ok_or_else(bad)?;
                    FileRule::Floor { whole: number(whole)?, some: number(some)? }
                }
            };
            expectations.rules.insert(name.to_string(), rule);
        }
        Ok(expectations)
    }

    /// The rule of a file, or else of its innermost folder with a rule.
    pub fn rule(&self, file: &str) -> Option<&FileRule> {
        let folders = file.match_indices('/').rev().map(|(end, _)| &file[..=end]);
        std::iter::once(file).chain(folders).find_map(|name| self.rules.get(name))
    }

    /// The text that [`Self::parse`] reads.
    pub fn to_text(&self) -> String {
        let Caps { ambiguous, both_fail, refused, failed_statements, skipped } = &self.caps;
        let mut text = format!(
            "{HEAD}ambiguous_max {ambiguous}\nboth_fail_max {both_fail}\nrefused_max {refused}\n\
             failed_statements_max {failed_statements}\n"
        );
        for (why, most) in skipped {
            let _ = writeln!(text, "skipped_max {most} {why}");
        }
        for (name, rule) in &self.rules {
            // Writing to a string can't fail.
            let _ = match rule {
                FileRule::Skip(reason) => writeln!(text, "{name} skip: {reason}"),
                FileRule::Floor { whole, some } => writeln!(text, "{name} {whole} {some}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_and_written() {
        let caps = "ambiguous_max 7\nboth_fail_max 5\nrefused_max 3\nfailed_statements_max 1\nskipped_max 9 EXPLAIN\n";
        let text = format!("{HEAD}{caps}a.slt 50 75\nspark/ skip: no such functions\n");
        let expectations = Expectations::parse(&text).unwrap();
        assert_eq!(expectations.to_text(), text);
        assert_eq!(expectations.rule("a.slt"), Some(&FileRule::Floor { whole: 50, some: 75 }));
        assert!(matches!(expectations.rule("spark/math/abs.slt"), Some(FileRule::Skip(_))));
        assert_eq!(expectations.rule("b.slt"), None);
        assert!(Expectations::parse("a.slt 50").is_err());
        assert!(Expectations::parse("skipped_max EXPLAIN").is_err());
    }

    /// One more of each count is told.
    #[test]
    fn counts_above_the_caps_are_told() {
        let all = Slice { first: 0, every: 1 };
        let mut result =
            FileResult { ambiguous: 30, both_fail: 20, refused: 10, failed_statements: 5, ..FileResult::default() };
        result.skipped.insert("EXPLAIN", 4);
        let caps = Caps::of(&result);
        assert_eq!(caps.exceeded(&result, all), Vec::<String>::new());
        let changes: [fn(&mut FileResult); 6] = [
            |result| result.ambiguous += 1,
            |result| result.both_fail += 1,
            |result| result.refused += 1,
            |result| result.failed_statements += 1,
            |result| *result.skipped.entry("EXPLAIN").or_default() += 1,
            |result| *result.skipped.entry("a new reason").or_default() += 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut more = FileResult::default();
            more.add(&result);
            change(&mut more);
            assert_eq!(caps.exceeded(&more, all).len(), 1, "change {number}");
        }
        // A slice has a share of the queries, but all statements.
        let slice = Slice { first: 0, every: 24 };
        assert_eq!((slice.most(240), slice.most(0), all.most(240)), (21, 1, 240));
        assert_eq!(caps.exceeded(&result, slice).len(), 2);
    }
}
