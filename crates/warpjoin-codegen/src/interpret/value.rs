//! Nodes as instructions: C++'s conversions are made explicit.

use warpjoin_kernels::interpret::Operation as Do;

use super::builder::{Builder, Made, Unknown};
use super::operand::{Next, Operand, Step, Typed};
use crate::program::{Code, Function, Node, Op, Type, Unary, Variable};
use crate::value::CType;

fn is_signed(c_type: CType) -> bool {
    matches!(c_type, CType::I8 | CType::I16 | CType::I32 | CType::I64 | CType::I128)
}

pub(super) fn is_wide(c_type: CType) -> bool {
    c_type.bits() == 128
}

impl Builder<'_> {
    /// Computes a node.
    pub(super) fn code(&mut self, code: Code) -> Made<Typed> {
        let of_type = self.nodes.type_of(code);
        let c_type = of_type.element().unwrap_or(CType::U64);
        let typed = |operand| Typed { operand, c_type };
        Ok(match self.nodes.node(code) {
            Node::Field(field) => typed(self.field(field)),
            Node::Variable(variable) => {
                let value = self.variable(variable)?;
                Typed { c_type: if of_type.is_pointer() { c_type } else { value.c_type }, ..value }
            }
            Node::Whole(value) => typed(self.constant(value as u64)),
            Node::Word(value) | Node::Mask(value) => typed(self.constant(value)),
            Node::Truth(value) => typed(self.constant(value.into())),
            Node::Double(value) => typed(self.constant(value.to_bits())),
            Node::TenToThe(exponent) => typed(self.power_of_ten(i64::from(exponent))?),
            Node::Scale(exponent) => typed(self.power_of_ten(exponent.into())?),
            Node::Parens(inner) => self.code(inner)?,
            Node::Cast(to, inner) => self.cast(to, inner)?,
            Node::Unary(op, operand) => self.unary(op, operand)?,
            Node::Binary(left, op, right) => self.binary(left, op, right)?,
            Node::Select(condition, yes, no) => self.select(of_type, condition, yes, no)?,
            Node::Load(pointer, index) => self.load(pointer, index)?,
            Node::Offset(pointer, index) => {
                let (pointer, index) = (self.code(pointer)?, self.code_as(index, CType::I64)?);
                typed(self.address(pointer.operand, index, c_type))
            }
            Node::Call(function, arguments) => {
                let arguments = self.nodes.arguments(arguments);
                self.call(function, arguments)?
            }
        })
    }

    /// Computes a node, and converts it.
    pub(super) fn code_as(&mut self, code: Code, to: CType) -> Made<Operand> {
        let value = self.code(code)?;
        self.convert(value, to)
    }

    /// Computes an address.
    pub(super) fn pointer(&mut self, code: Code) -> Made<Operand> {
        Ok(self.code(code)?.operand)
    }

    fn power_of_ten(&mut self, exponent: i64) -> Made<Operand> {
        let value: f64 = format!("1e{exponent}").parse().map_err(|_| Unknown("a power of ten"))?;
        Ok(self.constant(value.to_bits()))
    }

    fn address(&mut self, pointer: Operand, index: Operand, element: CType) -> Operand {
        let step = Step::new(Do::Address, Operand::NONE, &[pointer, index]);
        self.value(step.with(Next::Number(element.bits() / 8)), 1)
    }

    fn cast(&mut self, to: CType, inner: Code) -> Made<Typed> {
        let value = self.code(inner)?;
        // A parameter that is read as a narrower type fits it.
        let is_bound = matches!(value.operand, Operand::Field(_)) && value.c_type == CType::I64;
        if is_bound && matches!(to, CType::I32) {
            return Ok(Typed { operand: value.operand, c_type: to });
        }
        Ok(Typed { operand: self.convert(value, to)?, c_type: to })
    }

    fn extended(&mut self, operand: Operand, to: CType) -> Operand {
        let operation = if is_signed(to) { Do::SignExtend } else { Do::ZeroExtend };
        self.value(Step::new(operation, Operand::NONE, &[operand]).with(Next::Number(to.bits())), 1)
    }

    /// Converts a value as C++ does.
    pub(super) fn convert(&mut self, value: Typed, to: CType) -> Made<Operand> {
        use CType::{Bool, F32, F64, I128, U128};
        let Typed { operand, c_type: from } = value;
        if from == to {
            return Ok(operand);
        }
        Ok(match (from, to) {
            (F32, F64) => self.word(Do::DoubleOfSingle, &[operand]),
            (F64, F32) => self.word(Do::SingleOfDouble, &[operand]),
            (F32, _) => {
                let operand = self.word(Do::DoubleOfSingle, &[operand]);
                self.convert(Typed { operand, c_type: F64 }, to)?
            }
            (F64, Bool) => {
                let zero = self.constant(0);
                self.word(Do::NotEqualDouble, &[operand, zero])
            }
            (F64, CType::U64) => self.word(Do::UnsignedOfDouble, &[operand]),
            (F64, I128) => self.wide(Do::WideCast, &[operand]),
            (F64, U128) => return Err(Unknown("a double as 128 unsigned bits")),
            (F64, _) => {
                let whole = self.word(Do::IntOfDouble, &[operand]);
                self.convert(Typed { operand: whole, c_type: CType::I64 }, to)?
            }
            (I128, F64) => self.word(Do::DoubleOfWide, &[operand]),
            (I128, F32) => self.word(Do::SingleOfWide, &[operand]),
            (U128, F64 | F32) => return Err(Unknown("128 unsigned bits as a float")),
            (_, F64) if is_signed(from) => self.word(Do::DoubleOfInt, &[operand]),
            (_, F64) => self.word(Do::DoubleOfUnsigned, &[operand]),
            (_, F32) if is_signed(from) => self.word(Do::SingleOfInt, &[operand]),
            (_, F32) => self.word(Do::SingleOfUnsigned, &[operand]),
            (I128 | U128, I128 | U128) => operand,
            (I128 | U128, Bool) => self.word(Do::TruthWide, &[operand]),
            (I128 | U128, _) if to.bits() == 64 => operand,
            (I128 | U128, _) => self.extended(operand, to),
            (_, I128 | U128) => self.widened(value),
            (_, Bool) => self.word(Do::Truth, &[operand]),
            (_, _) if to.bits() == 64 => operand,
            // What fits stays as it is.
            (_, _) if from.bits() < to.bits() && (is_signed(to) || !is_signed(from)) => operand,
            (Bool, _) => operand,
            _ => self.extended(operand, to),
        })
    }

    /// An integer of up to 64 bits as 128.
    fn widened(&mut self, value: Typed) -> Operand {
        if let Operand::Constant(place) = value.operand {
            let low = self.constants[place as usize];
            let wide = if is_signed(value.c_type) { i128::from(low as i64) } else { i128::from(low) };
            return self.wide_constant(wide);
        }
        let to = self.lanes(2);
        self.emit(Do::Move, to, &[value.operand]);
        if is_signed(value.c_type) {
            let sign = self.constant(63);
            self.emit(Do::ShiftRight, to.high(), &[value.operand, sign]);
        } else {
            let zero = self.constant(0);
            self.emit(Do::Move, to.high(), &[zero]);
        }
        to
    }

    fn unary(&mut self, op: Unary, operand: Code) -> Made<Typed> {
        if op == Unary::Not {
            let operand = self.code_as(operand, CType::Bool)?;
            return Ok(Typed { operand: self.word(Do::Not, &[operand]), c_type: CType::Bool });
        }
        let value = self.code(operand)?;
        let c_type = value.c_type.promoted();
        let operand = self.convert(value, c_type)?;
        let zero = self.constant(0);
        let result = match (op, c_type) {
            (Unary::Complement, CType::I128 | CType::U128) => {
                let to = self.lanes(2);
                self.emit(Do::Complement, to, &[operand]);
                self.emit(Do::Complement, to.high(), &[operand.high()]);
                to
            }
            (Unary::Complement, CType::U32) => {
                let all = self.word(Do::Complement, &[operand]);
                self.extended(all, c_type)
            }
            (Unary::Complement, _) => self.word(Do::Complement, &[operand]),
            (_, CType::I128 | CType::U128) => {
                let zero = self.wide_constant(0);
                self.wide(Do::SubtractWide, &[zero, operand])
            }
            (_, CType::F64) => self.word(Do::NegateDouble, &[operand]),
            (_, CType::F32) => {
                let bit = self.constant(1 << 31);
                self.word(Do::Xor, &[operand, bit])
            }
            (_, CType::I32) => self.word(Do::SubtractInt, &[zero, operand]),
            (_, CType::U32) => {
                let all = self.word(Do::Subtract, &[zero, operand]);
                self.extended(all, c_type)
            }
            _ => self.word(Do::Subtract, &[zero, operand]),
        };
        Ok(Typed { operand: result, c_type })
    }

    fn binary(&mut self, left: Code, op: Op, right: Code) -> Made<Typed> {
        if matches!(op, Op::And | Op::Or) {
            return self.logic(left, op, right);
        }
        let (a, b) = (self.code(left)?, self.code(right)?);
        if matches!(op, Op::ShiftLeft | Op::ShiftRight) {
            return self.shift(a, op, b);
        }
        let common = a.c_type.common(b.c_type);
        let (a, b) = (self.convert(a, common)?, self.convert(b, common)?);
        let is_comparison =
            matches!(op, Op::Equal | Op::NotEqual | Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual);
        if is_comparison {
            return Ok(Typed { operand: self.compare(op, common, a, b), c_type: CType::Bool });
        }
        let operand = match common {
            CType::I128 | CType::U128 => self.wide_arithmetic(op, common, a, b)?,
            CType::F64 => self.word(double_operation(op)?, &[a, b]),
            CType::F32 => {
                // Sums, products and quotients of singles that are rounded to doubles first are rounded right.
                let [a, b] = [a, b].map(|single| self.word(Do::DoubleOfSingle, &[single]));
                let result = self.word(double_operation(op)?, &[a, b]);
                self.word(Do::SingleOfDouble, &[result])
            }
            _ => self.arithmetic(op, common, a, b),
        };
        Ok(Typed { operand, c_type: common })
    }

    fn arithmetic(&mut self, op: Op, c_type: CType, a: Operand, b: Operand) -> Operand {
        let signed = is_signed(c_type);
        let is_int = c_type == CType::I32;
        // Whether the result needs no more than its operands.
        let (operation, fits) = match op {
            Op::Add if is_int => (Do::AddInt, true),
            Op::Subtract if is_int => (Do::SubtractInt, true),
            Op::Multiply if is_int => (Do::MultiplyInt, true),
            Op::Add => (Do::Add, false),
            Op::Subtract => (Do::Subtract, false),
            Op::Multiply => (Do::Multiply, false),
            Op::Divide if signed => (Do::Divide, false),
            Op::Divide => (Do::DivideUnsigned, true),
            Op::Remainder if signed => (Do::Remainder, true),
            Op::Remainder => (Do::RemainderUnsigned, true),
            Op::BitAnd => (Do::And, true),
            Op::BitOr => (Do::Or, true),
            _ => (Do::Xor, true),
        };
        let result = self.word(operation, &[a, b]);
        if fits || c_type.bits() == 64 { result } else { self.extended(result, c_type) }
    }

    fn wide_arithmetic(&mut self, op: Op, c_type: CType, a: Operand, b: Operand) -> Made<Operand> {
        let operation = match op {
            Op::Add => Do::AddWide,
            Op::Subtract => Do::SubtractWide,
            Op::Multiply => Do::MultiplyWide,
            Op::Divide if c_type == CType::I128 => Do::DivideWide,
            Op::Remainder if c_type == CType::I128 => Do::RemainderWide,
            Op::BitAnd | Op::BitOr | Op::BitXor => {
                let to = self.lanes(2);
                let operation = match op {
                    Op::BitAnd => Do::And,
                    Op::BitOr => Do::Or,
                    _ => Do::Xor,
                };
                self.emit(operation, to, &[a, b]);
                self.emit(operation, to.high(), &[a.high(), b.high()]);
                return Ok(to);
            }
            _ => return Err(Unknown("an operator of 128 unsigned bits")),
        };
        Ok(self.wide(operation, &[a, b]))
    }

    fn shift(&mut self, value: Typed, op: Op, by: Typed) -> Made<Typed> {
        let c_type = value.c_type.promoted();
        let operand = self.convert(value, c_type)?;
        let by = self.convert(by, CType::I64)?;
        let is_left = op == Op::ShiftLeft;
        let result = match c_type {
            CType::I128 | CType::U128 => {
                let operation = match (is_left, c_type) {
                    (true, _) => Do::ShiftLeftWide,
                    (false, CType::I128) => Do::ShiftRightWide,
                    _ => Do::ShiftRightUnsignedWide,
                };
                self.wide(operation, &[operand, by])
            }
            _ if is_left => {
                let shifted = self.word(Do::ShiftLeft, &[operand, by]);
                if c_type.bits() == 64 { shifted } else { self.extended(shifted, c_type) }
            }
            _ if is_signed(c_type) => self.word(Do::ShiftRight, &[operand, by]),
            _ => self.word(Do::ShiftRightUnsigned, &[operand, by]),
        };
        Ok(Typed { operand: result, c_type })
    }

    fn compare(&mut self, op: Op, c_type: CType, a: Operand, b: Operand) -> Operand {
        let (op, a, b) = match op {
            Op::Greater => (Op::Less, b, a),
            Op::GreaterOrEqual => (Op::LessOrEqual, b, a),
            op => (op, a, b),
        };
        let [equal, not_equal, less, less_or_equal] = match c_type {
            CType::F64 | CType::F32 => [Do::EqualDouble, Do::NotEqualDouble, Do::LessDouble, Do::LessOrEqualDouble],
            CType::I128 => [Do::EqualWide, Do::NotEqualWide, Do::LessWide, Do::LessOrEqualWide],
            CType::U128 => [Do::EqualWide, Do::NotEqualWide, Do::LessUnsignedWide, Do::LessOrEqualUnsignedWide],
            _ if is_signed(c_type) => [Do::Equal, Do::NotEqual, Do::Less, Do::LessOrEqual],
            _ => [Do::Equal, Do::NotEqual, Do::LessUnsigned, Do::LessOrEqualUnsigned],
        };
        let [a, b] =
            if c_type == CType::F32 { [a, b].map(|single| self.word(Do::DoubleOfSingle, &[single])) } else { [a, b] };
        let operation = match op {
            Op::Equal => equal,
            Op::NotEqual => not_equal,
            Op::Less => less,
            _ => less_or_equal,
        };
        self.word(operation, &[a, b])
    }

    /// The right side is computed where it decides, if it reads what may not be there.
    fn logic(&mut self, left: Code, op: Op, right: Code) -> Made<Typed> {
        let is_and = op == Op::And;
        let a = self.code_as(left, CType::Bool)?;
        let operand = if self.reads_anywhere(right) {
            let end = self.push_scope(if is_and { Do::Push } else { Do::PushNot }, a)?;
            let b = self.code_as(right, CType::Bool)?;
            self.pop_scope(end);
            // Where no lane took part, the right side is no truth.
            let sure = self.constant((!is_and).into());
            let to = self.lanes(1);
            self.emit(Do::Select, to, &if is_and { [a, b, sure] } else { [a, sure, b] });
            to
        } else {
            let b = self.code_as(right, CType::Bool)?;
            self.word(if is_and { Do::And } else { Do::Or }, &[a, b])
        };
        Ok(Typed { operand, c_type: CType::Bool })
    }

    fn select(&mut self, of_type: Type, condition: Code, yes: Code, no: Code) -> Made<Typed> {
        let c_type = of_type.element().unwrap_or(CType::U64);
        let condition = self.code_as(condition, CType::Bool)?;
        let side = |this: &mut Self, code: Code, operation: Do| {
            let is_lazy = this.reads_anywhere(code);
            let end = if is_lazy { Some(this.push_scope(operation, condition)?) } else { None };
            let operand = if of_type.is_pointer() { this.pointer(code)? } else { this.code_as(code, c_type)? };
            if let Some(end) = end {
                this.pop_scope(end);
            }
            Ok(operand)
        };
        let (yes, no) = (side(self, yes, Do::Push)?, side(self, no, Do::PushNot)?);
        if of_type.is_pointer() || !is_wide(c_type) {
            return Ok(Typed { operand: self.word(Do::Select, &[condition, yes, no]), c_type });
        }
        let to = self.lanes(2);
        self.emit(Do::Select, to, &[condition, yes, no]);
        self.emit(Do::Select, to.high(), &[condition, yes.high(), no.high()]);
        Ok(Typed { operand: to, c_type })
    }

    /// Reads an element of an array.
    fn load(&mut self, pointer: Code, index: Code) -> Made<Typed> {
        let c_type = self.nodes.type_of(pointer).element().unwrap_or(CType::U64);
        if matches!(self.nodes.node(pointer), Node::Variable(Variable::Keys)) {
            let keys = self.pointer(pointer)?;
            let to = self.lanes(1);
            self.emit(Do::LoadKey, to, &[keys]);
            return Ok(Typed { operand: to, c_type });
        }
        let pointer = self.pointer(pointer)?;
        let index = self.code_as(index, CType::I64)?;
        Ok(Typed { operand: self.load_element(pointer, index, c_type), c_type })
    }

    /// Reads an element of this type.
    pub(super) fn load_element(&mut self, pointer: Operand, index: Operand, c_type: CType) -> Operand {
        let operation = match c_type {
            CType::Bool | CType::U8 => Do::Load8,
            CType::I8 => Do::LoadSigned8,
            CType::U16 => Do::Load16,
            CType::I16 => Do::LoadSigned16,
            CType::U32 | CType::F32 => Do::Load32,
            CType::I32 => Do::LoadSigned32,
            CType::I64 | CType::U64 | CType::F64 => Do::Load64,
            CType::I128 | CType::U128 => return self.wide(Do::LoadWide, &[pointer, index]),
        };
        self.word(operation, &[pointer, index])
    }

    /// Whether it reads memory at a place that is only there under a condition: anywhere but in the row of a column.
    pub(super) fn reads_anywhere(&self, code: Code) -> bool {
        let is_row = |code: Code| matches!(self.nodes.node(code), Node::Variable(Variable::Row));
        let is_field = |code: Code| matches!(self.nodes.node(code), Node::Field(_));
        match self.nodes.node(code) {
            Node::Load(pointer, index) => !(is_field(pointer) && is_row(index)),
            Node::Parens(inner) | Node::Cast(_, inner) | Node::Unary(_, inner) => self.reads_anywhere(inner),
            Node::Binary(left, _, right) | Node::Offset(left, right) => {
                self.reads_anywhere(left) || self.reads_anywhere(right)
            }
            Node::Select(condition, yes, no) => [condition, yes, no].iter().any(|&code| self.reads_anywhere(code)),
            Node::Call(function, arguments) => {
                let arguments = self.nodes.arguments(arguments);
                let reads = match function {
                    Function::BitAt => !(is_field(arguments[0]) && is_row(arguments[1])),
                    Function::LoadOnce | Function::IsInBitmap | Function::MayBeInBloom | Function::WideOfWords => true,
                    _ => false,
                };
                reads || arguments.iter().any(|&code| self.reads_anywhere(code))
            }
            _ => false,
        }
    }
}

fn double_operation(op: Op) -> Made<Do> {
    Ok(match op {
        Op::Add => Do::AddDouble,
        Op::Subtract => Do::SubtractDouble,
        Op::Multiply => Do::MultiplyDouble,
        Op::Divide => Do::DivideDouble,
        _ => return Err(Unknown("an operator of floats")),
    })
}
