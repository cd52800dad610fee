//! Expressions of the device plan.
//!
//! Typed with Arrow types and DataFusion's rules: the planner above has coerced both sides of every
//! operator, so that nothing is converted implicitly here. Must not know how code is generated.

#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod build;
mod display;
mod moment;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use crate::function::Function;
use crate::identity::Identity;
pub use crate::string_test::StringTest;
pub use moment::Moment;

/// A typed expression over the columns of one input.
#[derive(Debug, Clone)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Type of the result.
    pub data_type: DataType,
    /// Whether the result may be null.
    pub nullable: bool,
}

/// One key of an order. Floats are in IEEE total order, strings in the order of their bytes.
#[derive(Debug, Clone)]
pub struct SortKey {
    /// Over the sort's input.
    pub expr: Expr,
    /// Largest values first.
    pub descending: bool,
    /// Nulls come before all values, else after them, in either direction.
    pub nulls_first: bool,
}

impl SortKey {
    /// Whether both give the rows of one query the same order; see [`Expr::is_same`].
    pub fn is_same(&self, other: &Self) -> bool {
        Identity::in_query(self) == Identity::in_query(other)
    }
}

/// What an expression computes.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A column of the input, by position.
    Column(usize),
    /// A constant.
    Literal(Scalar),
    /// A constant that is known when the plan runs.
    Deferred(Arc<dyn DeferredScalar>),
    /// Arithmetic. Both sides have the same kind (integers of one type, floats of one type, decimals,
    /// whose scales are taken from their types, or times that Arrow adds and subtracts). Integers wrap;
    /// decimals and times report overflow; integer and decimal division by zero is an error; division
    /// truncates.
    Arithmetic(ArithmeticOp, Box<Expr>, Box<Expr>),
    /// Comparison of two values of one type (decimals of any scales). Null if a side is null.
    /// Floats compare by IEEE total order, as DataFusion's kernels do.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// Three-valued AND.
    And(Box<Expr>, Box<Expr>),
    /// Three-valued OR.
    Or(Box<Expr>, Box<Expr>),
    /// Three-valued NOT.
    Not(Box<Expr>),
    /// True where the operand is null.
    IsNull(Box<Expr>),
    /// Minus; integers wrap.
    Negative(Box<Expr>),
    /// The first branch whose condition is true, else `otherwise`, else null.
    Case {
        /// (condition, result) pairs.
        branches: Vec<(Expr, Expr)>,
        /// The ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// Cast to the expression's type; a value that does not fit is an error.
    Cast(Box<Expr>),
    /// The same; a value that does not fit is null.
    TryCast(Box<Expr>),
    /// A scalar function.
    Function(Function, Vec<Expr>),
    /// Membership in a list of constants of the operand's type, without nulls in the list.
    InList {
        /// The operand.
        operand: Box<Expr>,
        /// The constants.
        list: Vec<Scalar>,
        /// NOT IN.
        negated: bool,
    },
    /// A deterministic function that the host evaluates: for one string operand, once for each value of its dictionary;
    /// for others, once for each combination of their values, at most [`COMBINATIONS_MAX`]. No operand is a float.
    Tabulated {
        /// What it is a function of; at least one.
        operands: Vec<Expr>,
        /// The function.
        function: Arc<dyn HostFunction>,
    },
    /// Mean from a sum and a count: null where the count is 0, truncated to the result's scale.
    Average(Box<Expr>, Box<Expr>),
    /// Parts of the keys of an order, packed into a number of up to 64 bits; the first part counts most. UInt64, never null.
    OrderWord(Vec<OrderPart>),
    /// The row id in the source, unique across devices; for a table, the row's position. UInt64.
    RowNumber {
        /// No number is larger.
        max: u64,
    },
    /// A statistic computed from a count and sums over distances from a fixed number: sums of x and x²; for pairs, sums
    /// of x, y and xy, and, unless it is a covariance or [`Moment::RegressionSxy`], of x² and y².
    Moment {
        /// Which one.
        moment: Moment,
        /// Power of ten by which the sums of products are scaled up.
        scale: i32,
        /// The count, then the sums.
        sums: Vec<Expr>,
    },
}

/// A part of a key of an order, as an unsigned number.
#[derive(Debug, Clone)]
pub struct OrderPart {
    /// The key.
    pub key: SortKey,
    /// Which part of it.
    pub piece: KeyPiece,
    /// Bits that it takes, of 64 at most.
    pub bits: u32,
    /// Lower bound of the key's values, or of the codes of strings. 0 for floats, which have codes of their own. It is
    /// part of the word's definition, so that pipelines with other bounds of the key compute the same number.
    pub least: i128,
}

/// Which part of a key of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyPiece {
    /// Whether it is null.
    Null,
    /// The value, where it spans no more than 64 bits.
    Whole,
    /// The bits of a value above the lowest 64.
    High,
    /// The lowest 64 bits of a value.
    Low,
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`, with the sign of the left side.
    Modulo,
}

/// Comparison operators. -0.0 equals 0.0; NaNs are equal, and greater than all other numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// Equal in the total order of floats, where -0.0 and 0.0 differ; `=` for all other types.
    Identical,
}

/// A constant. Integers, dates, timestamps and decimals (unscaled) are `Int`.
#[derive(Debug, Clone)]
pub enum Scalar {
    /// SQL NULL.
    Null,
    /// A boolean.
    Boolean(bool),
    /// Every type that is stored as an integer.
    Int(i128),
    /// Float32 and Float64.
    Float(f64),
    /// A string, or bytes.
    Bytes(Arc<[u8]>),
    /// A constant that an execution of a physical plan binds, by position among the plan's constants. Not part of input
    /// plans.
    Parameter(usize),
    /// A constant of a list that is known when the plan runs. Elsewhere it is [`ExprKind::Deferred`].
    Deferred(Arc<dyn DeferredScalar>),
}

/// Deferred constants are equal only if they are the same object.
impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Boolean(one), Self::Boolean(other)) => one == other,
            (Self::Int(one), Self::Int(other)) => one == other,
            (Self::Float(one), Self::Float(other)) => one == other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::Parameter(one), Self::Parameter(other)) => one == other,
            (Self::Deferred(one), Self::Deferred(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// A leaf of an expression.
#[derive(Debug, Clone, Copy)]
pub enum Leaf<'a> {
    /// An input column.
    Column(usize),
    /// A literal, or a constant that is known when the plan runs.
    Constant(&'a ExprKind),
}

/// A constant that is known when the plan runs: a parameter, the result of a subquery.
pub trait DeferredScalar: fmt::Debug + fmt::Display + Send + Sync {
    /// The value, of the expression's type.
    ///
    /// # Errors
    /// When it is not known yet.
    fn value(&self) -> Result<Scalar, arrow::error::ArrowError>;

    /// The value of a parameter, set before the query runs; `None` for a value that the query itself computes.
    fn bound(&self) -> Option<Scalar> {
        None
    }

    /// Identity of a parameter, shared only by parameters that always have equal values; `None` for a value that the
    /// query itself computes.
    fn parameter(&self) -> Option<[usize; 2]> {
        None
    }
}

/// Maximum number of combinations of operand values for which the host precomputes a function.
pub const COMBINATIONS_MAX: u64 = 1 << 18;

/// A deterministic function that the host evaluates.
pub trait HostFunction: Any + fmt::Debug + fmt::Display + Send + Sync {
    /// Evaluates on some rows of `operands` (an array each, of the same n rows and of the operands' types; values may be
    /// null, and need not occur together in any table): one result a row, of type [`Self::data_type`].
    ///
    /// # Errors
    /// Whatever the function reports; the query then runs on the CPU and reports it there.
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, arrow::error::ArrowError>;

    /// Whether `other` has the same result for all operands, now and later, so that results of one can be reused for
    /// the other.
    fn is_same(&self, _other: &dyn HostFunction) -> bool {
        false
    }

    /// The equivalent string test that devices can evaluate, if there is one. It must give null for null, and the
    /// result of [`Self::evaluate`] for any other string.
    fn test(&self) -> Option<StringTest> {
        None
    }

    /// Number of leading characters of its only operand, a string, that [`Self::evaluate`] depends on, so that it is
    /// evaluated once for all strings with the same prefix; `None`: all characters, or unknown.
    fn prefix_chars(&self) -> Option<usize> {
        None
    }

    /// The function with the values that its parameters have now; `None` if it has none.
    fn bound(&self) -> Option<Arc<dyn HostFunction>> {
        None
    }

    /// Type of the result: Boolean, a type stored as an integer, a float, or a string.
    fn data_type(&self) -> DataType;
}

type HostFunctionRef = Arc<dyn HostFunction>;

impl Expr {
    /// Adds the conditions that this one is the conjunction of.
    #[doc(hidden)]
    pub fn add_conjuncts<'a>(&'a self, into: &mut Vec<&'a Expr>) {
        match &self.kind {
            ExprKind::And(left, right) => {
                left.add_conjuncts(into);
                right.add_conjuncts(into);
            }
            _ => into.push(self),
        }
    }

    /// Column `index` of the input.
    pub fn column(index: usize, data_type: DataType, nullable: bool) -> Self {
        Self { kind: ExprKind::Column(index), data_type, nullable }
    }

    /// A constant.
    pub fn literal(value: Scalar, data_type: DataType) -> Self {
        let nullable = value == Scalar::Null;
        Self { kind: ExprKind::Literal(value), data_type, nullable }
    }

    /// Calls `visit` for this expression and all below it.
    pub fn visit(&self, visit: &mut impl FnMut(&Expr)) {
        visit(self);
        for child in self.children() {
            child.visit(visit);
        }
    }

    /// The expression with every input column replaced by `column(position)`.
    #[must_use]
    pub fn remap(&self, column: &impl Fn(usize) -> usize) -> Self {
        self.rebuilt(&|leaf| match leaf {
            Leaf::Column(position) => ExprKind::Column(column(position)),
            Leaf::Constant(kind) => kind.clone(),
        })
    }

    /// The expression with its columns and constants replaced by `of_leaf`; called for each constant of a list.
    #[must_use]
    #[doc(hidden)]
    pub fn rebuilt(&self, of_leaf: &dyn Fn(Leaf<'_>) -> ExprKind) -> Self {
        self.rebuilt_with(of_leaf, &Arc::clone)
    }

    /// The expression with the values that its parameters have now.
    #[must_use]
    #[doc(hidden)]
    pub fn bound(&self) -> Self {
        let of_leaf = |leaf: Leaf<'_>| match leaf {
            Leaf::Column(position) => ExprKind::Column(position),
            Leaf::Constant(kind) => match kind {
                ExprKind::Deferred(scalar) => scalar.bound().map_or_else(|| kind.clone(), ExprKind::Literal),
                kind => kind.clone(),
            },
        };
        self.rebuilt_with(&of_leaf, &|function| function.bound().unwrap_or_else(|| Arc::clone(function)))
    }

    fn rebuilt_with(
        &self,
        of_leaf: &dyn Fn(Leaf<'_>) -> ExprKind,
        of_function: &dyn Fn(&HostFunctionRef) -> HostFunctionRef,
    ) -> Self {
        let part = |expr: &Expr| expr.rebuilt_with(of_leaf, of_function);
        let boxed = |expr: &Expr| Box::new(part(expr));
        let kind = match &self.kind {
            ExprKind::Column(index) => of_leaf(Leaf::Column(*index)),
            ExprKind::Literal(_) | ExprKind::Deferred(_) => of_leaf(Leaf::Constant(&self.kind)),
            ExprKind::Arithmetic(op, a, b) => ExprKind::Arithmetic(*op, boxed(a), boxed(b)),
            ExprKind::Compare(op, a, b) => ExprKind::Compare(*op, boxed(a), boxed(b)),
            ExprKind::And(a, b) => ExprKind::And(boxed(a), boxed(b)),
            ExprKind::Or(a, b) => ExprKind::Or(boxed(a), boxed(b)),
            ExprKind::Not(a) => ExprKind::Not(boxed(a)),
            ExprKind::IsNull(a) => ExprKind::IsNull(boxed(a)),
            ExprKind::Negative(a) => ExprKind::Negative(boxed(a)),
            ExprKind::Cast(a) => ExprKind::Cast(boxed(a)),
            ExprKind::TryCast(a) => ExprKind::TryCast(boxed(a)),
            ExprKind::Function(function, arguments) => {
                ExprKind::Function(*function, arguments.iter().map(part).collect())
            }
            ExprKind::Average(a, b) => ExprKind::Average(boxed(a), boxed(b)),
            ExprKind::OrderWord(parts) => {
                let rebuilt = |of: &OrderPart| OrderPart { key: SortKey { expr: part(&of.key.expr), ..of.key }, ..*of };
                ExprKind::OrderWord(parts.iter().map(rebuilt).collect())
            }
            ExprKind::RowNumber { max } => ExprKind::RowNumber { max: *max },
            ExprKind::Moment { moment, scale, sums } => {
                ExprKind::Moment { moment: *moment, scale: *scale, sums: sums.iter().map(part).collect() }
            }
            ExprKind::Case { branches, otherwise } => ExprKind::Case {
                branches: branches.iter().map(|(when, then)| (part(when), part(then))).collect(),
                otherwise: otherwise.as_deref().map(boxed),
            },
            ExprKind::InList { operand, list, negated } => {
                let item = |value: &Scalar| {
                    let constant = match value {
                        Scalar::Deferred(scalar) => ExprKind::Deferred(Arc::clone(scalar)),
                        value => ExprKind::Literal(value.clone()),
                    };
                    match of_leaf(Leaf::Constant(&constant)) {
                        ExprKind::Literal(value) => value,
                        ExprKind::Deferred(scalar) => Scalar::Deferred(scalar),
                        _ => value.clone(),
                    }
                };
                ExprKind::InList { operand: boxed(operand), list: list.iter().map(item).collect(), negated: *negated }
            }
            ExprKind::Tabulated { operands, function } => {
                ExprKind::Tabulated { operands: operands.iter().map(part).collect(), function: of_function(function) }
            }
        };
        Self { kind, data_type: self.data_type.clone(), nullable: self.nullable }
    }

    /// Whether both give the same values for the same rows of one query. Deferred constants are the same only if they
    /// are the same object, and so are host functions unless they compare equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Identity::in_query(self) == Identity::in_query(other)
    }

    /// Calls `visit` for every input column that is read.
    pub fn visit_columns(&self, visit: &mut impl FnMut(usize)) {
        self.visit(&mut |expr| {
            if let ExprKind::Column(column) = expr.kind {
                visit(column);
            }
        });
    }

    /// Direct operands.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Deferred(_) | ExprKind::RowNumber { .. } => vec![],
            ExprKind::OrderWord(parts) => parts.iter().map(|part| &part.key.expr).collect(),
            ExprKind::Function(_, arguments) | ExprKind::Moment { sums: arguments, .. } => arguments.iter().collect(),
            ExprKind::Arithmetic(_, a, b)
            | ExprKind::Compare(_, a, b)
            | ExprKind::And(a, b)
            | ExprKind::Or(a, b)
            | ExprKind::Average(a, b) => {
                vec![a, b]
            }
            ExprKind::Not(a)
            | ExprKind::IsNull(a)
            | ExprKind::Negative(a)
            | ExprKind::Cast(a)
            | ExprKind::TryCast(a) => vec![a],
            ExprKind::InList { operand, .. } => vec![operand],
            ExprKind::Tabulated { operands, .. } => operands.iter().collect(),
            ExprKind::Case { branches, otherwise } => {
                let mut all: Vec<&Expr> = branches.iter().flat_map(|(when, then)| [when, then]).collect();
                all.extend(otherwise.as_deref());
                all
            }
        }
    }
}
