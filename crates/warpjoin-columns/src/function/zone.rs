//! Time zones of timestamps.

/// Seconds by which a time zone is ahead of UTC; `None` for zones whose offset changes.
pub fn zone_offset_seconds(zone: Option<&str>) -> Option<i128> {
    let Some(zone) = zone else { return Some(0) };
    if matches!(zone, "UTC" | "Etc/UTC" | "Z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    // A zone may hold any text: no slice but by characters, no number but of digits.
    let digits = |range: std::ops::Range<usize>| -> Option<i128> {
        zone.get(range).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
    };
    let (hours, minutes) = match zone.len() {
        3 => (digits(1..3)?, 0),
        5 => (digits(1..3)?, digits(3..5)?),
        6 if zone.as_bytes()[3] == b':' => (digits(1..3)?, digits(4..6)?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_may_be_a_zone() {
        let seconds = |zone: &str| zone_offset_seconds(Some(zone));
        assert_eq!(seconds("+05:30"), Some(19_800));
        assert_eq!(seconds("-0800"), Some(-28_800));
        assert_eq!(seconds("+02"), Some(7200));
        // Bytes that are no characters of their own, signs within, other digits.
        for zone in [
            "+1\u{e9}2",
            "+\u{e9}1",
            "+\u{e9}",
            "-1\u{e9}:0",
            "+0\u{e9}30",
            "++5",
            "+-5:00",
            "+05:+1",
            "+\u{661}\u{662}",
            "",
            "+",
        ] {
            assert_eq!(seconds(zone), None, "{zone:?}");
        }
    }
}
