//! Answers that the TPC publishes for scale factor 1, as text with rounded decimals.
//!
//! Must not know which engine computed an answer.

use std::collections::BTreeMap;

use super::{Answer, Cell, show, show_row};

/// A published answer.
#[derive(Debug, Clone)]
pub struct PublishedAnswer {
    columns: usize,
    rows: Vec<Vec<Field>>,
    /// If the first column is truncated: the width in which its texts are aligned to the right, and the number of characters
    /// from the left that are published.
    key_cut: Option<(usize, usize)>,
}

/// For query 11, our source has the first four of six characters of each part key.
const Q11_KEY_CUT: (usize, usize) = (6, 4);
/// The answer of query 17 in the specification. Our source has different cents.
const Q17_ANSWER: &str = "avg_yearly\n348406.05";

/// One published value.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    /// A number with a decimal point. Its last digit is rounded or truncated.
    Decimal {
        value: f64,
        unit: f64,
    },
    Text(String),
}

impl PublishedAnswer {
    /// The answer to TPC-H query `number` with the validation parameters; `None` unless 1 to 22.
    pub fn of_tpch(number: u32) -> Option<Self> {
        let published = tpchgen::q_and_a::QueryAndAnswer::new(i32::try_from(number).ok()?, 1.0).ok()?;
        Some(match number {
            11 => Self { key_cut: Some(Q11_KEY_CUT), ..Self::parse(published.answer()) },
            17 => Self::parse(Q17_ANSWER),
            _ => Self::parse(published.answer()),
        })
    }

    /// Parses lines of values separated by `|` and padded with spaces. The first line has the names of the columns.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let columns = lines.next().map_or(0, |names| names.split('|').count());
        let rows = lines.map(|line| line.split('|').map(Field::parse).collect()).collect();
        Self { columns, rows, key_cut: None }
    }

    /// How `actual` differs from this answer, regardless of row order; `None` if it does not.
    pub fn difference(&self, actual: &Answer) -> Option<String> {
        if actual.schema.fields().len() != self.columns {
            return Some(format!("{} columns instead of {}", actual.schema.fields().len(), self.columns));
        }
        if actual.rows.len() != self.rows.len() {
            return Some(format!("{} rows instead of {}", actual.rows.len(), self.rows.len()));
        }
        // All rows of a column have the same kind of field.
        let is_text: Vec<bool> = match self.rows.first() {
            Some(row) => row.iter().map(|field| matches!(field, Field::Text(_))).collect(),
            None => return None,
        };
        let mut open: BTreeMap<Vec<String>, Vec<&Vec<Cell>>> = BTreeMap::new();
        for row in &actual.rows {
            let mut texts = texts(row.iter().map(show), &is_text);
            if let (Some((width, chars)), Some(key)) = (self.key_cut, texts.first_mut()) {
                *key = format!("{key:>width$}").chars().take(chars).collect::<String>().trim().to_string();
            }
            open.entry(texts).or_default().push(row);
        }
        for expected in &self.rows {
            let candidates = open.entry(texts(expected.iter().map(Field::to_string), &is_text)).or_default();
            match candidates.iter().position(|row| row.iter().zip(expected).all(|(cell, field)| field.allows(cell))) {
                Some(at) => drop(candidates.swap_remove(at)),
                None => {
                    let expected = expected.iter().map(Field::to_string).collect::<Vec<_>>().join(", ");
                    let similar = candidates
                        .first()
                        .map_or_else(String::new, |row| format!("; a similar row: {}", show_row(row)));
                    return Some(format!("no row ({expected}){similar}"));
                }
            }
        }
        None
    }
}

/// The texts of a row, without padding.
fn texts(row: impl Iterator<Item = String>, is_text: &[bool]) -> Vec<String> {
    row.zip(is_text).filter(|&(_, is_text)| *is_text).map(|(text, _)| text.trim().to_string()).collect()
}

impl Field {
    fn parse(text: &str) -> Self {
        let text = text.trim();
        let digits = text.split_once('.').map(|(_, digits)| digits.len());
        match text.parse::<f64>().ok().zip(digits) {
            Some((value, digits)) => Self::Decimal { value, unit: 0.1_f64.powi(i32::try_from(digits).unwrap_or(0)) },
            None => Self::Text(text.to_string()),
        }
    }

    /// Whether a decimal differs by less than one unit of the last published digit. Texts are compared by [`texts`].
    fn allows(&self, cell: &Cell) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Decimal { value, unit } => match cell {
                Cell::Null => false,
                Cell::Float(actual) => (actual - value).abs() < *unit,
                Cell::Exact(actual) => actual.parse::<f64>().is_ok_and(|actual| (actual - value).abs() < *unit),
            },
        }
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decimal { value, .. } => write!(f, "{value}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray};

    use super::*;

    fn answer(names: &[&str], sums: &[i128], means: &[f64]) -> Answer {
        let columns: [(&str, ArrayRef); 4] = [
            ("name", Arc::new(StringArray::from(names.to_vec()))),
            ("sum", Arc::new(Decimal128Array::from(sums.to_vec()).with_precision_and_scale(15, 4).unwrap())),
            ("mean", Arc::new(Float64Array::from(means.to_vec()))),
            ("count", Arc::new(Int64Array::from(vec![7; names.len()]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Answer::new(batch.schema(), &[batch]).unwrap()
    }

    const TEXT: &str = "\nname |sum  |mean|count\nA  B |12.35| 0.50|   7\nC    |-1.00|10.00|7\n";

    #[test]
    fn rounding_and_padding_do_not_matter() {
        let published = PublishedAnswer::parse(TEXT);
        assert_eq!(published.difference(&answer(&["C ", "A  B"], &[-10_000, 123_456], &[9.995, 0.504])), None);
    }

    #[test]
    fn differences_are_described() {
        let published = PublishedAnswer::parse(TEXT);
        let names = ["A  B", "C"];
        for (wrong, message) in [
            (answer(&names, &[123_700, -10_000], &[0.5, 10.0]), "no row (A  B, 12.35"),
            (answer(&names, &[123_456, -10_000], &[0.5, 10.02]), "no row (C, -1"),
            (answer(&["A  B", "D"], &[123_456, -10_000], &[0.5, 10.0]), "no row (C"),
            (answer(&["C"], &[-10_000], &[10.0]), "1 rows instead of 2"),
        ] {
            let difference = published.difference(&wrong).unwrap_or_default();
            assert!(difference.contains(message), "{difference}");
        }
    }

    #[test]
    fn truncated_keys_are_compared_by_their_prefix() {
        let published =
            PublishedAnswer { key_cut: Some((6, 4)), ..PublishedAnswer::parse("k|v\n1912|1\n 344|1\n  94|1") };
        let answer = |keys: [i64; 3]| {
            let columns: [(&str, ArrayRef); 2] =
                [("k", Arc::new(Int64Array::from(keys.to_vec()))), ("v", Arc::new(Int64Array::from(vec![1; 3])))];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            Answer::new(batch.schema(), &[batch]).unwrap()
        };
        assert_eq!(published.difference(&answer([191_287, 34_452, 9_403])), None);
        assert!(published.difference(&answer([191_287, 34_552, 9_403])).is_some());
        assert!(published.difference(&answer([191_287, 34_452, 94_031])).is_some());
    }

    #[test]
    fn every_query_has_a_published_answer() {
        let rows: Vec<usize> = (1..=22).map(|number| PublishedAnswer::of_tpch(number).unwrap().rows.len()).collect();
        assert_eq!(rows[..6], [4, 100, 10, 5, 5, 1]);
        assert!(rows.iter().all(|&rows| rows > 0) && PublishedAnswer::of_tpch(23).is_none());
    }
}
