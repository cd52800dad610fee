//! Orders of joins.

/// Relations as bits.
pub(in crate::optimize) type Set = u32;

/// An order of joins.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::optimize) enum Tree {
    /// A relation of the graph.
    Relation(usize),
    /// Build side and probe side.
    Join(Box<(Tree, Tree)>),
}

impl Tree {
    /// The relations in it.
    pub(in crate::optimize) fn set(&self) -> Set {
        match self {
            Self::Relation(relation) => 1 << relation,
            Self::Join(sides) => sides.0.set() | sides.1.set(),
        }
    }

    /// The relation whose rows go through the probes.
    pub(in crate::optimize) fn driver(&self) -> usize {
        match self {
            Self::Relation(relation) => *relation,
            Self::Join(sides) => sides.1.driver(),
        }
    }
}
