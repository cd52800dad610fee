//! The texts of the 22 TPC-H queries, from the specification, in DataFusion's dialect.
//!
//! `:1`, `:2`, ... are the substitution parameters. LIMITs are those of the specification.

use super::parameters::Parameters;

/// Number of queries.
pub const QUERY_COUNT: u32 = TEMPLATES.len() as u32;

const TEMPLATES: [&str; 22] = [
    include_str!("queries/q01.sql"),
    include_str!("queries/q02.sql"),
    include_str!("queries/q03.sql"),
    include_str!("queries/q04.sql"),
    include_str!("queries/q05.sql"),
    include_str!("queries/q06.sql"),
    include_str!("queries/q07.sql"),
    include_str!("queries/q08.sql"),
    include_str!("queries/q09.sql"),
    include_str!("queries/q10.sql"),
    include_str!("queries/q11.sql"),
    include_str!("queries/q12.sql"),
    include_str!("queries/q13.sql"),
    include_str!("queries/q14.sql"),
    include_str!("queries/q15.sql"),
    include_str!("queries/q16.sql"),
    include_str!("queries/q17.sql"),
    include_str!("queries/q18.sql"),
    include_str!("queries/q19.sql"),
    include_str!("queries/q20.sql"),
    include_str!("queries/q21.sql"),
    include_str!("queries/q22.sql"),
];

/// The text of query `number` with `parameters`; `None` unless 1 to [`QUERY_COUNT`].
pub fn query_text(number: u32, parameters: &Parameters) -> Option<String> {
    let template = TEMPLATES.get(usize::try_from(number.checked_sub(1)?).ok()?)?;
    let mut text = template.trim_end().to_string();
    for (at, value) in parameters.values(number).iter().enumerate() {
        text = text.replace(&format!(":{}", at + 1), value);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_substituted() {
        let all = |parameters: Parameters| {
            for number in 1..=QUERY_COUNT {
                let text = query_text(number, &parameters).unwrap();
                assert!(!text.contains(':'), "query {number}: {text}");
                let given = parameters.values(number).len();
                let template = TEMPLATES[number as usize - 1];
                assert!(
                    (1..=given).all(|at| template.contains(&format!(":{at}"))),
                    "query {number} ignores a parameter"
                );
            }
        };
        all(Parameters::validation(1.0));
        (0..50).for_each(|seed| all(Parameters::random(1.0, seed)));
        assert_eq!(query_text(0, &Parameters::validation(1.0)), None);
        assert_eq!(query_text(23, &Parameters::validation(1.0)), None);
    }
}
