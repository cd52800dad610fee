//! What `join/join_build.cu` and `join/runtime_filter.cu` share with the host.

use std::ffi::c_void;

use crate::params::{Ptr, params, pointers};

/// A slot of a table: key word, value word. Key 0: nothing.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Slot {
    /// Never 0 in a slot that is taken.
    pub key: u64,
    /// What the key has.
    pub value: u64,
}

pointers! { Slot: "struct Slot", c_void: "void" }

params! {
    /// Inserts key words, row after row: as unique ones, as a set, or counting the rows of each.
    pub struct BuildParams<'a, B> for ["build_unique", "build_set", "build_count"] {
        /// Rows.
        rows: u64,
        /// `rows`, never 0.
        keys: Ptr<'a, B, *const u64>,
        /// `rows`, only of `build_unique`; none: the row's number is its value.
        values: Option<Ptr<'a, B, *const u64>>,
        /// Windows x lanes, zeroed.
        slots: Ptr<'a, B, *mut Slot>,
        /// Windows of the table.
        windows: u64,
        /// Windows that are read for a key.
        steps_max: u64,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
        /// Address of the word in host memory that cancels the launch, or 0.
        cancel: u64,
    }

    /// Gives each key its part of the row list.
    pub struct OffsetsParams<'a, B> for ["build_offsets"] {
        /// Slots of the table.
        slot_count: u64,
        /// The slots; their values are the rows of each key.
        slots: Ptr<'a, B, *mut Slot>,
        /// The control block; its rows are the places taken.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Puts the rows of each key side by side.
    pub struct FillParams<'a, B> for ["build_fill"] {
        /// Rows.
        rows: u64,
        /// `rows`, never 0.
        keys: Ptr<'a, B, *const u64>,
        /// The slots, as `build_offsets` left them.
        slots: Ptr<'a, B, *mut Slot>,
        /// Windows of the table.
        windows: u64,
        /// `rows`: their numbers by key.
        row_list: Ptr<'a, B, *mut u32>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
        /// Address of the word in host memory that cancels the launch, or 0.
        cancel: u64,
    }

    /// Fills slots that are indexed by the key word.
    pub struct DirectParams<'a, B> for ["build_direct_4", "build_direct_8"] {
        /// Rows.
        rows: u64,
        /// `rows`, from 1 on.
        keys: Ptr<'a, B, *const u64>,
        /// `rows`; none: the row's number is its value.
        values: Option<Ptr<'a, B, *const u64>>,
        /// A slot a possible key word, zeroed: value + 1.
        slots: Ptr<'a, B, *mut c_void>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Fills slots of one word: some bits are the key, those above them the value.
    pub struct WordsParams<'a, B> for ["build_words_4", "build_words_8"] {
        /// Rows.
        rows: u64,
        /// `rows`, never 0.
        keys: Ptr<'a, B, *const u64>,
        /// `rows`; none: the row's number, or nothing.
        values: Option<Ptr<'a, B, *const u64>>,
        /// Whether the row's number is its value.
        has_row_numbers: bool,
        /// Whether keys may occur any number of times.
        is_set: bool,
        /// Bits of a key.
        key_bits: u64,
        /// `count` + 1, zeroed.
        slots: Ptr<'a, B, *mut c_void>,
        /// Slots that keys are hashed to.
        count: u64,
        /// Slots that are read for a key.
        steps_max: u64,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
        /// Address of the word in host memory that cancels the launch, or 0.
        cancel: u64,
    }

    /// Fills a runtime filter.
    pub struct FilterParams<'a, B> for ["fill_bounds", "fill_bitmap", "fill_bloom"] {
        /// Rows.
        rows: u64,
        /// `rows`, never 0.
        keys: Ptr<'a, B, *const u64>,
        /// Zeroed: a bit a possible key word for a bitmap, `count` words of 8 bytes for a Bloom filter, none for bounds alone.
        words: Option<Ptr<'a, B, *mut c_void>>,
        /// Words of a Bloom filter.
        count: u64,
        /// Two words, zeroed: the complement of the lowest key word, and the highest one; none: not wanted.
        bounds: Option<Ptr<'a, B, *mut u64>>,
    }
}
