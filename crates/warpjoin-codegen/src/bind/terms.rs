//! Makes nodes of code, each with its type.

use super::binder::Binder;
use crate::program::{Binding, Code, Field, Function, Node, Op, Type, Unary, Variable};
use crate::value::CType;

impl Binder {
    /// A number as it is written: i32 if it fits.
    pub(crate) fn whole(&self, value: i64) -> Code {
        let c_type = if i32::try_from(value).is_ok() { CType::I32 } else { CType::I64 };
        self.add(Node::Whole(value), c_type)
    }

    pub(crate) fn word(&self, value: u64) -> Code {
        self.add(Node::Word(value), CType::U64)
    }

    /// A word with the lowest `bits` bits set, of which there are less than 64.
    pub(crate) fn mask(&self, bits: u32) -> Code {
        self.add(Node::Mask((1 << bits) - 1), CType::U64)
    }

    pub(crate) fn truth(&self, value: bool) -> Code {
        self.add(Node::Truth(value), CType::Bool)
    }

    /// A whole double.
    pub(crate) fn double(&self, value: f64) -> Code {
        self.add(Node::Double(value), CType::F64)
    }

    pub(crate) fn ten_to_the(&self, exponent: u32) -> Code {
        self.add(Node::TenToThe(exponent), CType::F64)
    }

    /// 10^exponent, which need not be whole.
    pub(crate) fn power_of_ten(&self, exponent: i32) -> Code {
        self.add(Node::Scale(exponent), CType::F64)
    }

    /// A constant of a type.
    pub(crate) fn constant(&self, value: i128, c_type: CType) -> Code {
        let low = self.word(value as u64);
        let value = if c_type == CType::I128 {
            let high = self.cast(CType::U128, self.word((value >> 64) as u64));
            let shifted = self.binary(high, Op::ShiftLeft, self.whole(64));
            self.in_parens(shifted, Op::BitOr, low)
        } else {
            low
        };
        self.parens(self.cast(c_type, value))
    }

    /// A signed number as a parameter.
    pub(crate) fn number(&mut self, value: i64) -> Code {
        let field = self.params.number(value);
        self.field(field)
    }

    /// A 128-bit number as two parameters.
    pub(crate) fn wide_number(&mut self, value: i128) -> Code {
        let words = [value as u64, (value >> 64) as u64];
        let [low, high] = words.map(|word| self.params.add(Type::Value(CType::U64), Binding::Word(word)));
        self.call(Function::WideLiteral, &[self.field(low), self.field(high)])
    }

    /// A number as a parameter, in a type.
    pub(crate) fn bound(&mut self, value: i128, c_type: CType) -> Code {
        if c_type == CType::I128 {
            return self.wide_number(value);
        }
        let number = self.number(value as i64);
        self.parens(self.cast(c_type, number))
    }

    /// What a parameter holds.
    pub(crate) fn field(&self, field: Field) -> Code {
        self.codes().add(Node::Field(field), self.params.type_of(field))
    }

    pub(crate) fn variable(&self, variable: Variable, c_type: CType) -> Code {
        self.add(Node::Variable(variable), c_type)
    }

    /// A variable that is true or false.
    pub(crate) fn truth_of(&self, variable: Variable) -> Code {
        self.variable(variable, CType::Bool)
    }

    /// A variable that points to elements.
    pub(crate) fn pointer(&self, variable: Variable, element: CType) -> Code {
        self.codes().add(Node::Variable(variable), Type::Input(element))
    }

    pub(crate) fn parens(&self, code: Code) -> Code {
        self.codes().add(Node::Parens(code), self.codes().type_of(code))
    }

    /// Converts the operand, which binds more tightly than a cast.
    pub(crate) fn cast(&self, to: CType, code: Code) -> Code {
        self.add(Node::Cast(to, code), to)
    }

    /// The same in parentheses.
    pub(crate) fn cast_in_parens(&self, to: CType, code: Code) -> Code {
        self.parens(self.cast(to, code))
    }

    pub(crate) fn not(&self, code: Code) -> Code {
        self.add(Node::Unary(Unary::Not, code), CType::Bool)
    }

    pub(crate) fn negate(&self, code: Code) -> Code {
        self.add(Node::Unary(Unary::Negate, code), self.value_of(code).promoted())
    }

    pub(crate) fn complement(&self, code: Code) -> Code {
        self.add(Node::Unary(Unary::Complement, code), self.value_of(code).promoted())
    }

    pub(crate) fn binary(&self, left: Code, op: Op, right: Code) -> Code {
        let c_type = op.result(self.value_of(left), self.value_of(right));
        self.add(Node::Binary(left, op, right), c_type)
    }

    pub(crate) fn in_parens(&self, left: Code, op: Op, right: Code) -> Code {
        self.parens(self.binary(left, op, right))
    }

    /// All of the codes with `op` between them; `None` of none.
    pub(crate) fn chain(&self, op: Op, codes: impl IntoIterator<Item = Code>) -> Option<Code> {
        codes.into_iter().reduce(|left, right| self.binary(left, op, right))
    }

    /// `yes` where the condition holds, else `no`.
    pub(crate) fn select(&self, condition: Code, yes: Code, no: Code) -> Code {
        let of_type = match (self.codes().type_of(yes), self.codes().type_of(no)) {
            (Type::Value(yes), Type::Value(no)) if yes == no => Type::Value(yes),
            (Type::Value(yes), Type::Value(no)) => Type::Value(yes.common(no)),
            (pointer, other) => {
                debug_assert_eq!(pointer, other, "one of two pointers of different types");
                pointer
            }
        };
        self.codes().add(Node::Select(condition, yes, no), of_type)
    }

    /// What lies `index` elements behind `pointer`.
    pub(crate) fn load(&self, pointer: Code, index: Code) -> Code {
        self.add(Node::Load(pointer, index), self.element_of(pointer))
    }

    /// The pointer `index` elements further.
    pub(crate) fn offset(&self, pointer: Code, index: Code) -> Code {
        self.codes().add(Node::Offset(pointer, index), self.codes().type_of(pointer))
    }

    pub(crate) fn call(&self, function: Function, arguments: &[Code]) -> Code {
        let first = arguments.first().and_then(|&first| self.codes().type_of(first).element()).unwrap_or(CType::U64);
        self.codes().add_call(function, arguments, Type::Value(function.result(first)))
    }

    fn add(&self, node: Node, c_type: CType) -> Code {
        self.codes().add(node, Type::Value(c_type))
    }

    fn value_of(&self, code: Code) -> CType {
        let of_type = self.codes().type_of(code);
        debug_assert!(!of_type.is_pointer(), "an operator of a pointer");
        of_type.element().unwrap_or(CType::U64)
    }

    fn element_of(&self, pointer: Code) -> CType {
        let of_type = self.codes().type_of(pointer);
        debug_assert!(of_type.is_pointer(), "a load from what is no pointer");
        of_type.element().unwrap_or(CType::U64)
    }
}
