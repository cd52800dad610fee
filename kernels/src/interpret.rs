//! What the interpreter of pipelines shares with the host: its instructions and its parameters.
//!
//! A *program* is the numbers of the parameters that it reads, constants, instructions, and a list of 32-bit words
//! that describes tables. A lane has [`INTERPRET_ROWS`] rows at once, and registers of 64 bits for each of them; parameters and
//! constants are shared by all lanes, and stand in shared memory once for each row. An operand is the place of the first row's word in
//! shared memory, in bytes, and one more ([`REGISTER`]) if each lane has its own; that of the next row stands behind it. 128-bit
//! values take two neighbouring registers or constants, the low word first.

use crate::constants::constants;
use crate::params::{Arg, Ptr, params};

constants! { "WJ_":
    /// Added to the place of a register.
    pub const REGISTER: u32 = 1;
    /// Parameters of a pipeline that is interpreted.
    pub const INTERPRET_VALUES: usize = 250;
    /// Most words of a long key.
    pub const INTERPRET_KEY_WORDS: usize = 16;
    /// Rows of a lane that an instruction takes at once, but in matches of partitioned relations: there it takes one.
    pub const INTERPRET_ROWS: u32 = 2;
    /// Bits for the scopes of a row: one more than scopes can be open.
    pub const SCOPES: u32 = 16;
    /// Most rows that a thread looks up together.
    pub const INTERPRET_ITEMS: u32 = 4;
}

/// Places in the list that describes a group table: numbers, and operands.
pub mod group_list {
    crate::constants::constants! { "WJ_LIST_":
        /// One of [`super::group_mode`].
        pub const MODE: usize = 0;
        /// Words of a row.
        pub const STRIDE: usize = 1;
        /// Words before the accumulators.
        pub const HEADER: usize = 2;
        /// One of [`super::group_front`].
        pub const FRONT: usize = 3;
        /// Slots of a block's table.
        pub const SLOTS: usize = 4;
        /// Of a table that is indexed by the packed key: bits of the lanes that have a slot each.
        pub const REPLICA_BITS: usize = 5;
        /// Words of the accumulators in a slot of a block's table.
        pub const BLOCK_WORDS: usize = 6;
        /// Accumulators.
        pub const ACCUMULATORS: usize = 7;
        /// Words of a long key.
        pub const KEY_WORDS: usize = 8;
        /// Rows of one address wait for each other no longer than replicas take to look up.
        pub const IS_HALVED: usize = 9;
        /// Groups that are finished are written to rows of their own.
        pub const HAS_FINISHED: usize = 10;
        /// Operands: fields of the `GroupTable`.
        pub const TABLE: usize = 11;
        /// Operand: the word in host memory that cancels the query.
        pub const CANCEL: usize = 20;
        /// Operands: fields of the `GroupParts`; the first one is the cursors where rows lie in no order.
        pub const PARTS: usize = 21;
        /// Operands: rows of finished groups, and how many there is room for.
        pub const FINISHED: usize = 26;
        /// Operand: the packed key of a row.
        pub const PACKED: usize = 28;
        /// Length of what stands before the accumulators.
        pub const HEAD: usize = 32;
        /// Length of an accumulator: how it is merged, its word in a row, its word in a slot of a block's table, its form,
        /// the operand that says whether a row counts, the operand that is merged, and two that are unused. Operands of the words
        /// of a long key stand behind all accumulators.
        pub const EACH: usize = 8;
    }
}

/// Places in the list that describes relations that were partitioned alike: operands, but for the first one.
pub mod match_list {
    crate::constants::constants! { "WJ_MATCHED_":
        /// Words of the key.
        pub const KEY_WORDS: usize = 0;
        /// Bits of the hash that choose a chain.
        pub const HEADS_BITS: usize = 1;
        /// Build rows of a work item.
        pub const CAPACITY: usize = 2;
        /// Bits of the partitions.
        pub const BITS: usize = 3;
        /// Where the build side's partitions begin.
        pub const BUILD_OFFSETS: usize = 4;
        /// The same of the probe side.
        pub const PROBE_OFFSETS: usize = 5;
        /// Work items before each partition.
        pub const ITEMS: usize = 6;
        /// Probe rows of a work item.
        pub const CHUNK_ROWS: usize = 7;
        /// The control block.
        pub const CONTROL: usize = 8;
        /// The word in host memory that cancels the query.
        pub const CANCEL: usize = 9;
        /// Length of what stands before the words of the key.
        pub const HEAD: usize = 10;
        /// Length of a word: bytes of it on the build side and on the probe side, as numbers; the words of both sides, and
        /// the bits that belong to the key.
        pub const EACH: usize = 5;
    }
}

/// How a group finds its row.
pub mod group_mode {
    crate::constants::constants! { "WJ_MODE_":
        /// The packed key is the row.
        pub const DENSE: u32 = 0;
        /// Open addressing on the packed key.
        pub const NARROW: u32 = 1;
        /// An index over appended rows.
        pub const WIDE: u32 = 2;
    }
}

/// The table in a block's shared memory in front of the group table.
pub mod group_front {
    crate::constants::constants! { "WJ_FRONT_":
        /// There is none.
        pub const NONE: u32 = 0;
        /// Indexed by the packed key.
        pub const KEYED: u32 = 1;
        /// Open addressing.
        pub const HASHED: u32 = 2;
    }
}

/// Forms of an accumulator in a block's table: bits.
pub mod merge_form {
    crate::constants::constants! { "WJ_FORM_":
        /// The block's part of a 128-bit sum fits 64 bits.
        pub const NARROW: u32 = 1;
        /// A count of less than 2^32.
        pub const COUNT: u32 = 2;
        /// All rows count.
        pub const OF_ALL: u32 = 4;
        /// A block's part is a sum of 64 bits, to which all rows are added.
        pub const SUM_OF_ALL: u32 = 8;
    }
}

/// How loads that are made together are described: the logarithm of the width in bytes, a bit, and how many bits of 32 it lacks.
pub mod load_form {
    crate::constants::constants! { "WJ_LOAD_":
        /// The bits of the width.
        pub const WIDTH: u32 = 3;
        /// The sum is a signed integer of 32 bits.
        pub const INT: u32 = 4;
        /// Bits before those that say how many are lacking.
        pub const LACKING: u32 = 8;
    }
}

/// Declares the instructions, and what defines them in C.
macro_rules! operations {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// What an instruction does. `to`, `a`, `b`, `c` and `d` are its operands; `next` is the number of the instruction
        /// that follows under a condition, or a constant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "named after what C++ calls them")]
        pub enum Operation { $($(#[$meta])* $name),* }

        const NAMES: &[&str] = &[$(stringify!($name)),*];

        fn operations() -> String {
            NAMES.iter().zip(0..).map(|(name, number)| crate::constants::define(&format!("WJ_DO_{name}"), number)).collect()
        }
    };
}

operations! {
    // Control. `Jump` ends `a` scopes.
    End, Jump,
    // Keeps `a`, which is the same for all lanes, for the block.
    KeepUniform,
    // Loops over rows: `to` is the row, `d` whether there is one; to `next` behind the last one.
    Grid, GridWanted, Sample,
    // Rows that are left: each warp lists them, and goes on with as many as it takes at once.
    Enqueue, Dequeue, NextTurn,
    // Loops over matches: goes on while a row of the warp has one.
    WhileAny, MatchTurn, IsFull, AnyOfLanes,
    // Several rows a thread.
    Batch, OpenItems, BatchItem, BatchFind, BatchReserve, BatchFound, KeepKey, LoadKey,
    // What all lanes do together.
    Find4, Find8, FindWord4, FindWord8, FindPair, Reserve, ReserveOfBlock, ReserveMatches, PlaceMatch, AddToSketch,
    // Sinks.
    Raise, Count, FillSlot4, FillSlot8, SetBit, AddRows, MarkRow,
    MergeAdd, MergeAddWide, MergeAddDouble, MergeMax, MergeOr, MergeXor,
    // What one of the kernels has: from here on. Group tables, and loops over their rows.
    Tiles, Walk, Accumulate, OpenGroups, CloseTiles, CloseWalk,
    // Matches of relations that were partitioned alike.
    OpenMatching, MatchUnit, ProbeRow, NextMatch, EndMatches,
    // Partitions.
    OpenCount, CountTile, OpenTile, OpenTileItems, TileItem, Unplace, KeepValue, PlaceInPartition, CountPlaces, CloseCount,
    PlaceTile, MoveWord4, MoveWord8,
    // What is computed by functions: from here on instructions compute. `a` and `b` are operands, which are read first.
    Divide, DivideUnsigned, Remainder, RemainderUnsigned, DivideOrZero, ModuloOrZero, FloorDivide, FloorRemainder,
    MultiplyWide, DivideWide, RemainderWide, DivideOrZeroWide, ModuloOrZeroWide, FloorDivideWide, FloorRemainderWide,
    ShiftLeftWide, ShiftRightWide, ShiftRightUnsignedWide, SumOverflows, DifferenceOverflows, ProductOverflows,
    DivideDouble, Fmod, Fabs, Ceil, Floor, Round, Trunc, Sqrt, SignDouble,
    DoubleOfUnsigned, DoubleOfWide, DoubleOfSingle, SingleOfDouble, SingleOfInt, SingleOfUnsigned, SingleOfWide,
    IntOfDouble, UnsignedOfDouble, WideOfDouble, WideCast,
    OrderCodeSingle, OrderCodeDouble, OrderValueDouble, ComparisonCode, FloatKey,
    DateYear, DateIsoYear, DateQuarter, DateMonth, DateWeek, DateDay, DateDayOfYear, DateDayOfWeek, DateIsoDayOfWeek,
    DateFirstOfWeek, DateFirstOfMonth, DateFirstOfQuarter, DateFirstOfYear, DateAddMonths,
    CentralSum, CentralSumDouble, CentralSquareDouble,
    MayBeInBloom,
    // `Push` narrows the rows that take part to those for which `a` holds (`PushNot`: does not), and goes to `next`, which ends the
    // scope, where there are none. `Narrow` is `Pop` and `Push`; before it `NarrowIf` sets `to` to `a`, the others to what they
    // compare.
    Push, PushNot, Pop, Narrow, NarrowIf, NarrowEqual, NarrowNotEqual, NarrowLess, NarrowLessOrEqual,
    // Values.
    Move, MoveIf, Select, Truth, TruthWide, SignExtend, ZeroExtend,
    Add, AddInt, Subtract, SubtractInt, Multiply, MultiplyInt,
    And, Or, Xor, Not, Complement, ShiftLeft, ShiftRight, ShiftRightUnsigned,
    // `a >> next & b`, the same plus `c` in 32 bits, `a | b << next`, `a | (b - c) << next`.
    Extract, ExtractInt, OrShifted, OrPacked,
    Equal, NotEqual, Less, LessOrEqual, LessUnsigned, LessOrEqualUnsigned,
    AddWide, SubtractWide,
    EqualWide, NotEqualWide, LessWide, LessOrEqualWide, LessUnsignedWide, LessOrEqualUnsignedWide,
    AddDouble, SubtractDouble, MultiplyDouble, NegateDouble,
    EqualDouble, NotEqualDouble, LessDouble, LessOrEqualDouble, DoubleOfInt,
    HashKey, HashCombine,
    // Memory: `a` is the address, `b` the index of the element. Rows that take no part load 0, and store nothing.
    // `Loads2`: the two instructions behind it are loads, which are made together. Each of them adds `c`; its `next` is a
    // [`load_form`].
    Address, Loads2, Loads4, LoadAdd8, LoadAdd16, LoadAdd32, LoadAddInt32,
    Load8, LoadSigned8, Load16, LoadSigned16, Load32, LoadSigned32, Load64, LoadWide, LoadWords, BitAt, IsInBitmap,
    Store8, Store16, Store32, Store64, StoreWide,
    // Values that are gathered where `b` holds.
    AddIf, AddWideIf, AddDoubleIf, MaxIf, OrIf, XorIf,
}

pub(crate) fn all_defines() -> String {
    [
        defines(),
        group_list::defines(),
        match_list::defines(),
        group_mode::defines(),
        group_front::defines(),
        merge_form::defines(),
        load_form::defines(),
        operations(),
    ]
    .concat()
}

params! {
    /// Interprets the program of a pipeline.
    pub struct InterpretParams<'a, B> for ["interpret_rows", "interpret_groups", "interpret_matches", "interpret_partition"] {
        /// The program: numbers of parameters, constants, instructions, list.
        program: Ptr<'a, B, *const u64>,
        /// Words of it.
        words: u64,
        /// Parameters that it reads.
        fields: u64,
        /// Words before the instructions.
        instructions: u64,
        /// Words before the list.
        list: u64,
        /// Where the list has what describes matches.
        match_list: u64,
        /// Words of shared memory before the program's: the pipeline's own.
        shared_words: u64,
        /// Parameters of the pipeline.
        values: [Arg<'a, B>; INTERPRET_VALUES],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What `compute` does not know would be undefined behaviour.
    #[test]
    fn every_instruction_that_computes_is_known() {
        let file = crate::HEADERS.iter().find(|file| file.name == "interpret/values.cuh").expect("the header");
        let (_, text) = file.text.split_once("WJ_DEVICE void compute(").expect("the function");
        let (common, rare) = text.split_once("WJ_DEVICE void compute_rare(").expect("the other function");
        let (first, last) = (Operation::Divide as usize, Operation::Push as usize);
        for (text, names) in [(rare, &NAMES[first..last]), (common, &NAMES[last..])] {
            let cases = text.split("case WJ_DO_").skip(1).filter_map(|rest| rest.split(':').next());
            assert_eq!(cases.collect::<BTreeSet<_>>(), names.iter().copied().collect(), "cases, and instructions");
        }
    }
}
