//! Expectations of DataFusion's files: why a file is skipped, or the least share of its queries that devices must run.

use std::collections::BTreeMap;
use std::fmt::Write;

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

/// The contents of `datafusion_files.txt`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations {
    /// Most queries, in all files together, with several correct answers.
    pub ambiguous_max: usize,
    /// Rules by file name. A name that ends with `/` covers all files of a folder.
    pub rules: BTreeMap<String, FileRule>,
}

const HEAD: &str = "\
# DataFusion's files: the reason if a file is skipped, else the least percentages of the queries with operators that are
# planned wholly (first number) or partly (second number) on devices. A name that ends with / is a folder.
# WARPJOIN_FILES_COMPLETE=1 updates the percentages; reasons are written by hand.
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
            if name == "ambiguous_max" {
                expectations.ambiguous_max = number(rest)?;
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
        let mut text = format!("{HEAD}ambiguous_max {}\n", self.ambiguous_max);
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
        let text = format!("{HEAD}ambiguous_max 7\na.slt 50 75\nspark/ skip: no such functions\n");
        let expectations = Expectations::parse(&text).unwrap();
        assert_eq!(expectations.to_text(), text);
        assert_eq!(expectations.rule("a.slt"), Some(&FileRule::Floor { whole: 50, some: 75 }));
        assert!(matches!(expectations.rule("spark/math/abs.slt"), Some(FileRule::Skip(_))));
        assert_eq!(expectations.rule("b.slt"), None);
        assert!(Expectations::parse("a.slt 50").is_err());
    }
}
