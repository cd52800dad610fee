//! Tests of strings that devices evaluate themselves.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use warpjoin_kernels::string::{ANY_CHARACTER, ANY_STRING, RUNS_MAX};

use crate::expr::CompareOp;

/// A test of one string. Null for null.
#[derive(Debug, Clone, PartialEq)]
pub enum StringTest {
    /// SQL's LIKE; `\` escapes the character after it.
    Like {
        /// `%` stands for any characters, `_` for one.
        pattern: Arc<str>,
        /// Whether upper and lower case are equal (ILIKE).
        ignores_case: bool,
    },
    /// Byte by byte with a constant on the right.
    Compare(CompareOp, Arc<[u8]>),
    /// The opposite.
    Not(Box<StringTest>),
    /// All of them.
    And(Vec<StringTest>),
    /// Any of them.
    Or(Vec<StringTest>),
}

impl StringTest {
    /// The elementary tests that it combines.
    #[doc(hidden)]
    pub fn leaves(&self) -> Vec<&StringTest> {
        match self {
            Self::Like { .. } | Self::Compare(..) => vec![self],
            Self::Not(test) => test.leaves(),
            Self::And(tests) | Self::Or(tests) => tests.iter().flat_map(Self::leaves).collect(),
        }
    }

    /// Whether devices can evaluate the test. Tests that ignore case need ASCII strings; others run on the host.
    #[doc(hidden)]
    pub fn fits(&self, is_ascii: &dyn Fn() -> bool) -> bool {
        self.leaves().into_iter().all(|leaf| match leaf {
            Self::Like { pattern, ignores_case } => !ignores_case || (pattern.is_ascii() && is_ascii()),
            _ => true,
        })
    }
}

impl fmt::Display for StringTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, tests: &[StringTest], word: &str| {
            let tests: Vec<String> = tests.iter().map(Self::to_string).collect();
            write!(f, "({})", tests.join(word))
        };
        match self {
            Self::Like { pattern, ignores_case } => {
                write!(f, "{} '{pattern}'", if *ignores_case { "ILIKE" } else { "LIKE" })
            }
            Self::Compare(op, constant) => write!(f, "{op} '{}'", String::from_utf8_lossy(constant)),
            Self::Not(test) => write!(f, "NOT {test}"),
            Self::And(tests) => list(f, tests, " AND "),
            Self::Or(tests) => list(f, tests, " OR "),
        }
    }
}

/// One test as the kernels of `strings.cu` take it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TestProgram {
    /// Bytes, and the two elements below.
    pub elements: Vec<u16>,
    kind: Kind,
    /// Whether ASCII letters of both cases are the same.
    pub folds_case: bool,
    /// Bit 0: less, bit 1: equal, bit 2: greater.
    pub accepts: u64,
}

/// Bytes of a run that are looked for together.
const HEAD_BYTES: usize = 4;
/// Minimum bytes of a run that contains an aligned word of [`HEAD_BYTES`] bytes, wherever the run begins.
const LONG_BYTES: usize = 2 * HEAD_BYTES - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Like,
    Compare,
}

impl TestProgram {
    /// The kernel that makes the test: runs of bytes between `%` are searched; other patterns are automata, whose states are
    /// the bits of a word if that has enough.
    pub fn entry(&self) -> &'static str {
        if self.kind == Kind::Compare {
            return "test_compare";
        }
        if let Some(shortest) = self.shortest_searched() {
            return match shortest {
                LONG_BYTES.. => "test_search_long",
                HEAD_BYTES..LONG_BYTES => "test_search",
                ..HEAD_BYTES => "test_search_short",
            };
        }
        match self.elements.iter().filter(|&&element| element != ANY_STRING).count() {
            0..32 => "test_like",
            32..64 => "test_like_wide",
            _ => "test_like_long",
        }
    }

    /// Bytes of the shortest run between two `%`, if the pattern is one of few runs; without any, more than there are.
    fn shortest_searched(&self) -> Option<usize> {
        let runs: Vec<&[u16]> = self.elements.split(|&element| element == ANY_STRING).collect();
        // Runs at both ends, where there may be none, stand for themselves.
        let [_, between @ .., _] = runs.as_slice() else { return None };
        let fits = !self.folds_case && !self.elements.contains(&ANY_CHARACTER) && runs.len() <= RUNS_MAX;
        fits.then(|| between.iter().map(|run| run.len()).min().unwrap_or(usize::MAX))
    }

    /// Of a test without parts; `None` for others.
    pub fn of(test: &StringTest) -> Option<Self> {
        match test {
            StringTest::Like { pattern, ignores_case } => {
                let elements = like_elements(pattern, *ignores_case);
                Some(Self { elements, kind: Kind::Like, folds_case: *ignores_case, accepts: 0 })
            }
            StringTest::Compare(op, constant) => {
                let accepts = match op {
                    CompareOp::Equal | CompareOp::Identical => 0b010,
                    CompareOp::NotEqual => 0b101,
                    CompareOp::Less => 0b001,
                    CompareOp::LessOrEqual => 0b011,
                    CompareOp::Greater => 0b100,
                    CompareOp::GreaterOrEqual => 0b110,
                };
                let elements = constant.iter().map(|&byte| byte.into()).collect();
                Some(Self { elements, kind: Kind::Compare, folds_case: false, accepts })
            }
            StringTest::Not(_) | StringTest::And(_) | StringTest::Or(_) => None,
        }
    }

    /// The same on the host, where the strings have no room on the devices.
    pub fn passes(&self, text: &[u8]) -> bool {
        if self.kind == Kind::Like {
            return self.is_like(text);
        }
        let constant = self.elements.iter().map(|&element| element.to_le_bytes()[0]);
        let bit = match text.iter().copied().cmp(constant) {
            Ordering::Less => 0b001,
            Ordering::Equal => 0b010,
            Ordering::Greater => 0b100,
        };
        self.accepts & bit != 0
    }

    fn is_like(&self, text: &[u8]) -> bool {
        let next = |at: usize| {
            let continues = text[at + 1..].iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80);
            at + 1 + continues.count()
        };
        let folded = |byte: u8| u16::from(if self.folds_case { byte.to_ascii_lowercase() } else { byte });
        let (mut at, mut element, mut retry) = (0, 0, None);
        loop {
            match (self.elements.get(element), text.get(at)) {
                (Some(&ANY_STRING), _) => {
                    element += 1;
                    retry = Some((at, element));
                    continue;
                }
                (None, None) => return true,
                (Some(&ANY_CHARACTER), Some(_)) => {
                    (at, element) = (next(at), element + 1);
                    continue;
                }
                (Some(&wanted), Some(&byte)) if folded(byte) == wanted => {
                    (at, element) = (at + 1, element + 1);
                    continue;
                }
                _ => {}
            }
            // The part behind the last % one character further.
            match retry {
                Some((from, first)) if from < text.len() => {
                    (at, element) = (next(from), first);
                    retry = Some((at, first));
                }
                _ => return false,
            }
        }
    }
}

fn like_elements(pattern: &str, ignores_case: bool) -> Vec<u16> {
    let mut elements = vec![];
    let literal = |elements: &mut Vec<u16>, character: char| {
        let character = if ignores_case { character.to_ascii_lowercase() } else { character };
        elements.extend(character.encode_utf8(&mut [0; 4]).bytes().map(u16::from));
    };
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            // One after the other are one.
            '%' if elements.last() == Some(&ANY_STRING) => {}
            '%' => elements.push(ANY_STRING),
            '_' => elements.push(ANY_CHARACTER),
            // At the end it stands for itself.
            '\\' => literal(&mut elements, characters.next().unwrap_or('\\')),
            other => literal(&mut elements, other),
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(pattern: &str, ignores_case: bool) -> Vec<u16> {
        like_elements(pattern, ignores_case)
    }

    #[test]
    fn patterns_become_elements() {
        assert_eq!(elements("a%_", false), [97, ANY_STRING, ANY_CHARACTER]);
        assert_eq!(elements("%%a%%", false), [ANY_STRING, 97, ANY_STRING]);
        assert_eq!(elements(r"\%\_\a\\", false), [37, 95, 97, 92]);
        assert_eq!(elements("A\\", true), [97, 92]);
        assert_eq!(elements("é", false), [0xc3, 0xa9]);
        assert_eq!(elements("", false), [0u16; 0]);
    }

    #[test]
    fn runs_are_searched() {
        let entry = |pattern: &str, ignores_case| {
            TestProgram::of(&StringTest::Like { pattern: pattern.into(), ignores_case }).unwrap().entry()
        };
        for pattern in ["%", "a%", "%a", "a%b", "%abcdefg%", "a%abcdefg%b", "%abcdefg%abcd"] {
            assert_eq!(entry(pattern, false), "test_search_long", "{pattern}");
        }
        for pattern in ["%abcd%", "a%abcd%b", "%abcdef%abcdefghi%"] {
            assert_eq!(entry(pattern, false), "test_search", "{pattern}");
        }
        for pattern in ["%a%", "%abc%", "%abcd%e%", "x%é%"] {
            assert_eq!(entry(pattern, false), "test_search_short", "{pattern}");
        }
        for pattern in ["", "abcd", "a_", "%_%", "%abcd_%"] {
            assert_eq!(entry(pattern, false), "test_like", "{pattern}");
        }
        assert_eq!(entry("%abcd%", true), "test_like");
        assert_eq!(entry(&"%abcdefgh".repeat(RUNS_MAX - 1), false), "test_search_long");
        assert_eq!(entry(&"%abcdefgh".repeat(RUNS_MAX), false), "test_like_long");
    }

    #[test]
    fn cases_of_other_letters_are_the_hosts() {
        let like = |pattern: &str, ignores_case| StringTest::Like { pattern: pattern.into(), ignores_case };
        assert!(like("é%", false).fits(&|| false) && like("e%", true).fits(&|| true));
        assert!(!like("é%", true).fits(&|| true) && !like("e%", true).fits(&|| false));
        let both = StringTest::Or(vec![like("a", false), StringTest::Not(Box::new(like("b", true)))]);
        assert!(both.fits(&|| true) && !both.fits(&|| false));
        assert_eq!(both.leaves().len(), 2);
    }
}
