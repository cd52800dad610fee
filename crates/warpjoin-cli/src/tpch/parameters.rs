//! Substitution parameters of the TPC-H queries: the validation values of the specification, and
//! random values by its rules.
//!
//! Must not know the texts of the queries.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
/// Nations, with the index of their region in `REGIONS`.
const NATIONS: [(&str, usize); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];
const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];
const CONTAINERS: [&[&str]; 2] =
    [&["SM", "LG", "MED", "JUMBO", "WRAP"], &["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"]];
/// Some of the words in names of parts.
const COLORS: [&str; 16] = [
    "almond",
    "azure",
    "black",
    "blush",
    "chocolate",
    "coral",
    "drab",
    "forest",
    "green",
    "indian",
    "lemon",
    "navy",
    "olive",
    "plum",
    "salmon",
    "white",
];
const WORDS: [&[&str]; 2] =
    [&["special", "pending", "unusual", "express"], &["packages", "requests", "accounts", "deposits"]];

/// Values for the placeholders of the queries.
#[derive(Debug, Clone)]
pub struct Parameters {
    scale: f64,
    seed: Option<u64>,
}

impl Parameters {
    /// The validation values of the specification. The fraction of query 11 depends on the scale factor.
    pub fn validation(scale: f64) -> Self {
        Self { scale, seed: None }
    }

    /// Random values by the rules of the specification; the same for the same seed.
    pub fn random(scale: f64, seed: u64) -> Self {
        Self { scale, seed: Some(seed) }
    }

    /// Values for query `number`, in the order of its placeholders.
    pub fn values(&self, number: u32) -> Vec<String> {
        match self.seed {
            None => self.validation_values(number),
            Some(seed) => {
                // Each query has its own sequence, so that its values do not depend on other queries.
                let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(64).wrapping_add(u64::from(number)));
                self.random_values(number, &mut rng)
            }
        }
    }

    fn validation_values(&self, number: u32) -> Vec<String> {
        let values: &[&str] = match number {
            1 => &["90"],
            2 => &["15", "BRASS", "EUROPE"],
            3 => &["BUILDING", "1995-03-15"],
            4 => &["1993-07-01"],
            5 => &["ASIA", "1994-01-01"],
            6 => &["1994-01-01", "0.06", "24"],
            7 => &["FRANCE", "GERMANY"],
            8 => &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
            9 => &["green"],
            10 => &["1993-10-01"],
            11 => return vec!["GERMANY".to_string(), self.fraction()],
            12 => &["MAIL", "SHIP", "1994-01-01"],
            13 => &["special", "requests"],
            14 => &["1995-09-01"],
            15 => &["1996-01-01"],
            16 => &["Brand#45", "MEDIUM POLISHED", "49, 14, 23, 45, 19, 3, 36, 9"],
            17 => &["Brand#23", "MED BOX"],
            18 => &["300"],
            19 => &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
            20 => &["forest", "1994-01-01", "CANADA"],
            21 => &["SAUDI ARABIA"],
            22 => &["'13', '31', '23', '29', '30', '18', '17'"],
            _ => &[],
        };
        values.iter().map(ToString::to_string).collect()
    }

    fn random_values(&self, number: u32, rng: &mut StdRng) -> Vec<String> {
        match number {
            1 => vec![rng.random_range(60..=120).to_string()],
            2 => vec![rng.random_range(1..=50).to_string(), one(rng, TYPES[2]), one(rng, &REGIONS)],
            3 => vec![one(rng, &SEGMENTS), format!("1995-03-{:02}", rng.random_range(1..=31))],
            4 | 15 => vec![month(rng, 1993 * 12, 1997 * 12 + 9)],
            5 => vec![one(rng, &REGIONS), year(rng)],
            6 => {
                let discount = format!("0.0{}", rng.random_range(2..=9));
                vec![year(rng), discount, rng.random_range(24..=25).to_string()]
            }
            7 => nations(rng, 2).into_iter().map(|(name, _)| name.to_string()).collect(),
            8 => {
                let (nation, region) = nations(rng, 1)[0];
                vec![nation.to_string(), REGIONS[region].to_string(), syllables(rng, &TYPES)]
            }
            9 => vec![one(rng, &COLORS)],
            10 => vec![month(rng, 1993 * 12 + 1, 1995 * 12)],
            11 => vec![nations(rng, 1)[0].0.to_string(), self.fraction()],
            12 => {
                let modes = distinct(rng, &MODES, 2);
                vec![modes[0].to_string(), modes[1].to_string(), year(rng)]
            }
            13 => vec![one(rng, WORDS[0]), one(rng, WORDS[1])],
            14 => vec![month(rng, 1993 * 12, 1997 * 12 + 11)],
            16 => {
                let sizes = distinct(rng, &(1..=50).collect::<Vec<u32>>(), 8);
                let sizes = sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                vec![brand(rng), syllables(rng, &TYPES[..2]), sizes]
            }
            17 => vec![brand(rng), syllables(rng, &CONTAINERS)],
            18 => vec![rng.random_range(312..=315).to_string()],
            19 => {
                // Distinct, although the specification does not require it: DataFusion merges equal
                // conditions into a different plan, which needs different kernels.
                let brands: Vec<u32> = (1..=5).flat_map(|m| (1..=5).map(move |n| m * 10 + n)).collect();
                let mut values: Vec<String> =
                    distinct(rng, &brands, 3).iter().map(|brand| format!("Brand#{brand}")).collect();
                values.extend([1..=9, 10..=19, 20..=30].map(|range| rng.random_range::<u32, _>(range).to_string()));
                values
            }
            20 => vec![one(rng, &COLORS), year(rng), nations(rng, 1)[0].0.to_string()],
            21 => vec![nations(rng, 1)[0].0.to_string()],
            22 => {
                let codes = distinct(rng, &(10..35).collect::<Vec<u32>>(), 7);
                vec![codes.iter().map(|code| format!("'{code}'")).collect::<Vec<_>>().join(", ")]
            }
            _ => vec![],
        }
    }

    /// The fraction of query 11, without an exponent.
    fn fraction(&self) -> String {
        format!("{:.12}", 0.0001 / self.scale).trim_end_matches('0').to_string()
    }
}

fn one(rng: &mut StdRng, from: &[&str]) -> String {
    from.choose(rng).map(ToString::to_string).unwrap_or_default()
}

fn distinct<T: Copy>(rng: &mut StdRng, from: &[T], count: usize) -> Vec<T> {
    let mut all = from.to_vec();
    all.shuffle(rng);
    all.truncate(count);
    all
}

fn nations(rng: &mut StdRng, count: usize) -> Vec<(&'static str, usize)> {
    distinct(rng, &NATIONS, count)
}

fn syllables(rng: &mut StdRng, lists: &[&[&str]]) -> String {
    lists.iter().map(|list| one(rng, list)).collect::<Vec<_>>().join(" ")
}

fn brand(rng: &mut StdRng) -> String {
    format!("Brand#{}{}", rng.random_range(1..=5), rng.random_range(1..=5))
}

/// The first day of a year.
fn year(rng: &mut StdRng) -> String {
    format!("{}-01-01", rng.random_range(1993..=1997))
}

/// The first day of a month. Months are counted from year 0.
fn month(rng: &mut StdRng, first: u32, last: u32) -> String {
    let month = rng.random_range(first..=last);
    format!("{}-{:02}-01", month / 12, month % 12 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fraction_depends_on_the_scale() {
        let fraction = |scale| Parameters::validation(scale).values(11)[1].clone();
        assert_eq!(fraction(1.0), "0.0001");
        assert_eq!(fraction(100.0), "0.000001");
        assert_eq!(fraction(0.1), "0.001");
        assert_eq!(fraction(0.01), "0.01");
    }

    #[test]
    fn random_values_are_replayed_by_their_seed() {
        for number in 1..=22 {
            assert_eq!(Parameters::random(1.0, 7).values(number), Parameters::random(1.0, 7).values(number));
            let validation = Parameters::validation(1.0).values(number);
            assert_eq!(Parameters::random(1.0, 7).values(number).len(), validation.len(), "query {number}");
        }
    }

    #[test]
    fn quantities_of_query_19_are_in_their_ranges() {
        for seed in 0..200 {
            let values = Parameters::random(1.0, seed).values(19);
            let quantities: Vec<u32> = values[3..].iter().map(|value| value.parse().unwrap()).collect();
            assert!((1..=9).contains(&quantities[0]));
            assert!((10..=19).contains(&quantities[1]));
            assert!((20..=30).contains(&quantities[2]));
        }
    }
}
