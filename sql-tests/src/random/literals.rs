//! Queries that differ from others in literals only.

/// The query with other numbers behind comparisons: each is `by` larger.
pub(super) fn with_other_numbers(sql: &str, by: i64) -> String {
    let mut other = String::with_capacity(sql.len());
    let mut rest = sql;
    let mut is_text = false;
    while let Some(first) = rest.chars().next() {
        let is_behind = other.trim_end().ends_with(['<', '>', '=']) || other.trim_end().ends_with(" BETWEEN");
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match rest[..digits].parse::<i64>() {
            Ok(number) if is_behind && !is_text => {
                other.push_str(&number.saturating_add(by).to_string());
                rest = &rest[digits..];
            }
            _ => {
                is_text ^= first == '\'';
                other.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_behind_comparisons_change() {
        let sql = "SELECT c1 + 3 FROM t1 WHERE c2 > 17 AND c3 = 'a > 5' OR c4 BETWEEN 1 AND 2 LIMIT 5";
        let other = "SELECT c1 + 3 FROM t1 WHERE c2 > 19 AND c3 = 'a > 5' OR c4 BETWEEN 3 AND 2 LIMIT 5";
        assert_eq!(with_other_numbers(sql, 2), other);
    }
}
