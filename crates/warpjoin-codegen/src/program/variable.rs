//! Variables of a kernel.

/// A variable. Those with a number of their own are made where they are needed; those of steps have the step's number among
/// the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    /// A constant of a section.
    Temporary(u32),
    /// Whether the temporary of this number is not null, where branches set it.
    Validity(u32),
    /// Visible after its section.
    Hoisted(u32),
    /// The row of the source.
    Row,
    /// Where several lanes share the matches of a row: the lane's number among the lanes of all rows.
    SlicedRow,
    /// Its number among the lanes of its row.
    Slice,
    /// The number of lanes of each row.
    Slices,
    /// The row's place in the output.
    Place,
    /// Whether the lane's row is still in.
    Alive,
    /// Whether a row that goes on in any case has a match so far.
    Seek(u32),
    /// The same of a row that is sent away.
    SeekRow,
    /// Whether the row goes on in this turn of the loop over its matches.
    AliveInTurn(u32),
    /// Whether there is a match in this turn.
    MatchInTurn(u32),
    /// Whether a pair of rows is a match.
    Matched,
    /// Whether the loop over matches has seen what it looked for.
    Done(u32),
    /// The turn of that loop, and how many matches there are.
    MatchIndex(u32),
    MatchCount(u32),
    /// The place of the next match of the warp, where those of all are reserved.
    NextPlace(u32),
    /// What a probe found.
    Match(u32),
    /// What a batched probe found.
    Found,
    /// A build row that matches.
    BuildRow(u32),
    /// The payload word of a build row.
    Payload(u32),
    /// Bounds of a runtime filter.
    Lowest(u32),
    Highest(u32),
    /// The row of a group table: a pointer.
    GroupRow,
    /// Key words of a batch, and words of the rows of a tile: arrays of a thread.
    Keys,
    Values,
    /// Row of a thread.
    Item,
    /// Words of the build rows of a work item: pointers.
    BuildWord(u32),
    /// Key words of a probe row.
    ProbeWord(u32),
    /// The matching build row's place in its work item.
    MatchPlace,
    /// First build row of a work item.
    BuildFirst,
}
