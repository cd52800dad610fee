//! Typed code of a row: nodes that have no side effect, and are cheap to repeat.

use std::cell::RefCell;

use super::function::Function;
use super::operator::{Op, Unary};
use super::params::{Field, Type};
use super::variable::Variable;
use crate::value::CType;

/// A node, by its place among those of its kernel. Two nodes may compute the same: [`Codes::is_same`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(u32);

/// What a node computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Node {
    /// A parameter.
    Field(Field),
    Variable(Variable),
    /// A number, of type i32 if it fits.
    Whole(i64),
    /// A u64.
    Word(u64),
    /// A u64 that selects bits.
    Mask(u64),
    Truth(bool),
    /// A whole double.
    Double(f64),
    /// A double: this power of ten, written in digits.
    TenToThe(u32),
    /// A double: this power of ten, which need not be whole.
    Scale(i32),
    Parens(Code),
    Cast(CType, Code),
    Unary(Unary, Code),
    Binary(Code, Op, Code),
    /// One of two by a condition.
    Select(Code, Code, Code),
    /// The element of an array: pointer and index.
    Load(Code, Code),
    /// A pointer plus a number of elements.
    Offset(Code, Code),
    Call(Function, Arguments),
}

/// The arguments of a call, by their place among those of all calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arguments {
    first: u32,
    count: u32,
}

/// The nodes of a kernel. Operands lie before what is computed of them.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: Vec<(Node, Type)>,
    arguments: Vec<Code>,
}

/// Nodes that are being made: whoever makes one may make its operands on the way.
#[derive(Debug, Default)]
pub(crate) struct Codes(RefCell<Nodes>);

impl Codes {
    /// Adds a node.
    pub(crate) fn add(&self, node: Node, of_type: Type) -> Code {
        let nodes = &mut self.0.borrow_mut().nodes;
        nodes.push((node, of_type));
        Code(nodes.len() as u32 - 1)
    }

    /// Adds a call.
    pub(crate) fn add_call(&self, function: Function, arguments: &[Code], of_type: Type) -> Code {
        let first = self.0.borrow().arguments.len() as u32;
        self.0.borrow_mut().arguments.extend_from_slice(arguments);
        self.add(Node::Call(function, Arguments { first, count: arguments.len() as u32 }), of_type)
    }

    pub(crate) fn node(&self, code: Code) -> Node {
        self.0.borrow().node(code)
    }

    pub(crate) fn type_of(&self, code: Code) -> Type {
        self.0.borrow().type_of(code)
    }

    /// Whether both compute the same.
    pub(crate) fn is_same(&self, left: Code, right: Code) -> bool {
        self.0.borrow().is_same(left, right)
    }

    pub(crate) fn finish(self) -> Nodes {
        self.0.into_inner()
    }
}

impl Nodes {
    pub(crate) fn node(&self, code: Code) -> Node {
        self.nodes[code.0 as usize].0
    }

    pub(crate) fn type_of(&self, code: Code) -> Type {
        self.nodes[code.0 as usize].1
    }

    /// The arguments of a call.
    pub(crate) fn arguments(&self, arguments: Arguments) -> &[Code] {
        let first = arguments.first as usize;
        &self.arguments[first..first + arguments.count as usize]
    }

    fn is_same(&self, left: Code, right: Code) -> bool {
        if left.0 == right.0 {
            return true;
        }
        let same = |a: Code, b: Code| self.is_same(a, b);
        match (self.node(left), self.node(right)) {
            (Node::Parens(a), Node::Parens(b)) => same(a, b),
            (Node::Cast(to, a), Node::Cast(other, b)) => to == other && same(a, b),
            (Node::Unary(op, a), Node::Unary(other, b)) => op == other && same(a, b),
            (Node::Binary(a, op, b), Node::Binary(c, other, d)) => op == other && same(a, c) && same(b, d),
            (Node::Select(a, b, c), Node::Select(d, e, f)) => same(a, d) && same(b, e) && same(c, f),
            (Node::Load(a, b), Node::Load(c, d)) | (Node::Offset(a, b), Node::Offset(c, d)) => same(a, c) && same(b, d),
            (Node::Call(function, own), Node::Call(other, others)) => {
                let (own, others) = (self.arguments(own), self.arguments(others));
                function == other && own.len() == others.len() && own.iter().zip(others).all(|(&a, &b)| same(a, b))
            }
            // The others have no operands.
            (own, other) => own == other,
        }
    }
}
