//! Headers of pages: structs in Thrift's compact protocol.
//!
//! The crate `parquet` reads them only together with their pages, which it decompresses. Must not know what pages hold.

use super::error::{DecodeError, declined};

/// Maximum nesting of skipped structs and lists.
const DEPTH_MAX: u32 = 16;

/// Kind of a page, with the fields of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    Dictionary {
        entries: u32,
        encoding: i32,
    },
    /// Levels precede the values, and are compressed with them.
    V1 {
        values: u32,
        encoding: i32,
        level_encoding: i32,
    },
    /// Levels precede the values, and are not compressed.
    V2 {
        values: u32,
        encoding: i32,
        definition_bytes: u32,
        repetition_bytes: u32,
        is_compressed: bool,
    },
    /// An index, or something unknown.
    Other,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) kind: PageKind,
    /// Bytes of the page after its header.
    pub(super) compressed_bytes: u32,
    pub(super) page_bytes: u32,
}

impl PageHeader {
    /// The header at the beginning of `bytes`, and its length.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        let (mut page_type, mut page_bytes, mut compressed_bytes) = (None, None, None);
        let (mut v1, mut dictionary, mut v2) = (Fields::default(), Fields::default(), Fields::default());
        reader.fields(0, &mut |reader, id, kind| {
            match (id, kind) {
                (1, I32) => page_type = Some(reader.int()?),
                (2, I32) => page_bytes = Some(reader.size()?),
                (3, I32) => compressed_bytes = Some(reader.size()?),
                (5, STRUCT) => v1.read(reader)?,
                (7, STRUCT) => dictionary.read(reader)?,
                (8, STRUCT) => v2.read(reader)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let kind = match page_type {
            Some(0) => PageKind::V1 { values: v1.size(1)?, encoding: v1.int(2)?, level_encoding: v1.int(3)? },
            Some(2) => PageKind::Dictionary { entries: dictionary.size(1)?, encoding: dictionary.int(2)? },
            Some(3) => PageKind::V2 {
                values: v2.size(1)?,
                encoding: v2.int(4)?,
                definition_bytes: v2.size(5)?,
                repetition_bytes: v2.size(6)?,
                is_compressed: v2.flags[7].unwrap_or(true),
            },
            Some(_) => PageKind::Other,
            None => return declined("a page header without a type"),
        };
        let (Some(page_bytes), Some(compressed_bytes)) = (page_bytes, compressed_bytes) else {
            return declined("a page header without sizes");
        };
        Ok((Self { kind, compressed_bytes, page_bytes }, reader.at))
    }
}

/// Numbers and flags of a struct, by field.
#[derive(Default)]
struct Fields {
    ints: [Option<i32>; 9],
    flags: [Option<bool>; 9],
}

impl Fields {
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        reader.fields(1, &mut |reader, id, kind| {
            let Some(at) = usize::try_from(id).ok().filter(|at| *at < self.ints.len()) else { return Ok(false) };
            match kind {
                I32 => self.ints[at] = Some(reader.int()?),
                TRUE | FALSE => self.flags[at] = Some(kind == TRUE),
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    fn int(&self, id: usize) -> Result<i32, DecodeError> {
        self.ints[id].map_or_else(|| declined(format!("a page header without field {id}")), Ok)
    }

    fn size(&self, id: usize) -> Result<u32, DecodeError> {
        let size = self.int(id)?;
        u32::try_from(size).or_else(|_| declined(format!("{size} as a size in a page header")))
    }
}

/// Types of Thrift's compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;
const STRUCT: u8 = 12;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let Some(&byte) = self.bytes.get(self.at) else { return declined("a page header that ends too early") };
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        declined("an unterminated number in a page header")
    }

    fn int(&mut self) -> Result<i32, DecodeError> {
        let raw = self.varint()?;
        let value = (raw >> 1) as i64 ^ -((raw & 1) as i64);
        i32::try_from(value).or_else(|_| declined("a number beyond 32 bits in a page header"))
    }

    fn size(&mut self) -> Result<u32, DecodeError> {
        let size = self.int()?;
        u32::try_from(size).or_else(|_| declined(format!("{size} as a size in a page header")))
    }

    /// Calls `take` with each field's id and type, until the struct ends; skips those that it does not take.
    fn fields(
        &mut self,
        depth: u32,
        take: &mut dyn FnMut(&mut Self, i64, u8) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut id = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            id = if head >> 4 == 0 { i64::from(self.int()?) } else { id + i64::from(head >> 4) };
            if !take(self, id, head & 15)? {
                self.skip(head & 15, depth + 1)?;
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), DecodeError> {
        if depth > DEPTH_MAX {
            return declined("a page header with too many nested fields");
        }
        match kind {
            TRUE | FALSE => Ok(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.advance(8),
            8 => {
                let length = self.varint()?;
                self.advance(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let length = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.skip_items(length, &[head & 15], depth)
            }
            11 => match self.varint()? {
                0 => Ok(()),
                length => {
                    let kinds = self.byte()?;
                    self.skip_items(length, &[kinds >> 4, kinds & 15], depth)
                }
            },
            STRUCT => self.fields(depth, &mut |_, _, _| Ok(false)),
            _ => declined(format!("type {kind} in a page header")),
        }
    }

    /// Skips items of lists and maps, in which even booleans take a byte. Each takes one at least.
    fn skip_items(&mut self, length: u64, kinds: &[u8], depth: u32) -> Result<(), DecodeError> {
        for _ in 0..length {
            for &kind in kinds {
                match kind {
                    TRUE | FALSE => self.byte().map(|_| ())?,
                    _ => self.skip(kind, depth + 1)?,
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: u64) -> Result<(), DecodeError> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(bytes).ok().filter(|bytes| *bytes <= left) {
            Some(bytes) => {
                self.at += bytes;
                Ok(())
            }
            None => declined("a page header that ends too early"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A data page of 3 values: type, sizes 100 and 40, a checksum, and its own header with statistics that are skipped.
    const V1: [u8; 24] =
        [0x15, 0, 0x15, 200, 1, 0x15, 80, 0x15, 2, 0x1c, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18, 1, 7, 0, 0];

    #[test]
    fn a_header_is_read_up_to_its_end() {
        let bytes = [&V1[..], &[0, 9, 9]].concat();
        let kind = PageKind::V1 { values: 3, encoding: 0, level_encoding: 3 };
        let header = PageHeader { kind, compressed_bytes: 40, page_bytes: 100 };
        assert_eq!(PageHeader::read(&bytes).unwrap(), (header, 25));
    }

    #[test]
    fn damaged_headers_are_declined() {
        let whole = [&V1[..], &[0]].concat();
        for length in 0..whole.len() {
            assert!(PageHeader::read(&whole[..length]).is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                // Whatever it says, it is read or declined.
                if let Ok((_, length)) = PageHeader::read(&damaged) {
                    assert!(length <= damaged.len());
                }
            }
        }
    }
}
