//! Calls of functions as instructions.

use warpjoin_kernels::interpret::Operation as Do;

use super::builder::{Builder, Made, Unknown};
use super::operand::{Operand, Typed};
use super::value::is_wide;
use crate::program::{Code, Function, Node};
use crate::value::CType;

impl Builder<'_> {
    pub(super) fn call(&mut self, function: Function, arguments: &[Code]) -> Made<Typed> {
        use Function as F;
        // The type by which a template is chosen.
        let first = arguments.first().and_then(|&first| self.nodes.type_of(first).element());
        let first = first.ok_or(Unknown("a function of nothing"))?;
        let c_type = function.result(first);
        let typed = |operand| Ok(Typed { operand, c_type });
        let date = |this: &mut Self, operation: Do| {
            let day = this.code_as(arguments[0], CType::I32)?;
            typed(this.word(operation, &[day]))
        };
        match function {
            F::WideLiteral => self.wide_literal(arguments),
            F::WideOfWords => {
                let (pointer, zero) = (self.pointer(arguments[0])?, self.constant(0));
                typed(self.wide(Do::LoadWords, &[pointer, zero]))
            }
            F::WideOfDouble => {
                let value = self.code_as(arguments[0], CType::F64)?;
                typed(self.wide(Do::WideOfDouble, &[value]))
            }
            F::WideSumOverflows => self.overflows(Do::SumOverflows, arguments),
            F::WideDifferenceOverflows => self.overflows(Do::DifferenceOverflows, arguments),
            F::WideProductOverflows => self.overflows(Do::ProductOverflows, arguments),
            F::DivideOrZero => self.whole_division(Do::DivideOrZero, Do::DivideOrZeroWide, first, arguments),
            F::ModuloOrZero => self.whole_division(Do::ModuloOrZero, Do::ModuloOrZeroWide, first, arguments),
            F::FloorDivide => self.whole_division(Do::FloorDivide, Do::FloorDivideWide, first, arguments),
            F::FloorRemainder => self.whole_division(Do::FloorRemainder, Do::FloorRemainderWide, first, arguments),
            F::Fmod => self.float_function(Do::Fmod, first, arguments),
            F::Fabs => self.float_function(Do::Fabs, first, arguments),
            F::Ceil => self.float_function(Do::Ceil, first, arguments),
            F::Floor => self.float_function(Do::Floor, first, arguments),
            F::Round => self.float_function(Do::Round, first, arguments),
            F::Trunc => self.float_function(Do::Trunc, first, arguments),
            F::Sqrt => self.float_function(Do::Sqrt, first, arguments),
            F::FloatSign => self.float_function(Do::SignDouble, first, arguments),
            F::OrderCodeInt | F::OrderValueInt => {
                let (value, bit) = (self.code_as(arguments[0], CType::I64)?, self.constant(1 << 63));
                typed(self.word(Do::Xor, &[value, bit]))
            }
            F::OrderCodeSingle => {
                let value = self.code_as(arguments[0], CType::F32)?;
                typed(self.word(Do::OrderCodeSingle, &[value]))
            }
            F::OrderCodeDouble => self.of_double(Do::OrderCodeDouble, arguments, c_type),
            F::ComparisonCode => self.of_double(Do::ComparisonCode, arguments, c_type),
            F::FloatKey => self.of_double(Do::FloatKey, arguments, c_type),
            F::OrderValueDouble => {
                let code = self.code_as(arguments[0], CType::U64)?;
                typed(self.word(Do::OrderValueDouble, &[code]))
            }
            // Registers hold bits.
            F::BitsOfSingle => typed(self.code_as(arguments[0], CType::F32)?),
            F::SingleOfBits => typed(self.code_as(arguments[0], CType::U32)?),
            F::BitsOfDouble => typed(self.code_as(arguments[0], CType::F64)?),
            F::DoubleOfBits => typed(self.code_as(arguments[0], CType::I64)?),
            F::DateYear => date(self, Do::DateYear),
            F::DateIsoYear => date(self, Do::DateIsoYear),
            F::DateQuarter => date(self, Do::DateQuarter),
            F::DateMonth => date(self, Do::DateMonth),
            F::DateWeek => date(self, Do::DateWeek),
            F::DateDay => date(self, Do::DateDay),
            F::DateDayOfYear => date(self, Do::DateDayOfYear),
            F::DateDayOfWeek => date(self, Do::DateDayOfWeek),
            F::DateIsoDayOfWeek => date(self, Do::DateIsoDayOfWeek),
            F::DateFirstOfWeek => date(self, Do::DateFirstOfWeek),
            F::DateFirstOfMonth => date(self, Do::DateFirstOfMonth),
            F::DateFirstOfQuarter => date(self, Do::DateFirstOfQuarter),
            F::DateFirstOfYear => date(self, Do::DateFirstOfYear),
            F::DateAddMonths => {
                let (day, months) = (self.code_as(arguments[0], CType::I32)?, self.code_as(arguments[1], CType::I32)?);
                typed(self.word(Do::DateAddMonths, &[day, months]))
            }
            F::CentralSquare | F::CentralSum => self.central(function, arguments),
            F::BitAt => {
                let (bits, row) = (self.pointer(arguments[0])?, self.code_as(arguments[1], CType::U64)?);
                typed(self.word(Do::BitAt, &[bits, row]))
            }
            F::LoadOnce => {
                let element = self.nodes.type_of(arguments[0]).element().ok_or(Unknown("a load of slots"))?;
                let (base, index) = match self.nodes.node(arguments[0]) {
                    Node::Offset(base, index) => (self.pointer(base)?, self.code_as(index, CType::I64)?),
                    _ => (self.pointer(arguments[0])?, self.constant(0)),
                };
                typed(self.load_element(base, index, element))
            }
            F::HashKey => {
                let word = self.code_as(arguments[0], CType::U64)?;
                typed(self.word(Do::HashKey, &[word]))
            }
            F::HashCombine => {
                let (hash, word) = (self.code_as(arguments[0], CType::U64)?, self.code_as(arguments[1], CType::U64)?);
                typed(self.word(Do::HashCombine, &[hash, word]))
            }
            F::IsInBitmap => {
                let (words, key) = (self.pointer(arguments[0])?, self.code_as(arguments[1], CType::U64)?);
                typed(self.word(Do::IsInBitmap, &[words, key]))
            }
            F::MayBeInBloom => {
                let words = self.pointer(arguments[0])?;
                let (count, key) = (self.code_as(arguments[1], CType::U64)?, self.code_as(arguments[2], CType::U64)?);
                typed(self.word(Do::MayBeInBloom, &[words, count, key]))
            }
        }
    }

    /// A 128-bit value of two words.
    fn wide_literal(&mut self, arguments: &[Code]) -> Made<Typed> {
        let c_type = CType::I128;
        if let (Node::Field(low), Node::Field(high)) = (self.nodes.node(arguments[0]), self.nodes.node(arguments[1])) {
            return Ok(Typed { operand: self.field_pair(low, high), c_type });
        }
        let (low, high) = (self.code_as(arguments[0], CType::U64)?, self.code_as(arguments[1], CType::U64)?);
        let to = self.lanes(2);
        self.emit(Do::Move, to, &[low]);
        self.emit(Do::Move, to.high(), &[high]);
        Ok(Typed { operand: to, c_type })
    }

    fn pair_as(&mut self, arguments: &[Code], c_type: CType) -> Made<[Operand; 2]> {
        Ok([self.code_as(arguments[0], c_type)?, self.code_as(arguments[1], c_type)?])
    }

    fn overflows(&mut self, operation: Do, arguments: &[Code]) -> Made<Typed> {
        let pair = self.pair_as(arguments, CType::I128)?;
        Ok(Typed { operand: self.word(operation, &pair), c_type: CType::Bool })
    }

    /// A division of integers of one type.
    fn whole_division(&mut self, narrow: Do, wide: Do, c_type: CType, arguments: &[Code]) -> Made<Typed> {
        let pair = self.pair_as(arguments, c_type)?;
        if is_wide(c_type) {
            return Ok(Typed { operand: self.wide(wide, &pair), c_type });
        }
        let operand = self.word(narrow, &pair);
        let all = Typed { operand, c_type: CType::I64 };
        match c_type {
            CType::I64 => Ok(all),
            CType::I32 => Ok(Typed { operand: self.convert(all, c_type)?, c_type }),
            _ => Err(Unknown("a division of unsigned numbers")),
        }
    }

    /// A function of floats: of singles by way of doubles, which gives the same.
    fn float_function(&mut self, operation: Do, c_type: CType, arguments: &[Code]) -> Made<Typed> {
        if !c_type.is_float() {
            return Err(Unknown("a function of floats"));
        }
        let mut operands = vec![];
        for &argument in arguments {
            let value = self.code_as(argument, c_type)?;
            operands.push(self.convert(Typed { operand: value, c_type }, CType::F64)?);
        }
        let result = Typed { operand: self.word(operation, &operands), c_type: CType::F64 };
        Ok(Typed { operand: self.convert(result, c_type)?, c_type })
    }

    fn of_double(&mut self, operation: Do, arguments: &[Code], c_type: CType) -> Made<Typed> {
        let value = self.code_as(arguments[0], CType::F64)?;
        Ok(Typed { operand: self.word(operation, &[value]), c_type })
    }

    /// Sums of products of distances from means.
    fn central(&mut self, function: Function, arguments: &[Code]) -> Made<Typed> {
        let count = self.code_as(arguments[0], CType::I64)?;
        let is_square = function == Function::CentralSquare;
        let element = self.nodes.type_of(arguments[1]).element().unwrap_or(CType::I128);
        let c_type = if element == CType::F64 { CType::F64 } else { CType::I128 };
        let mut sums = vec![count];
        for &argument in &arguments[1..] {
            sums.push(self.code_as(argument, c_type)?);
        }
        let operation = match (is_square, c_type) {
            (true, CType::F64) => Do::CentralSquareDouble,
            (false, CType::F64) => Do::CentralSumDouble,
            _ => Do::CentralSum,
        };
        if is_square && c_type == CType::I128 {
            sums.insert(1, sums[1]);
        }
        Ok(Typed { operand: self.word(operation, &sums), c_type: CType::F64 })
    }
}
