//! Hashes that collide, keys of short strings, and views of many.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// All strings share few hashes, and long ones their length and first bytes, so that only the
/// comparison of whole strings tells them apart.
#[test]
fn forced_hash_collisions() {
    for hashes in [1u64, 3] {
        let mut interner = Interner::default();
        let strings: Vec<String> = (0..700).flat_map(|i| [format!("{i}"), format!("the same prefix {i:03}")]).collect();
        for _ in 0..2 {
            for (code, text) in strings.iter().enumerate() {
                let hash = (code as u64 % hashes).wrapping_sub(1) << 32;
                let mut probe = Probe { key: key_of(text.as_bytes()), hash, slot: 0, entry: 0 };
                probe.slot = interner.slots[interner.position(hash)];
                if probe.slot != 0 && tag(probe.slot) == tag(hash) {
                    probe.entry = interner.entries[probe.slot as u32 as usize - 1];
                }
                assert_eq!(interner.resolve(probe, || text.as_bytes()).ok(), Some(code as u32), "{text}");
                assert_eq!(interner.get(code as u32), text.as_bytes());
            }
        }
        assert_eq!(interner.len(), strings.len());
    }
}

#[test]
fn entries_hold_short_strings_whole() {
    for len in 0..40 {
        let text: Vec<u8> = (0..len).map(|i| b'a' + i as u8 % 26).collect();
        let expected = match len {
            0..=INLINE_BYTES => text.as_slice(),
            _ => &text[..4],
        };
        let raw = key_of(&text).to_le_bytes();
        assert_eq!((raw[0] as usize, &raw[4..4 + expected.len()]), (len, expected));
        assert!(raw[4 + expected.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn many_views_are_those_of_their_strings() {
    let strings: Vec<String> = (0..PIECE_STRINGS + 3000).map(|i| "é".repeat(i % 12) + &i.to_string()).collect();
    let ends = strings.iter().scan(0, |end, text| {
        *end += text.len() as i64;
        Some(*end)
    });
    let ends: Vec<i64> = std::iter::once(0).chain(ends).collect();
    let bytes = strings.concat().into_bytes();
    let stored = array_of(bytes.clone(), ends.clone(), &DataType::Utf8View).unwrap();
    assert_eq!(stored.as_binary::<i64>().value(17), strings[17].as_bytes());
    let views = views_of(&stored, &DataType::Utf8View);
    let expected: StringViewArray = strings.iter().map(|text| Some(text.as_str())).collect();
    assert_eq!(views.as_string_view(), &expected);
    let binary =
        views_of(&array_of(bytes.clone(), ends.clone(), &DataType::BinaryView).unwrap(), &DataType::BinaryView);
    assert_eq!(binary.as_binary_view().value(PIECE_STRINGS + 5), strings[PIECE_STRINGS + 5].as_bytes());
    // A string may not end within a character, wherever it is.
    for broken in [12, PIECE_STRINGS, PIECE_STRINGS + 2900] {
        let broken = (broken..).find(|&i| i % 12 == 5).unwrap();
        let mut ends = ends.clone();
        ends[broken] += 1;
        assert!(array_of(bytes.clone(), ends, &DataType::Utf8View).is_err());
    }
}
